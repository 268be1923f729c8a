#include "cli/ingester.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "base/hash.h"
#include "text/chunker.h"

namespace weft::cli {
namespace {

using retrieval::Change;

constexpr int32_t kChunkTokens = 512;

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

/// Lines of a text by byte, for bytes asked in ascending order.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}
  /// The line, from 1, that the byte lies on.
  uint64_t line_at(size_t byte) {
    for (; at_ < std::min(byte, text_.size()); ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
    return line_;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  uint64_t line_ = 1;
};

void count(Change change, IngestCounts& counts) {
  switch (change) {
    case Change::kNew:
      ++counts.added;
      break;
    case Change::kChanged:
      ++counts.changed;
      break;
    case Change::kIncomplete:
      ++counts.completed;
      break;
    case Change::kMoved:
      ++counts.moved;
      break;
    case Change::kDeleted:
      ++counts.deleted;
      break;
    case Change::kTouched:
    case Change::kUnchanged:
      ++counts.unchanged;
      break;
  }
}

}  // namespace

/// A chunk as it goes into the index and, by its tokens, into the store.
struct Ingester::CutChunk {
  uint64_t byte_begin = 0;
  uint64_t byte_end = 0;
  std::string_view text;
  std::vector<int32_t> tokens;  // of the passage as it is in a prompt
  uint64_t line_begin = 0;      // of the file's lines, without blank ones at both ends
  uint64_t line_end = 0;
};

struct Ingester::CutDocument {
  retrieval::LoadedDocument document;
  std::vector<CutChunk> chunks;
};

Ingester::Ingester(Env& env, engine::Engine& engine, Library& library, IngestEvents events)
    : env_(env),
      engine_(engine),
      library_(library),
      events_(std::move(events)),
      fusor_(library.make_fusor()) {}

Ingester::~Ingester() = default;

Result<Ingester::CutDocument> Ingester::cut(const std::string& path) const {
  CutDocument out;
  WEFT_ASSIGN_OR_RETURN(out.document, retrieval::load_document(
                                          env_, path, retrieval::ScanOptions().max_document_bytes));
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
  LineCounter lines(out.document.text);
  for (const text::Chunk& piece : pieces) {
    CutChunk chunk{body + piece.begin,
                   body + piece.end,
                   text.substr(piece.begin, piece.end - piece.begin),
                   {}};
    constexpr std::string_view kBlank = " \t\r\n";
    const size_t first = chunk.text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) continue;
    chunk.line_begin = lines.line_at(chunk.byte_begin + first);
    chunk.line_end = lines.line_at(chunk.byte_begin + chunk.text.find_last_not_of(kBlank));
    WEFT_ASSIGN_OR_RETURN(chunk.tokens, library_.chunk_tokens(title, chunk.text));
    out.chunks.push_back(std::move(chunk));
  }
  return out;
}

/// Whether records were removed, or found damaged, since the document was ingested, or an older
/// weft ingested it, which knew no lines: it is done again.
Result<bool> Ingester::is_incomplete(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto document, library_.index().find_document(path));
  if (!document) return false;
  if (document->status != retrieval::DocumentStatus::kStored) return true;
  WEFT_ASSIGN_OR_RETURN(const std::vector<retrieval::Chunk> chunks,
                        library_.index().chunks_of(document->id));
  return !std::ranges::all_of(chunks, [&](const retrieval::Chunk& chunk) {
    return chunk.line_begin > 0 && fusor_->is_stored(chunk.tokens);
  });
}

Status Ingester::find_incomplete(std::vector<retrieval::ScannedFile>& files) {
  for (retrieval::ScannedFile& file : files) {
    if (file.change == Change::kUnchanged || file.change == Change::kTouched) {
      WEFT_ASSIGN_OR_RETURN(const bool incomplete, is_incomplete(file.info.path));
      if (incomplete) file.change = Change::kIncomplete;
    } else if (file.change == Change::kMoved) {
      WEFT_ASSIGN_OR_RETURN(const bool incomplete, is_incomplete(file.moved_from));
      WEFT_ASSIGN_OR_RETURN(auto loaded,
                            retrieval::load_document(env_, file.info.path,
                                                     retrieval::ScanOptions().max_document_bytes));
      take_heading(loaded);
      file.info.title = loaded.info.title;
      WEFT_ASSIGN_OR_RETURN(const auto from, library_.index().find_document(file.moved_from));
      // The title is part of each passage.
      const bool retitled = from && from->info.title != file.info.title;
      if (incomplete || retitled) cut_anew_.insert(file.info.path);
    }
  }
  return Status::ok();
}

bool Ingester::needs_work(const retrieval::ScannedFile& file) const {
  return file.change == Change::kNew || file.change == Change::kChanged ||
         file.change == Change::kIncomplete || cut_anew_.contains(file.info.path);
}

/// Says beforehand what the documents will take.
Status Ingester::plan(const std::vector<retrieval::ScannedFile>& files) {
  IngestPlan plan;
  int64_t new_tokens = 0;  // of records that are not there yet, each once
  std::set<Hash128> seen;
  for (const retrieval::ScannedFile& file : files) {
    if (!needs_work(file)) continue;
    WEFT_ASSIGN_OR_RETURN(const CutDocument cut_document, cut(file.info.path));
    ++plan.documents;
    plan.chunks += static_cast<int64_t>(cut_document.chunks.size());
    for (const CutChunk& chunk : cut_document.chunks) {
      const auto n = static_cast<int64_t>(chunk.tokens.size());
      plan.tokens += n;
      const bool is_new = seen.insert(hash128(std::as_bytes(std::span(chunk.tokens)))).second &&
                          !fusor_->is_stored(chunk.tokens);
      if (is_new) new_tokens += n;
    }
  }
  if (plan.documents == 0) return Status::ok();
  total_tokens_ = plan.tokens;
  plan.new_bytes =
      static_cast<uint64_t>(new_tokens * engine_.model().config().kv_bytes_per_token());
  WEFT_ASSIGN_OR_RETURN(plan.free_bytes, env_.free_bytes(library_.store().dir()));
  if (events_.planned) events_.planned(plan);
  return Status::ok();
}

/// A document that another process has removed meanwhile is as it should be.
Status Ingester::forget(const std::string& path) {
  const Status removed = library_.index().remove_document(path);
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  return library_.remove_unneeded_records();
}

Status Ingester::ingest_document(const retrieval::ScannedFile& file) {
  WEFT_ASSIGN_OR_RETURN(CutDocument cut_document, cut(file.info.path));
  retrieval::DocumentInfo& info = cut_document.document.info;
  info.root = file.info.root;
  std::vector<retrieval::ChunkText> chunks;
  for (const CutChunk& chunk : cut_document.chunks) {
    chunks.push_back({chunk.byte_begin, chunk.byte_end, chunk.text, chunk.tokens,
                      library_.record_of(chunk.tokens), chunk.line_begin, chunk.line_end});
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t id, library_.index().replace_document(info, chunks));
  WEFT_RETURN_IF_ERROR(library_.remove_unneeded_records());
  for (const CutChunk& chunk : cut_document.chunks) {
    if (events_.cancelled && events_.cancelled()) {
      return cancelled("stopped; what was stored so far can be used");
    }
    WEFT_RETURN_IF_ERROR(fusor_->ensure_stored(chunk.tokens, {.evict = false}));
    ++stored_chunks_;
    done_tokens_ += static_cast<int64_t>(chunk.tokens.size());
    if (events_.stored) events_.stored(done_tokens_, total_tokens_);
  }
  const Status marked = library_.index().mark_stored(id, info.content_hash);
  // Another process has removed it, or ingested it anew, and sees to that itself.
  return marked.code() == StatusCode::kNotFound ? Status::ok() : marked;
}

/// The document goes with its file; only where its title is another, or it was not whole, it is cut
/// anew.
Status Ingester::take_over(const retrieval::ScannedFile& file) {
  const Status moved = library_.index().move_document(file.moved_from, file.info);
  // Another process has removed or moved it meanwhile: then this one is new.
  const bool is_gone =
      moved.code() == StatusCode::kNotFound || moved.code() == StatusCode::kInvalidArgument;
  if (!moved.is_ok() && !is_gone) return moved;
  return is_gone || needs_work(file) ? ingest_document(file) : Status::ok();
}

Status Ingester::apply(const retrieval::ScannedFile& file) {
  if (file.change == Change::kDeleted) return forget(file.info.path);
  if (file.change == Change::kMoved) return take_over(file);
  if (needs_work(file)) return ingest_document(file);
  if (file.change != Change::kTouched) return Status::ok();
  const Status touched = library_.index().touch_document(file.info);
  return touched.code() == StatusCode::kNotFound ? Status::ok() : touched;
}

/// Until all is done, whoever asks is told that it is not.
Status Ingester::begin_roots(const retrieval::ScanResult& scanned) {
  const bool has_work =
      std::ranges::any_of(scanned.files, [&](const auto& file) { return needs_work(file); });
  return has_work ? library_.index().begin_roots(scanned.roots) : Status::ok();
}

Status Ingester::end_roots(const std::vector<std::string>& roots) {
  WEFT_ASSIGN_OR_RETURN(const retrieval::Unfinished unfinished, library_.index().unfinished());
  std::vector<std::string> ended;
  for (const std::string& path : unfinished.roots) {
    const bool is_here = std::ranges::any_of(
        roots, [&](const std::string& root) { return retrieval::is_under(path, root); });
    if (is_here) ended.push_back(path);
  }
  return ended.empty() ? Status::ok() : library_.index().end_roots(ended);
}

Result<IngestCounts> Ingester::run(const std::vector<std::string>& paths) {
  WEFT_ASSIGN_OR_RETURN(
      retrieval::ScanResult scanned,
      retrieval::scan(env_, library_.index(), paths, {.store_dir = library_.store().dir()}));
  if (events_.skipped) std::ranges::for_each(scanned.skipped, events_.skipped);
  WEFT_RETURN_IF_ERROR(find_incomplete(scanned.files));
  WEFT_RETURN_IF_ERROR(plan(scanned.files));
  WEFT_RETURN_IF_ERROR(begin_roots(scanned));
  IngestCounts counts;
  counts.skipped = std::ssize(scanned.skipped);
  for (const retrieval::ScannedFile& file : scanned.files) {
    count(file.change, counts);
    const Status status = apply(file);
    if (status.code() == StatusCode::kResourceExhausted) {
      return resource_exhausted(
          fmt::format("stopped at {}: {}; the {} chunks stored before can be used", file.info.path,
                      status.message(), stored_chunks_));
    }
    WEFT_RETURN_IF_ERROR(status);
  }
  WEFT_RETURN_IF_ERROR(end_roots(scanned.roots));
  // Of completed ones, too: an ingest that was stopped may have replaced them before.
  if (counts.deleted + counts.changed + counts.completed + counts.moved > 0) {
    WEFT_RETURN_IF_ERROR(library_.index().drop_former_terms());
  }
  return counts;
}

}  // namespace weft::cli
