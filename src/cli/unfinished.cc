// An ingest that was stopped or killed leaves documents that are in part in the store. A question
// is answered from what is there, which may not be what the user thinks is there: so every command
// that opens such a store says in one line what is missing, and the command that completes it,
// ready to be pasted. The index keeps the paths and the flags that they were begun with for that:
// without --exclude the completing command would take in what was to stay out.
#include "cli/unfinished.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "base/shell_text.h"
#include "retrieval/scan.h"

namespace weft::cli {
namespace {

using retrieval::IngestRoot;

/// Quoted for a shell, since patterns have stars and paths may have spaces or worse.
std::string flags_of(const IngestRoot& root) {
  std::string flags;
  for (const std::string& pattern : root.exclude) flags += " --exclude " + shell_word(pattern);
  if (!root.reads_ignore_files) flags += " --no-ignore";
  if (!root.encoding.empty()) flags += " --encoding " + shell_word(root.encoding);
  if (root.rehash) flags += " --rehash";
  return flags;
}

/// Without those that lie under another one: they are ingested with it.
std::vector<IngestRoot> outermost(const std::vector<IngestRoot>& roots) {
  std::vector<std::string> paths;
  for (const IngestRoot& root : roots) paths.push_back(root.path);
  const std::vector<std::string> outer = retrieval::outermost(std::move(paths));
  std::vector<IngestRoot> kept;
  for (const std::string& path : outer)
    kept.push_back(*std::ranges::find(roots, path, &IngestRoot::path));
  return kept;
}

}  // namespace

/// Paths with the same flags share a command, in the order in which they come: `weft ingest --store
/// DIR a b && weft ingest --store DIR --no-ignore c`. --store is said although a variable may name
/// it: the line may be pasted into another shell.
std::string completing_command(const std::vector<IngestRoot>& roots, const std::string& dir,
                               size_t max_roots, const std::string& model,
                               uint64_t store_limit_bytes) {
  const std::string with_model = model.empty() ? "" : " -m " + shell_path(model);
  const std::string with_limit =
      store_limit_bytes == 0 ? "" : " --store-limit " + size_flag(store_limit_bytes);
  std::vector<std::pair<std::string, std::string>> paths_of;  // by flags, as they come
  for (const IngestRoot& root : roots) {
    if (max_roots == 0) break;
    --max_roots;
    const std::string flags = flags_of(root);
    auto found = std::ranges::find(paths_of, flags, &std::pair<std::string, std::string>::first);
    if (found == paths_of.end()) found = paths_of.insert(found, {flags, ""});
    found->second += " " + shell_path(root.path);
  }
  std::string commands;
  for (const auto& [flags, paths] : paths_of) {
    commands += fmt::format("{}weft ingest{} --store {}{}{}{}", commands.empty() ? "" : " && ",
                            with_model, shell_path(dir), with_limit, flags, paths);
  }
  return commands;
}

/// People get three paths, as a line of fifty is not read; JSON has them all.
Result<std::string> unfinished_line(retrieval::Index& index, const std::string& dir,
                                    const std::string& model, uint64_t store_limit_bytes) {
  WEFT_ASSIGN_OR_RETURN(const retrieval::Unfinished unfinished, index.unfinished());
  if (unfinished.roots.empty()) return std::string();
  const std::vector<IngestRoot> outer = outermost(unfinished.roots);
  constexpr size_t kMaxRoots = 3;
  std::string what;
  if (unfinished.documents > 0) {
    what = fmt::format("{} {} not stored whole", counted(unfinished.documents, "document"),
                       unfinished.documents == 1 ? "is" : "are");
  }
  if (unfinished.ingest_did_not_end) {
    what += what.empty() ? "" : ", and ";
    what += "an ingest did not end, so files may be missing";
  }
  const std::string more =
      outer.size() > kMaxRoots
          ? fmt::format(" (and {})", counted(std::ssize(outer) - kMaxRoots, "more path"))
          : "";
  return fmt::format("{}: {}; to complete it: {}{}", dir, what,
                     completing_command(outer, dir, kMaxRoots, model, store_limit_bytes), more);
}

std::string room_note(uint64_t missing_bytes, uint64_t free_bytes) {
  if (missing_bytes <= free_bytes) return "";
  return fmt::format("; its KV takes up to {}, and {} are free there: make room first",
                     size_text(missing_bytes), size_text(free_bytes));
}

/// The room is an upper bound: of a document that is stored in part all tokens count.
Result<std::string> unfinished_line_of(Env& env, library::Library& library, const std::string& dir,
                                       const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(std::string line, unfinished_line(library.index(), dir, model));
  if (line.empty()) return line;
  WEFT_ASSIGN_OR_RETURN(const auto documents, library.index().documents());
  int64_t n_tokens = 0;  // of documents that are in part stored, too: which part takes long to know
  for (const retrieval::Document& document : documents) {
    if (document.status != retrieval::DocumentStatus::kStored) n_tokens += document.n_tokens;
  }
  const auto free_bytes = env.free_bytes(library.store().dir());
  if (!free_bytes.is_ok()) return line;
  return line + room_note(library.kv_bytes(n_tokens), *free_bytes);
}

Result<Json> unfinished_json(retrieval::Index& index, const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const retrieval::Unfinished unfinished, index.unfinished());
  if (unfinished.roots.empty()) return Json();
  Json paths = Json::array();
  for (const IngestRoot& root : unfinished.roots) paths.push_back(root.path);
  return Json{{"documents", unfinished.documents},
              {"ingest_did_not_end", unfinished.ingest_did_not_end},
              {"paths", std::move(paths)},
              {"command", completing_command(outermost(unfinished.roots), dir, SIZE_MAX)}};
}

}  // namespace weft::cli
