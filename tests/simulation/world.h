// One run of the simulation: a machine, two processes, a folder of documents, the store, and the
// model of what must be there. Carries out one action after another and compares; its errors are
// violations, in words.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "simulation/action.h"
#include "simulation/actor.h"
#include "simulation/engines.h"
#include "simulation/expected.h"
#include "simulation/machine.h"

namespace weft::sim {

/// What was done, for reports.
struct Totals {
  uint64_t actions = 0;
  uint64_t operations = 0;
  uint64_t kills = 0;
  uint64_t power_cuts = 0;
  uint64_t failed_calls = 0;
  uint64_t answers = 0;  // compared with the reference
  uint64_t checks = 0;   // of everything
};

class World {
 public:
  /// `dir` is empty and the world's own.
  World(Engines& engines, const std::string& dir, uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Machine& machine() { return machine_; }
  const std::vector<Action>& actions() const { return actions_; }
  /// Not ok: something was promised and is not so.
  Status perform(const Action& action);
  /// A last power cut, and everything is looked at.
  Status finish();
  const Totals& totals() const { return totals_; }

 private:
  // The user's folder (world.cc).
  Status change_source(const Action& action);
  void write_source(const std::string& path, const std::string& content);

  // Operations (world.cc).
  Status operate(const Action& action);
  Status operate_both(const Action& action);
  Status read_only(const Action& action);
  void prepare(Op& op);
  /// Processes that died are replaced; after a power cut what is left of the disk comes back.
  Status bury(uint64_t seed);
  Status restart_machine(uint64_t seed);

  // What came out, against the model (judge.cc).
  Status judge(Actor& actor, const Op& op, const Outcome& out, bool alone);
  Status judge_ingest(Actor& actor, const Op& op, const Outcome& out, bool alone);
  Status check_ingested(const Op& op);
  Status judge_ask(Actor& actor, const Op& op, const Outcome& out, bool alone);
  Status judge_removal(const Outcome& out, bool alone);
  Status check_nothing_lost();
  void forget_what_may_be_gone(bool alone);
  Status judge_list(const Op& op, const Outcome& out, bool alone);
  /// Whether an operation with this model may fail because the store is another's, or no store.
  bool may_be_refused(const Op& op, const Status& status) const;
  bool may_be_in_the_way(const Status& status) const;
  Status check_hits(Actor& actor, const Op& op, const Outcome& out, bool alone);
  Status check_logits(const Op& op, const Outcome& out);
  Status check_pages(Actor& actor, int model);

  // Everything (checks.cc).
  /// Opens the library as the next ingest would, and looks. `is_durable`: what is there now is
  /// there for ever, so what was uncertain no longer is.
  Status check_all(bool is_durable);
  Status check_settlement(Actor& checker, bool is_durable, int& model);
  Status check_documents(Actor& checker, bool is_durable, std::set<Hash128>& records);
  Status check_document(library::Library& library, const retrieval::Document& document,
                        std::set<Hash128>& records);
  Status check_records(Actor& checker, const std::set<Hash128>& needed);
  static Result<std::set<Hash128>> finished_records(retrieval::Index& index);
  Status check_memory(Actor& actor);
  Status check_folder(bool nobody_is_left);
  /// The store's records as they are in the folder, by no process's eyes.
  std::set<Hash128> records_in_folder(uint64_t& bytes) const;

  // Damage (damage.cc).
  Status damage_record(uint64_t seed);
  Status damage_index(const Action& action);
  Status ask_damaged(Op op);

  Actor& actor(int process) { return *actors_[static_cast<size_t>(process)]; }

  Engines& engines_;
  const std::string dir_;
  const std::string docs_;
  Setting setting_;
  std::vector<Action> actions_;
  Machine machine_;
  std::unique_ptr<Actor> actors_[2];
  Expected expected_;
  std::map<std::string, std::set<std::string>> in_index_before_;  // two operations at once
  Totals totals_;
  int n_contents_ = 0;
  int64_t next_source_time_s_ = 1'700'000'000;
  bool calls_failed_ = false;  // since the last restart: unfinished files may lie about
};

}  // namespace weft::sim
