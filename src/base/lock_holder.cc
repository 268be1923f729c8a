#include "base/lock_holder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace weft {
namespace {

/// The program's name as the kernel has it: up to 15 bytes, which the process itself may choose.
std::string program_name(long process) {
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::string name;
  std::getline(file, name);
  for (char& c : name) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0 || (c & 0x80) != 0) c = '?';
  }
  return name;
}

/// Whether the process has the file open; false also when we may not look.
bool has_open(long process, uint64_t device, uint64_t inode) {
  std::error_code error;
  for (const auto& fd :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), error)) {
    struct stat info {};
    if (::stat(fd.path().c_str(), &info) == 0 && info.st_dev == device && info.st_ino == inode) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string lock_holder(uint64_t device, uint64_t inode) {
  // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:10952826 0 EOF"; waiting ones have "->" after the number.
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(device), minor(device), inode);
  const std::string same_inode = fmt::format(":{}", inode);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string number, kind, advisory, access, place;
    long process = 0;
    fields >> number >> kind >> advisory >> access >> process >> place;
    if (!fields || kind != "FLOCK" || process <= 0) continue;
    // Some file systems (btrfs, overlayfs) are named otherwise there than by fstat.
    if (place != file && !(place.ends_with(same_inode) && has_open(process, device, inode))) {
      continue;
    }
    if (process == ::getpid()) return "this process";
    // The process that took the lock may be gone, and a child of it still hold it.
    const std::string program = program_name(process);
    if (!program.empty()) return fmt::format("process {} ({})", process, program);
  }
  return "another process";
}

}  // namespace weft
