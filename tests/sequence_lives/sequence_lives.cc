#include "sequence_lives/sequence_lives.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "gguf/random_model.h"
#include "kv/invariants.h"
#include "sparse/selector.h"

namespace weft::lives {
namespace {

using engine::Appended;
using engine::Engine;
using sparse::Policy;

constexpr int32_t kVocab = 300;
constexpr int32_t kContext = 512;
constexpr size_t kMostSequences = 6;
constexpr int kActions = 120;

const char* const kArchitectures[] = {"llama", "gemma3"};

std::string model_of(const std::string& folder, const std::string& architecture) {
  return folder + "/" + architecture + ".gguf";
}

/// What happened to a sequence.
struct Event {
  enum class Kind { kPrompt, kDecode, kRemove, kTruncate, kFork };
  Kind kind{};
  std::vector<int32_t> tokens;  // of the first two
  int32_t begin = 0, end = 0;   // of the next two
};

struct Life {
  kv::OwnedSequence sequence;
  std::vector<Event> history;
};

engine::EngineOptions options_of(const std::string& folder, uint64_t seed) {
  const Policy policies[] = {Policy::kDense, Policy::kLabels, Policy::kQuest, Policy::kGsa,
                             Policy::kH2o,   Policy::kTova,   Policy::kCuboid};
  const char* const architecture = kArchitectures[seed % std::size(kArchitectures)];
  engine::EngineOptions options{
      .model_path = model_of(folder, architecture), .n_threads = 2, .compute = "f32"};
  options.context_tokens = kContext;
  options.n_contexts = kMostSequences + 2;
  options.sparse.policy = policies[seed / 2 % std::size(policies)];
  if (options.sparse.is_on()) {
    options.sparse.budget_tokens = 80;
    options.sparse.dense_layers = 0;
    if (seed % 3 != 0) {
      options.sparse.lock = {.interval_tokens = static_cast<int32_t>(1 + seed % 7),
                             .duration_tokens = static_cast<int32_t>(8 + seed % 9),
                             .update_threshold = static_cast<int32_t>(seed % 4)};
      if (seed / 3 % 2 == 0) options.sparse.lock.checkpoint = sparse::Checkpoint::kDense;
    }
  }
  if (seed % 5 == 4) options.kv_types = {.k = DType::kQ8_0, .v = DType::kQ8_0};
  return options;
}

/// One engine and what lives in it.
class Lives {
 public:
  Lives(Engine& engine, Engine& alone, uint64_t seed, Totals& totals)
      : engine_(engine), alone_(alone), random_(seed), totals_(totals) {}

  Status run() {
    for (int i = 0; i < kActions; ++i) {
      WEFT_RETURN_IF_ERROR(act());
      ++totals_.actions;
      for (const std::string& violation : kv::violations(engine_.kv_snapshots())) {
        return corrupt(fmt::format("action {}: {}", i, violation));
      }
    }
    while (!lives_.empty()) {
      WEFT_RETURN_IF_ERROR(compare(lives_.back()));
      lives_.pop_back();
    }
    if (engine_.kv_usage().held() == 0) return Status::ok();
    return corrupt(fmt::format("{} pages are held by nobody", engine_.kv_usage().held()));
  }

 private:
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % n); }
  std::vector<int32_t> tokens(int32_t n) {
    std::vector<int32_t> some(n);
    for (int32_t& token : some) token = below(kVocab);
    return some;
  }
  Life& any() { return lives_[below(static_cast<int32_t>(lives_.size()))]; }
  /// Some lives that have room for n tokens, each once.
  std::vector<Life*> some_with_room(int32_t n) {
    std::vector<Life*> some;
    for (Life& life : lives_) {
      if (life.sequence.length() + n <= kContext && below(2) == 0) some.push_back(&life);
    }
    return some;
  }

  Status act() {
    if (lives_.empty()) return begin();
    switch (below(13)) {
      case 0:
        return begin();
      case 1:
        return fork();
      case 2:
        return remove();
      case 3:
        return truncate();
      case 4:
        if (lives_.size() > 2) lives_.erase(lives_.begin() + below(lives_.size()));
        return Status::ok();
      case 5:
        engine_.give_back_memory();
        return Status::ok();
      case 6:
        return append();
      case 7:
      case 8:
        return decode();
      case 9:
        return compare(any());
      case 10:
        return draft_itself();
      default:
        return draft();
    }
  }

  Status begin() {
    if (lives_.size() == kMostSequences) return Status::ok();
    Life life{engine_.create_sequence(), {{Event::Kind::kPrompt, tokens(20 + below(200))}}};
    WEFT_RETURN_IF_ERROR(engine_.append(life.sequence, life.history[0].tokens).status());
    lives_.push_back(std::move(life));
    return Status::ok();
  }

  Status append() {
    Life& life = any();
    if (life.sequence.length() + 30 > kContext) return Status::ok();
    life.history.push_back({Event::Kind::kPrompt, tokens(1 + below(30))});
    return engine_.append(life.sequence, life.history.back().tokens).status();
  }

  Status fork() {
    if (lives_.size() == kMostSequences) return Status::ok();
    Life& life = any();
    WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence copy, life.sequence.fork());
    Life child{std::move(copy), life.history};
    child.history.push_back({Event::Kind::kFork});
    lives_.push_back(std::move(child));
    return Status::ok();
  }

  Status remove() {
    Life& life = any();
    const int32_t begin = below(life.sequence.length());
    const int32_t end = std::min(life.sequence.length() - 1, begin + below(40));
    if (begin >= end) return Status::ok();
    life.history.push_back({Event::Kind::kRemove, {}, begin, end});
    return engine_.remove_tokens(life.sequence, begin, end);
  }

  Status truncate() {
    Life& life = any();
    const int32_t n = std::max(1, life.sequence.length() - below(30));
    life.history.push_back({Event::Kind::kTruncate, {}, 0, n});
    return life.sequence.truncate(n);
  }

  /// A token of each, in one step.
  Status decode() {
    const std::vector<Life*> some = some_with_room(1);
    if (some.empty()) return Status::ok();
    std::vector<Appended> rows;
    for (Life* life : some) {
      life->history.push_back({Event::Kind::kDecode, tokens(1)});
      rows.push_back({&life->sequence, life->history.back().tokens});
    }
    return engine_.append_all(rows, {.kind = model::RowKind::kDecode}).status();
  }

  /// Drafts of each, in one step; some are dropped as a whole, as where a request is aborted.
  Status draft() {
    constexpr int32_t kMostRows = 12;
    const std::vector<Life*> some = some_with_room(kMostRows);
    if (some.empty()) return Status::ok();
    std::vector<std::vector<int32_t>> tried;
    std::vector<Appended> rows;
    std::vector<int32_t> n_kept;
    // A dense pass in front of the rows stays, and so its newest row must.
    const int32_t least = engine_.has_dense_checkpoints() ? 1 : 0;
    for (const Life* life : some) {
      const auto most = std::min<int64_t>(kMostRows, engine_.tried_rows(life->sequence));
      tried.push_back(tokens(1 + below(static_cast<int32_t>(most))));
      n_kept.push_back(std::max(least, below(static_cast<int32_t>(tried.back().size()) + 1)));
    }
    for (size_t i = 0; i < some.size(); ++i) rows.push_back({&some[i]->sequence, tried[i]});
    WEFT_ASSIGN_OR_RETURN(engine::TriedRows result, engine_.try_rows(rows));
    if (least == 0 && below(6) == 0) return Status::ok();
    engine_.accept(std::move(result), n_kept);
    for (size_t i = 0; i < some.size(); ++i) {
      totals_.drafted += std::ssize(tried[i]);
      totals_.accepted += n_kept[i];
      tried[i].resize(n_kept[i]);
      if (n_kept[i] > 0) some[i]->history.push_back({Event::Kind::kDecode, tried[i]});
    }
    return Status::ok();
  }

  /// Guesses of the model's own, which nobody verifies.
  Status draft_itself() {
    const Life& life = any();
    const int64_t most = engine_.tried_rows(life.sequence) - 1;
    if (most < 1) return Status::ok();
    ++totals_.drafted_itself;
    const auto n = static_cast<int32_t>(std::min<int64_t>(most, 1 + below(6)));
    return engine_.draft_rows(life.sequence, below(kVocab), n).status();
  }

  /// What the history gives by itself.
  Result<kv::OwnedSequence> replay(const std::vector<Event>& history) {
    kv::OwnedSequence sequence = alone_.create_sequence();
    for (const Event& event : history) {
      switch (event.kind) {
        case Event::Kind::kPrompt:
          WEFT_RETURN_IF_ERROR(alone_.append(sequence, event.tokens).status());
          break;
        case Event::Kind::kDecode:
          for (size_t i = 0; i < event.tokens.size(); ++i) {
            WEFT_RETURN_IF_ERROR(alone_
                                     .append(sequence, std::span(event.tokens).subspan(i, 1),
                                             {.kind = model::RowKind::kDecode})
                                     .status());
          }
          break;
        case Event::Kind::kRemove:
          WEFT_RETURN_IF_ERROR(alone_.remove_tokens(sequence, event.begin, event.end));
          break;
        case Event::Kind::kTruncate:
          WEFT_RETURN_IF_ERROR(sequence.truncate(event.end));
          break;
        case Event::Kind::kFork: {
          WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence copy, sequence.fork());
          sequence = std::move(copy);
          break;
        }
      }
    }
    return sequence;
  }

  Status compare(Life& life) {
    if (life.sequence.length() == kContext) return Status::ok();
    WEFT_ASSIGN_OR_RETURN(const kv::OwnedSequence replayed, replay(life.history));
    life.history.push_back({Event::Kind::kDecode, tokens(1)});
    const std::span<const int32_t> next = life.history.back().tokens;
    WEFT_ASSIGN_OR_RETURN(const auto got,
                          engine_.append(life.sequence, next, {.kind = model::RowKind::kDecode}));
    WEFT_ASSIGN_OR_RETURN(const auto expected,
                          alone_.append(replayed, next, {.kind = model::RowKind::kDecode}));
    ++totals_.compared;
    if (got == expected) return Status::ok();
    return corrupt(fmt::format("after {} events a sequence of {} tokens is not what it is alone",
                               life.history.size(), life.sequence.length()));
  }

  Engine& engine_;
  Engine& alone_;
  std::mt19937_64 random_;
  Totals& totals_;
  std::vector<Life> lives_;
};

}  // namespace

Result<std::unique_ptr<SequenceLives>> SequenceLives::create(const std::string& folder) {
  for (const char* architecture : kArchitectures) {
    gguf::RandomModelOptions model{
        .architecture = architecture, .n_layers = 6, .head_dim = 32, .vocab = kVocab};
    model.context_length = kContext;
    model.score_spread = 8;  // attention that tells tokens apart
    if (std::string_view(architecture) == "gemma3") model.window = 24;
    WEFT_RETURN_IF_ERROR(
        gguf::write_random_model(posix_env(), model_of(folder, architecture), model));
  }
  return std::unique_ptr<SequenceLives>(new SequenceLives(folder));
}

SequenceLives::~SequenceLives() = default;

std::optional<std::string> SequenceLives::run(uint64_t seed) {
  const engine::EngineOptions options = options_of(folder_, seed);
  const auto lived = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::open(posix_env(), options));
    WEFT_ASSIGN_OR_RETURN(const auto alone, Engine::open(posix_env(), options));
    WEFT_RETURN_IF_ERROR(Lives(*engine, *alone, seed, totals_).run());
    if (engine->selector() == nullptr) return Status::ok();
    totals_.locks += engine->selector()->counters().locks.locks;
    totals_.dense_passes += engine->selector()->counters().dense_passes;
    return Status::ok();
  }();
  if (lived.is_ok()) return std::nullopt;
  return fmt::format("seed {}: {}", seed, lived.message());
}

}  // namespace weft::lives
