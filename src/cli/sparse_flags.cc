#include "cli/sparse_flags.h"

#include <fmt/format.h>

#include <vector>

#include "base/counts_text.h"
#include "base/log.h"
#include "engine/kv_size.h"
#include "sparse/selector.h"
#include "sparse/sparse_config.h"

namespace weft::cli {

void add_page_flags(Command command, ModelFlags& flags) {
  command
      .add_option("--dense-layers", flags.dense_layers,
                  fmt::format("sparse decoding: so many of the first layers that see all tokens "
                              "read all pages (default: {}, fewer where the others have windows)",
                              sparse::kUsualDenseLayers))
      .in_range(0, 1 << 20);
  std::vector<std::string> types;
  for (const auto& type : sparse::kDigestTypes) types.push_back(type.name);
  command
      .add_option("--digest-type", flags.digest_type,
                  "sparse decoding: what quest, cuboid and gsa keep of a page in (default: int8)")
      .one_of(types);
  command
      .add_option("--page-tokens", flags.page_tokens,
                  fmt::format("tokens of a page of the KV cache, which sparse decoding chooses "
                              "among (default: {})",
                              engine::kKvPageTokens))
      .must([](double n) { return n == 16 || n == 32 || n == 64 || n == 128 || n == 256; },
            "16, 32, 64, 128 or 256");
}

namespace {

std::vector<Flag> add_lock_flags(Command command, ModelFlags& flags) {
  const sparse::LockOptions usual;
  return {command
              .add_option("--lock-interval", flags.lock_interval,
                          "sparse decoding: pages are chosen once, kept, and compared with a new "
                          "choice each so many tokens; for gsa with some 30 % of the pages, as "
                          "other policies lose more by it")
              .in_range(1, 1 << 20),
          command
              .add_option("--lock-duration", flags.lock_duration,
                          fmt::format("with --lock-interval: after so many tokens they are chosen "
                                      "anew, compared or not (default: {}, or twice the interval)",
                                      usual.duration_tokens))
              .in_range(1, 1 << 20),
          command
              .add_option("--update-threshold", flags.update_threshold,
                          fmt::format("with --lock-interval: more differences than that replace "
                                      "what a KV head keeps (default: {})",
                                      usual.update_threshold))
              .in_range(0, 1 << 20),
          command
              .add_option("--checkpoint", flags.checkpoint,
                          fmt::format("with --lock-interval: what is kept is compared with what "
                                      "the policy chooses (select, the default), or with what gets "
                                      "most attention when the tokens since then run again over "
                                      "all pages, which makes their K and V exact (dense; at most "
                                      "{} tokens)",
                                      sparse::kMostRewritten))
              .one_of({"select", "dense"})};
}

}  // namespace

Flag add_sparse_flags(Command command, ModelFlags& flags) {
  sparse::SparseOptions& o = flags.sparse;
  std::vector<std::string> names;
  std::string help = "sparse decoding: which pages of the KV cache a new token reads:";
  for (const auto& policy : sparse::kPolicies) {
    names.push_back(policy.name);
    help += fmt::format("{} {}, {}", names.size() == 1 ? "" : ";", policy.name, policy.help);
  }
  Flag sparse =
      command
          .add_option("--sparse", flags.sparse_policy,
                      fmt::format("{} (default: dense, or {} where one of the next three is given)",
                                  help, sparse::kPolicies.name(sparse::kUsualPolicy)))
          .one_of(names);
  Flag budget = command
                    .add_option("--budget", o.budget_tokens,
                                "sparse decoding: tokens that each KV head of a layer reads at "
                                "most, in whole pages")
                    .in_range(1, 1 << 30);
  const auto is_share = [](double share) { return share > 0 && share <= 1; };
  Flag ratio = command
                   .add_option("--sparse-ratio", o.ratio,
                               "sparse decoding: the share of the pages that it reads")
                   .must(is_share, "a number over 0 and at most 1")
                   .excludes(budget);
  Flag retain =
      command
          .add_option(
              "--retain", o.retain,
              "sparse decoding: as many pages as get this share of the attention, as far as the "
              "policy can tell, and half of them at most; each KV head its own")
          .must(is_share, "a number over 0 and at most 1")
          .excludes(budget)
          .excludes(ratio);
  Flag config = command
                    .add_option("--sparse-config", flags.sparse_config,
                                "sparse decoding: a YAML file that says policy, share and locks, "
                                "in place of these flags: kvstar: {base_method: gsa, "
                                "checkpoint_interval: 8, lock_duration: 16, update_threshold: 2, "
                                "sparse_ratio: 0.3}")
                    .value_name("FILE");
  for (Flag& flag : add_lock_flags(command, flags)) config.excludes(flag);
  config.excludes(sparse).excludes(budget).excludes(ratio).excludes(retain);
  add_page_flags(command, flags);
  return sparse;
}

bool asks_for_sparse(const ModelFlags& flags) {
  if (!flags.sparse_config.empty()) return true;
  const sparse::SparseOptions& o = flags.sparse;
  const bool is_dense = flags.sparse_policy == sparse::kPolicies.name(sparse::Policy::kDense);
  return !is_dense &&
         (!flags.sparse_policy.empty() || o.budget_tokens != 0 || o.ratio != 0 || o.retain != 0);
}

namespace {

/// Numbers of locks without an interval, or locks where nothing is chosen, are mistakes.
Status add_locks(const ModelFlags& flags, sparse::SparseOptions& options) {
  const char* asked = flags.lock_interval > 0       ? "--lock-interval"
                      : flags.lock_duration > 0     ? "--lock-duration"
                      : flags.update_threshold >= 0 ? "--update-threshold"
                      : !flags.checkpoint.empty()   ? "--checkpoint"
                                                    : nullptr;
  if (asked == nullptr) return Status::ok();
  if (!options.is_on()) {
    return invalid_argument(
        flags.sparse_policy.empty()
            ? fmt::format("{} goes with --budget, --sparse-ratio or --retain", asked)
            : fmt::format("{} goes with a --sparse policy that chooses pages, and {} reads all",
                          asked, flags.sparse_policy));
  }
  if (flags.lock_interval == 0) {
    return invalid_argument(fmt::format("{} goes with --lock-interval", asked));
  }
  options.lock.interval_tokens = flags.lock_interval;
  options.lock.duration_tokens =
      flags.lock_duration > 0 ? flags.lock_duration : sparse::usual_duration(flags.lock_interval);
  if (flags.update_threshold >= 0) options.lock.update_threshold = flags.update_threshold;
  if (!flags.checkpoint.empty()) {
    options.lock.checkpoint = *sparse::kCheckpoints.find(flags.checkpoint);
  }
  return Status::ok();
}

}  // namespace

Result<sparse::SparseOptions> sparse_options(Env& env, const ModelFlags& flags) {
  if (!flags.sparse_config.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::string yaml,
                          read_file(env, flags.sparse_config, sparse::kMostConfigBytes));
    WEFT_ASSIGN_OR_RETURN(sparse::SparseOptions options,
                          sparse::parse_sparse_config(yaml, flags.sparse_config));
    if (flags.dense_layers >= 0) options.dense_layers = flags.dense_layers;
    options.digest_type = *sparse::kDigestTypes.find(flags.digest_type);
    options.measure_every = flags.sparse.measure_every;
    return options;
  }
  sparse::SparseOptions options = flags.sparse;
  options.digest_type = *sparse::kDigestTypes.find(flags.digest_type);
  if (flags.dense_layers >= 0) options.dense_layers = flags.dense_layers;
  const char* amount = options.budget_tokens != 0 ? "--budget"
                       : options.ratio != 0       ? "--sparse-ratio"
                       : options.retain != 0      ? "--retain"
                                                  : nullptr;
  if (!flags.sparse_policy.empty()) {
    options.policy = *sparse::kPolicies.find(flags.sparse_policy);
  } else if (amount != nullptr) {
    options.policy = sparse::kUsualPolicy;
  }
  WEFT_RETURN_IF_ERROR(add_locks(flags, options));
  if (options.is_on()) return options;
  if (amount != nullptr) {
    return invalid_argument(
        fmt::format("{} goes with a --sparse policy, and dense reads everything", amount));
  }
  if (flags.dense_layers >= 0 || options.digest_type != kernels::DigestType::kInt8) {
    return invalid_argument(
        fmt::format("{} goes with --budget, --sparse-ratio or --retain",
                    flags.dense_layers >= 0 ? "--dense-layers" : "--digest-type"));
  }
  return options;
}

namespace {

Json locks_json(const sparse::LockOptions& o, const sparse::SparseCounters& counters) {
  const sparse::LockCounters& c = counters.locks;
  const auto share = [](double a, double b) { return b > 0 ? Json(a / b) : Json(); };
  const bool is_dense = o.checkpoint == sparse::Checkpoint::kDense;
  Json json = {{"interval", o.interval_tokens},
               {"duration", o.duration_tokens},
               {"update_threshold", o.update_threshold},
               {"checkpoint", sparse::kCheckpoints.name(o.checkpoint)},
               {"locks", c.locks},
               {"unlocks", c.unlocks},
               {"checkpoints", c.checkpoints},
               {"kept", c.kept},
               {"updated", c.updated},
               {"update_rate", share(c.updated, c.kept + c.updated)},
               {"locked_reads", c.locked_reads},
               {"compared_drafts", c.compared_drafts},
               {"inconsistencies", c.inconsistencies}};
  if (!is_dense) return json;
  json["dense_passes"] = counters.dense_passes;
  json["rewritten_tokens"] = counters.rewritten_tokens;
  json["drift"] = share(counters.drift, counters.dense_passes);
  return json;
}

}  // namespace

void add_sparse_json(const engine::Engine& engine, Json& json) {
  if (engine.selector() == nullptr) return;
  const sparse::SparseOptions& o = engine.sparse_options();
  const sparse::SparseCounters& c = engine.selector()->counters();
  const int64_t all =
      c.reads + c.reads_in_dense_layers + c.reads_within_budget + c.reads_in_dense_passes;
  Json sparse = {{"policy", sparse::kPolicies.name(o.policy)}};
  if (o.budget_tokens > 0) sparse["budget"] = o.budget_tokens;
  if (o.ratio > 0) sparse["ratio"] = o.ratio;
  if (o.retain > 0) sparse["retain"] = o.retain;
  sparse["reads"] = all;
  sparse["dense_reads"] = {{"dense_layers", c.reads_in_dense_layers},
                           {"within_budget", c.reads_within_budget},
                           {"dense_passes", c.reads_in_dense_passes}};
  sparse["pages"] = c.pages;
  sparse["pages_read"] = c.pages_read;
  sparse["kv_bytes_read"] = c.kv_bytes_read;
  sparse["kv_bytes_saved"] = c.kv_bytes - c.kv_bytes_read;
  sparse["index_bytes_read"] = c.index_bytes_read;
  const sparse::ReadQuality q = c.all_quality();
  sparse["mass_kept"] = q.reads > 0 ? Json(q.mass / q.reads) : Json();
  sparse["top10_recall"] = q.reads > 0 ? Json(q.top10 / q.reads) : Json();
  sparse["measured_reads"] = q.reads;
  if (o.lock.is_on()) sparse["locks"] = locks_json(o.lock, c);
  sparse["select_ms"] = {
      {"digest", 1e-6 * c.digest_ns}, {"score", 1e-6 * c.score_ns}, {"choose", 1e-6 * c.choose_ns}};
  json["sparse"] = std::move(sparse);
}

std::string sparse_read_text(const engine::Engine& engine) {
  if (engine.selector() == nullptr) return "";
  const sparse::SparseOptions& o = engine.sparse_options();
  const sparse::SparseCounters& c = engine.selector()->counters();
  if (c.kv_bytes == 0) return "";
  const auto share = [&](int64_t bytes) { return 100.0 * bytes / c.kv_bytes; };
  if (c.reads == 0 && c.reads_within_budget > 0 && o.budget_tokens > 0) {
    return fmt::format("{}, {}: all of K and V read, as no context was longer",
                       sparse::kPolicies.name(o.policy), o.amount_text());
  }
  return fmt::format("{}, {}: {:.0f} % of K and V read, {:.0f} % more looked up",
                     sparse::kPolicies.name(o.policy), o.amount_text(), share(c.kv_bytes_read),
                     share(c.index_bytes_read));
}

std::string locks_text(const engine::Engine& engine) {
  if (engine.selector() == nullptr) return "";
  const sparse::LockOptions& o = engine.sparse_options().lock;
  const sparse::LockCounters& c = engine.selector()->counters().locks;
  if (!o.is_on() || c.locks == 0) return "";
  return fmt::format(
      "interval {}, duration {}, threshold {}: {} made, {} ended, {} replaced {} of {} selections",
      o.interval_tokens, o.duration_tokens, o.update_threshold, c.locks, c.unlocks,
      counted(c.checkpoints, "checkpoint"), c.updated, c.kept + c.updated);
}

void log_sparse(const engine::Engine& engine) {
  if (!logs_info()) return;
  const std::string read = sparse_read_text(engine), locks = locks_text(engine);
  if (!read.empty()) log_info("sparse so far: " + read);
  if (!locks.empty()) log_info("locks so far: " + locks);
}

void print_sparse(const engine::Engine& engine) {
  const std::string read = sparse_read_text(engine), locks = locks_text(engine);
  if (!read.empty()) fmt::print("sparse so far: {}\n", read);
  if (!locks.empty()) fmt::print("locks so far: {}\n", locks);
}

void print_sparse_total(const engine::Engine& engine) {
  const std::string read = sparse_read_text(engine);
  if (!read.empty()) fmt::print("sparse {}\n", read);
}

/// "--sparse labels --budget 2048": what the engine was opened with.
std::string sparse_text(const sparse::SparseOptions& o) {
  std::string text = fmt::format("--sparse {}", sparse::kPolicies.name(o.policy));
  if (o.budget_tokens > 0) text += fmt::format(" --budget {}", o.budget_tokens);
  if (o.ratio > 0) text += fmt::format(" --sparse-ratio {}", o.ratio);
  if (o.retain > 0) text += fmt::format(" --retain {}", o.retain);
  if (o.lock.is_on()) text += fmt::format(" --lock-interval {}", o.lock.interval_tokens);
  if (o.lock.checkpoint == sparse::Checkpoint::kDense) text += " --checkpoint dense";
  return text;
}

}  // namespace weft::cli
