// weft bench retrieval: how often the passages that hold the answer are among those that ask takes.
// No KV and no answer: only the search, so 1,300 questions over 1,704 passages take 30 s. A model
// is needed for its vocabulary, as passages are cut and counted in its tokens. The figures of
// docs/measurements.md, "Retrieval", are this command's.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/app.h"
#include "cli/local_models.h"
#include "eval/retrieval_eval.h"
#include "gguf/gguf.h"

namespace weft::cli {
namespace {

struct RetrievalFlags {
  std::string model;
  std::vector<std::string> files;
  int n_passages = 4;
  bool json = false;
};

/// Even and odd questions are reported apart, so that a choice made on one half can be tested on
/// the other.
const char* half_name(eval::Half half) {
  switch (half) {
    case eval::Half::kEven:
      return "even";
    case eval::Half::kOdd:
      return "odd";
    case eval::Half::kAll:
      break;
  }
  return "all";
}

Json share_json(const eval::Interval& share) {
  return {{"value", share.value}, {"low", share.low}, {"high", share.high}};
}

/// Shares come with their 95 % intervals; passages and tokens are means a question.
Json figures_json(const eval::RetrievalFigures& f) {
  return {{"gold", share_json(f.gold)},
          {"passages", f.passages},
          {"tokens", f.tokens},
          {"not_in_documents", share_json(f.not_in_documents)}};
}

/// With a single set there is nothing foreign.
std::string foreign_text(const eval::RetrievalResult& result) {
  if (!result.foreign) return "-";
  const eval::Interval& share = result.foreign->not_in_documents;
  return fmt::format("{:.1f}% [{:.1f} {:.1f}]", 100 * share.value, 100 * share.low,
                     100 * share.high);
}

void print_results(const std::vector<eval::RetrievalResult>& results) {
  fmt::print(
      "gold: share of the passages marked as gold that are shown, with 95 % intervals; none: "
      "answered \"not in the documents\"; foreign: asked over the other sets' passages\n"
      "{:<14} {:<5} {:>5} | {:^18} {:>6} | {:^18} {:>6} {:>5} {:>5} | {:^20} | {:^16}\n",
      "set", "half", "n", "plain: gold", "tokens", "chosen: gold", "tokens", "shown", "none",
      "gold: difference", "foreign: none");
  for (const eval::RetrievalResult& r : results) {
    fmt::print(
        "{:<14} {:<5} {:>5} | {:.3f} [{:.3f} {:.3f}] {:>5.0f} | {:.3f} [{:.3f} {:.3f}] {:>5.0f} "
        "{:>5.2f} {:>4.1f}% | {:+.3f} [{:+.3f} {:+.3f}] | {}\n",
        r.name, half_name(r.half), r.chosen.questions, r.plain.gold.value, r.plain.gold.low,
        r.plain.gold.high, r.plain.tokens, r.chosen.gold.value, r.chosen.gold.low,
        r.chosen.gold.high, r.chosen.tokens, r.chosen.passages,
        100 * r.chosen.not_in_documents.value, r.gold_difference.value, r.gold_difference.low,
        r.gold_difference.high, foreign_text(r));
  }
}

/// Removes the folder at the end, whatever happened.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The same passages twice in one index would be copies of each other, which the search leaves out.
/// By the file and not by its name, so that a link is seen, too.
Status refuse_twice(const std::vector<std::string>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      std::error_code ignored;  // what is not there is said when it is read
      if (!std::filesystem::equivalent(files[i], files[k], ignored)) continue;
      return invalid_argument(
          fmt::format("--file {}: the same file as {}; give each one once", files[i], files[k]));
    }
  }
  return Status::ok();
}

/// What the rows of a file are called: its name without the ending, or, where that is another's,
/// too, or the sum's, its path as it was given.
std::vector<std::string> set_names(const std::vector<std::string>& files) {
  std::vector<std::string> stems;
  for (const std::string& file : files) {
    stems.push_back(std::filesystem::path(file).stem().string());
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < files.size(); ++i) {
    const bool is_clear = stems[i] != "all" && std::ranges::count(stems, stems[i]) == 1;
    names.push_back(is_clear ? stems[i] : files[i] == "all" ? "./all" : files[i]);
  }
  return names;
}

/// All sets go into one index, so each one's passages are distractors of the others'.
Status run_retrieval(App& app, const RetrievalFlags& flags) {
  WEFT_RETURN_IF_ERROR(refuse_twice(flags.files));
  const std::vector<std::string> names = set_names(flags.files);
  std::vector<eval::RetrievalSet> sets;
  for (const std::string& file : flags.files) {
    eval::RetrievalSet set{.name = names[sets.size()], .examples = {}};
    WEFT_ASSIGN_OR_RETURN(set.examples, eval::read_dataset(app.env, file, 0));
    sets.push_back(std::move(set));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string path,
                        resolve_model(app.env, flags.model, app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  WEFT_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::open(*file));
  std::error_code error;
  const auto temp = std::filesystem::temp_directory_path(error);
  if (error) return io_error("no folder for temporary files: " + error.message());
  WEFT_ASSIGN_OR_RETURN(std::string made,
                        app.env.make_temporary_dir((temp / "weft_retrieval_").string()));
  const TemporaryFolder folder(std::move(made));
  auto progress = std::make_unique<Progress>("retrieval");
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<eval::RetrievalResult> results,
      eval::evaluate_retrieval(app.env, tokenizer, sets,
                               {.n_passages = flags.n_passages, .folder = folder.path()},
                               [&](int64_t done, int64_t total) {
                                 progress->show(done, total, "questions");
                                 return !interrupted();
                               }));
  progress.reset();
  if (!flags.json) {
    print_results(results);
    return Status::ok();
  }
  Json list = Json::array();
  for (const eval::RetrievalResult& r : results) {
    list.push_back({{"set", r.name},
                    {"half", half_name(r.half)},
                    {"questions", r.chosen.questions},
                    {"plain", figures_json(r.plain)},
                    {"chosen", figures_json(r.chosen)},
                    {"gold_difference", share_json(r.gold_difference)},
                    {"foreign_not_in_documents",
                     r.foreign ? share_json(r.foreign->not_in_documents) : Json(nullptr)}});
  }
  print_json({{"results", std::move(list)}});
  return Status::ok();
}

}  // namespace

void add_bench_retrieval_command(Command bench, App& app) {
  auto flags = std::make_shared<RetrievalFlags>();
  Command command =
      bench.add_command("retrieval", "Whether ask finds the passages that hold the answer");
  command.add_option("-m,--model", flags->model, "GGUF file or model name, for its vocabulary")
      .required();
  command
      .add_repeated("-f,--file", flags->files,
                    "questions with gold passages, as JSON; may be given several times")
      .required();
  command.add_option("--chunks", flags->n_passages, "passages shown at most (default: 4)")
      .in_range(1, 1024);
  command.add_flag("--json", flags->json, "print the report as JSON");
  add_verbose_flag(command);
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_retrieval(app, *flags); }; });
}

}  // namespace weft::cli
