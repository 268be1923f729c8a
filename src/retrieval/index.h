// The catalogue of what was ingested: what everything was made with, documents, their chunks with
// text and token ids, and a BM25 search over them. It knows the names of the records that hold the
// chunks' KV, and which of them no chunk needs any longer. It cuts no text, tokenises nothing for a
// model and stores no KV.
//
// One SQLite file (docs/formats/index.md) with a rollback journal and full syncs: a change is there
// whole or not at all, also after kill -9 or a power cut, and several processes may use the file at
// once (a writer waits for the others). Not WAL: its side files would keep a read-only folder from
// being asked. Each row carries a hash, so a damaged byte is an error and never another token.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/hash.h"
#include "base/status.h"

namespace weft::retrieval {

/// What everything in an index is made with: settled once, by whoever comes first. Compared and
/// kept here, understood by the caller.
struct Settlement {
  std::string model;       // its fingerprint
  std::string model_name;  // for people
  std::string ropes;       // a hash of how it turns keys; "": not known
  int64_t context_tokens = 0;
  std::string prompt;               // the form of the passages
  std::string anchor;               // what they are computed after
  std::string anchor_passages;      // where the anchor's name does not say it
  std::string scope;                // a hash of all that the records' names depend on but the chunk
  std::string record_type = "f16";  // of K and V; what every store had before there was a choice
  bool operator==(const Settlement&) const = default;
};

/// A file as it was when it was read.
/// The time of a file that was written so shortly before it was read that its time does not tell
/// whether it was written once more.
inline constexpr int64_t kUnknownTime = std::numeric_limits<int64_t>::min();

struct DocumentInfo {
  std::string path;  // the document's name in the index; unique
  std::string title;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;   // since the Unix epoch, or kUnknownTime
  std::string content_hash;  // compared for equality only
  std::string root;          // the path named at ingest under which it was found; "": not known
};

enum class DocumentStatus {
  kCatalogued = 0,  // its chunks are in the index; not all of their KV need be in the store
  kStored = 1,      // the KV of each chunk was stored
};

struct Document {
  int64_t id = 0;
  DocumentInfo info;
  DocumentStatus status = DocumentStatus::kCatalogued;
  int64_t n_chunks = 0;
  int64_t n_tokens = 0;
};

/// A piece of a document, as it goes in.
struct ChunkText {
  uint64_t byte_begin = 0;  // of the document's text as it was read: [byte_begin, byte_end)
  uint64_t byte_end = 0;
  std::string_view text;
  std::span<const int32_t> tokens;  // the chunk's token ids in a prompt, as the caller makes them
  Hash128 record;                   // the name of its KV's record
  uint64_t line_begin = 0;          // of the file itself, from 1: the first and the last one
  uint64_t line_end = 0;
};

/// The same, as it comes out.
struct Chunk {
  int64_t id = 0;  // never used again for another chunk
  int64_t document_id = 0;
  int32_t ordinal = 0;  // 0, 1, … in the document
  uint64_t byte_begin = 0;
  uint64_t byte_end = 0;
  uint64_t line_begin = 0;  // 0: not known, in a chunk from an older weft
  uint64_t line_end = 0;
  std::string text;
  std::vector<int32_t> tokens;
  Hash128 record;  // zero in an old index
};

/// A chunk that was found, and of its document what DocumentInfo has.
struct Hit {
  Chunk chunk;
  std::string path;
  std::string title;
  std::string root;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;
  std::string content_hash;
  double score = 0;  // BM25; larger is better
  /// What find_passages left out for this one, as it says the same or nearly so: copies and other
  /// versions. None from the index.
  std::vector<Hit> nearly_same;
  /// The document's path that find_passages shows before this one as its newer version; "": none.
  std::string older_version_of;
};

/// What chunks are searched for: a word, in any form that the index folds and stems into the same,
/// or what a word begins with.
struct Term {
  std::string text;
  bool is_beginning = false;
  /// Other words that count as this one: Müller, Mueller. Several words in one, "12 400", count
  /// where they follow each other.
  std::vector<std::string> spellings = {};
  /// Where not empty only these words count, and nothing else of the same stem: that of Ines is
  /// "in". count() and search() know stems alone and leave such a term out; chunks_with_words()
  /// finds it.
  std::vector<std::string> only = {};
};

/// A word of the documents that is near to one that none of them has; "" of none.
struct NearWord {
  std::string word;
  bool is_clear = false;  // near enough to be searched for in the other's place
};

/// How often terms are in an index, for weighing them.
struct TermCounts {
  int64_t chunks = 0;                // all there are
  double mean_tokens = 0;            // of a chunk
  std::vector<int64_t> chunks_with;  // of each term
};

/// A path that was named to an ingest, and the flags of that ingest which decide what is taken in
/// and how it is read. Kept until it has ended well.
struct IngestRoot {
  static constexpr size_t kMaxExcludeBytes = size_t{64} << 10;
  static constexpr size_t kMaxEncodingBytes = 64;

  std::string path;                  // canonical
  std::vector<std::string> exclude;  // patterns, without zero bytes; at most kMaxExcludeBytes
                                     // together, with one more for each
  std::string encoding;              // its name; "": guessed for each file
  bool reads_ignore_files = true;
  bool rehash = false;
  bool operator==(const IngestRoot&) const = default;

  size_t exclude_bytes() const;
};

/// What is in an index and not yet whole.
struct Unfinished {
  int64_t documents = 0;  // that are not kStored
  /// Sorted by path, each once: of those documents, with no flags since nobody knows them, and of
  /// ingests that did not end well.
  std::vector<IngestRoot> roots;
  bool ingest_did_not_end = false;  // of one at least: files of it may not be in the index at all
};

class Rows;

struct Counts {
  int64_t documents = 0;
  int64_t chunks = 0;
  int64_t tokens = 0;
};

/// Errors of every call name the file: kCorrupt for a damaged or foreign one, kResourceExhausted
/// when another process holds it for longer than one waits or the disk is full, kCancelled when
/// waiting was cancelled. One thread at a time; each thread may open an Index of its own on the
/// same file.
class Index {
 public:
  enum class Mode {
    kReadOnly,   // the file must exist; changes are refused
    kReadWrite,  // the file must exist
    kCreate,     // made when missing
  };
  /// An index of an older weft can be read; settle() brings it up to date, changes are refused
  /// until then (kUnsupported).
  /// `env` syncs the folder; the file itself is SQLite's. `wait`: for other processes' locks, here
  /// and in every later call.
  static Result<std::unique_ptr<Index>> open(const std::string& path, Mode mode,
                                             Env& env = posix_env(),
                                             LockWait wait = kUsualLockWait);
  ~Index();

  const std::string& path() const;
  /// Opened so, or because nobody may write here.
  bool is_read_only() const;
  /// Of the first version: without settlement, records' names and hashes.
  bool is_old() const;
  /// As it was at open() or settle(); of an old index nothing.
  const std::optional<Settlement>& settlement() const;
  /// From now on a chunk with a token id outside 0 to n_vocab - 1 is kCorrupt.
  void set_token_limit(int32_t n_vocab);

  /// What settles an index. `agree` is told what is settled there and whether the index is old, and
  /// answers what shall be: the same, or in a new index its own; its error is settle()'s.
  /// `record_of` is the name of the record of these token ids, asked after `agree`. Both may be
  /// called twice, and the index must not be used in them.
  struct Terms {
    FunctionRef<Result<Settlement>(const std::optional<Settlement>& there, bool is_old)> agree;
    FunctionRef<Hash128(std::span<const int32_t>)> record_of;
  };
  /// Agrees on what everything here is made with, in one transaction: of two that come at once one
  /// settles and the other is told. Brings an old index up to date in the same transaction, and the
  /// chunks' record names where the scope has changed. In a read-only index nothing is changed.
  Status settle(const Terms& terms);

  // Changes. kInvalidArgument when the settlement is no longer that of open() or settle().

  /// Puts the document in, in place of the one with its path: at once and whole. Its status is
  /// kCatalogued. Returns its id, which it keeps when it is replaced. Records that no chunk has any
  /// longer are kept in mind, until sweep().
  Result<int64_t> replace_document(const DocumentInfo& info, std::span<const ChunkText> chunks);
  /// The KV of all its chunks is stored. kNotFound when there is no such document, or none with
  /// this content any longer.
  Status mark_stored(int64_t document_id, std::string_view content_hash);
  /// It is to be ingested again: its status is kCatalogued. kNotFound where there is none.
  Status mark_incomplete(int64_t document_id);
  /// The file's size and time changed, or the root that it is there by (where one is given), its
  /// content did not. kNotFound as in mark_stored.
  Status touch_document(const DocumentInfo& info);
  /// The file at `path` now is at info.path, with the same content: the document keeps its id, its
  /// title and its chunks. Where info has another title they are to be made anew: its status is
  /// kCatalogued. kNotFound as in mark_stored; kInvalidArgument where the index has another
  /// document at info.path.
  Status move_document(const std::string& path, const DocumentInfo& info);
  /// kNotFound when there is no such document.
  Status remove_document(const std::string& path);

  /// An ingest of these roots begins; until it has ended well, unfinished() names them. One that
  /// has begun before has these flags from now on. kInvalidArgument past IngestRoot's bounds.
  Status begin_roots(std::span<const IngestRoot> roots);
  /// It ended well, or there is nothing left to ingest there. Those that never began are fine.
  Status end_roots(std::span<const std::string> roots);
  Result<Unfinished> unfinished();
  /// Runs `take_away` where there are no documents and nothing is unfinished, while nobody else can
  /// change that; whether it did. Once the file has no name any more, or another, whoever has it
  /// open changes nothing: kIoError.
  Result<bool> if_empty(FunctionRef<Status()> take_away);

  // Records. Whoever adds or removes a chunk's KV does it inside these, so that a record is there
  // only as long as a chunk has it, whatever other processes do and whenever one of them is killed.

  Result<bool> has_record(const Hash128& record);
  /// Runs `put` if a chunk has the record; nobody takes the chunk away meanwhile.
  Status put_record(const Hash128& record, FunctionRef<Status()> put);
  /// Runs `remove` for each of `records` that no chunk has; nobody adds one meanwhile.
  Status remove_unneeded(std::span<const Hash128> records,
                         FunctionRef<Status(const Hash128&)> remove);
  /// The same for the records whose last chunk a change took away; each is forgotten when its
  /// removal has succeeded. For whoever opens an index to write, and after changes.
  Status sweep(FunctionRef<Status(const Hash128&)> remove);

  /// Sorted by path, bytewise.
  Result<std::vector<Document>> documents();
  Result<std::optional<Document>> find_document(const std::string& path);
  /// Those whose path ends with this file's name; sorted as documents() is.
  Result<std::vector<Document>> documents_named(std::string_view file_name);
  /// In order; none for an unknown document.
  Result<std::vector<Chunk>> chunks_of(int64_t document_id);
  Result<Chunk> chunk(int64_t id);
  /// What the document begins with; nothing where it has no text, or there is none.
  Result<std::optional<Chunk>> first_chunk(int64_t document_id);
  Result<Counts> counts();
  /// For tests: calls fn for every chunk by ascending id, until it fails. The file is not locked
  /// meanwhile: fn may change the index, and others' changes may or may not be seen.
  Status all_chunks(FunctionRef<Status(const Chunk&)> fn);

  /// The k best chunks for a question, best first; ties by path, then by place in the document. Any
  /// bytes may be asked: they are split as the texts are (letters and digits, case and diacritics
  /// folded), and chunks or titles with any of the first kMaxQueryTerms terms are found.
  Result<std::vector<Hit>> search(std::string_view question, int k);
  static constexpr size_t kMaxQueryTerms = 256;
  /// The same for the chunks with any of these terms, in any of its forms.
  /// `also`: ids of chunks that follow these, unless they are among them.
  Result<std::vector<Hit>> search(std::span<const Term> any, int k,
                                  std::span<const int64_t> also = {});

  // For whoever weighs terms and passages: passages.h.

  /// The words of any text, folded as the index folds them: each once, in order, at most `limit`.
  Result<std::vector<std::string>> words(std::string_view text, size_t limit);
  /// Calls `fn` for each word, in order, until it returns false.
  Status each_word(std::string_view text, FunctionRef<bool(std::string_view)> fn);
  Result<TermCounts> count(std::span<const Term> terms);
  /// The ids of the chunks that have one of a term's `only`, in text or title. Nothing where more
  /// than kMaxChunksRead chunks would have to be read for it.
  Result<std::optional<std::vector<int64_t>>> chunks_with_words(const Term& term);
  static constexpr int64_t kMaxChunksRead = 5000;  // some 0.2 s
  /// What the index makes of terms, for looking for the same ones in many texts.
  struct Forms {
    size_t n_terms = 0;
    std::unordered_map<std::string, std::vector<size_t>> words;  // the terms' numbers
    std::vector<std::pair<std::string, size_t>> beginnings;
    std::vector<std::pair<std::vector<std::string>, size_t>> phrases;
    std::unordered_map<std::string, std::vector<size_t>> whole_words;  // of Term::only
  };
  Result<Forms> forms_of(std::span<const Term> terms);
  Result<std::vector<int64_t>> occurrences(const Forms& forms, std::string_view text);
  /// How often each of the terms is in a text.
  Result<std::vector<int64_t>> occurrences(std::span<const Term> terms, std::string_view text);

  /// The word of some chunk that `word`, which none has, most likely was to be: one letter put in,
  /// left out, replaced or swapped, in a word of more than five letters two, of which one at most
  /// is replaced; the same first letter, or the first two swapped. Whole words are compared, and no
  /// function word is meant. Else what a word of six letters or more is the beginning of, and the
  /// greater part, where the index has one such word alone (postgres: postgresql). None for words
  /// of fewer than five letters. Of very many with that first letter not all are looked at.
  Result<NearWord> near_word(std::string_view word);

  /// Takes out of the file the search terms of chunks that are gone: the search index marks them
  /// first, and drops them only when it is merged into one piece. Takes as long as the index is
  /// large, so once after many changes.
  Status drop_former_terms();

  /// Reads everything: ok, or kCorrupt with the first thing that is wrong. A read-only index's
  /// search terms are not compared with its texts, and an old one has no hashes to compare.
  Status verify();

 private:
  struct State;
  Result<std::string> stem_of(std::string_view word);
  Result<std::vector<std::string>> words_of_stem(const std::string& stem);
  Status rewrite_chunks(int64_t from, const Terms& terms);
  Status walk_chunks(const Rows& as, FunctionRef<Status(const Chunk&)> fn);
  Status verify_documents();

  explicit Index(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft::retrieval
