// weft ingest: documents into a folder: cut into chunks, catalogued, and each chunk's KV computed
// once and stored.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/hash.h"
#include "cli/app.h"
#include "cli/library.h"
#include "cli/reuse_flags.h"
#include "retrieval/scan.h"
#include "text/chunker.h"

namespace weft::cli {
namespace {

using retrieval::Change;

constexpr int32_t kChunkTokens = 512;

struct IngestFlags {
  ModelFlags model;
  LibraryOptions library;
  std::string anchor;
  std::vector<std::string> paths;
};

/// A chunk as it goes into the index and, by its tokens, into the store.
struct CutChunk {
  uint64_t byte_begin = 0;
  uint64_t byte_end = 0;
  std::string_view text;
  std::vector<int32_t> tokens;  // of the passage as it stands in a prompt
};

struct CutDocument {
  retrieval::LoadedDocument document;
  std::vector<CutChunk> chunks;
};

/// A heading in the first line is the document's title, and no part of its text.
size_t take_heading(retrieval::LoadedDocument& document) {
  const std::string& text = document.text;
  const size_t begin = text.find_first_not_of('#');
  if (begin == 0 || begin == std::string::npos || begin > 6 || text[begin] != ' ') return 0;
  const size_t end = std::min(text.find('\n', begin), text.size());
  std::string title = text.substr(begin + 1, end - begin - 1);
  while (!title.empty() && std::isspace(static_cast<unsigned char>(title.back())) != 0)
    title.pop_back();
  if (title.empty()) return 0;
  document.info.title = std::move(title);
  return std::min(end + 1, text.size());
}

class Ingester {
 public:
  Ingester(App& app, engine::Engine& engine, Library& library)
      : app_(app), engine_(engine), library_(library), fusor_(library.make_fusor()) {}

  Status run(const std::vector<std::string>& paths);

 private:
  Result<CutDocument> cut(const std::string& path) const;
  Status find_lost_records(std::vector<retrieval::ScannedFile>& files);
  Status announce(const std::vector<retrieval::ScannedFile>& files);
  Status ingest_document(const retrieval::ScannedFile& file);
  Status forget(const std::string& path);
  Result<std::vector<std::vector<int32_t>>> tokens_of(const std::string& path);

  App& app_;
  engine::Engine& engine_;
  Library& library_;
  std::unique_ptr<fusion::Fusor> fusor_;
  std::optional<Progress> progress_{"ingest"};
  int64_t done_tokens_ = 0;
  int64_t total_tokens_ = 0;
  int64_t stored_chunks_ = 0;
};

Result<CutDocument> Ingester::cut(const std::string& path) const {
  CutDocument out;
  WEFT_ASSIGN_OR_RETURN(
      out.document,
      retrieval::load_document(app_.env, path, retrieval::ScanOptions().max_document_bytes));
  const size_t body = take_heading(out.document);
  const std::string_view text = std::string_view(out.document.text).substr(body);
  const std::string& title = out.document.info.title;
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> heading, library_.rag().chunk(title, ""));
  const auto budget = kChunkTokens - static_cast<int32_t>(heading.size());
  if (budget < kChunkTokens / 4) {
    return invalid_argument(
        fmt::format("{}: its title is too long ({} tokens)", path, heading.size()));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<text::Chunk> pieces,
                        text::split_into_chunks(engine_.tokenizer(), text, {.max_tokens = budget}));
  for (const text::Chunk& piece : pieces) {
    CutChunk chunk{body + piece.begin,
                   body + piece.end,
                   text.substr(piece.begin, piece.end - piece.begin),
                   {}};
    const size_t visible = chunk.text.find_last_not_of(" \t\r\n");
    if (visible == std::string_view::npos) continue;  // white space alone
    WEFT_ASSIGN_OR_RETURN(chunk.tokens,
                          library_.rag().chunk(title, chunk.text.substr(0, visible + 1)));
    out.chunks.push_back(std::move(chunk));
  }
  return out;
}

/// Records that were removed, or found damaged, since their document was ingested: it is done
/// again.
Status Ingester::find_lost_records(std::vector<retrieval::ScannedFile>& files) {
  for (retrieval::ScannedFile& file : files) {
    if (file.change != Change::kUnchanged && file.change != Change::kTouched) continue;
    WEFT_ASSIGN_OR_RETURN(const auto chunks, tokens_of(file.info.path));
    const bool whole =
        std::ranges::all_of(chunks, [&](const auto& tokens) { return fusor_->is_stored(tokens); });
    if (!whole) file.change = Change::kIncomplete;
  }
  return Status::ok();
}

bool needs_work(Change change) {
  return change == Change::kNew || change == Change::kChanged || change == Change::kIncomplete;
}

/// Says beforehand what the new documents will take.
Status Ingester::announce(const std::vector<retrieval::ScannedFile>& files) {
  int64_t documents = 0;
  int64_t chunks = 0;
  int64_t new_tokens = 0;  // of records that are not there yet, each once
  std::set<Hash128> seen;
  for (const retrieval::ScannedFile& file : files) {
    if (!needs_work(file.change)) continue;
    WEFT_ASSIGN_OR_RETURN(const CutDocument cut_document, cut(file.info.path));
    ++documents;
    chunks += static_cast<int64_t>(cut_document.chunks.size());
    for (const CutChunk& chunk : cut_document.chunks) {
      const auto n = static_cast<int64_t>(chunk.tokens.size());
      total_tokens_ += n;
      const bool is_new = seen.insert(hash128(std::as_bytes(std::span(chunk.tokens)))).second &&
                          !fusor_->is_stored(chunk.tokens);
      if (is_new) new_tokens += n;
    }
  }
  if (documents == 0) return Status::ok();
  const auto needed =
      static_cast<uint64_t>(new_tokens * engine_.model().config().kv_bytes_per_token());
  WEFT_ASSIGN_OR_RETURN(const uint64_t free, app_.env.free_bytes(library_.store().dir()));
  fmt::print("{} documents, {} chunks, {} tokens: about {:.1f} MB of KV on disk ({:.1f} MB free)\n",
             documents, chunks, total_tokens_, static_cast<double>(needed) * 1e-6,
             static_cast<double>(free) * 1e-6);
  std::fflush(stdout);
  return Status::ok();
}

Result<std::vector<std::vector<int32_t>>> Ingester::tokens_of(const std::string& path) {
  std::vector<std::vector<int32_t>> tokens;
  WEFT_ASSIGN_OR_RETURN(const auto document, library_.index().find_document(path));
  if (!document) return tokens;
  WEFT_ASSIGN_OR_RETURN(std::vector<retrieval::Chunk> chunks,
                        library_.index().chunks_of(document->id));
  for (retrieval::Chunk& chunk : chunks) tokens.push_back(std::move(chunk.tokens));
  return tokens;
}

/// A document that another process has removed meanwhile is as it should be.
Status Ingester::forget(const std::string& path) {
  const Status removed = library_.index().remove_document(path);
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  return library_.remove_unneeded_records();
}

Status Ingester::ingest_document(const retrieval::ScannedFile& file) {
  WEFT_ASSIGN_OR_RETURN(const CutDocument cut_document, cut(file.info.path));
  const retrieval::DocumentInfo& info = cut_document.document.info;
  std::vector<retrieval::ChunkText> chunks;
  for (const CutChunk& chunk : cut_document.chunks) {
    chunks.push_back({chunk.byte_begin, chunk.byte_end, chunk.text, chunk.tokens,
                      library_.record_of(chunk.tokens)});
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t id, library_.index().replace_document(info, chunks));
  WEFT_RETURN_IF_ERROR(library_.remove_unneeded_records());
  for (const CutChunk& chunk : cut_document.chunks) {
    if (interrupted()) return cancelled("stopped; what was stored so far can be used");
    WEFT_RETURN_IF_ERROR(fusor_->ensure_stored(chunk.tokens, {.evict = false}));
    ++stored_chunks_;
    done_tokens_ += static_cast<int64_t>(chunk.tokens.size());
    progress_->show(done_tokens_, total_tokens_, "tokens");
  }
  const Status marked = library_.index().mark_stored(id, info.content_hash);
  // Another process has removed it, or ingested it anew, and sees to that itself.
  return marked.code() == StatusCode::kNotFound ? Status::ok() : marked;
}

Status Ingester::run(const std::vector<std::string>& paths) {
  WEFT_ASSIGN_OR_RETURN(
      retrieval::ScanResult scanned,
      retrieval::scan(app_.env, library_.index(), paths, {.store_dir = library_.store().dir()}));
  for (const retrieval::SkippedFile& file : scanned.skipped) {
    print_error(fmt::format("{}: skipped, {}", file.path, file.reason));
  }
  WEFT_RETURN_IF_ERROR(find_lost_records(scanned.files));
  WEFT_RETURN_IF_ERROR(announce(scanned.files));
  int64_t counts[6] = {};
  for (const retrieval::ScannedFile& file : scanned.files) {
    counts[static_cast<int>(file.change)]++;
    if (file.change == Change::kDeleted) {
      WEFT_RETURN_IF_ERROR(forget(file.info.path));
    } else if (file.change == Change::kTouched) {
      const Status touched = library_.index().touch_document(file.info);
      if (!touched.is_ok() && touched.code() != StatusCode::kNotFound) return touched;
    } else if (needs_work(file.change)) {
      const Status status = ingest_document(file);
      if (status.code() == StatusCode::kResourceExhausted) {
        return resource_exhausted(
            fmt::format("stopped at {}: {}; the {} chunks stored before can be used",
                        file.info.path, status.message(), stored_chunks_));
      }
      WEFT_RETURN_IF_ERROR(status);
    }
  }
  progress_.reset();  // off the line
  const auto n = [&](Change change) { return counts[static_cast<int>(change)]; };
  fmt::print("{} new, {} changed, {} completed, {} deleted, {} unchanged documents; {} skipped\n",
             n(Change::kNew), n(Change::kChanged), n(Change::kIncomplete), n(Change::kDeleted),
             n(Change::kUnchanged) + n(Change::kTouched), scanned.skipped.size());
  return Status::ok();
}

Status run_ingest(App& app, const IngestFlags& flags) {
  WEFT_RETURN_IF_ERROR(retrieval::check_outside_store(flags.paths, flags.library.dir));
  if (!app.env.stat(flags.library.dir).is_ok()) {  // no new folder for nothing
    for (const std::string& path : flags.paths) {
      WEFT_RETURN_IF_ERROR(app.env.stat(path).status());
    }
  }
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_ASSIGN_OR_RETURN(Library library,
                        Library::create(app.env, flags.library, *engine, flags.anchor));
  return Ingester(app, *engine, library).run(flags.paths);
}

}  // namespace

void add_ingest_command(Command root, App& app) {
  auto flags = std::make_shared<IngestFlags>();
  Command command = root.add_command("ingest", "Compute and store the KV of documents");
  add_model_flags(command, flags->model);
  command.add_option("--store", flags->library.dir, "folder for index and KV").required();
  add_prompt_flag(command, flags->library.prompt);
  command.add_option("--anchor", flags->anchor,
                     "what chunks are computed behind: none, opening, neutral or a file");
  command.add_bytes("--memory-limit", flags->library.memory_limit_bytes,
                    "bytes of KV kept in memory, as 512MB (default: 1GB)");
  command
      .add_bytes("--store-limit", flags->library.store_limit_bytes,
                 "bytes of KV on disk at most, as 10GB (default: none)")
      .positive();
  command.add_option("paths", flags->paths, "files and folders").required();
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_ingest(app, *flags); }; });
}

}  // namespace weft::cli
