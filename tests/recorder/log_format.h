// The log that the recorder writes and the replay reads: one frame for each change of a file or
// folder, in the order in which the changes took effect. Plain data, shared by the recorder, which
// is preloaded into other programs, and the tests; it knows nothing of weft. Tests only.
#pragma once

#include <cstdint>

namespace weft::test {

enum class Event : uint32_t {
  kRoot = 1,    // a recorded process began; inode: the root folder's
  kCreate,      // path, inode: a new empty file
  kMakeDir,     // path, inode
  kSymlink,     // path, inode; data: where it leads
  kTruncate,    // inode; offset: the new size, smaller or larger (zeros)
  kWrite,       // inode, offset, data
  kSync,        // inode: fsync or fdatasync of a file or a folder
  kSyncAll,     // sync or syncfs
  kRename,      // path to other
  kLink,        // path, also by the name other
  kRemove,      // path: unlink or rmdir
  kMark,        // data: what the workload says, see replay.h
  kUnrecorded,  // data: a change that the recorder cannot describe, so the log is of no use
};

/// Then `path`, `other` and `data`, without ends. Paths are absolute and contain no link.
struct FrameHeader {
  Event event;
  uint32_t path_bytes;
  uint32_t other_bytes;
  uint32_t data_bytes;
  uint64_t inode;
  int64_t offset;
};

}  // namespace weft::test
