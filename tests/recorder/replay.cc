#include "recorder/replay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/check.h"
#include "support/files.h"
#include "support/skip.h"

namespace weft::test {
namespace {

using test::read_text;

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

std::string relative(const std::string& path, const std::string& root) {
  if (path == root) return "the root folder";
  return path.starts_with(root + "/") ? path.substr(root.size() + 1) : path;
}

void write_new_file(const std::string& path, const std::string& content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  WEFT_CHECK(fd >= 0);
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(fd, content.data() + done, content.size() - done);
    WEFT_CHECK(n > 0);  // else the scratch folder's disk is full
    done += static_cast<size_t>(n);
  }
  ::close(fd);
}

}  // namespace

// --------------------------------------------------------------------------------------- the log

std::vector<Frame> read_log(const std::string& path) {
  const std::string log = read_text(path);
  std::vector<Frame> frames;
  size_t at = 0;
  const auto take = [&](uint32_t n) {
    at += n;
    return log.substr(at - n, n);
  };
  while (at < log.size()) {
    FrameHeader header{};
    if (log.size() - at < sizeof(header)) break;
    std::memcpy(&header, log.data() + at, sizeof(header));
    const uint64_t n = uint64_t{header.path_bytes} + header.other_bytes + header.data_bytes;
    if (log.size() - at - sizeof(header) < n) break;
    at += sizeof(header);
    Frame frame{header.event, {}, {}, {}, header.inode, header.offset};
    frame.path = take(header.path_bytes);
    frame.other = take(header.other_bytes);
    frame.data = take(header.data_bytes);
    frames.push_back(std::move(frame));
  }
  EXPECT_EQ(at, log.size()) << path << ": ends inside a frame";
  return frames;
}

void append_mark(const std::string& log, std::string_view text) {
  FrameHeader header{Event::kMark, 0, 0, static_cast<uint32_t>(text.size()), 0, 0};
  std::string frame(sizeof(header), '\0');
  std::memcpy(frame.data(), &header, sizeof(header));
  frame += text;
  const int fd = ::open(log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  WEFT_CHECK(fd >= 0 && ::write(fd, frame.data(), frame.size()) == std::ssize(frame));
  ::close(fd);
}

std::string describe(const Frame& frame, const std::string& root) {
  const std::string path = relative(frame.path, root);
  switch (frame.event) {
    case Event::kRoot:
      return "a process begins";
    case Event::kCreate:
      return "create " + path;
    case Event::kMakeDir:
      return "make the folder " + path;
    case Event::kSymlink:
      return fmt::format("link {} to {}", path, frame.data);
    case Event::kTruncate:
      return fmt::format("resize {} to {} bytes", path, frame.offset);
    case Event::kWrite:
      return fmt::format("write {} bytes at {} of {}", frame.data.size(), frame.offset, path);
    case Event::kSync:
      return "sync " + path;
    case Event::kSyncAll:
      return "sync everything";
    case Event::kRename:
      return fmt::format("rename {} to {}", path, relative(frame.other, root));
    case Event::kLink:
      return fmt::format("name {} also {}", path, relative(frame.other, root));
    case Event::kRemove:
      return "remove " + path;
    case Event::kMark:
      return "mark: " + frame.data.substr(0, frame.data.find('\n'));
    case Event::kUnrecorded:
      return fmt::format("not recorded: {} of {}", frame.data, path);
  }
  return "an unknown frame";
}

// -------------------------------------------------------------------------------------- the trees

Hash128 hash_of(const Tree& tree) {
  std::string all;
  for (const auto& [path, item] : tree.items) {
    all += fmt::format("{} {} {} {} {} ", path.size(), static_cast<int>(item.kind),
                       item.same_as.size(), item.content.size(), path);
    all += item.same_as;
    all += item.content;
  }
  return hash128(std::as_bytes(std::span(all)));
}

void write_tree(const Tree& tree, const std::string& dir) {
  for (const auto& [path, item] : tree.items) {
    const std::string full = dir + "/" + path;
    if (item.kind == Tree::Kind::kFolder) {
      WEFT_CHECK(::mkdir(full.c_str(), 0700) == 0);
    } else if (item.kind == Tree::Kind::kSymlink) {
      WEFT_CHECK(::symlink(item.content.c_str(), full.c_str()) == 0);
    } else if (item.same_as.empty()) {
      write_new_file(full, item.content);
    }
  }
  for (const auto& [path, item] : tree.items) {
    if (item.same_as.empty()) continue;
    WEFT_CHECK(::link((dir + "/" + item.same_as).c_str(), (dir + "/" + path).c_str()) == 0);
  }
}

Tree read_tree(const std::string& dir) {
  Tree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    Tree::Item item;
    if (entry.is_symlink()) {
      item = {Tree::Kind::kSymlink, std::filesystem::read_symlink(entry.path()).string(), {}};
    } else if (entry.is_directory()) {
      item.kind = Tree::Kind::kFolder;
    } else {
      item.content = read_text(entry.path().string());
    }
    tree.items[entry.path().string().substr(dir.size() + 1)] = std::move(item);
  }
  return tree;
}

std::string difference(const Tree& a, const Tree& b) {
  std::set<std::string> paths;
  for (const Tree* tree : {&a, &b}) {
    for (const auto& [path, item] : tree->items) paths.insert(path);
  }
  for (const std::string& path : paths) {
    const auto in_a = a.items.find(path);
    const auto in_b = b.items.find(path);
    if (in_a == a.items.end()) return path + " is only in the second";
    if (in_b == b.items.end()) return path + " is only in the first";
    if (in_a->second.kind != in_b->second.kind) return path + " is of different kinds";
    if (in_a->second.content != in_b->second.content) {
      return fmt::format("{} differs: {} and {} bytes", path, in_a->second.content.size(),
                         in_b->second.content.size());
    }
  }
  return "";
}

// --------------------------------------------------------------------------------------- the disk

Disk::Disk(std::string root) : root_path_(std::move(root)), root_(std::make_shared<Node>()) {
  root_->kind = Tree::Kind::kFolder;
}

void Disk::edit_bytes(std::string& bytes, const Edit& edit) {
  const auto offset = static_cast<size_t>(edit.offset);
  if (edit.resizes) return bytes.resize(offset);
  if (bytes.size() < offset + edit.bytes.size()) bytes.resize(offset + edit.bytes.size());
  std::copy(edit.bytes.begin(), edit.bytes.end(), bytes.begin() + edit.offset);
}

void Disk::edit_entries(Entries& entries, const EntryEdit& edit) {
  if (!edit.removed.empty()) entries.erase(edit.removed);
  if (!edit.added.empty()) entries[edit.added] = edit.node;
}

void Disk::change(Node& file, Edit edit) {
  edit_bytes(file.now, edit);
  file.edits.push_back(std::move(edit));
}

void Disk::change(Node& folder, EntryEdit edit) {
  edit_entries(folder.entries, edit);
  folder.entry_edits.push_back(std::move(edit));
}

void Disk::sync_all() {
  inodes_[0] = root_;
  for (const auto& [inode, node] : inodes_) {
    node->synced = node->now;
    node->edits.clear();
    node->synced_entries = node->entries;
    node->entry_edits.clear();
  }
  inodes_.erase(0);
}

std::pair<Disk::NodePtr, std::string> Disk::folder_of(const std::string& path) const {
  if (!path.starts_with(root_path_ + "/")) return {nullptr, ""};
  NodePtr folder = root_;
  size_t begin = root_path_.size() + 1;
  for (size_t slash = path.find('/', begin); slash != std::string::npos;
       slash = path.find('/', begin)) {
    const auto it = folder->entries.find(path.substr(begin, slash - begin));
    if (it == folder->entries.end() || it->second->kind != Tree::Kind::kFolder) {
      return {nullptr, ""};
    }
    folder = it->second;
    begin = slash + 1;
  }
  return {folder, path.substr(begin)};
}

std::string Disk::make(const Frame& frame, Tree::Kind kind) {
  const auto [folder, name] = folder_of(frame.path);
  if (folder == nullptr) return "in a folder that nobody made";
  if (folder->entries.contains(name)) return "there is one already";
  auto node = std::make_shared<Node>();
  node->kind = kind;
  if (kind == Tree::Kind::kSymlink) node->now = node->synced = frame.data;
  inodes_[frame.inode] = node;
  change(*folder, EntryEdit{"", name, node});
  return "";
}

std::string Disk::move(const Frame& frame) {
  const auto [from, old_name] = folder_of(frame.path);
  const auto [to, new_name] = folder_of(frame.other);
  if (from == nullptr || to == nullptr || !from->entries.contains(old_name)) {
    return "of what nobody made";
  }
  const NodePtr node = from->entries.at(old_name);
  if (from == to) {
    change(*from, EntryEdit{old_name, new_name, node});
  } else {
    change(*to, EntryEdit{"", new_name, node});
    change(*from, EntryEdit{old_name, "", nullptr});
  }
  return "";
}

std::string Disk::remove(const Frame& frame) {
  const auto [folder, name] = folder_of(frame.path);
  if (folder == nullptr || !folder->entries.contains(name)) return "of what nobody made";
  change(*folder, EntryEdit{name, "", nullptr});
  return "";
}

std::string Disk::link(const Frame& frame) {
  const auto [from, old_name] = folder_of(frame.path);
  const auto [to, new_name] = folder_of(frame.other);
  if (from == nullptr || to == nullptr || !from->entries.contains(old_name)) {
    return "of what nobody made";
  }
  change(*to, EntryEdit{"", new_name, from->entries.at(old_name)});
  return "";
}

std::string Disk::apply(const Frame& frame) {
  const auto known = inodes_.find(frame.inode);
  const NodePtr node = known == inodes_.end() ? nullptr : known->second;
  switch (frame.event) {
    case Event::kRoot:
      inodes_[frame.inode] = root_;
      return "";
    case Event::kCreate:
      return make(frame, Tree::Kind::kFile);
    case Event::kMakeDir:
      return make(frame, Tree::Kind::kFolder);
    case Event::kSymlink:
      return make(frame, Tree::Kind::kSymlink);
    case Event::kTruncate:
    case Event::kWrite:
      if (node == nullptr) return "of a file that nobody made";
      if (frame.offset < 0 || frame.offset > kMaxFileBytes) return "of a file that is too large";
      change(*node, Edit{frame.offset, frame.data, frame.event == Event::kTruncate});
      return "";
    case Event::kSync:
      if (node == nullptr) return "of what nobody made";
      node->synced = node->now;
      node->edits.clear();
      node->synced_entries = node->entries;
      node->entry_edits.clear();
      return "";
    case Event::kSyncAll:
      sync_all();
      return "";
    case Event::kRename:
      return move(frame);
    case Event::kLink:
      return link(frame);
    case Event::kRemove:
      return remove(frame);
    case Event::kMark:
      return "";
    case Event::kUnrecorded:
      return frame.data;
  }
  return "of an unknown kind";
}

// ------------------------------------------------------------------------------ what a cut leaves

/// Builds one tree; what it chose for a file or a folder it keeps, whatever names lead there.
class Disk::Walk {
 public:
  explicit Walk(const Survival& survival) : survival_(survival), random_(survival.seed) {}

  Tree run(const Node& root) {
    add_entries(root, "");
    return std::move(tree_);
  }

 private:
  void add_entries(const Node& folder, const std::string& prefix) {
    for (const auto& [name, node] : entries_of(folder)) {
      const std::string path = prefix + name;
      const auto [first, is_first] = paths_.emplace(node.get(), path);
      Tree::Item& item = tree_.items[path];
      item.kind = node->kind;
      if (node->kind == Tree::Kind::kFolder) {
        if (is_first) add_entries(*node, path + "/");
      } else if (is_first) {
        item.content = bytes_of(*node);
      } else {
        item.same_as = first->second;
        item.content = tree_.items.at(first->second).content;
      }
    }
  }

  Entries entries_of(const Node& folder) {
    if (survival_.names == Survival::Names::kAll) return folder.entries;
    Entries entries = folder.synced_entries;
    if (survival_.names == Survival::Names::kSome) {
      const size_t n = random_() % (folder.entry_edits.size() + 1);
      for (size_t i = 0; i < n; ++i) edit_entries(entries, folder.entry_edits[i]);
    }
    return entries;
  }

  std::string bytes_of(const Node& file) {
    using Bytes = Survival::Bytes;
    Bytes bytes = survival_.bytes;
    bool torn = false;
    if (bytes == Bytes::kAnything) {
      const uint64_t choice = random_() % 4;
      torn = choice == 3;
      bytes = choice == 0 ? Bytes::kSynced : choice == 1 ? Bytes::kAll : Bytes::kZeros;
    }
    if (torn) return torn_bytes(file);
    if (bytes == Bytes::kAll || file.kind == Tree::Kind::kSymlink) return file.now;
    std::string content = file.synced;
    if (bytes == Bytes::kZeros) content.resize(std::max(content.size(), file.now.size()));
    return content;
  }

  std::string torn_bytes(const Node& file) {
    std::string content = file.synced;
    if (file.edits.empty()) return content;
    const size_t n = random_() % file.edits.size();
    for (size_t i = 0; i < n; ++i) edit_bytes(content, file.edits[i]);
    Edit last = file.edits[n];
    if (!last.bytes.empty()) last.bytes.resize(random_() % last.bytes.size());
    if (!last.resizes && !last.bytes.empty()) edit_bytes(content, last);
    return content;
  }

  const Survival survival_;
  std::mt19937_64 random_;
  Tree tree_;
  std::unordered_map<const Node*, std::string> paths_;
};

Tree Disk::now() const {
  return after_power_cut({Survival::Names::kAll, Survival::Bytes::kAll, 0});
}

Tree Disk::after_power_cut(const Survival& survival) const { return Walk(survival).run(*root_); }

}  // namespace weft::test
