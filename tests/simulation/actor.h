// One process of the simulation at work: it opens the library as the commands do and ingests, asks,
// removes, through the code that the program runs. It reports what came out; what should have come
// out it does not know.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "library/library.h"
#include "simulation/engines.h"
#include "simulation/machine.h"

namespace weft::sim {

struct Op {
  enum Kind { kIngest, kAsk, kRemove, kClear, kGc, kVerify, kList, kHalfLoad };
  Kind kind = kIngest;
  int model = 0;
  std::string root;              // ingest
  int cancel_after = -1;         // ingest: after so many chunks; -1: never
  std::string question;          // ask
  int n_chunks = 3;              // ask
  fusion::FusionOptions fusion;  // ask
  uint64_t seed = 0;             // picks a record
  bool keep_open = false;        // the library stays open for the next one
};

struct Outcome {
  Status status;
  bool is_read_only = false;                  // ask: the library fell back to that
  std::vector<retrieval::Hit> hits;           // ask
  fusion::Prompt prompt;                      // ask
  std::vector<float> logits;                  // ask
  std::vector<int32_t> anchor;                // ask
  std::vector<Hash128> kept;                  // ask: records that were acknowledged as stored
  std::vector<Hash128> removed;               // remove, clear
  std::vector<store::RecordSummary> records;  // list
  store::StoreStats stats;                    // list
  store::VerifyReport report;                 // verify
};

/// What all processes open the library with.
struct Setting {
  std::string dir;
  uint64_t memory_limit_bytes = 0;
  uint64_t disk_limit_bytes = 0;  // 0: none
};

class Actor {
 public:
  /// `thread` is whose engines it uses.
  Actor(Machine& machine, Engines& engines, const Setting& setting, int thread)
      : machine_(machine), engines_(engines), setting_(setting), thread_(thread) {
    restart();
  }
  ~Actor() { close(); }
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  Process& process() { return *process_; }
  engine::Engine& engine(int model) { return engines_.engine(model, thread_); }
  /// Null: not open.
  library::Library* library() { return library_.get(); }
  int model() const { return model_; }

  Outcome perform(const Op& op);

  /// As ingest does (`create`) or as ask does.
  Status open(int model, bool create);
  void close();
  /// A new process, after the old one has ended.
  void restart();

 private:
  Status perform_with_library(const Op& op, Outcome& out);
  Status perform_with_store(const Op& op, Outcome& out);
  Status ingest(const Op& op);
  Status ask(const Op& op, Outcome& out);
  Status half_load(const Op& op);
  Status gc();

  Machine& machine_;
  Engines& engines_;
  const Setting& setting_;
  const int thread_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<library::Library> library_;
  int model_ = 0;  // of library_
};

}  // namespace weft::sim
