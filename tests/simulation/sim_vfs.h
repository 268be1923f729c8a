// SQLite's files on the simulated computer: a VFS over the system's own that counts SQLite's calls
// as the process's they belong to, lets them fail where the process fails, and tells the machine
// what is durable. SQLite's own locks between connections are the real ones; the waits for them are
// turns of the machine.
#pragma once

#include "simulation/machine.h"

namespace weft::sim {

/// Makes the VFS SQLite's default, once for this program. Files that no process opened (see
/// AsProcess) are as without it.
void install_sim_vfs();

/// What SQLite opens on this thread while this lives is opened by that process.
class AsProcess {
 public:
  explicit AsProcess(Process& process);
  ~AsProcess();
  AsProcess(const AsProcess&) = delete;
  AsProcess& operator=(const AsProcess&) = delete;

 private:
  Process* previous_;
};

}  // namespace weft::sim
