#include "simulation/action.h"

#include <fmt/format.h>

#include <array>
#include <random>
#include <utility>

namespace weft::sim {
namespace {

using Random = std::mt19937_64;

constexpr std::array<std::string_view, 5> kPaths{"/harbour.txt", "/mill.md", "/bees.txt",
                                                 "/sub/clock.txt", "/sub/lane.md"};
constexpr uint64_t kMaxFaultCalls = 600;

template <class T>
T draw_weighted(Random& random, const std::vector<std::pair<T, int>>& weights) {
  int total = 0;
  for (const auto& [value, weight] : weights) total += weight;
  int at = static_cast<int>(random() % static_cast<uint64_t>(total));
  for (const auto& [value, weight] : weights) {
    if ((at -= weight) < 0) return value;
  }
  return weights.back().first;
}

/// Early calls more often than late ones: most operations are short.
uint64_t draw_call(Random& random) {
  uint64_t limit = kMaxFaultCalls;
  while (limit > 8 && random() % 2 == 0) limit /= 2;
  return random() % limit;
}

Fault draw_fault(Random& random) {
  if (random() % 100 >= 40) return {};
  const auto kind = draw_weighted<Fault::Kind>(
      random,
      {{Fault::kKill, 35}, {Fault::kPowerCut, 40}, {Fault::kFailCall, 15}, {Fault::kFullCall, 10}});
  return {kind, draw_call(random)};
}

fusion::FusionOptions draw_fusion(Random& random) {
  fusion::FusionOptions options;
  options.allow_plain = false;  // what is stored must not decide how it is computed
  options.mode = draw_weighted<fusion::ReuseMode>(random, {{fusion::ReuseMode::kBlend, 6},
                                                           {fusion::ReuseMode::kFull, 2},
                                                           {fusion::ReuseMode::kNone, 1},
                                                           {fusion::ReuseMode::kPrefix, 1}});
  options.ratio = random() % 2 == 0 ? 0.25 : 0.05;
  const std::vector<fusion::SelectorKind> selectors = fusion::kSelectors.values();
  options.selector = selectors[random() % selectors.size()];
  return options;
}

Op draw_op(Random& random, const std::string& docs, int favourite_model) {
  Op op;
  op.kind = draw_weighted<Op::Kind>(random, {{Op::kIngest, 40},
                                             {Op::kAsk, 34},
                                             {Op::kRemove, 9},
                                             {Op::kClear, 2},
                                             {Op::kGc, 4},
                                             {Op::kVerify, 3},
                                             {Op::kList, 4},
                                             {Op::kHalfLoad, 8}});
  op.model = random() % 12 == 0 ? 1 - favourite_model : favourite_model;
  const uint64_t where = random() % 8;
  op.root = where == 0   ? docs + "/sub"
            : where == 1 ? docs + std::string(kPaths[random() % kPaths.size()])
                         : docs;
  if (random() % 8 == 0) op.cancel_after = static_cast<int>(random() % 5);
  op.n_chunks = 1 + static_cast<int>(random() % 4);
  op.fusion = draw_fusion(random);
  op.seed = random();
  op.keep_open = random() % 2 == 0;
  return op;
}

int64_t draw_jump(Random& random) {
  constexpr int64_t kDayMs = 86'400'000;
  return draw_weighted<int64_t>(random, {{3650 * kDayMs, 1},
                                         {-3650 * kDayMs, 1},
                                         {kDayMs, 2},
                                         {-kDayMs, 3},
                                         {3'600'000, 1},
                                         {-90'000, 2},
                                         {-5, 2},
                                         {-500, 2}});
}

Action draw_action(Random& random, const std::string& docs, int favourite_model) {
  Action action;
  action.kind = draw_weighted<Action::Kind>(random, {{Action::kWrite, 16},
                                                     {Action::kCopy, 8},
                                                     {Action::kDelete, 6},
                                                     {Action::kTouch, 1},
                                                     {Action::kOperate, 50},
                                                     {Action::kOperateBoth, 14},
                                                     {Action::kJump, 4},
                                                     {Action::kPowerCut, 4},
                                                     {Action::kKill, 2},
                                                     {Action::kClose, 3},
                                                     {Action::kDamageRecord, 3},
                                                     {Action::kDamageIndex, 2},
                                                     {Action::kReadOnly, 2}});
  action.seed = random();
  action.process = static_cast<int>(random() % 2);
  action.path = docs + std::string(kPaths[random() % kPaths.size()]);
  for (Op& op : action.ops) op = draw_op(random, docs, favourite_model);
  action.fault = draw_fault(random);
  action.jump_ms = draw_jump(random);
  return action;
}

constexpr const char* kOpNames[] = {"ingests",  "asks",  "removes a record", "clears", "gcs",
                                    "verifies", "lists", "loads halves"};

std::string describe(const Op& op, int process) {
  std::string text = fmt::format("process {} {}", process, kOpNames[op.kind]);
  if (op.kind == Op::kIngest) {
    text += " " + op.root.substr(op.root.find("/docs") + 1);
    if (op.cancel_after >= 0) text += fmt::format(", stopped after {} chunks", op.cancel_after);
  }
  if (op.kind == Op::kAsk) {
    text += fmt::format(" ({}, {} chunks)", fusion::kReuseModes.name(op.fusion.mode), op.n_chunks);
  }
  if (op.kind == Op::kIngest || op.kind == Op::kAsk) text += fmt::format(", model {}", op.model);
  if (op.keep_open) text += ", stays open";
  return text;
}

std::string describe(const Fault& fault) {
  constexpr const char* kNames[] = {"", "kill", "power cut", "a call fails", "the disk is full"};
  return fault.kind == Fault::kNone
             ? ""
             : fmt::format("; {} at change {}", kNames[fault.kind], fault.at);
}

}  // namespace

std::vector<Action> draw_actions(uint64_t seed, const std::string& docs, Setting& setting) {
  Random random(seed);
  setting.memory_limit_bytes =
      draw_weighted<uint64_t>(random, {{0, 1}, {20'000, 2}, {50'000, 2}, {uint64_t{1} << 24, 2}});
  setting.disk_limit_bytes =
      draw_weighted<uint64_t>(random, {{0, 6}, {40'000, 1}, {80'000, 2}, {200'000, 1}});
  const int favourite_model = static_cast<int>(random() % kModels);
  std::vector<Action> actions;
  const uint64_t n = 10 + random() % 25;
  for (uint64_t i = 0; i < 3; ++i) {  // not from nothing
    actions.push_back(draw_action(random, docs, favourite_model));
    actions.back().kind = Action::kWrite;
  }
  if (random() % 8 == 0) {  // two models race for an empty store
    Action& race = actions.emplace_back(draw_action(random, docs, favourite_model));
    race.kind = Action::kOperateBoth;
    for (const int i : {0, 1}) {
      race.ops[i].kind = Op::kIngest;
      race.ops[i].model = i;
      race.ops[i].root = docs;
    }
  }
  while (actions.size() < n) actions.push_back(draw_action(random, docs, favourite_model));
  return actions;
}

std::string describe(const Action& action) {
  const auto source = [&](const char* what) {
    return fmt::format("{} {}", action.path.substr(action.path.find("/docs") + 1), what);
  };
  switch (action.kind) {
    case Action::kWrite:
      return source("is written");
    case Action::kCopy:
      return source("becomes a copy");
    case Action::kDelete:
      return source("is deleted");
    case Action::kTouch:
      return source("is touched");
    case Action::kOperate:
      return describe(action.ops[0], action.process) + describe(action.fault);
    case Action::kOperateBoth:
      return fmt::format("{}, in turns with: {}{}", describe(action.ops[0], action.process),
                         describe(action.ops[1], 1 - action.process), describe(action.fault));
    case Action::kJump:
      return fmt::format("the clock jumps by {} s", static_cast<double>(action.jump_ms) * 1e-3);
    case Action::kPowerCut:
      return "power cut";
    case Action::kKill:
      return fmt::format("process {} is killed", action.process);
    case Action::kClose:
      return fmt::format("process {} closes its library", action.process);
    case Action::kDamageRecord:
      return "a record is damaged";
    case Action::kDamageIndex:
      return "the index is damaged for a while";
    case Action::kReadOnly:
      return "the folder may only be read: " + describe(action.ops[0], 2);
  }
  return "?";
}

}  // namespace weft::sim
