// An ingest in two halves: prepare() reads and cuts every document to say what the ingest will
// take, and changes nothing; carry_out() reads and cuts each one again and does the work. Reading
// twice costs little beside computing KV, and holding all text in memory in between would bound
// what can be ingested. It means that a file may change between the halves, which load() handles.
//
// The order for one document is: its rows go into the index first, marked as not stored; then the
// KV of its chunks is computed and stored; then the document is marked as stored. An ingest that is
// killed at any point leaves documents that the index knows to be unfinished, and the next one
// completes them. The other order would leave records that no row knows.
//
// Short chunks share a step: the weights are read once for all rows of a step, so computing chunks
// one by one would waste most of that when they have a few dozen tokens. Hence the queue of
// documents that wait for KV (waiting_), in which a step may hold chunks of several documents.
#include "library/ingester.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "base/hash.h"
#include "base/narrow.h"
#include "text/chunker.h"

namespace weft::library {
namespace {

using retrieval::Change;

constexpr int32_t kChunkTokens = 512;  // of a chunk at most, its title's included

constexpr std::string_view kBlank = " \t\r\n";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlank) == std::string_view::npos;
}

struct Heading {
  std::string text;
  size_t begin = 0;  // of that text in the document's
  size_t end = 0;    // of its line; 0 with none
};

/// The Markdown heading in a document's first line, if it can be the title: not where the document
/// names another title elsewhere (front matter).
Heading heading_of(const retrieval::LoadedDocument& document) {
  if (document.format == documents::Format::kHtml) return {};
  const std::string& text = document.text;
  const size_t begin = text.find_first_not_of('#');
  if (begin == 0 || begin == std::string::npos || begin > 6 || text[begin] != ' ') return {};
  const size_t end = std::min(text.find('\n', begin), text.size());
  if (end - begin > documents::kMaxTitleBytes) return {};
  std::string title = text.substr(begin + 1, end - begin - 1);
  while (!title.empty() && is_ascii_space(title.back())) title.pop_back();
  if (title.empty() || (document.has_own_title && title != document.info.title)) return {};
  return {std::move(title), begin + 1, std::min(end + 1, text.size())};
}

/// Sets the document's title and returns where its text begins. A heading in the first line becomes
/// the title and is not part of the text: each passage is shown with its title, so it would be
/// there twice. A document that has nothing but a heading or a title keeps it as its text, since
/// nothing could be found otherwise, and has its file's name as title.
size_t take_title(retrieval::LoadedDocument& document) {
  Heading heading = heading_of(document);
  if (!is_blank(std::string_view(document.text).substr(heading.end))) {
    if (heading.end > 0) document.info.title = std::move(heading.text);
    return heading.end;
  }
  if (heading.end == 0 && !document.has_own_title) return 0;
  std::string title =
      std::exchange(document.info.title, retrieval::title_of_name(document.info.path));
  if (heading.end > 0) return heading.begin;
  document.text = std::move(title);
  document.lines = documents::LineMap::of_lines(document.text);
  return 0;
}

void count(const retrieval::ScannedFile& file, IngestCounts& counts) {
  switch (file.change) {
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
      if (file.is_there) ++counts.skipped_now;
      break;
    case Change::kGone:
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
  uint64_t byte_begin = 0;  // of the document's text, which may move: no view of it is kept
  uint64_t byte_end = 0;
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
      fusor_(library.fusor()) {}

Ingester::~Ingester() = default;

/// Reads a file that the scan found. Nothing where it is gone, changes while it is read or holds no
/// text any more; `file.change` is then set to what remains to be done for it.
Result<std::optional<retrieval::LoadedDocument>> Ingester::load(retrieval::ScannedFile& file) {
  using Loaded = std::optional<retrieval::LoadedDocument>;
  auto loaded = retrieval::load_document(env_, file.info.path, options_);
  if (loaded.is_ok()) return Loaded(std::move(*loaded));
  const StatusCode code = loaded.status().code();
  const bool is_gone = code == StatusCode::kNotFound;
  const bool is_changing = code == StatusCode::kCorrupt;  // it got shorter while it was read
  if (!is_gone && !is_changing && code != StatusCode::kUnsupported) return loaded.status();
  if (!is_gone) {
    ++n_skipped_;
    const std::string reason =
        is_changing ? "it changes while it is read" : loaded.status().message();
    if (events_.skipped) events_.skipped({file.info.path, "no text any longer", reason, false});
  }
  const bool was_new = file.change == Change::kNew;
  file.change = was_new ? Change::kGone : is_changing ? Change::kUnchanged : Change::kDeleted;
  file.is_there = !is_gone;
  if (file.change == Change::kDeleted && !file.moved_from.empty()) {
    // It was a moved document's new file. Now that document has no file at all.
    file.info.path = std::exchange(file.moved_from, "");
    file.is_there = false;
    if (!is_asked(file.info.path)) file.change = Change::kGone;
  }
  return Loaded();
}

Result<std::optional<Ingester::CutDocument>> Ingester::load_and_cut(retrieval::ScannedFile& file) {
  WEFT_ASSIGN_OR_RETURN(auto loaded, load(file));
  if (!loaded) return std::optional<CutDocument>();
  WEFT_ASSIGN_OR_RETURN(CutDocument cut_document, cut(*std::move(loaded)));
  return std::optional(std::move(cut_document));
}

Result<Ingester::CutDocument> Ingester::cut(retrieval::LoadedDocument document) const {
  CutDocument out{std::move(document), {}};
  const size_t body = take_title(out.document);
  const std::string_view text = std::string_view(out.document.text).substr(body);
  const std::string& title = out.document.info.title;  // at most kMaxTitleBytes
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> heading, library_.rag().chunk(title, ""));
  const auto budget = kChunkTokens - narrow<int32_t>(heading.size());
  if (budget < kChunkTokens / 4) {
    return invalid_argument(fmt::format("{}: its title is too long ({} tokens)",
                                        out.document.info.path, heading.size()));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<text::Chunk> pieces,
                        text::split_into_chunks(engine_.tokenizer(), text, {.max_tokens = budget}));
  const documents::LineMap& lines = out.document.lines;
  for (const text::Chunk& piece : pieces) {
    const std::string_view passage = text.substr(piece.begin, piece.end - piece.begin);
    const size_t first = passage.find_first_not_of(kBlank);
    if (first == std::string_view::npos) continue;
    CutChunk chunk{body + piece.begin, body + piece.end, {}};
    // The first passage is cited from the heading on, which is shown as its title.
    const bool is_after_heading = body > 0 && out.chunks.empty();
    chunk.line_begin = lines.line_of(is_after_heading ? 0 : chunk.byte_begin + first);
    chunk.line_end = lines.line_of(chunk.byte_begin + passage.find_last_not_of(kBlank));
    WEFT_ASSIGN_OR_RETURN(chunk.tokens, library_.chunk_tokens(title, passage));
    out.chunks.push_back(std::move(chunk));
  }
  return out;
}

/// Whether a document that did not change must be ingested again all the same: an ingest of it did
/// not end, records of it were removed or found damaged, or an older weft ingested it, which noted
/// no line numbers and took no text from a document with only a title.
Result<bool> Ingester::is_incomplete(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto document, library_.index().find_document(path));
  if (!document) return false;
  if (document->status != retrieval::DocumentStatus::kStored) return true;
  WEFT_ASSIGN_OR_RETURN(const std::vector<retrieval::Chunk> chunks,
                        library_.index().chunks_of(document->id));
  if (chunks.empty()) return document->info.title != retrieval::title_of_name(path);
  return !std::ranges::all_of(chunks, [&](const retrieval::Chunk& chunk) {
    return chunk.line_begin > 0 && fusor_.is_stored(chunk.tokens);
  });
}

Status Ingester::check_stopped() const {
  const bool stopped = events_.cancelled && events_.cancelled();
  return stopped ? cancelled("stopped") : Status::ok();
}

Status Ingester::find_incomplete(std::vector<retrieval::ScannedFile>& files) {
  for (retrieval::ScannedFile& file : files) {
    WEFT_RETURN_IF_ERROR(check_stopped());
    if (file.change == Change::kUnchanged || file.change == Change::kTouched) {
      WEFT_ASSIGN_OR_RETURN(const bool incomplete, is_incomplete(file.info.path));
      if (incomplete) file.change = Change::kIncomplete;
    } else if (file.change == Change::kMoved) {
      WEFT_RETURN_IF_ERROR(find_incomplete_move(file));
    }
  }
  return Status::ok();
}

Status Ingester::find_incomplete_move(retrieval::ScannedFile& file) {
  WEFT_ASSIGN_OR_RETURN(auto loaded, load(file));
  if (!loaded) return Status::ok();
  take_title(*loaded);
  file.info.title = loaded->info.title;
  WEFT_ASSIGN_OR_RETURN(const bool incomplete, is_incomplete(file.moved_from));
  WEFT_ASSIGN_OR_RETURN(const auto from, library_.index().find_document(file.moved_from));
  // The title is part of each passage.
  const bool retitled = from && from->info.title != file.info.title;
  if (incomplete || retitled) cut_anew_.insert(file.info.path);
  return Status::ok();
}

bool Ingester::needs_work(const retrieval::ScannedFile& file) const {
  return file.change == Change::kNew || file.change == Change::kChanged ||
         file.change == Change::kIncomplete ||
         (file.change == Change::kMoved && cut_anew_.contains(file.info.path));
}

/// Adds up what the ingest will take, tells it to events_.planned, and refuses what cannot fit.
Status Ingester::plan(std::vector<retrieval::ScannedFile>& files) {
  IngestPlan plan;
  bytes_left_ = 0;
  int64_t new_tokens = 0;  // whose KV is not stored; chunks that are equal count once
  std::set<Hash128> seen;
  int64_t largest_tokens = 0;
  size_t largest_chunk = 0;  // of those to be computed
  std::string with_largest_chunk;
  for (retrieval::ScannedFile& file : files) {
    WEFT_RETURN_IF_ERROR(check_stopped());
    if (!needs_work(file)) continue;
    WEFT_ASSIGN_OR_RETURN(const auto cut_document, load_and_cut(file));
    if (!cut_document) continue;
    ++plan.documents;
    plan.chunks += std::ssize(cut_document->chunks);
    const int64_t new_before = new_tokens;
    for (const CutChunk& chunk : cut_document->chunks) {
      const int64_t n = std::ssize(chunk.tokens);
      plan.tokens += n;
      const bool is_new = seen.insert(hash128(std::as_bytes(std::span(chunk.tokens)))).second &&
                          !fusor_.is_stored(chunk.tokens);
      if (is_new) {
        new_tokens += n;
        ++plan.new_chunks;
        bytes_left_ += library_.record_bytes(chunk.tokens);
      }
      if (is_new && chunk.tokens.size() > largest_chunk) {
        largest_chunk = chunk.tokens.size();
        with_largest_chunk = file.info.path;
      }
    }
    if (new_tokens - new_before > largest_tokens) {
      largest_tokens = new_tokens - new_before;
      plan.largest_path = file.info.path;
    }
  }
  if (plan.documents == 0) return Status::ok();
  if (largest_chunk > 0) {
    const Status fits = library_.check_kv_room(largest_chunk);
    if (!fits.is_ok()) {
      return resource_exhausted(
          fmt::format("{}: {}; nothing was changed", with_largest_chunk, fits.message()));
    }
  }
  total_tokens_ = plan.tokens;
  plan.new_tokens = new_tokens;
  plan.new_bytes = library_.kv_bytes(new_tokens);
  plan.largest_bytes = library_.kv_bytes(largest_tokens);
  WEFT_ASSIGN_OR_RETURN(plan.free_bytes, env_.free_bytes(library_.store().dir()));
  WEFT_RETURN_IF_ERROR(check_room(plan, files));
  if (events_.planned) events_.planned(plan);
  return Status::ok();
}

/// Refuses what surely cannot fit the disk, and nothing else: KV of documents that are deleted or
/// changed is freed on the way, so it counts as room. With --store-limit nothing is refused here:
/// the user asked for as much as fits below it.
Status Ingester::check_room(const IngestPlan& plan,
                            const std::vector<retrieval::ScannedFile>& files) {
  if (plan.new_bytes <= plan.free_bytes || library_.has_store_limit()) return Status::ok();
  uint64_t room = plan.free_bytes;
  for (const retrieval::ScannedFile& file : files) {
    if (file.change != Change::kDeleted && file.change != Change::kChanged) continue;
    WEFT_ASSIGN_OR_RETURN(const auto document, library_.index().find_document(file.info.path));
    if (!document) continue;
    room += library_.kv_bytes(document->n_tokens);
    if (plan.new_bytes <= room) return Status::ok();
  }
  return resource_exhausted(fmt::format(
      "{}: {} tokens of documents are {} of KV, and {} are free there; leave some out (--exclude), "
      "or store as much as a limit allows (--store-limit); nothing was changed",
      library_.store().dir(), plan.new_tokens, size_text(plan.new_bytes),
      size_text(plan.free_bytes)));
}

/// Removes a document and its records. One that another process removed meanwhile is no error.
Status Ingester::forget(const std::string& path) {
  const Status removed = library_.index().remove_document(path);
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  return library_.remove_unneeded_records();
}

/// Puts a document's rows into the index and queues the chunks whose KV is missing.
Status Ingester::ingest_document(retrieval::ScannedFile& file) {
  WEFT_ASSIGN_OR_RETURN(auto loaded, load_and_cut(file));
  if (!loaded) return file.change == Change::kDeleted ? forget(file.info.path) : Status::ok();
  CutDocument& cut_document = *loaded;
  retrieval::DocumentInfo& info = cut_document.document.info;
  info.root = file.info.root;
  if (!cut_document.document.guess.empty() && events_.guessed) {
    events_.guessed(info.path, cut_document.document.guess);
  }
  if (cut_document.chunks.empty() && events_.empty) events_.empty(info.path);
  std::vector<retrieval::ChunkText> chunks;
  const std::string_view text = cut_document.document.text;
  for (const CutChunk& chunk : cut_document.chunks) {
    chunks.push_back({chunk.byte_begin, chunk.byte_end,
                      text.substr(chunk.byte_begin, chunk.byte_end - chunk.byte_begin),
                      chunk.tokens, library_.record_of(chunk.tokens), chunk.line_begin,
                      chunk.line_end});
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t id, library_.index().replace_document(info, chunks));
  WEFT_RETURN_IF_ERROR(library_.remove_unneeded_records());
  tell(info.path);  // which document it is, before its first chunk
  WEFT_RETURN_IF_ERROR(check_stopped());
  WaitingDocument waiting{id, info.path, info.content_hash, {}};
  for (CutChunk& chunk : cut_document.chunks) {
    if (fusor_.is_stored(chunk.tokens)) {
      ++stored_chunks_;
      done_tokens_ += std::ssize(chunk.tokens);
    } else {
      waiting_tokens_ += std::ssize(chunk.tokens);
      waiting.chunks.push_back(std::move(chunk.tokens));
    }
  }
  tell(info.path);
  if (waiting.chunks.empty()) return mark_stored(waiting);
  waiting_.push_back(std::move(waiting));
  return Status::ok();
}

Status Ingester::mark_stored(const WaitingDocument& document) {
  const Status marked = library_.index().mark_stored(document.id, document.content_hash);
  // Another process has removed the document or ingested it anew, and does the rest itself.
  return marked.code() == StatusCode::kNotFound ? Status::ok() : marked;
}

/// Reports progress; `path` is that of the document at work.
void Ingester::tell(std::string_view path) const {
  if (events_.stored) events_.stored({done_tokens_, total_tokens_, computed_tokens_, path});
}

/// Marks the documents at the front of the queue whose chunks are all stored, and removes them from
/// it. Chunks are stored in order, so those after the first unfinished one have some left, too.
Status Ingester::end_stored() {
  while (!waiting_.empty() && waiting_.front().n_stored == waiting_.front().chunks.size()) {
    WEFT_RETURN_IF_ERROR(mark_stored(waiting_.front()));
    waiting_.pop_front();
  }
  return Status::ok();
}

/// Computes and stores the first chunks of the queue, as many as fit a step of kChunkStepRows rows;
/// a chunk that is longer by itself goes alone.
Status Ingester::store_step() {
  std::vector<std::span<const int32_t>> chunks;
  std::vector<WaitingDocument*> documents;  // of each chunk
  int64_t n_tokens = 0;
  for (WaitingDocument& document : waiting_) {
    if (n_tokens >= fusion::kChunkStepRows) break;
    for (size_t i = document.n_stored; i < document.chunks.size(); ++i) {
      n_tokens += std::ssize(document.chunks[i]);
      if (!chunks.empty() && n_tokens > fusion::kChunkStepRows) break;
      chunks.emplace_back(document.chunks[i]);
      documents.push_back(&document);
    }
  }
  size_t n_done = 0;
  const auto on_stored = [&](bool computed) {
    const std::span<const int32_t> tokens = chunks[n_done];
    const int64_t n = std::ssize(tokens);
    WaitingDocument& document = *documents[n_done++];
    ++document.n_stored;
    ++stored_chunks_;
    waiting_tokens_ -= n;
    done_tokens_ += n;
    if (computed) {
      computed_tokens_ += n;
      bytes_left_ -= std::min(bytes_left_, library_.record_bytes(tokens));
    }
    tell(document.path);
  };
  const Status stored = fusor_.ensure_first_stored(chunks, on_stored, {.evict = false});
  const Status ended = end_stored();
  return stored.is_ok() ? ended : stored;
}

/// Runs steps until fewer than `fewest_tokens` tokens wait; 1 empties the queue.
Status Ingester::store_waiting(int64_t fewest_tokens) {
  while (!waiting_.empty() && waiting_tokens_ >= fewest_tokens) {
    WEFT_RETURN_IF_ERROR(check_stopped());
    const Status stored = store_step();
    // With an empty queue the error came from marking the last document, not from storing one.
    if (!stored.is_ok() && waiting_.empty()) return stored;
    if (!stored.is_ok()) return stopped_at(waiting_.front().path, stored);
  }
  return Status::ok();
}

/// Gives a moved file's document its new path and keeps its chunks. It is cut anew only if its
/// title changed with the name, or it was not complete.
Status Ingester::take_over(retrieval::ScannedFile& file) {
  const Status moved = library_.index().move_document(file.moved_from, file.info);
  const bool is_gone =
      moved.code() == StatusCode::kNotFound || moved.code() == StatusCode::kInvalidArgument;
  if (!moved.is_ok() && !is_gone) return moved;
  file.moved_from.clear();  // the index has nothing under that path any more
  if (!is_gone) return needs_work(file) ? ingest_document(file) : Status::ok();
  file.change = Change::kNew;  // another process removed or moved the old document meanwhile
  return ingest_document(file);
}

/// Does what a file's change asks for. Afterwards `file.change` says what was done, which may
/// differ from what the scan found.
Status Ingester::apply(retrieval::ScannedFile& file) {
  if (file.change == Change::kDeleted) return forget(file.info.path);
  if (file.change == Change::kTouched) {
    const Status touched = library_.index().touch_document(file.info);
    return touched.code() == StatusCode::kNotFound ? Status::ok() : touched;
  }
  const bool is_moved = file.change == Change::kMoved;
  if (!is_moved && !needs_work(file)) return Status::ok();
  const Status status = is_moved ? take_over(file) : ingest_document(file);
  if (status.is_ok() || status.code() == StatusCode::kCancelled) return status;
  // This document failed; those before it are still to be completed.
  WEFT_RETURN_IF_ERROR(store_waiting(1));
  return stopped_at(file.info.path, status);
}

/// Adds to the error of a full disk or limit where the ingest stopped and what can be used.
Status Ingester::stopped_at(const std::string& path, const Status& status) const {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return resource_exhausted(fmt::format(
      "stopped at {}: {}; {}{}", path, status.message(),
      stored_chunks_ == 0
          ? "no chunk was stored before"
          : fmt::format("the {} stored before can be used", counted(stored_chunks_, "chunk")),
      room_needed()));
}

/// The end of such an error's line: the limit that would do, or what the disk lacks; "" where
/// neither is the reason.
std::string Ingester::room_needed() const {
  const auto store = library_.store().stat();
  if (!store.is_ok()) return "";
  if (library_.has_store_limit() && store->disk.bytes + bytes_left_ > store->disk.limit_bytes) {
    return fmt::format("; --store-limit {} holds all of it",
                       size_flag_for(store->disk.bytes + bytes_left_));
  }
  const auto free_bytes = env_.free_bytes(library_.store().dir());
  if (!free_bytes.is_ok() || bytes_left_ <= *free_bytes) return "";
  return fmt::format("; what is missing takes {}, and {} are free there", size_text(bytes_left_),
                     size_text(*free_bytes));
}

/// Notes in the index that an ingest of these paths has begun, with its flags. Until end_roots() a
/// question is told that the store is not complete, and `docs ls` says how to complete it.
Status Ingester::begin_roots(const retrieval::ScanResult& scanned) {
  const bool has_work =
      std::ranges::any_of(scanned.files, [&](const auto& file) { return needs_work(file); });
  if (!has_work) return Status::ok();
  std::vector<retrieval::IngestRoot> roots;
  for (const std::string& path : scanned.roots) {
    roots.push_back({.path = path,
                     .exclude = options_.exclude,
                     .encoding = std::string(documents::encoding_name(options_.encoding)),
                     .reads_ignore_files = options_.reads_ignore_files,
                     .rehash = options_.rehash});
  }
  return library_.index().begin_roots(roots);
}

bool Ingester::is_asked(const std::string& path) const {
  return retrieval::is_under_any(path, outer_roots_);
}

Status Ingester::end_roots() {
  WEFT_ASSIGN_OR_RETURN(const retrieval::Unfinished unfinished, library_.index().unfinished());
  std::vector<std::string> ended;
  for (const retrieval::IngestRoot& root : unfinished.roots) {
    // By the path that it had then, or by where that path leads now.
    if (is_asked(root.path) || is_asked(retrieval::canonical_path(root.path))) {
      ended.push_back(root.path);
    }
  }
  return ended.empty() ? Status::ok() : library_.index().end_roots(ended);
}

/// The first half: scans, finds what is incomplete, and plans. Changes neither index nor store.
Result<retrieval::ScanResult> Ingester::prepare(const std::vector<std::string>& paths) {
  WEFT_ASSIGN_OR_RETURN(retrieval::ScanResult scanned,
                        retrieval::scan(env_, library_.index(), paths, options_));
  if (events_.noted) std::ranges::for_each(scanned.notes, events_.noted);
  if (events_.skipped) std::ranges::for_each(scanned.skipped, events_.skipped);
  n_skipped_ = std::ssize(scanned.skipped);
  outer_roots_ = retrieval::outermost(scanned.roots);
  WEFT_RETURN_IF_ERROR(find_incomplete(scanned.files));
  WEFT_RETURN_IF_ERROR(plan(scanned.files));
  WEFT_RETURN_IF_ERROR(check_stopped());
  return scanned;
}

Result<IngestCounts> Ingester::run(const std::vector<std::string>& paths,
                                   retrieval::ScanOptions options) {
  options_ = std::move(options);
  options_.store_dir = library_.store().dir();
  options_.cancelled = events_.cancelled;
  auto prepared = prepare(paths);
  // The index's calls can be cancelled, too; their message would name its file, which says nothing
  // to the user.
  if (prepared.status().code() == StatusCode::kCancelled) {
    return cancelled("stopped; nothing was changed");
  }
  WEFT_ASSIGN_OR_RETURN(retrieval::ScanResult scanned, std::move(prepared));
  auto counts = carry_out(scanned);
  if (counts.status().code() == StatusCode::kCancelled) {
    return cancelled("stopped; what was stored so far can be used");
  }
  return counts;
}

/// The second half. A step runs whenever enough tokens wait to fill one.
Result<IngestCounts> Ingester::carry_out(retrieval::ScanResult& scanned) {
  WEFT_RETURN_IF_ERROR(begin_roots(scanned));
  IngestCounts counts;
  for (retrieval::ScannedFile& file : scanned.files) {
    WEFT_RETURN_IF_ERROR(apply(file));
    count(file, counts);
    WEFT_RETURN_IF_ERROR(store_waiting(fusion::kChunkStepRows));
  }
  WEFT_RETURN_IF_ERROR(store_waiting(1));
  counts.skipped = n_skipped_;
  WEFT_RETURN_IF_ERROR(end_roots());
  // The search index keeps the terms of deleted chunks until it is told to drop them. Completed
  // documents count, too: an ingest that was stopped may have replaced them before.
  if (counts.deleted + counts.changed + counts.completed + counts.moved > 0) {
    WEFT_RETURN_IF_ERROR(library_.index().drop_former_terms());
  }
  return counts;
}

}  // namespace weft::library
