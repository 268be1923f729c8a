// What may happen in the simulation, drawn by a seed. An action holds all the chance it needs, so
// a list of them can be cut short and still means the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/actor.h"

namespace weft::sim {

struct Action {
  enum Kind {
    kWrite,        // a source document, new or altered
    kCopy,         // a source document with another's content
    kDelete,       // a source document
    kTouch,        // a source document's time alone
    kOperate,      // a process does `ops[0]`
    kOperateBoth,  // both processes, in turns
    kJump,         // of the clock
    kPowerCut,     // between two actions
    kKill,         // likewise, of a process
    kClose,        // a process's library
    kDamageRecord,
    kDamageIndex,  // for a while: asked meanwhile, then repaired
    kReadOnly,     // asked from a file system that may only be read
  };
  Kind kind = kWrite;
  uint64_t seed = 0;  // for what is drawn when it happens
  int process = 0;
  std::string path;  // of a source document
  Op ops[2];
  Fault fault;  // of `process`
  int64_t jump_ms = 0;
};

/// The seed's setting and actions. Paths are below `docs`.
std::vector<Action> draw_actions(uint64_t seed, const std::string& docs, Setting& setting);

/// One line for people.
std::string describe(const Action& action);

}  // namespace weft::sim
