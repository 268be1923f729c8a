// What an ingest has to do, told by comparing folders with the index. A document is its canonical
// path, and it is unchanged if size and time are what the index has; reading and hashing each file
// every time would take long for a large folder. The price are the cases in which a time misleads:
// a file that was written again within one tick of the clock (its time is then kept as unknown, and
// it is read again), or one whose time was set back (--rehash reads all).
//
// Deleting is the dangerous half, since KV took long to compute. A document is deleted only if its
// path was under a named one and is gone or skipped now. What cannot be read keeps its documents,
// an empty mount point is refused by name, a new file with a gone document's content is taken as
// moved, and what was named by itself stays when a walk from above would skip it.
//
// Folders are walked depth first with the ignore files of the folders above. All input is hostile:
// links may form loops (each folder is entered once, by its canonical path), ignore files may be
// large (their memory is bounded) or slow to match (steps are bounded).
#include "retrieval/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/shell_text.h"
#include "retrieval/ignore_rules.h"

namespace weft::retrieval {
namespace {

using documents::Read;
using documents::Refusal;

/// So much is read first at both ends of a large file, to tell what kind it is.
constexpr uint64_t kEndBytes = 64 * 1024;
/// Of a file's time: what is written within one tick of the clock that stamps files has the same
/// one. FAT's tick is the longest that is met.
constexpr int64_t kLongestTickNs = 2'000'000'000;
constexpr size_t kMaxRuleMemory = size_t{64} << 20;  // of the ignore files that hold at one time
/// Of comparing one path with all ignore files that hold for it, each with its share: about 5 ms,
/// and a hundred times what a thousand usual lines take.
constexpr uint64_t kMaxMatchSteps = 2'000'000;
constexpr std::string_view kGitIgnore = ".gitignore";
constexpr std::string_view kWeftIgnore = ".weftignore";

/// The part of a path below one of its folders.
std::string_view below(const std::string& path, const std::string& folder) {
  return std::string_view(path).substr(folder == "/" ? 1 : folder.size() + 1);
}

std::string parent_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

bool has_name(const std::vector<DirEntry>& entries, std::string_view name) {
  return std::ranges::find(entries, name, &DirEntry::name) != entries.end();
}

/// Whether a folder with these entries is a store.
bool is_store(const std::vector<DirEntry>& entries) {
  return has_name(entries, "store.lock") && has_name(entries, "properties") &&
         has_name(entries, "documents.sqlite");
}

Result<std::string> read_part(const ReadFile& file, uint64_t begin, uint64_t end) {
  std::string bytes(static_cast<size_t>(end - begin), '\0');
  WEFT_RETURN_IF_ERROR(file.read_at(begin, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

/// The hash that a document's content is compared by. Where the text is the file's bytes it is
/// theirs, as in older versions; where they were converted, the way of reading is hashed, too,
/// since the same bytes read in another way are another text.
std::string content_hash(const Hash128& of_bytes, const std::string& reading) {
  if (reading.empty()) return of_bytes.to_hex();
  const std::string both = of_bytes.to_hex() + " " + reading;
  return hash128(std::as_bytes(std::span(both))).to_hex();
}

/// A file's time if it can be relied on later; kUnknownTime if the file is so new that it could be
/// written again without getting another time.
int64_t trusted_time(Env& env, const DirEntry& entry) {
  const int64_t now_ms = env.unix_ms();
  const bool is_old = entry.modified_ns / 1'000'000 < now_ms - kLongestTickNs / 1'000'000;
  return is_old ? entry.modified_ns : kUnknownTime;
}

Result<Read<LoadedDocument>> load(Env& env, const std::string& path, const ScanOptions& options) {
  // Before the content: a change in between makes the next scan read the file again.
  WEFT_ASSIGN_OR_RETURN(const DirEntry entry, env.stat(path));
  const int64_t modified_ns = trusted_time(env, entry);
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path));
  const uint64_t size = file->size_bytes();
  if (size > 2 * kEndBytes) {
    WEFT_ASSIGN_OR_RETURN(const std::string begin, read_part(*file, 0, kEndBytes));
    WEFT_ASSIGN_OR_RETURN(const std::string end, read_part(*file, size - kEndBytes, size));
    auto refusal = documents::refused_by_ends(begin, end, options.encoding);
    if (refusal) return Read<LoadedDocument>(*std::move(refusal));
  }
  if (size > options.max_document_bytes) {
    return Read<LoadedDocument>(
        Refusal{"too large", fmt::format("larger than {} bytes", options.max_document_bytes)});
  }
  WEFT_ASSIGN_OR_RETURN(std::string bytes, read_part(*file, 0, size));
  const Hash128 hash = hash128(std::as_bytes(std::span(bytes)));
  const std::string name = std::filesystem::path(path).filename().string();
  auto read = documents::read_document(
      std::move(bytes),
      {.name = name, .encoding = options.encoding, .max_text_bytes = options.max_document_bytes});
  if (auto* refusal = std::get_if<Refusal>(&read)) {
    return Read<LoadedDocument>(std::move(*refusal));
  }
  auto& document = std::get<documents::Document>(read);
  LoadedDocument loaded;
  loaded.has_own_title = !document.title.empty();
  loaded.info = {.path = path,
                 .title = loaded.has_own_title ? std::move(document.title) : title_of_name(path),
                 .size_bytes = entry.size_bytes,
                 .modified_ns = modified_ns,
                 .content_hash = content_hash(hash, document.reading)};
  loaded.text = std::move(document.text);
  loaded.lines = std::move(document.lines);
  loaded.format = document.format;
  loaded.guess = std::move(document.guess);
  return Read<LoadedDocument>(std::move(loaded));
}

/// The ignore rules of a folder; `above` has those of the folders above it, which hold here, too.
struct IgnoreLevel {
  explicit IgnoreLevel(size_t& rule_memory_of_all) : rule_memory(rule_memory_of_all) {}
  ~IgnoreLevel() { rule_memory -= own_memory; }
  IgnoreLevel(const IgnoreLevel&) = delete;
  IgnoreLevel& operator=(const IgnoreLevel&) = delete;

  std::string dir;
  IgnoreRules weft;
  IgnoreRules git;
  std::shared_ptr<const IgnoreLevel> above;
  size_t own_memory = 0;  // bytes of its rules, which rule_memory includes
  size_t& rule_memory;
};

class Scanner {
 public:
  Scanner(Env& env, Index& index, const ScanOptions& options)
      : env_(env), index_(index), options_(options) {
    if (!options.store_dir.empty()) store_dir_ = canonical_path(options.store_dir);
  }

  Result<ScanResult> run(std::span<const std::string> paths) {
    WEFT_RETURN_IF_ERROR(check_not_empty(paths));
    const size_t exclude_bytes = IngestRoot{.exclude = options_.exclude}.exclude_bytes();
    if (exclude_bytes > IngestRoot::kMaxExcludeBytes) {
      return invalid_argument(
          fmt::format("{} patterns to exclude by, of {} bytes together: at most {}; a .weftignore "
                      "takes more",
                      options_.exclude.size(), exclude_bytes, IngestRoot::kMaxExcludeBytes));
    }
    for (const std::string& pattern : options_.exclude) {
      if (!exclude_.add(pattern)) {
        return invalid_argument(fmt::format(
            "'{}': no pattern to exclude by: a set or an escape that does not end, or more than {} "
            "bytes or {} patterns",
            pattern.substr(0, 80), IgnoreRules::kMaxPatternBytes, IgnoreRules::kMaxRules));
      }
    }
    WEFT_ASSIGN_OR_RETURN(const auto documents, index_.documents());
    for (const Document& document : documents) known_.emplace(document.info.path, document);
    WEFT_ASSIGN_OR_RETURN(const Unfinished unfinished, index_.unfinished());
    for (const IngestRoot& root : unfinished.roots) unfinished_roots_.insert(root.path);
    for (const std::string& path : paths) roots_.push_back(canonical_path(path));
    root_set_.insert(roots_.begin(), roots_.end());
    for (const std::string& root : roots_) tops_.insert(work_tree_of(root));
    find_kept();
    for (size_t i = 0; i < paths.size(); ++i) WEFT_RETURN_IF_ERROR(find_root(paths[i], roots_[i]));
    for (const auto& [path, entry] : kept_) found_.emplace(path, entry);
    find_outdated(paths);
    note_unused_ignore_files();
    for (const auto& [path, entry] : found_) {
      if (is_stopped()) break;
      judge(path, entry);
    }
    keep_unread();
    find_moved();
    for (const auto& known : known_) {
      if (is_stopped()) break;
      const std::string& path = known.first;
      if (present_.contains(path) || !(is_asked(path) || outdated_.contains(path))) continue;
      result_.files.push_back({Change::kDeleted, known.second.info, is_skipped_now(path), ""});
    }
    note_skipped_now();
    if (is_stopped_) return cancelled("stopped; nothing was changed");
    for (size_t i = 0; i < paths.size(); ++i) {
      WEFT_RETURN_IF_ERROR(check_not_all_gone(paths[i], roots_[i]));
    }
    std::sort(result_.files.begin(), result_.files.end(),
              [](const auto& a, const auto& b) { return a.info.path < b.info.path; });
    std::sort(result_.skipped.begin(), result_.skipped.end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
    result_.roots = roots_;
    return std::move(result_);
  }

 private:
  /// Whether the user stopped the scan. From then on no entry is looked at and the result is
  /// dropped.
  bool is_stopped() {
    is_stopped_ = is_stopped_ || (options_.cancelled && options_.cancelled());
    return is_stopped_;
  }

  /// Walks one named path. One that does not exist is an error, which says how to remove its
  /// documents.
  Status find_root(const std::string& as_given, const std::string& root) {
    if (is_stopped()) return Status::ok();
    const auto entry = env_.stat(root);
    if (entry.is_ok()) {
      walk(root, *entry);
      return Status::ok();
    }
    if (entry.status().code() != StatusCode::kNotFound) return entry.status();
    const auto is_there = [&](const std::string& path) { return is_under(path, root); };
    const auto n_known =
        std::ranges::count_if(known_, [&](const auto& known) { return is_there(known.first); });
    const std::string command = removal_of(as_given);
    if (n_known > 0) {
      return not_found(fmt::format("{} does not exist; `{}` takes its {} document{} out", as_given,
                                   command, n_known, n_known == 1 ? "" : "s"));
    }
    if (std::ranges::any_of(unfinished_roots_, is_there)) {
      return not_found(fmt::format("{} does not exist; `{}` ends the ingest that was begun there",
                                   as_given, command));
    }
    const auto link = env_.stat_link(as_given);
    return not_found(as_given + (link.is_ok() && link->is_link ? ": a link that leads nowhere"
                                                               : ": no such file or folder"));
  }

  std::string removal_of(const std::string& as_given) const {
    return fmt::format(
        "weft docs rm{} {}",
        options_.store_dir.empty() ? "" : " --store " + shell_path(options_.store_dir),
        shell_path(as_given));
  }

  /// The top of the git work tree that a folder is in, else the folder itself.
  std::string work_tree_of(const std::string& folder) {
    if (!options_.reads_ignore_files) return folder;
    for (std::string dir = folder;; dir = parent_of(dir)) {
      if (env_.exists(join_path(dir, ".git"))) return dir;
      if (dir == "/" || dir.empty()) return folder;
    }
  }

  /// Depth is bounded by the file system's own limit on paths: a folder is entered once, by its
  /// canonical path.
  void walk(const std::string& path, const DirEntry& entry) {
    if (!entry.is_directory) {
      found_.emplace(path, entry);
      return;
    }
    if (!entered_.insert(path).second) return;
    const auto entries = env_.list(path, BrokenLinks::kList);
    if (!entries.is_ok()) {
      keep_known_under(path);
      return skip(path, "unreadable", "the folder cannot be read");
    }
    if (is_store(*entries)) {
      keep_known_under(path);
      return skip(path, "store", "a store of weft's");
    }
    const auto level = level_of(path, &*entries);
    if (!level.is_ok()) {
      keep_known_under(path);
      return skip(path, "unreadable", "an ignore file that holds for it cannot be read");
    }
    for (const DirEntry& child : *entries) walk_child(path, child, level->get());
    // The rules are not needed any more; a link that leads below here later reads them again.
    levels_.erase(path);
  }

  void walk_child(const std::string& folder, const DirEntry& child, const IgnoreLevel* level) {
    if (is_stopped()) return;
    const std::string name = join_path(folder, child.name);
    if (is_root(name) || kept_.contains(name)) return;  // it has its own turn
    if (auto refused = refused_by_name(child.name, child.is_directory)) {
      return skip(name, std::move(refused->kind), std::move(refused->reason));
    }
    if (child.is_link && !child.is_directory && !child.is_regular && !env_.exists(name)) {
      return skip(name, "broken link", "a link that leads nowhere");
    }
    if (const std::string_view by = ignored_by(name, child.is_directory, level); !by.empty()) {
      return skip(name, fmt::format("by {}", by), fmt::format("{} says so", by));
    }
    const std::string canonical = child.is_link ? canonical_path(name) : name;
    if (child.is_link && is_root(canonical)) return;
    if (!store_dir_.empty() && is_under(canonical, store_dir_)) {
      return skip(name, "store", "the store itself");
    }
    if (is_asked(canonical)) {
      if (auto refused = child.is_link ? refused_target(canonical, child) : std::nullopt) {
        return skip(name, std::move(refused->kind), std::move(refused->reason));
      }
      return walk(canonical, child);
    }
    skip(name, "link out of the folder",
         fmt::format("a link out of the folder; name {} to ingest it", canonical));
  }

  static std::optional<Refusal> refused_by_name(std::string_view name, bool is_folder) {
    if (name.starts_with('.')) return Refusal{"hidden", "hidden: name it to have it"};
    if (is_folder && name == "node_modules") {
      return Refusal{"node_modules", "packages of others: name it to have it"};
    }
    const bool is_backup = name.ends_with('~') || name.ends_with(".bak") || name.ends_with(".orig");
    if (!is_folder && is_backup) return Refusal{"backup", "an editor's backup: name it to have it"};
    return std::nullopt;
  }

  /// Refuses the target of a link as the walk itself would have refused it.
  std::optional<Refusal> refused_target(const std::string& target, const DirEntry& entry) {
    std::string top = target;
    while (!is_root(top)) top = parent_of(top);
    return refused_below(top, target, entry);
  }

  /// Whether a walk from `top`, which `target` is or lies under, would skip it: each folder on the
  /// way and the target itself are judged.
  std::optional<Refusal> refused_below(const std::string& top, const std::string& target,
                                       const DirEntry& entry) {
    std::vector<std::string> way;  // from the target up, without the top
    for (std::string at = target; at != top; at = parent_of(at)) way.push_back(at);
    for (const std::string& at : way | std::views::reverse) {
      const bool is_folder = at != target || entry.is_directory;
      const std::string folder = parent_of(at);
      if (auto refused = refused_by_name(below(at, folder), is_folder)) return refused;
      const auto level = level_of(folder, nullptr);
      if (!level.is_ok()) {
        return Refusal{"unreadable", "an ignore file that holds for it cannot be read"};
      }
      if (const std::string_view by = ignored_by(at, is_folder, level->get()); !by.empty()) {
        return Refusal{fmt::format("by {}", by), fmt::format("{} says so", by)};
      }
    }
    return std::nullopt;
  }

  /// Documents that an earlier ingest has because they, or a folder that they lie in, were named:
  /// they stay although a walk from above skips them, as long as their files are there and this
  /// ingest's own --exclude does not name them.
  void find_kept() {
    for (const auto& [path, document] : known_) {
      if (is_stopped()) return;
      const std::string& named = document.info.root;
      const std::string top = root_of(path);
      if (top.empty() || named == top || is_root(path) || !is_under(named, top) ||
          !is_under(path, named)) {
        continue;
      }
      const auto entry = env_.stat(path);
      if (!store_dir_.empty() && is_under(path, store_dir_)) continue;
      if (is_excluded(path)) continue;
      if (!entry.is_ok()) {  // what cannot be looked at may be as it was
        if (entry.status().code() != StatusCode::kNotFound) present_.insert(path);
        continue;
      }
      if (entry->is_directory || canonical_path(path) != path) continue;
      const auto refused = refused_below(named, path, *entry);
      if (!refused || refused->kind == "unreadable") kept_.emplace(path, *entry);
    }
  }

  /// Whether --exclude names the path or a folder between it and a named path.
  bool is_excluded(const std::string& path) {
    if (exclude_.is_empty()) return false;
    const std::string top = root_of(path);
    for (std::string at = path; at != top; at = parent_of(at)) {
      const bool is_folder = at != path;
      if (exclude_.judge(RelativePath(below(at, top)), is_folder) ==
          IgnoreRules::Verdict::kIgnored) {
        return true;
      }
    }
    return false;
  }

  /// The named paths that `path` is or lies under, the innermost first.
  std::vector<std::string> roots_above(const std::string& path) const {
    std::vector<std::string> above;
    for (std::string at = path;; at = parent_of(at)) {
      if (is_root(at)) above.push_back(at);
      if (at == "/" || at.empty()) return above;
    }
  }

  /// Whether a walk from the root that a found file's document has would not come to it: it is here
  /// because it, or a folder that it lies in, was named.
  bool is_lost_from(const std::string& root, const std::string& path) {
    const std::vector<std::string> above = roots_above(path);
    const bool is_from_there = above.size() == 1 && above.front() == root;  // as usual
    if (is_from_there || !is_under(path, root)) return false;
    if (!is_asked(root)) tops_.insert(work_tree_of(root));
    return refused_below(root, path, found_.at(path)).has_value();
  }

  /// The named path that a found file's document is there by: of those that it lies under the
  /// outermost from which a walk comes to it.
  std::string naming_root(const std::string& path) {
    const std::vector<std::string> above = roots_above(path);
    for (const std::string& root : above | std::views::reverse) {
      if (above.size() == 1 || !refused_below(root, path, found_.at(path))) return root;
    }
    return above.empty() ? "" : above.front();
  }

  /// The file or flag that ignores a path in a folder that is walked; "" where none does.
  std::string_view ignored_by(const std::string& path, bool is_folder, const IgnoreLevel* level) {
    using Verdict = IgnoreRules::Verdict;
    if (!exclude_.is_empty()) {
      const auto root = std::ranges::find_if(
          roots_, [&](const std::string& r) { return path != r && is_under(path, r); });
      if (root != roots_.end()) {
        const Verdict verdict = exclude_.judge(RelativePath(below(path, *root)), is_folder);
        if (verdict != Verdict::kNothing) return verdict == Verdict::kIgnored ? "--exclude" : "";
      }
    }
    std::vector<RelativePath> paths;  // from each level down
    for (const IgnoreLevel* at = level; at != nullptr; at = at->above.get()) {
      paths.emplace_back(at->weft.is_empty() && at->git.is_empty() ? std::string_view()
                                                                   : below(path, at->dir));
    }
    uint64_t n_files = 0;
    for (const IgnoreLevel* at = level; at != nullptr; at = at->above.get()) {
      n_files += (at->weft.is_empty() ? 0 : 1) + (at->git.is_empty() ? 0 : 1);
    }
    const uint64_t share = kMaxMatchSteps / std::max<uint64_t>(n_files, 1);
    // .weftignore decides before .gitignore, at every depth; of one kind the nearest file decides.
    for (const bool is_weft : {true, false}) {
      size_t i = 0;
      for (const IgnoreLevel* at = level; at != nullptr; at = at->above.get(), ++i) {
        uint64_t steps = share;
        const Verdict verdict = (is_weft ? at->weft : at->git).judge(paths[i], is_folder, steps);
        if (steps == 0) note_costly(at->dir, is_weft);
        if (verdict == Verdict::kIncluded) return "";
        if (verdict == Verdict::kIgnored) return is_weft ? kWeftIgnore : kGitIgnore;
      }
    }
    return "";
  }

  /// The ignore files of a folder that is, or lies in, one of `tops_`; `entries` are what it has,
  /// null where that is not known. A link may lead here before the folder's own turn.
  Result<std::shared_ptr<const IgnoreLevel>> level_of(const std::string& dir,
                                                      const std::vector<DirEntry>* entries) {
    if (!options_.reads_ignore_files) return std::shared_ptr<const IgnoreLevel>();
    const auto known = levels_.find(dir);
    if (known != levels_.end()) return known->second;
    auto level = std::make_shared<IgnoreLevel>(rule_memory_);
    level->dir = dir;
    if (!tops_.contains(dir) && dir != "/") {
      WEFT_ASSIGN_OR_RETURN(level->above, level_of(parent_of(dir), nullptr));
    }
    for (const bool is_weft : {true, false}) {
      const std::string_view name = is_weft ? kWeftIgnore : kGitIgnore;
      if (entries != nullptr && !has_name(*entries, name)) continue;
      WEFT_RETURN_IF_ERROR(read_rules(join_path(dir, std::string(name)), *level, is_weft));
    }
    return levels_.emplace(dir, std::move(level)).first->second;
  }

  Status read_rules(const std::string& path, IgnoreLevel& level, bool is_weft) {
    const auto entry = env_.stat(path);
    if (!entry.is_ok() && entry.status().code() == StatusCode::kNotFound) return Status::ok();
    WEFT_RETURN_IF_ERROR(entry.status());
    if (!entry->is_regular) return Status::ok();
    if (entry->size_bytes > IgnoreRules::kMaxFileBytes) {
      note(fmt::format("{}: larger than {} bytes, so it is not used", path,
                       IgnoreRules::kMaxFileBytes));
      return Status::ok();
    }
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          read_file(env_, path, IgnoreRules::kMaxFileBytes));
    IgnoreRules rules;
    const bool all = rules.add_all(text);
    const size_t memory = rules.memory_bytes();
    if (memory > kMaxRuleMemory - rule_memory_) {
      unused_ignore_files_.insert(path);
      return Status::ok();
    }
    rule_memory_ += memory;
    level.own_memory += memory;
    (is_weft ? level.weft : level.git) = std::move(rules);
    if (!all) {
      note(fmt::format(
          "{}: some of its lines are not used: they end within a set or an escape, are longer than "
          "{} bytes, or come after {} others",
          path, IgnoreRules::kMaxPatternBytes, IgnoreRules::kMaxRules));
    }
    return Status::ok();
  }

  /// Adds a note once: an ignore file may be read twice.
  void note(std::string line) {
    if (noted_.insert(line).second) result_.notes.push_back(std::move(line));
  }

  void note_costly(const std::string& dir, bool is_weft) {
    note(
        fmt::format("{}: not all of its lines are used for each file: comparing them with one "
                    "path takes too long",
                    join_path(dir, std::string(is_weft ? kWeftIgnore : kGitIgnore))));
  }

  void note_unused_ignore_files() {
    if (unused_ignore_files_.empty()) return;
    const size_t more = unused_ignore_files_.size() - 1;
    note(
        fmt::format("{}{}: not used: with the ignore files above {} the patterns take more than "
                    "{} MiB of memory",
                    *unused_ignore_files_.begin(),
                    more == 0 ? "" : fmt::format(" and {} more ignore files", more),
                    more == 0 ? "it" : "them", kMaxRuleMemory >> 20));
  }

  bool is_root(const std::string& path) const { return root_set_.contains(path); }

  /// The outermost of the named paths that it is, or lies under; "" with none.
  std::string root_of(const std::string& path) const {
    std::string root;
    for (std::string at = path;; at = parent_of(at)) {
      if (is_root(at)) root = at;
      if (at == "/" || at.empty()) return root;
    }
  }

  bool is_asked(const std::string& path) const { return !root_of(path).empty(); }

  /// Documents below a named path as it was written, from before one of its names became a link:
  /// their own paths lead elsewhere now, where each is another document or none.
  void find_outdated(std::span<const std::string> paths) {
    for (const std::string& path : paths) {
      const std::string canonical = canonical_path(path);
      for (const std::string& form : forms_of_path(path)) {
        if (form == canonical) continue;
        for (auto at = known_.lower_bound(form); at != known_.end(); ++at) {
          if (!at->first.starts_with(form)) break;
          if (!is_under(at->first, form)) continue;
          const std::string now = canonical_path(at->first);
          if (now != at->first) outdated_.emplace(at->first, now);
        }
      }
    }
  }

  /// Refuses to take all documents of a named folder out where nothing is in it any more: their KV
  /// took long, and a disk that is not mounted looks the same. One document is soon computed again.
  Status check_not_all_gone(const std::string& as_given, const std::string& root) {
    constexpr int64_t kLeastDocuments = 2;
    const auto is_below = [&](const std::string& path) {
      const auto outdated = outdated_.find(path);
      return is_under(path, root) ||
             (outdated != outdated_.end() && is_under(outdated->second, root));
    };
    if (std::ranges::any_of(present_, is_below)) return Status::ok();
    int64_t n_gone = 0;
    for (const ScannedFile& file : result_.files) {
      if (!is_below(file.info.path)) continue;
      if (file.is_there) return Status::ok();
      ++n_gone;
    }
    if (n_gone < kLeastDocuments) return Status::ok();
    return not_found(
        fmt::format("{}: none of its {} documents is there any more (a disk that is not mounted?); "
                    "`{}` takes them out",
                    as_given, n_gone, removal_of(as_given)));
  }

  /// Keeps the documents whose files could not be read, also those known by another path: the files
  /// may be unchanged.
  void keep_unread() {
    for (const auto& [path, now] : outdated_) {
      for (std::string at = now;; at = parent_of(at)) {
        if (unread_.contains(at)) present_.insert(path);
        if (at == "/" || at.empty()) break;
      }
    }
  }

  /// Whether a document that the walk did not find still has its file, which is therefore skipped
  /// now. A link to another document does not count.
  bool is_skipped_now(const std::string& path) const {
    if (!env_.stat(path).is_ok()) return false;
    const std::string now = canonical_path(path);
    return now == path || !is_asked(now);
  }

  /// Notes documents that are removed although their files exist: nobody deleted anything, so the
  /// user should know.
  void note_skipped_now() {
    constexpr int64_t kNamed = 3;
    int64_t n = 0;
    for (const ScannedFile& file : result_.files) {
      if (file.change != Change::kDeleted || !file.is_there || is_stopped()) continue;
      if (++n > kNamed) continue;
      const auto entry = env_.stat(file.info.path);
      const std::string top = root_of(file.info.path);
      const auto refused =
          entry.is_ok() && !top.empty() ? refused_below(top, file.info.path, *entry) : std::nullopt;
      const bool is_folder = entry.is_ok() && entry->is_directory;
      note(fmt::format("{}: no longer in the store, {}{}", file.info.path,
                       is_folder ? "a folder is there now" : "its file is skipped now",
                       refused && !is_folder ? " (" + refused->reason + ")" : ""));
    }
    if (n > kNamed) {
      note(fmt::format("{} more document{} no longer in the store, as the files are skipped now",
                       n - kNamed, n - kNamed == 1 ? " is" : "s are"));
    }
  }

  /// A new file with the content of a document whose own file is gone, here or anywhere, is that
  /// document. A link in a document's path is newer than the document.
  void find_moved() {
    // All empty files are alike: of these also the name counts.
    const auto content_of = [](const DocumentInfo& info) {
      return info.size_bytes > 0
                 ? info.content_hash
                 : info.content_hash + "/" + info.path.substr(info.path.rfind('/') + 1);
    };
    std::map<std::string, std::deque<const std::string*>> by_content;  // paths
    for (const auto& [path, document] : known_) {
      if (!present_.contains(path)) by_content[content_of(document.info)].push_back(&path);
    }
    for (ScannedFile& file : result_.files) {
      if (file.change != Change::kNew) continue;
      const auto candidates = by_content.find(content_of(file.info));
      if (candidates == by_content.end()) continue;
      std::deque<const std::string*>& paths = candidates->second;
      while (!paths.empty() && file.change == Change::kNew && !is_stopped()) {
        const std::string& path = *paths.front();
        paths.pop_front();  // each is looked at once: one that exists was not moved
        const bool is_gone = env_.stat(path).status().code() == StatusCode::kNotFound;
        if (!is_gone && canonical_path(path) == path) continue;
        file.change = Change::kMoved;
        file.moved_from = path;
        present_.insert(path);
      }
    }
  }

  /// Compares a found file with the index and adds it with what has changed.
  void judge(const std::string& path, const DirEntry& entry) {
    const auto known = known_.find(path);
    const bool is_known = known != known_.end();
    const bool has_same_time = is_known && entry.modified_ns != kUnknownTime &&
                               known->second.info.size_bytes == entry.size_bytes &&
                               known->second.info.modified_ns == entry.modified_ns;
    const bool stored = is_known && known->second.status == DocumentStatus::kStored;
    const bool reads_all = options_.rehash || options_.encoding != documents::Encoding::kAny;
    if (has_same_time && !reads_all) {
      return add(stored ? Change::kUnchanged : Change::kIncomplete, known->second.info);
    }
    auto loading = load(env_, path, options_);
    if (!loading.is_ok()) {
      if (loading.status().code() == StatusCode::kNotFound) return;
      keep_known_under(path);
      return skip(path, "unreadable", "it cannot be read");
    }
    if (auto* refusal = std::get_if<Refusal>(&*loading)) {
      return skip(path, std::move(refusal->kind), std::move(refusal->reason));
    }
    auto& loaded = std::get<LoadedDocument>(*loading);
    const bool same = is_known && known->second.info.content_hash == loaded.info.content_hash;
    const bool touched = same && (known->second.info.size_bytes != loaded.info.size_bytes ||
                                  known->second.info.modified_ns != loaded.info.modified_ns);
    add(!is_known ? Change::kNew
        : !same   ? Change::kChanged
        : !stored ? Change::kIncomplete
        : touched ? Change::kTouched
                  : Change::kUnchanged,
        std::move(loaded.info));
  }

  void add(Change change, DocumentInfo info) {
    present_.insert(info.path);
    const auto known = known_.find(info.path);
    if (known != known_.end()) info.root = known->second.info.root;
    if (info.root.empty() || is_lost_from(info.root, info.path)) {
      std::string root = naming_root(info.path);
      if (change == Change::kUnchanged && root != info.root) change = Change::kTouched;
      info.root = std::move(root);
    }
    result_.files.push_back({change, std::move(info), true, ""});
  }

  void skip(const std::string& path, std::string kind, std::string reason) {
    result_.skipped.push_back({path, std::move(kind), std::move(reason), is_root(path)});
  }

  /// Marks all documents at or below a path as present.
  void keep_known_under(const std::string& path) {
    unread_.insert(path);
    for (auto at = known_.lower_bound(path); at != known_.end(); ++at) {
      if (!at->first.starts_with(path)) break;
      if (is_under(at->first, path)) present_.insert(at->first);
    }
  }

  Env& env_;
  Index& index_;
  const ScanOptions& options_;
  std::string store_dir_;
  IgnoreRules exclude_;
  std::vector<std::string> roots_;  // canonical
  std::set<std::string> root_set_;
  std::set<std::string> tops_;  // where ignore files begin to hold: work trees, else roots
  size_t rule_memory_ = 0;      // of all levels that are held; outlives them
  std::map<std::string, std::shared_ptr<const IgnoreLevel>>
      levels_;  // by folder, until its turn ends
  std::set<std::string> unused_ignore_files_;
  std::set<std::string> noted_;
  std::map<std::string, Document> known_;
  std::map<std::string, DirEntry> found_;  // files, by canonical path
  std::map<std::string, DirEntry> kept_;   // of these, what find_kept() found
  std::set<std::string> unfinished_roots_;
  std::set<std::string> entered_;                // folders
  std::set<std::string> present_;                // documents that are not deleted
  std::set<std::string> unread_;                 // folders and files, all below them kept
  std::map<std::string, std::string> outdated_;  // documents, and where their paths lead now
  ScanResult result_;
  bool is_stopped_ = false;
};

}  // namespace

std::string title_of_name(const std::string& path) {
  return documents::short_title(std::filesystem::path(path).stem().string());
}

std::string canonical_path(const std::string& path) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(path, error);
  if (!error && canonical.is_absolute()) return canonical.string();
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

std::vector<std::string> forms_of_path(const std::string& path) {
  if (path.empty()) return {};
  std::vector<std::filesystem::path> names;
  size_t n_resolved = 0;  // up to the last ".."
  for (const std::filesystem::path& name : std::filesystem::path(path)) {
    if (name.empty() || name == ".") continue;
    names.push_back(name);
    if (name == "..") n_resolved = names.size();
  }
  std::filesystem::path before = ".";
  for (size_t i = 0; i < n_resolved; ++i) before /= names[i];
  std::filesystem::path resolved = canonical_path(before.string());
  std::vector<std::string> forms;
  const auto add = [&](size_t n) {
    std::filesystem::path form = resolved;
    for (size_t i = n; i < names.size(); ++i) form /= names[i];
    forms.push_back(form.string());
  };
  add(n_resolved);
  for (size_t i = n_resolved; i < names.size(); ++i) {
    resolved /= names[i];
    std::error_code ignored;
    if (!std::filesystem::is_symlink(resolved, ignored)) continue;
    const std::string target = canonical_path(resolved.string());
    if (target == resolved.string()) continue;  // it leads nowhere
    resolved = target;
    add(i + 1);
  }
  return forms;
}

bool is_under(const std::string& path, const std::string& folder) {
  if (folder.empty()) return false;
  if (path == folder || folder == "/") return true;
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

namespace {

/// As strings, but with the slash before all else: what lies under a path comes right after it.
bool comes_before(const std::string& a, const std::string& b) {
  const auto rank = [](char c) { return c == '/' ? -1 : static_cast<unsigned char>(c); };
  return std::ranges::lexicographical_compare(a, b,
                                              [&](char x, char y) { return rank(x) < rank(y); });
}

}  // namespace

std::vector<std::string> outermost(std::vector<std::string> paths) {
  std::ranges::sort(paths, comes_before);
  std::vector<std::string> outer;
  for (std::string& path : paths) {
    if (outer.empty() || !is_under(path, outer.back())) outer.push_back(std::move(path));
  }
  return outer;
}

bool is_under_any(const std::string& path, std::span<const std::string> outermost) {
  const auto after = std::ranges::upper_bound(outermost, path, comes_before);
  return after != outermost.begin() && is_under(path, *std::prev(after));
}

std::string path_from_root(const std::string& path, const std::string& root) {
  if (root.empty() || root == "/" || !is_under(path, root)) return path;
  return path.substr(root.rfind('/') + 1);
}

std::vector<std::string> roots_to_show(std::span<const Document> documents) {
  std::vector<std::string> roots;
  std::vector<std::string> names;
  for (const Document& document : documents) {
    roots.push_back(document.info.root);
    names.push_back(path_from_root(document.info.path, document.info.root));
  }
  constexpr int kMostFolders = 64;  // a damaged root may have any number
  for (int round = 0; round < kMostFolders; ++round) {
    bool is_changed = false;
    std::unordered_map<std::string, size_t> n_with;
    for (const std::string& name : names) ++n_with[name];
    for (size_t i = 0; i < documents.size(); ++i) {
      const std::string& path = documents[i].info.path;
      const size_t slash = roots[i].rfind('/');
      if (n_with[names[i]] == 1 || names[i] == path || slash == std::string::npos) continue;
      roots[i].resize(std::max<size_t>(slash, 1));
      names[i] = path_from_root(path, roots[i]);
      is_changed = true;
    }
    if (!is_changed) break;
  }
  return roots;
}

Status check_not_empty(std::span<const std::string> paths) {
  if (std::ranges::find(paths, "") == paths.end()) return Status::ok();
  return invalid_argument("a path is empty: '' names no file or folder");
}

Status check_outside_store(std::span<const std::string> paths, const std::string& store_dir) {
  const std::string store = canonical_path(store_dir);
  for (const std::string& path : paths) {
    const std::string canonical = canonical_path(path);
    if (!is_under(canonical, store)) continue;
    return invalid_argument(
        canonical == store
            ? fmt::format("{}: a store needs a folder of its own, not that of the documents; name "
                          "another one with --store",
                          path)
            : fmt::format("{}: lies in {}, which --store names, and a store needs a folder of its "
                          "own; name another one with --store",
                          path, store_dir));
  }
  return Status::ok();
}

Result<ScanResult> scan(Env& env, Index& index, std::span<const std::string> paths,
                        const ScanOptions& options) {
  return Scanner(env, index, options).run(paths);
}

Result<LoadedDocument> load_document(Env& env, const std::string& path,
                                     const ScanOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto read, load(env, path, options));
  if (auto* refusal = std::get_if<Refusal>(&read)) return unsupported(std::move(refusal->reason));
  return std::get<LoadedDocument>(std::move(read));
}

bool has_content(Env& env, const std::string& path, std::string_view content_hash) {
  const auto is_it = [&](documents::Encoding encoding) {
    const auto read = load(env, path, {.encoding = encoding});
    if (!read.is_ok()) return false;
    const auto* loaded = std::get_if<LoadedDocument>(&*read);
    return loaded != nullptr && loaded->info.content_hash == content_hash;
  };
  if (is_it(documents::Encoding::kAny)) return true;
  return std::ranges::any_of(documents::kEncodingNames, [&](std::string_view name) {
    return is_it(*documents::encoding_by_name(name));
  });
}

}  // namespace weft::retrieval
