// weft eval sparse: policies of sparse decoding beside each other, at several budgets and lengths.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/counts_text.h"
#include "base/narrow.h"
#include "base/parse_number.h"
#include "base/shell_text.h"
#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/local_models.h"
#include "cli/output_file.h"
#include "cli/reuse_flags.h"
#include "cli/sparse_flags.h"
#include "cli/suggestion.h"
#include "engine/context_size.h"
#include "engine/kept_measurements.h"
#include "eval/dataset.h"
#include "eval/sparse_eval.h"
#include "eval/sparse_report.h"
#include "gguf/gguf.h"
#include "model/config.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{16} << 20;
constexpr int64_t kMostSettings = 256;
constexpr int32_t kMostTokens = 1 << 24;

struct EvalSparseFlags {
  ModelFlags model;
  std::string beside;  // more files of weights, with commas
  std::string task = "passkey";
  std::string policies = "dense,quest,labels,oracle";
  std::string budgets = "128,256,512,1024";
  std::string locks = "0";  // intervals; 0: none
  std::string lengths;      // "": three quarters of the context
  std::string file;
  std::string checkpoints = "select";
  int32_t n_trials = 20;
  uint64_t seed = 1;
  int32_t dense_layers = -1;  // --dense-layers, once the settings have it
  std::string html_file;      // "": none is written
  bool by_depth = false;
  bool json = false;
};

/// "128,256": of a flag, each at least `least`.
Result<std::vector<int32_t>> numbers_of(const std::string& flag, const std::string& list,
                                        int32_t least) {
  std::vector<int32_t> numbers;
  for (const std::string& item : split_list(list)) {
    int32_t n = 0;
    if (!parse_number(item, n) || n < least || n > kMostTokens) {
      return invalid_argument(
          fmt::format("{} {}: must be whole numbers from {} to {} with commas between, as 512,1024",
                      flag, list, least, kMostTokens));
    }
    if (std::ranges::count(numbers, n) == 0) numbers.push_back(n);
  }
  return numbers;
}

Result<std::vector<sparse::Checkpoint>> checkpoints_of(const EvalSparseFlags& flags) {
  std::vector<sparse::Checkpoint> checkpoints;
  for (const std::string& name : split_list(flags.checkpoints)) {
    const std::optional<sparse::Checkpoint> one = sparse::kCheckpoints.find(name);
    if (!one) {
      return invalid_argument(fmt::format("--checkpoints {}: must be of {}, with commas between",
                                          flags.checkpoints, sparse::kCheckpoints.listed()));
    }
    if (std::ranges::count(checkpoints, *one) == 0) checkpoints.push_back(*one);
  }
  if (flags.checkpoints != "select" && flags.locks == "0") {
    return invalid_argument("--checkpoints goes with --lock-intervals");
  }
  return checkpoints;
}

/// Each policy at each budget; dense has none.
Result<std::vector<sparse::SparseOptions>> settings_of(const EvalSparseFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> budgets,
                        numbers_of("--budgets", flags.budgets, 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> intervals,
                        numbers_of("--lock-intervals", flags.locks, 0));
  WEFT_ASSIGN_OR_RETURN(const std::vector<sparse::Checkpoint> checkpoints, checkpoints_of(flags));
  std::vector<sparse::SparseOptions> settings;
  std::vector<std::string> names;
  for (const std::string& name : split_list(flags.policies)) {
    if (std::ranges::count(names, name) > 0) continue;
    names.push_back(name);
    const std::optional<sparse::Policy> policy = sparse::kPolicies.find(name);
    if (!policy) {
      return invalid_argument(fmt::format("--policies {}: must be of {}, with commas between{}",
                                          name, sparse::kPolicies.listed(),
                                          did_you_mean(name, sparse::kPolicies.names())));
    }
    if (*policy == sparse::Policy::kDense) {
      settings.emplace_back();
      continue;
    }
    for (const int32_t budget : budgets) {
      sparse::SparseOptions setting{.policy = *policy, .budget_tokens = budget};
      if (flags.model.dense_layers >= 0) setting.dense_layers = flags.model.dense_layers;
      if (sparse::has_digest_types(*policy)) {
        setting.digest_type = *sparse::kDigestTypes.find(flags.model.digest_type);
      }
      for (const int32_t interval : intervals) {
        setting.lock.interval_tokens = interval;
        setting.lock.duration_tokens = sparse::usual_duration(interval);
        for (const sparse::Checkpoint checkpoint : checkpoints) {
          setting.lock.checkpoint = checkpoint;
          if (interval > 0 || checkpoint == checkpoints.front()) settings.push_back(setting);
        }
      }
    }
  }
  const auto none = [&](auto uses) { return std::ranges::none_of(settings, uses); };
  if (flags.locks != "0" && none(&sparse::SparseOptions::is_on)) {
    return invalid_argument(
        fmt::format("--lock-intervals: of policies that choose pages, and --policies {} has none",
                    flags.policies));
  }
  if (flags.model.digest_type != "int8" &&
      none([](const auto& one) { return sparse::has_digest_types(one.policy); })) {
    return invalid_argument(
        fmt::format("--digest-type: of quest, cuboid and gsa, and --policies {} has none of them",
                    flags.policies));
  }
  if (std::ssize(settings) > kMostSettings) {
    return invalid_argument(
        fmt::format("--policies and --budgets: {} runs of each text, {} at most", settings.size(),
                    kMostSettings));
  }
  return settings;
}

/// Sets the lengths where none are given, and the context that they and an answer need.
Status choose_lengths(App& app, int32_t answer, EvalSparseFlags& flags,
                      std::vector<int32_t>& lengths) {
  if (!flags.lengths.empty()) {
    WEFT_ASSIGN_OR_RETURN(lengths, numbers_of("--lengths", flags.lengths, 1));
  }
  WEFT_ASSIGN_OR_RETURN(const engine::ContextSize context, context_of(app, flags.model));
  if (lengths.empty()) lengths = {narrow<int32_t>(int64_t{context.tokens} * 3 / 4)};
  const int32_t longest = *std::ranges::max_element(lengths);
  if (longest > context.most_tokens - answer) {
    return resource_exhausted(fmt::format(
        "--lengths {}: with {} tokens for the answer the model's context of {} holds {} at most",
        longest, answer, context.most_tokens, std::max(0, context.most_tokens - answer)));
  }
  if (flags.model.context_tokens == 0) flags.model.context_tokens = longest + answer;
  if (longest + answer > flags.model.context_tokens) {
    return resource_exhausted(
        fmt::format("--lengths {}: with {} tokens for the answer it does not fit -c {}", longest,
                    answer, flags.model.context_tokens));
  }
  return Status::ok();
}

/// What the task is about: a text or examples.
Status read_material(App& app, eval::SparseTask task, const EvalSparseFlags& flags,
                     eval::SparseTaskOptions& cases) {
  if (flags.file.empty()) return Status::ok();
  if (eval::has_examples(task)) {
    WEFT_ASSIGN_OR_RETURN(cases.examples, eval::read_dataset(app.env, flags.file, 0));
    return Status::ok();
  }
  cases.text.emplace(flags.file);
  WEFT_ASSIGN_OR_RETURN(cases.text->text, read_file(app.env, flags.file, kMaxTextBytes));
  return Status::ok();
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json row_json(const eval::SparseRow& r) {
  return {{"task", r.task},
          {"weights", r.weights.empty() ? Json() : Json(r.weights)},
          {"policy", r.policy},
          {"budget", or_null(r.budget_tokens)},
          {"length", r.length_tokens},
          {"lock_interval", or_null(r.lock_interval)},
          {"checkpoint", r.checkpoint.empty() ? Json() : Json(r.checkpoint)},
          {"update_rate", or_null(r.update_rate)},
          {"depth", or_null(r.depth)},
          {"trials", r.trials},
          {"accuracy", or_null(r.accuracy)},
          {"perplexity", or_null(r.perplexity)},
          {"kl", or_null(r.kl)},
          {"f1", or_null(r.f1)},
          {"rouge_l", or_null(r.rouge_l)},
          {"mass_kept", or_null(r.mass_kept)},
          {"top10_recall", or_null(r.top10_recall)},
          {"bytes_read_share", or_null(r.bytes_read_share)},
          {"tokens_per_s", or_null(r.tokens_per_s)},
          {"ms_per_token",
           {{"digest", or_null(r.digest_ms)},
            {"score", or_null(r.score_ms)},
            {"choose", or_null(r.choose_ms)},
            {"attend", or_null(r.attend_ms)},
            {"other", or_null(r.other_ms)}}},
          {"mass_by_layer", r.mass_by_layer}};
}

/// The measure that the task has.
std::string result_text(const eval::SparseRow& r) {
  if (r.perplexity && r.kl) return fmt::format("ppl {:.3f} kl {:.4f}", *r.perplexity, *r.kl);
  if (r.perplexity) return fmt::format("perplexity {:.3f}", *r.perplexity);
  if (r.rouge_l) return fmt::format("Rouge-L {:.3f}", *r.rouge_l);
  if (r.f1) return fmt::format("F1 {:.3f}", *r.f1);
  return fmt::format("{:.1f} % right", 100 * r.accuracy.value_or(0));
}

/// "quest/8": with what is chosen kept, and compared each 8 tokens; "quest/8 dense": by a dense
/// pass.
std::string policy_text(const eval::SparseRow& r) {
  if (!r.lock_interval) return r.policy;
  const bool is_dense = r.checkpoint == sparse::kCheckpoints.name(sparse::Checkpoint::kDense);
  return fmt::format("{}/{}{}", r.policy, *r.lock_interval, is_dense ? " dense" : "");
}

void print_rows(const std::vector<eval::SparseRow>& rows) {
  fmt::print("the text is prefilled densely, {}\n",
             !rows.empty() && rows.front().perplexity
                 ? fmt::format("the last {} tokens come one by one", eval::kScoredTokens)
                 : "the question comes token by token");
  fmt::print("{:<15} {:>6} {:>7} {:>5}  {:<20} {:>6} {:>7} {:>6} {:>9}\n", "policy", "budget",
             "length", "depth", "result", "mass", "top 10", "bytes", "tokens/s");
  const auto share = [](const std::optional<double>& x) {
    return x ? fmt::format("{:.3f}", *x) : std::string("-");
  };
  std::string weights;
  for (const eval::SparseRow& r : rows) {
    if (r.weights != weights) fmt::print("{}\n", one_line(r.weights));
    weights = r.weights;
    fmt::print("{:<15} {:>6} {:>7} {:>5}  {:<20} {:>6} {:>7} {:>6} {:>9.1f}\n", policy_text(r),
               r.budget_tokens ? fmt::format("{}", *r.budget_tokens) : "all", r.length_tokens,
               r.depth ? fmt::format("{:.2f}", *r.depth) : "all", result_text(r),
               share(r.mass_kept), share(r.top10_recall), share(r.bytes_read_share),
               r.tokens_per_s.value_or(0));
  }
}

/// What makes these figures again on such a machine: threads and instruction set are left out.
std::string command_of(const EvalSparseFlags& flags, std::span<const int32_t> lengths) {
  std::string text = fmt::format(
      "weft eval sparse -m {} --task {} --policies {} --budgets {} --lengths {} --trials {}",
      shell_path(flags.model.model), flags.task, flags.policies, flags.budgets,
      fmt::join(lengths, ","), flags.n_trials);
  if (!flags.beside.empty()) text += fmt::format(" --beside {}", shell_path(flags.beside));
  if (!flags.file.empty()) text += fmt::format(" -f {}", shell_path(flags.file));
  if (flags.locks != "0") text += fmt::format(" --lock-intervals {}", flags.locks);
  if (flags.checkpoints != "select") text += fmt::format(" --checkpoints {}", flags.checkpoints);
  if (flags.seed != 1) text += fmt::format(" --seed {}", flags.seed);
  if (flags.model.dense_layers >= 0) {
    text += fmt::format(" --dense-layers {}", flags.model.dense_layers);
  }
  if (flags.model.digest_type != "int8") {
    text += fmt::format(" --digest-type {}", flags.model.digest_type);
  }
  if (flags.model.page_tokens > 0)
    text += fmt::format(" --page-tokens {}", flags.model.page_tokens);
  if (flags.model.cache_type_k != "f16") text += fmt::format(" -ctk {}", flags.model.cache_type_k);
  if (flags.model.cache_type_v != "f16") text += fmt::format(" -ctv {}", flags.model.cache_type_v);
  if (flags.by_depth) text += " --by-depth";
  return text;
}

/// "2 of 30"; asked: --dense-layers, or less than 0.
std::string dense_layers_text(const engine::Engine& engine, int32_t asked) {
  sparse::SparseOptions any{.policy = sparse::kUsualPolicy};
  if (asked >= 0) any.dense_layers = asked;
  const auto& layers = engine.model().config().layers;
  const auto n_full = std::ranges::count(layers, 0, &model::LayerConfig::window_tokens);
  const auto n_selecting = std::ranges::count(engine.selecting_layers(any), true);
  return fmt::format("{} of {}{}", n_full - n_selecting, n_full,
                     n_full < std::ssize(layers) ? " that see all tokens" : "");
}

eval::SparseReportHead head_of(App& app, const engine::Engine& engine, const EvalSparseFlags& flags,
                               const std::string& command) {
  return {.model = engine.model().config().name,
          .cpu = engine::cpu_name(app.env),
          .isa = kernels::isa_name(engine.context().isa),
          .threads = fmt::format("{}", engine.context().pool.size()),
          .kv_types = fmt::format("{}/{}", flags.model.cache_type_k, flags.model.cache_type_v),
          .page_tokens = fmt::format("{}", engine.kv_usage().page_tokens),
          .dense_layers = dense_layers_text(engine, flags.dense_layers),
          .seed = fmt::format("{}", flags.seed),
          .date = date_of(app.env.unix_ms()),
          .version = WEFT_VERSION,
          .command_line = command};
}

std::vector<std::string> beside_of(const EvalSparseFlags& flags) {
  return flags.beside.empty() ? std::vector<std::string>() : split_list(flags.beside);
}

/// What cannot be is said before it begins.
Status check_settings(engine::Engine& engine, std::span<const sparse::SparseOptions> settings) {
  for (const sparse::SparseOptions& setting : settings) {
    const int32_t least = sparse::kLeastPages * engine.kv_usage().page_tokens;
    if (setting.is_on() && setting.budget_tokens < least) {
      return invalid_argument(
          fmt::format("--budgets {}: at least {} are needed, two pages of the KV cache",
                      setting.budget_tokens, least));
    }
    WEFT_RETURN_IF_ERROR(engine.use_sparse(setting));
  }
  return Status::ok();
}

/// Before the first of them is measured: a table of other models' figures compares nothing. The
/// files of `beside` are added to `files`.
Status check_same_shape(App& app, const EvalSparseFlags& flags, const std::string& beside,
                        std::vector<std::string>& files) {
  const auto open = [&](const std::string& name) -> Result<std::shared_ptr<const gguf::File>> {
    WEFT_ASSIGN_OR_RETURN(const std::string path, resolve_model(app.env, name, app.models_dir));
    return gguf::File::open(app.env, path);
  };
  WEFT_ASSIGN_OR_RETURN(const auto own, open(flags.model.model));
  WEFT_ASSIGN_OR_RETURN(const auto other, open(beside));
  for (const gguf::FilePart& part : other->parts()) files.push_back(part.path);
  WEFT_ASSIGN_OR_RETURN(const model::ModelConfig a, model::read_config(*own));
  WEFT_ASSIGN_OR_RETURN(const model::ModelConfig b, model::read_config(*other));
  if (a.architecture == b.architecture && a.n_layers == b.n_layers && a.n_embd == b.n_embd &&
      a.vocab_size == b.vocab_size) {
    return Status::ok();
  }
  return invalid_argument(fmt::format(
      "--beside {}: is another model ({}, {} layers of {}) than -m ({}, {} of {}), not "
      "another file of its weights",
      beside, b.architecture, b.n_layers, b.n_embd, a.architecture, a.n_layers, a.n_embd));
}

/// "smollm2-135m-q8_0": the name of a file of weights in tables.
std::string weights_name(const std::string& model) {
  return std::filesystem::path(model).stem().string();
}

/// Runs of one file of weights after another; the file that is open last describes the report.
class EvalSparseRun {
 public:
  /// other_files: of weights, beside those of the first model.
  EvalSparseRun(App& app, const EvalSparseFlags& flags, eval::SparseEvalOptions options,
                std::vector<std::string> other_files)
      : app_(app),
        flags_(flags),
        options_(std::move(options)),
        other_files_(std::move(other_files)) {}

  Status run(const std::string& model, bool is_one_of_several) {
    flags_.model.model = model;
    engine_ = nullptr;  // its memory first
    WEFT_ASSIGN_OR_RETURN(engine_, open_engine(app_, flags_.model));
    WEFT_RETURN_IF_ERROR(check_settings(*engine_, options_.settings));
    WEFT_RETURN_IF_ERROR(open_report());
    Progress progress("sparse");
    WEFT_ASSIGN_OR_RETURN(eval::SparseEvalResults results,
                          eval::sparse_eval(*engine_, options_, [&](int64_t done, int64_t total) {
                            progress.show(done, total, "answers");
                            return !interrupted();
                          }));
    n_left_out_ += results.n_left_out;
    for (eval::SparseRow& row : results.rows) {
      if (is_one_of_several) row.weights = weights_name(model);
      rows_.push_back(std::move(row));
    }
    return Status::ok();
  }

  /// n_files_left: of weights, which were not opened.
  Status finish(const std::string& command, int64_t n_files_left) {
    const std::string unfinished =
        is_stopped()
            ? fmt::format("interrupted: {}{} left out", counted(n_left_out_, "text"),
                          n_files_left > 0
                              ? fmt::format(" and {} of weights", counted(n_files_left, "file"))
                              : std::string())
            : std::string();
    if (rows_.empty() && !flags_.json) return cancelled(unfinished);
    if (flags_.json) {
      Json results = Json::array();
      for (const eval::SparseRow& row : rows_) results.push_back(row_json(row));
      print_json({{"results", std::move(results)}, {"unfinished", is_stopped()}});
    } else {
      print_rows(rows_);
    }
    if (report_ && !rows_.empty()) {
      for (eval::SparseRow& row : rows_) row.policy = policy_text(row);  // a line of its own
      eval::SparseReportHead head = head_of(app_, *engine_, flags_, command);
      head.unfinished = unfinished;
      const std::string page = eval::sparse_report_html(head, rows_);
      WEFT_RETURN_IF_ERROR(report_->append(std::as_bytes(std::span(page))));
      WEFT_RETURN_IF_ERROR(report_->commit());
    }
    if (!is_stopped()) return Status::ok();
    WEFT_RETURN_IF_ERROR(output_written());
    return cancelled(rows_.empty() ? unfinished
                                   : unfinished + "; the results are those of the others");
  }
  bool is_stopped() const { return n_left_out_ > 0; }

 private:
  /// What is measured must not be written over.
  Status open_report() {
    if (flags_.html_file.empty() || report_) return Status::ok();
    std::vector<std::string> inputs = model_files(*engine_);
    inputs.push_back(flags_.file);
    inputs.insert(inputs.end(), other_files_.begin(), other_files_.end());
    WEFT_ASSIGN_OR_RETURN(AtomicFile file, create_output(app_.env, flags_.html_file, inputs));
    report_.emplace(std::move(file));
    return Status::ok();
  }

  App& app_;
  EvalSparseFlags flags_;
  eval::SparseEvalOptions options_;
  std::vector<std::string> other_files_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<AtomicFile> report_;
  std::vector<eval::SparseRow> rows_;
  int64_t n_left_out_ = 0;
};

Status run_eval_sparse(App& app, EvalSparseFlags flags) {
  if (flags.model.kv_limit_bytes > 0) {
    return invalid_argument(
        "--kv-limit: no part of eval sparse, which changes what the KV cache keeps; a smaller -c "
        "takes less memory");
  }
  eval::SparseEvalOptions options;
  options.task = *eval::kSparseTasks.find(flags.task);
  options.by_depth = flags.by_depth;
  if (flags.by_depth && !eval::has_needles(options.task)) {
    return invalid_argument(
        fmt::format("--by-depth: of the tasks passkey and needles, --task {} hides nothing in its "
                    "text",
                    flags.task));
  }
  options.cases.n_trials = flags.n_trials;
  options.cases.seed = flags.seed;
  WEFT_ASSIGN_OR_RETURN(options.settings, settings_of(flags));
  WEFT_RETURN_IF_ERROR(read_material(app, options.task, flags, options.cases));
  const int32_t answer = eval::most_answer_tokens(options.task, options.cases.examples);
  WEFT_RETURN_IF_ERROR(choose_lengths(app, answer, flags, options.lengths));
  const std::string command = command_of(flags, options.lengths);
  std::vector<std::string> models{flags.model.model}, other_files;
  for (const std::string& name : beside_of(flags)) {
    if (name.empty()) {
      return invalid_argument(
          fmt::format("--beside {}: must be files with commas between", flags.beside));
    }
    WEFT_RETURN_IF_ERROR(check_same_shape(app, flags, name, other_files));
    models.push_back(name);
  }
  flags.model.n_contexts = 2;  // what texts share, and one that goes on from it
  flags.dense_layers = std::exchange(flags.model.dense_layers, -1);  // the settings have both
  flags.model.digest_type = "int8";
  EvalSparseRun run(app, flags, std::move(options), std::move(other_files));
  int64_t n_files_left = std::ssize(models);
  for (const std::string& model : models) {
    WEFT_RETURN_IF_ERROR(run.run(model, models.size() > 1));
    --n_files_left;
    if (run.is_stopped()) break;
  }
  return run.finish(command, n_files_left);
}

}  // namespace

void add_eval_sparse_command(Command eval, App& app) {
  auto flags = std::make_shared<EvalSparseFlags>();
  Command command = eval.add_command("sparse", "Policies of sparse decoding beside each other");
  add_model_flags(command, flags->model);
  add_page_flags(command, flags->model);
  command.get_option("--context").describe("context in tokens (default: the longest text's)");
  command.get_option("--kv-limit").describe("not of eval sparse: a smaller -c takes less memory");
  command
      .add_option("--beside", flags->beside,
                  "more files of the model's weights, with commas: each is measured on the same "
                  "texts, as for other weight types")
      .value_name("FILES");
  command.add_option("--task", flags->task, fmt::format("what is asked (default: {})", flags->task))
      .one_of(eval::kSparseTasks.names());
  command.add_option("-f,--file", flags->file,
                     "the text, or for qa, summary and fewshot examples, as JSON");
  command.add_option(
      "--policies", flags->policies,
      fmt::format("of {}, with commas (default: {})", sparse::kPolicies.listed(), flags->policies));
  command.add_option("--budgets", flags->budgets,
                     fmt::format("tokens, with commas (default: {})", flags->budgets));
  command.add_option("--lock-intervals", flags->locks,
                     "also what is chosen kept, and compared each so many tokens, with commas; 0 "
                     "is each token by itself (default: 0)");
  command.add_option("--checkpoints", flags->checkpoints,
                     "with --lock-intervals: what it is compared with, select or dense (see weft "
                     "generate --help), or both with a comma (default: select)");
  command
      .add_option("--lengths", flags->lengths,
                  "tokens of a whole prompt, with commas (default: three quarters of the context)")
      .may_be_empty();
  command.add_option("--trials", flags->n_trials, "prompts of each length (default: 20)")
      .in_range(1, 1000);
  command.add_flag("--by-depth", flags->by_depth,
                   "of passkey and needles also by where in the text the needle is");
  command.add_option("--seed", flags->seed, "of needles and places in the text (default: 1)");
  command
      .add_option("--html", flags->html_file,
                  "write a report with tables and plots to this file, a page that needs no other")
      .value_name("FILE");
  command.add_flag("--json", flags->json, "print the results as JSON");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_eval_sparse(app, *flags); }; });
}

}  // namespace weft::cli
