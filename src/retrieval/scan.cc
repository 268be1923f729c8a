#include "retrieval/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ranges>
#include <set>
#include <system_error>
#include <utility>

#include "base/hash.h"
#include "text/utf8.h"

namespace weft::retrieval {
namespace {

constexpr size_t kBinaryProbeBytes = 8192;

/// Another store, by what stands in its folder.
bool is_store(const std::vector<DirEntry>& entries) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(entries, name, &DirEntry::name) != entries.end();
  };
  return has("store.lock") && has("properties") && has("documents.sqlite");
}

class Scanner {
 public:
  Scanner(Env& env, Index& index, const ScanOptions& options)
      : env_(env), index_(index), options_(options) {
    if (!options.store_dir.empty()) store_dir_ = canonical_path(options.store_dir);
  }

  Result<ScanResult> run(std::span<const std::string> paths) {
    WEFT_ASSIGN_OR_RETURN(const auto documents, index_.documents());
    for (const Document& document : documents) known_.emplace(document.info.path, document);
    WEFT_ASSIGN_OR_RETURN(const Unfinished unfinished, index_.unfinished());
    unfinished_roots_.insert(unfinished.roots.begin(), unfinished.roots.end());
    for (const std::string& path : paths) roots_.push_back(canonical_path(path));
    for (size_t i = 0; i < paths.size(); ++i) WEFT_RETURN_IF_ERROR(find_root(paths[i], roots_[i]));
    for (const auto& [path, entry] : found_) judge(path, entry);
    find_moved();
    for (const auto& known : known_) {
      if (is_asked(known.first) && !present_.contains(known.first)) {
        add(Change::kDeleted, known.second.info);
      }
    }
    std::sort(result_.files.begin(), result_.files.end(),
              [](const auto& a, const auto& b) { return a.info.path < b.info.path; });
    std::sort(result_.skipped.begin(), result_.skipped.end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
    result_.roots = roots_;
    return std::move(result_);
  }

 private:
  Status find_root(const std::string& as_given, const std::string& root) {
    const auto entry = env_.stat(root);
    if (entry.is_ok()) {
      walk(root, *entry);
      return Status::ok();
    }
    const auto is_there = [&](const std::string& path) { return is_under(path, root); };
    const bool was_known = std::ranges::any_of(std::views::keys(known_), is_there) ||
                           std::ranges::any_of(unfinished_roots_, is_there);
    if (entry.status().code() == StatusCode::kNotFound && was_known) return Status::ok();
    return {entry.status().code(), as_given + ": no such file or folder"};
  }

  /// Depth is bounded by the file system's own limit on paths: a folder is entered once, by its
  /// canonical path.
  void walk(const std::string& path, const DirEntry& entry) {
    if (!store_dir_.empty() && is_under(path, store_dir_)) return;
    if (!entry.is_directory) {
      found_.emplace(path, entry);
      return;
    }
    if (!entered_.insert(path).second) return;
    const auto entries = env_.list(path);
    if (!entries.is_ok()) {
      keep_known_under(path);
      return skip(path, "the folder cannot be read");
    }
    if (is_store(*entries)) {
      keep_known_under(path);
      return skip(path, "a store of weft's");
    }
    for (const DirEntry& child : *entries) {
      if (child.name.starts_with('.')) continue;
      const std::string name = join_path(path, child.name);
      const std::string canonical = canonical_path(name);
      if (is_asked(canonical)) {
        walk(canonical, child);
      } else if (store_dir_.empty() || !is_under(canonical, store_dir_)) {
        skip(name, "a link out of the folder; name " + canonical + " to ingest it");
      }
    }
  }

  bool is_asked(const std::string& path) const {
    return std::ranges::any_of(roots_, [&](const auto& root) { return is_under(path, root); });
  }

  std::string root_of(const std::string& path) const {
    const auto root =
        std::ranges::find_if(roots_, [&](const auto& one) { return is_under(path, one); });
    return root == roots_.end() ? "" : *root;
  }

  /// A new file with the content of a document whose own file is gone, here or anywhere, is that
  /// document.
  void find_moved() {
    std::multimap<std::string_view, const Document*> by_content;
    for (const auto& [path, document] : known_) {
      if (!present_.contains(path)) by_content.emplace(document.info.content_hash, &document);
    }
    for (ScannedFile& file : result_.files) {
      if (file.change != Change::kNew) continue;
      const auto [begin, end] = by_content.equal_range(file.info.content_hash);
      const auto from = std::find_if(begin, end, [&](const auto& candidate) {
        return env_.stat(candidate.second->info.path).status().code() == StatusCode::kNotFound;
      });
      if (from == end) continue;
      file.change = Change::kMoved;
      file.moved_from = from->second->info.path;
      present_.insert(file.moved_from);
      by_content.erase(from);
    }
  }

  void judge(const std::string& path, const DirEntry& entry) {
    const auto known = known_.find(path);
    const bool is_known = known != known_.end();
    if (is_known && known->second.info.size_bytes == entry.size_bytes &&
        known->second.info.modified_ns == entry.modified_ns) {
      const bool stored = known->second.status == DocumentStatus::kStored;
      return add(stored ? Change::kUnchanged : Change::kIncomplete, known->second.info);
    }
    auto loaded = load_document(env_, path, options_.max_document_bytes);
    if (!loaded.is_ok()) {
      const bool unreadable = loaded.status().code() != StatusCode::kUnsupported;
      if (unreadable) present_.insert(path);
      return skip(path, unreadable ? "it cannot be read" : loaded.status().message());
    }
    if (!is_known) return add(Change::kNew, std::move(loaded->info));
    const bool same = known->second.info.content_hash == loaded->info.content_hash;
    const bool stored = known->second.status == DocumentStatus::kStored;
    add(!same    ? Change::kChanged
        : stored ? Change::kTouched
                 : Change::kIncomplete,
        std::move(loaded->info));
  }

  void add(Change change, DocumentInfo info) {
    present_.insert(info.path);
    const auto known = known_.find(info.path);
    if (known != known_.end()) info.root = known->second.info.root;
    if (info.root.empty()) info.root = root_of(info.path);
    result_.files.push_back({change, std::move(info)});
  }

  void skip(const std::string& path, std::string reason) {
    result_.skipped.push_back({path, std::move(reason)});
  }

  void keep_known_under(const std::string& folder) {
    for (const auto& [path, document] : known_) {
      if (is_under(path, folder)) present_.insert(path);
    }
  }

  Env& env_;
  Index& index_;
  const ScanOptions& options_;
  std::string store_dir_;
  std::vector<std::string> roots_;  // canonical
  std::map<std::string, Document> known_;
  std::map<std::string, DirEntry> found_;  // files, by canonical path
  std::set<std::string> unfinished_roots_;
  std::set<std::string> entered_;  // folders
  std::set<std::string> present_;  // documents that are not deleted
  ScanResult result_;
};

}  // namespace

std::string canonical_path(const std::string& path) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(path, error);
  if (!error && canonical.is_absolute()) return canonical.string();
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

bool is_under(const std::string& path, const std::string& folder) {
  if (path == folder || folder == "/") return true;
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::string path_from_root(const std::string& path, const std::string& root) {
  if (root.empty() || root == "/" || !is_under(path, root)) return path;
  return path.substr(root.rfind('/') + 1);
}

Status check_outside_store(std::span<const std::string> paths, const std::string& store_dir) {
  const std::string store = canonical_path(store_dir);
  for (const std::string& path : paths) {
    if (!is_under(canonical_path(path), store)) continue;
    return invalid_argument(
        fmt::format("{}: lies in the store's own folder {}; give the store a folder of its own",
                    path, store_dir));
  }
  return Status::ok();
}

Result<ScanResult> scan(Env& env, Index& index, std::span<const std::string> paths,
                        const ScanOptions& options) {
  return Scanner(env, index, options).run(paths);
}

Result<LoadedDocument> load_document(Env& env, const std::string& path, uint64_t max_bytes) {
  LoadedDocument document;
  // Before the content: a change in between makes the next scan read the file again.
  WEFT_ASSIGN_OR_RETURN(const DirEntry entry, env.stat(path));
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path));
  if (file->size_bytes() > max_bytes) {
    return unsupported(fmt::format("larger than {} bytes", max_bytes));
  }
  document.text.resize(static_cast<size_t>(file->size_bytes()));
  const auto bytes = std::as_writable_bytes(std::span(document.text));
  const auto probe = bytes.first(std::min(bytes.size(), kBinaryProbeBytes));
  WEFT_RETURN_IF_ERROR(file->read_at(0, probe));
  if (std::find(probe.begin(), probe.end(), std::byte{0}) != probe.end()) {
    return unsupported("a binary file");
  }
  WEFT_RETURN_IF_ERROR(file->read_at(probe.size(), bytes.subspan(probe.size())));
  if (!text::is_valid_utf8(document.text)) return unsupported("not UTF-8");
  document.info = {.path = path,
                   .title = std::filesystem::path(path).stem().string(),
                   .size_bytes = entry.size_bytes,
                   .modified_ns = entry.modified_ns,
                   .content_hash = hash128(bytes).to_hex()};
  return document;
}

}  // namespace weft::retrieval
