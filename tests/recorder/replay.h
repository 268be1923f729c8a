// A disk that keeps only what POSIX promises, fed with the recorder's log (log_format.h). A file's
// content is durable as it was at its last fsync or fdatasync; a folder's entries are durable as
// they were at the folder's last sync, and a folder itself is reached only through durable entries
// of its parents. Everything later may be on the disk after a power cut or not: entries of one
// folder come in their order, a file's writes in theirs with the last one torn, or as zeros where
// the file grew. A rename inside one folder is one change; between two folders it is two, and both
// names or none may be there. It is stricter than the file systems of Linux, which sync more than
// they are asked to. It knows no modes, owners and times. Tests only; for one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "recorder/log_format.h"

namespace weft::test {

struct Frame {
  Event event;
  std::string path;
  std::string other;
  std::string data;
  uint64_t inode;
  int64_t offset;
};

/// The whole log; a test failure where it is none.
std::vector<Frame> read_log(const std::string& path);
/// Adds a mark to a log, also while a recorded process writes it.
void append_mark(const std::string& log, std::string_view text);
/// For messages: "write 4096 bytes at 0 of store/properties".
std::string describe(const Frame& frame, const std::string& root);

/// Files and folders as a process finds them, by their path below the root.
struct Tree {
  enum class Kind { kFile, kFolder, kSymlink };
  struct Item {
    Kind kind = Kind::kFile;
    std::string content;  // of a file; where a link leads
    std::string same_as;  // another name of the same file, whose own is empty; else empty
    bool operator==(const Item&) const = default;
  };
  std::map<std::string, Item> items;  // a folder comes before what it contains
};
Hash128 hash_of(const Tree& tree);
/// Into an empty folder, all of it private to the owner.
void write_tree(const Tree& tree, const std::string& dir);
/// Links and hard links as files of their own.
Tree read_tree(const std::string& dir);
/// Empty, or the first thing that differs.
std::string difference(const Tree& a, const Tree& b);

/// Which of the changes since the last sync a power cut leaves.
struct Survival {
  enum class Names { kSynced, kAll, kSome };              // kSome: a beginning of each folder's
  enum class Bytes { kSynced, kAll, kZeros, kAnything };  // kAnything: chosen file by file
  Names names = Names::kSynced;
  Bytes bytes = Bytes::kSynced;
  uint64_t seed = 0;
};

class Disk {
 public:
  /// `root` is the recorder's, empty when recording began.
  explicit Disk(std::string root);

  /// What is wrong with the frame, or empty.
  std::string apply(const Frame& frame);

  /// What another process sees.
  Tree now() const;
  Tree after_power_cut(const Survival& survival) const;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePtr>;
  struct Edit {  // of a file: `bytes` at `offset`, or its new size
    int64_t offset = 0;
    std::string bytes;
    bool resizes = false;
  };
  struct EntryEdit {  // of a folder: both names where a file is renamed in it
    std::string removed;
    std::string added;
    NodePtr node;
  };
  struct Node {
    Tree::Kind kind = Tree::Kind::kFile;
    std::string now;          // a file's bytes, a link's target
    std::string synced;       // a file's bytes at its last sync
    std::vector<Edit> edits;  // since then
    Entries entries;          // a folder's
    Entries synced_entries;
    std::vector<EntryEdit> entry_edits;
  };
  class Walk;

  static void edit_bytes(std::string& bytes, const Edit& edit);
  static void edit_entries(Entries& entries, const EntryEdit& edit);
  static void change(Node& file, Edit edit);
  static void change(Node& folder, EntryEdit edit);
  void sync_all();
  /// The folder that a path's last name is in, and that name; null when there is none.
  std::pair<NodePtr, std::string> folder_of(const std::string& path) const;
  std::string make(const Frame& frame, Tree::Kind kind);
  std::string move(const Frame& frame);
  std::string remove(const Frame& frame);
  std::string link(const Frame& frame);

  const std::string root_path_;
  const NodePtr root_;
  std::unordered_map<uint64_t, NodePtr> inodes_;  // the newest with that number
};

}  // namespace weft::test
