#include "simulation/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "base/log.h"
#include "simulation/sim_vfs.h"

namespace weft::sim {

World::World(Engines& engines, const std::string& dir, uint64_t seed)
    : engines_(engines), dir_(dir), docs_(join_path(dir, "docs")), machine_(seed) {
  install_sim_vfs();
  std::filesystem::create_directories(join_path(docs_, "sub"));
  setting_.dir = join_path(dir, "lib/store");
  actions_ = draw_actions(seed, docs_, setting_);
  for (int i = 0; i < 2; ++i) {
    actors_[i] = std::make_unique<Actor>(machine_, engines_, setting_, i);
  }
}

World::~World() = default;

Status World::perform(const Action& action) {
  ++totals_.actions;
  switch (action.kind) {
    case Action::kWrite:
    case Action::kCopy:
    case Action::kDelete:
    case Action::kTouch:
      return change_source(action);
    case Action::kOperate:
      return operate(action);
    case Action::kOperateBoth:
      return operate_both(action);
    case Action::kJump:
      machine_.jump_clock_ms(action.jump_ms);
      return Status::ok();
    case Action::kPowerCut:
      machine_.cut_power();
      return bury(action.seed);
    case Action::kKill:
      actor(action.process).process().kill();
      return bury(action.seed);
    case Action::kClose:
      WEFT_RETURN_IF_ERROR(check_memory(actor(action.process)));
      actor(action.process).close();
      return Status::ok();
    case Action::kDamageRecord:
      return damage_record(action.seed);
    case Action::kDamageIndex:
      return damage_index(action);
    case Action::kReadOnly:
      return read_only(action);
  }
  return Status::ok();
}

Status World::finish() {
  for (const auto& actor : actors_) WEFT_RETURN_IF_ERROR(check_memory(*actor));
  WEFT_RETURN_IF_ERROR(check_all(/*is_durable=*/false));
  machine_.cut_power();
  return bury(/*seed=*/actions_.size());
}

// ------------------------------------------------------------------------------ the user's folder

void World::write_source(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  // A time of its own: the scan takes the same size and time for the same content.
  (void)posix_env().set_modified(path, ++next_source_time_s_ * 1'000'000'000);
  expected_.write_source(path, content);
}

Status World::change_source(const Action& action) {
  std::mt19937_64 random(action.seed);
  const auto& sources = expected_.sources;
  const bool exists = sources.contains(action.path);
  if (action.kind == Action::kWrite || sources.empty()) {
    write_source(action.path, make_content(random, ++n_contents_));
  } else if (action.kind == Action::kCopy) {
    write_source(
        action.path,
        std::next(sources.begin(), static_cast<std::ptrdiff_t>(random() % sources.size()))->second);
  } else if (action.kind == Action::kTouch && exists) {
    write_source(action.path, std::string(sources.at(action.path)));
  } else if (exists) {
    std::filesystem::remove(action.path);
    expected_.remove_source(action.path);
  }
  return Status::ok();
}

// ------------------------------------------------------------------------------------- operations

/// Chooses what can only be chosen now: the words of a question.
void World::prepare(Op& op) {
  std::mt19937_64 random(op.seed);
  const auto sure = expected_.sure_contents();
  if (!sure.empty() && random() % 3 != 0) {
    op.question = mark_of(sure[random() % sure.size()]);
  } else if (!expected_.contents.empty() && random() % 2 == 0) {
    const auto any = std::next(expected_.contents.begin(),
                               static_cast<std::ptrdiff_t>(random() % expected_.contents.size()));
    op.question = mark_of(any->second);  // perhaps of a deleted one
  } else {
    op.question = random() % 2 == 0 ? "the harbour and the mill" : "clock school bees";
  }
}

Status World::operate(const Action& action) {
  ++totals_.operations;
  Actor& who = actor(action.process);
  Op op = action.ops[0];
  prepare(op);
  if (op.kind == Op::kAsk || op.kind == Op::kIngest) expected_.removed.clear();  // may come back
  who.process().arm(action.fault);
  const Outcome out = who.perform(op);
  const bool came_about = who.process().has_failed();
  WEFT_RETURN_IF_ERROR(judge(who, op, out, /*alone=*/true));
  who.process().disarm();
  calls_failed_ = calls_failed_ || came_about;
  if (came_about && who.process().is_alive()) {
    ++totals_.failed_calls;
    return check_all(/*is_durable=*/false);
  }
  // A cut that was set for later than the operation took comes right after it.
  if (!came_about && action.fault.kind == Fault::kPowerCut) machine_.cut_power();
  return bury(action.seed);
}

Status World::operate_both(const Action& action) {
  totals_.operations += 2;
  expected_.removed.clear();
  in_index_before_ = expected_.in_index;
  Op ops[2] = {action.ops[0], action.ops[1]};
  Actor* const who[2] = {&actor(action.process), &actor(1 - action.process)};
  for (Op& op : ops) prepare(op);
  who[0]->process().arm(action.fault);
  Outcome out[2];
  {
    Machine::Turns turns(machine_, action.seed);
    const auto run = [&](int i) {
      turns.begin(i);
      out[i] = who[i]->perform(ops[i]);
      turns.end();
    };
    std::thread other([&] { run(1); });
    run(0);
    other.join();
  }
  const bool came_about = who[0]->process().has_failed();
  calls_failed_ = calls_failed_ || came_about;
  // First what may have happened, then what was acknowledged.
  const int first = out[0].status.is_ok() ? 1 : 0;
  WEFT_RETURN_IF_ERROR(judge(*who[first], ops[first], out[first], /*alone=*/false));
  WEFT_RETURN_IF_ERROR(judge(*who[1 - first], ops[1 - first], out[1 - first], /*alone=*/false));
  in_index_before_.clear();
  for (const int i : {0, 1}) {
    if (!out[i].status.is_ok() || !who[i]->process().is_alive()) expected_.marked.clear();
  }
  for (const int i : {0, 1}) {
    const Op& other = ops[1 - i];
    const bool may_remove = other.kind == Op::kRemove || other.kind == Op::kClear ||
                            (other.kind == Op::kAsk && setting_.disk_limit_bytes > 0);
    const bool is_sure = ops[i].kind == Op::kIngest && out[i].status.is_ok() && !came_about &&
                         !may_remove && expected_.damaged.empty();
    if (is_sure) WEFT_RETURN_IF_ERROR(check_ingested(ops[i]));
  }
  who[0]->process().disarm();
  if (machine_.has_power()) WEFT_RETURN_IF_ERROR(check_all(/*is_durable=*/false));
  return bury(action.seed);
}

Status World::read_only(const Action& action) {
  Op op = action.ops[0];
  op.kind = Op::kAsk;
  op.keep_open = false;
  prepare(op);
  uint64_t bytes = 0;
  const auto before = records_in_folder(bytes);
  const std::string index = machine_.database_disk().content(library::index_path(setting_.dir));
  const bool has_journal = std::filesystem::exists(library::index_path(setting_.dir) + "-journal");
  Actor reader(machine_, engines_, setting_, 0);
  reader.process().make_read_only();
  const Outcome out = reader.perform(op);
  if (before != records_in_folder(bytes) ||
      index != machine_.database_disk().content(library::index_path(setting_.dir))) {
    return corrupt("a store that may only be read was changed");
  }
  if (has_journal && !out.status.is_ok()) return Status::ok();  // to be undone by who may write
  return judge(reader, op, out, /*alone=*/true);
}

Status World::bury(uint64_t seed) {
  if (!machine_.has_power()) return restart_machine(seed);
  bool died = false;
  for (const auto& actor : actors_) {
    if (actor->process().is_alive()) continue;
    ++totals_.kills;
    actor->restart();
    died = true;
  }
  return died ? check_all(/*is_durable=*/false) : Status::ok();
}

Status World::restart_machine(uint64_t seed) {
  ++totals_.power_cuts;
  for (const auto& actor : actors_) actor->close();
  WEFT_RETURN_IF_ERROR(machine_.database_disk().check());
  constexpr test::Survives kWays[] = {test::Survives::kNothing,       test::Survives::kNames,
                                      test::Survives::kNamesAndSizes, test::Survives::kSome,
                                      test::Survives::kSome,          test::Survives::kSome};
  WEFT_RETURN_IF_ERROR(machine_.restart(kWays[seed % std::size(kWays)], seed));
  for (const auto& actor : actors_) actor->restart();
  calls_failed_ = false;
  return check_all(/*is_durable=*/true);
}

}  // namespace weft::sim
