// weft docs ls|rm: the documents of a store, and taking some out of it.
// Which document a path means is the hard part. A document is known by the path that it had when it
// was ingested; since then the file may be gone, its folder may have become a link, or the user may
// be in another folder. People type what they see, and `ls` shows paths from the named folder on.
// `docs rm` cannot be undone (but by an ingest), so it takes the reading that is certain first, and
// where two are possible it lists them and removes nothing.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/counts_text.h"
#include "base/shell_text.h"
#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/unfinished.h"
#include "library/library.h"
#include "retrieval/scan.h"
#include "store/chunk_store.h"

namespace weft::cli {
namespace {

struct DocsFlags {
  std::string dir;
  std::vector<std::string> paths;
  bool json = false;
};

/// As cmd_cache.cc's, but without an index there is nothing to say here, so that is an error.
Result<std::unique_ptr<retrieval::Index>> open_index(App& app, const DocsFlags& flags,
                                                     retrieval::Index::Mode mode) {
  auto index = retrieval::Index::open(library::index_path(flags.dir), mode, app.env, index_wait());
  if (index.status().code() != StatusCode::kNotFound) return index;
  return not_found(fmt::format(
      "{}: no documents were ingested here; weft ingest -m MODEL --store {} PATH takes some in",
      flags.dir, shell_path(flags.dir)));
}

/// A document with what of it is in the store's folder.
struct ListedDocument {
  retrieval::Document document;
  std::set<Hash128> records;  // that its chunks need
  uint64_t bytes = 0;         // of those that are there
  int64_t n_missing = 0;      // those that are not
  bool is_whole() const {
    return document.status == retrieval::DocumentStatus::kStored && n_missing == 0;
  }
};

/// What the index has, and what of it the store's folder has: by the records' names, unread.
/// Names alone, because reading every record of a large store takes as long as its disk needs for
/// all of it: `cache verify` does that. A passage that two documents have counts in both.
Result<std::vector<ListedDocument>> list_documents(retrieval::Index& index,
                                                   store::ChunkStore& store) {
  std::vector<ListedDocument> listed;
  WEFT_ASSIGN_OR_RETURN(auto documents, index.documents());
  for (retrieval::Document& document : documents) {
    ListedDocument& one = listed.emplace_back(std::move(document));
    WEFT_ASSIGN_OR_RETURN(const auto chunks, index.chunks_of(one.document.id));
    for (const retrieval::Chunk& chunk : chunks) one.records.insert(chunk.record);
  }
  // After the documents: what counts as stored among them has had its records before.
  WEFT_ASSIGN_OR_RETURN(const auto records, store.ls());
  std::map<Hash128, uint64_t> bytes_of;
  for (const store::RecordSummary& record : records) {
    bytes_of.emplace(record.hash, record.file_bytes);
  }
  for (ListedDocument& one : listed) {
    for (const Hash128& record : one.records) {
      const auto found = bytes_of.find(record);
      if (found != bytes_of.end()) {
        one.bytes += found->second;
      } else if (!index.is_old()) {  // which has no names of records
        WEFT_ASSIGN_OR_RETURN(const bool is_needed, index.has_record(record));
        if (is_needed) ++one.n_missing;  // else its document was taken out meanwhile
      }
    }
  }
  return listed;
}

/// About documents whose ingest ended well and whose records are gone; "" without any.
std::string gone_records_line(const std::vector<ListedDocument>& listed, const std::string& dir) {
  const auto n = std::ranges::count_if(listed, [](const ListedDocument& one) {
    return one.document.status == retrieval::DocumentStatus::kStored && one.n_missing > 0;
  });
  if (n == 0) return "";
  return fmt::format(
      "{}: records of {} are gone from the store's folder; asking computes what it needs of them, "
      "and weft cache verify --repair says the command that makes them all",
      dir, counted(n, "document"));
}

/// The list is the answer; what is missing is said on standard error, and in JSON under
/// `unfinished`, so that a script that counts lines counts documents.
Status run_ls(App& app, const DocsFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto index,
                        open_index(app, flags, retrieval::Index::Mode::kReadOnly));
  WEFT_ASSIGN_OR_RETURN(
      const auto store,
      store::ChunkStore::open(app.env,
                              {.dir = flags.dir, .read_only = true, .cancelled = interrupted}));
  WEFT_ASSIGN_OR_RETURN(const auto listed, list_documents(*index, *store));
  Json list = Json::array();
  std::vector<retrieval::Document> documents;
  for (const ListedDocument& one : listed) documents.push_back(one.document);
  const std::vector<std::string> roots = retrieval::roots_to_show(documents);
  for (size_t i = 0; i < listed.size(); ++i) {
    const ListedDocument& one = listed[i];
    const retrieval::DocumentInfo& info = one.document.info;
    const std::string shown = retrieval::path_from_root(info.path, roots[i]);
    if (flags.json) {
      list.push_back({{"path", info.path},
                      {"relative_path", shown},
                      {"title", info.title},
                      {"chunks", one.document.n_chunks},
                      {"tokens", one.document.n_tokens},
                      {"bytes", one.bytes},
                      {"status", one.is_whole() ? "stored" : "incomplete"}});
    } else {
      fmt::print("{}  {}  {}, {}, {:.2f} MB{}\n", one_line(shown), one_line(info.title),
                 counted(one.document.n_chunks, "chunk"), counted(one.document.n_tokens, "token"),
                 one.bytes * 1e-6, one.is_whole() ? "" : "  incomplete");
    }
  }
  if (flags.json) {
    WEFT_ASSIGN_OR_RETURN(Json unfinished, unfinished_json(*index, flags.dir));
    print_json({{"documents", std::move(list)}, {"unfinished", std::move(unfinished)}});
  } else {
    fmt::print("{}\n", counted(std::ssize(listed), "document"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string unfinished, unfinished_line(*index, flags.dir));
  const std::string gone = gone_records_line(listed, flags.dir);
  for (const std::string& line : {unfinished, gone}) {
    if (!line.empty()) print_error(line);
  }
  return Status::ok();
}

/// What a path that is to be removed means. A root is a path that an ingest was begun with: where
/// that did not end, `docs rm` of it ends it, so that asking no longer says that files may be
/// missing.
struct Meant {
  std::vector<std::string> documents;  // their paths
  std::vector<std::string> roots;      // where an ingest did not end
};

/// By absolute path: a document at it or below it.
Meant meant_by(const std::vector<retrieval::Document>& documents,
               const retrieval::Unfinished& unfinished, const std::string& path) {
  Meant meant;
  for (const retrieval::Document& document : documents) {
    if (retrieval::is_under(document.info.path, path))
      meant.documents.push_back(document.info.path);
  }
  for (const retrieval::IngestRoot& root : unfinished.roots) {
    if (retrieval::is_under(root.path, path)) meant.roots.push_back(root.path);
  }
  return meant;
}

/// What is at a path or below it: by its name, with as few of its links followed as it takes, since
/// a link may be newer than the document that was there; or, only where nothing is there, as ask
/// and ls show it. A shown name that is of more than one root is kInvalidArgument.
Result<Meant> meant_by_name(Env& env, const std::vector<retrieval::Document>& documents,
                            const retrieval::Unfinished& unfinished, const std::string& path) {
  for (const std::string& form : retrieval::forms_of_path(path)) {
    Meant meant = meant_by(documents, unfinished, form);
    if (!meant.documents.empty() || !meant.roots.empty()) return meant;
  }
  // In a folder with a "docs" of its own, "docs" is that one, also where `ls` shows another by the
  // same words. So a shown name counts only where nothing is at the path.
  if (env.stat(path).status().code() != StatusCode::kNotFound) return Meant();
  std::vector<std::string> found;
  const std::string shown = path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
  // The shown name's absolute form under each root: /a/docs and /b/docs are two, and either may be
  // meant.
  std::set<std::string> meant;  // by the name in each root, absolute
  for (const retrieval::Document& document : documents) {
    const std::string from_root = retrieval::path_from_root(document.info.path, document.info.root);
    if (!retrieval::is_under(from_root, shown)) continue;
    found.push_back(document.info.path);
    const size_t below_shown = from_root.size() - shown.size();
    meant.insert(document.info.path.substr(0, document.info.path.size() - below_shown));
  }
  if (meant.size() == 1) return Meant{std::move(found), {}};
  if (meant.empty()) {  // one of several with one name, as they are told apart
    const std::vector<std::string> roots = retrieval::roots_to_show(documents);
    for (size_t i = 0; i < documents.size(); ++i) {
      const std::string& one = documents[i].info.path;
      if (retrieval::path_from_root(one, roots[i]) == shown) found.push_back(one);
    }
    return Meant{std::move(found), {}};
  }
  constexpr size_t kMaxShown = 8;
  std::string list;
  size_t n = 0;
  for (const std::string& one : meant) {
    if (++n <= kMaxShown) list += (n == 1 ? "" : ", ") + one;
  }
  if (n > kMaxShown) list += fmt::format(" and {} more", n - kMaxShown);
  return invalid_argument(
      fmt::format("{}: may be any of {}; name the one that is meant", path, list));
}

/// All paths are looked up before the first document goes: `docs rm a.md b.mdd` removes nothing.
/// After each document its records are swept, those that no other document has: a kill in between
/// leaves at most one document's, which the next opening to write removes. The count of records is
/// the difference of two looks, as the sweep goes on with what a killed run left, too.
Status run_rm(App& app, const DocsFlags& flags) {
  if (flags.paths.empty()) {
    return invalid_argument(
        "name the documents to remove: files and folders (weft docs ls lists "
        "what is there)");
  }
  WEFT_RETURN_IF_ERROR(retrieval::check_not_empty(flags.paths));
  WEFT_ASSIGN_OR_RETURN(const auto index,
                        open_index(app, flags, retrieval::Index::Mode::kReadWrite));
  WEFT_ASSIGN_OR_RETURN(
      const auto store,
      store::ChunkStore::open(app.env, {.dir = flags.dir, .cancelled = interrupted}));
  WEFT_ASSIGN_OR_RETURN(const auto documents, index->documents());
  WEFT_ASSIGN_OR_RETURN(const retrieval::Unfinished unfinished, index->unfinished());
  std::set<std::string> named;
  std::vector<std::string> ended;
  for (const std::string& path : flags.paths) {  // all, before anything is removed
    WEFT_ASSIGN_OR_RETURN(const Meant meant, meant_by_name(app.env, documents, unfinished, path));
    named.insert(meant.documents.begin(), meant.documents.end());
    ended.insert(ended.end(), meant.roots.begin(), meant.roots.end());
    if (meant.documents.empty() && meant.roots.empty()) {
      return not_found(
          fmt::format("{}: no document of {} at this path or below it; weft docs ls "
                      "lists them",
                      path, flags.dir));
    }
  }
  const auto records = [&]() -> Result<std::pair<int64_t, int64_t>> {
    WEFT_ASSIGN_OR_RETURN(const store::StoreStats stats, store->stat());
    return std::pair<int64_t, int64_t>(stats.disk.records, stats.disk.bytes);
  };
  WEFT_ASSIGN_OR_RETURN(const auto before, records());
  int64_t removed = 0;
  for (const std::string& path : named) {
    if (interrupted()) return cancelled("stopped; what was removed so far is gone");
    const Status status = index->remove_document(path);
    // Not found: another process removed it meanwhile.
    if (!status.is_ok() && status.code() != StatusCode::kNotFound) return status;
    if (status.is_ok()) ++removed;
    WEFT_RETURN_IF_ERROR(index->sweep(
        [&](const Hash128& record) { return library::remove_record(*store, record); }));
  }
  if (!ended.empty()) WEFT_RETURN_IF_ERROR(index->end_roots(ended));
  // Once at the end, as it takes as long as the index is large. Without it a deleted document's
  // words would still be in the file.
  if (removed > 0) WEFT_RETURN_IF_ERROR(index->drop_former_terms());
  WEFT_ASSIGN_OR_RETURN(const auto after, records());
  const int64_t gone = before.first - after.first;
  const int64_t freed = before.second - after.second;
  if (flags.json) {
    print_json({{"removed", removed}, {"removed_records", gone}, {"freed_bytes", freed}});
  } else {
    fmt::print("{} removed, with {} ({:.1f} MB)\n", counted(removed, "document"),
               counted(gone, "record"), freed * 1e-6);
  }
  return Status::ok();
}

}  // namespace

void add_docs_command(Command root, App& app) {
  Command docs = root.add_command("docs", "List the documents of a store, or remove some");
  docs.needs_command();
  auto flags = std::make_shared<DocsFlags>();
  const auto add = [&](const char* name, const char* what, Status (*run)(App&, const DocsFlags&)) {
    Command command = docs.add_command(name, what);
    command.add_option("--store", flags->dir, "folder that weft ingest filled")
        .value_name("DIR")
        .or_environment("WEFT_STORE");
    command.add_flag("--json", flags->json, "print the report as JSON");
    add_verbose_flag(command);
    command.when_given(
        [flags, run, &app] { app.run = [flags, run, &app] { return run(app, *flags); }; });
    return command;
  };
  add("ls", "List documents: path, title, chunks, tokens, bytes of KV", run_ls);
  Command rm = add("rm", "Remove documents with their KV; the files themselves stay", run_rm);
  rm.add_option("paths", flags->paths, "files and folders, also ones that are gone (at least one)");
}

}  // namespace weft::cli
