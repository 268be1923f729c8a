// Who holds a lock: the process that the kernel's own table of locks names, for a line that tells
// people whom they wait for. Reads /proc; never trusts what a file or a process says of itself
// further than to print it, cleaned. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

/// "process 1234 (weft)", "this process", or "another process" where the system does not tell.
/// The file's device and inode are those that fstat gives.
std::string lock_holder(uint64_t device, uint64_t inode);

}  // namespace weft
