// Which files there are under the paths that the user named, and what has changed since they were
// ingested. It reads files and the index; it changes neither and cuts nothing into chunks. What is
// text and how it is read is the room documents' to say.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "documents/document.h"
#include "retrieval/index.h"

namespace weft::retrieval {

struct ScanOptions {
  std::string store_dir;                             // skipped wherever it is met; may be empty
  uint64_t max_document_bytes = uint64_t{64} << 20;  // larger files are skipped by name
  /// Of files that are not UTF-8; any but kAny reads also what seems unchanged.
  documents::Encoding encoding = documents::Encoding::kAny;
  bool reads_ignore_files = true;  // .gitignore and .weftignore
  /// Reads also what has the size and time that the index knows.
  bool rehash = false;
  /// Patterns as in a .gitignore, from each named folder down. They have the last word.
  std::vector<std::string> exclude;
  /// Asked before each file and folder; true ends with kCancelled. May be empty.
  std::function<bool()> cancelled;
};

enum class Change {
  kNew,
  kChanged,     // other content than the index has
  kIncomplete,  // same content, but not DocumentStatus::kStored: its KV is still to be made
  kTouched,     // same content, other time or root: Index::touch_document spares the next scan a
                // read, and keeps what was named itself
  kUnchanged,
  kMoved,    // a new path; its content is a document's whose own file is gone
  kDeleted,  // in the index, but no longer a text file at its path, or skipped now:
             // Index::remove_document
  kGone,     // was new, and is not there or no text any more; for who reads it, never from a scan
};

struct ScannedFile {
  Change change = Change::kNew;
  DocumentInfo info;       // as it is now; for a deleted one, as the index has it
  bool is_there = false;   // of a deleted one: its path is not gone, it is skipped now
  std::string moved_from;  // of a moved one: its path in the index
};

struct SkippedFile {
  std::string path;    // of a file, or of a folder with all that is in it
  std::string kind;    // for counts: "hidden", "by .gitignore", "PDF", "binary", …
  std::string reason;  // as in "PATH: skipped, REASON"
  bool named = false;  // by the user, not found in a folder
};

struct ScanResult {
  std::vector<std::string> roots;    // the paths that were named, canonical
  std::vector<ScannedFile> files;    // sorted by path
  std::vector<SkippedFile> skipped;  // sorted by path
  std::vector<std::string> notes;    // one line each, as of an ignore file that is not used
};

/// Absolute and without links, as far as the path exists; what does not exist is made normal. ""
/// for an empty path, and for a relative one where the working folder is gone.
std::string canonical_path(const std::string& path);

/// An absolute path without `.` and `..`, first with none of its links followed, then with one more
/// of them at a time, from the front; the last one is the canonical path. Links before a `..` are
/// followed in any case, as what it means depends on them. None for an empty path.
std::vector<std::string> forms_of_path(const std::string& path);

/// Whether it is that folder (or file) or lies in it; both canonical. Nothing lies in "".
bool is_under(const std::string& path, const std::string& folder);

/// Of paths those that lie under no other one, in an order that is_under_any knows. Takes
/// n log n steps.
std::vector<std::string> outermost(std::vector<std::string> paths);

/// Whether it is one of outermost()'s paths or lies under one.
bool is_under_any(const std::string& path, std::span<const std::string> outermost);

/// A document's path as people named it: from the folder that holds its root. With no root, or one
/// that it does not lie under, the path itself.
std::string path_from_root(const std::string& path, const std::string& root);

/// For each document the root to show its path from: its own, or where another one is shown by the
/// same name (a/notes.md and b/notes.md, each named by itself) a folder further up, as far as it
/// takes to tell them apart.
std::vector<std::string> roots_to_show(std::span<const Document> documents);

/// kInvalidArgument when one of `paths` is empty, as that of a shell's variable that is not set.
Status check_not_empty(std::span<const std::string> paths);

/// kInvalidArgument when one of `paths` is the store's folder or lies in it.
Status check_outside_store(std::span<const std::string> paths, const std::string& store_dir);

/// Walks files and, recursively, folders. Documents are named by their canonical path (absolute,
/// without links), so a file reached in two ways is one document and links may form loops.
///
/// Skipped in folders, unless named itself: what is hidden (begins with a dot), node_modules,
/// backups (ending in ~, .bak, .orig), the store's folder and other stores, links that lead nowhere
/// or out of `paths` (a folder from elsewhere could name a key of the user's, or all that lies
/// above it) or to what is skipped itself, and what .gitignore and .weftignore files say: of each
/// folder on the way down from the named one, and of the folders above it in the same git work
/// tree. A .weftignore beats a .gitignore, `exclude` beats both, and of two files the deeper one
/// holds. A skipped folder is one entry and is not walked. What an earlier ingest has because it
/// was named itself (its root is below the path that is named now) stays, though, as long as the
/// file is there and `exclude` does not name it. Of files also those that are no text
/// (documents/document.h), too large or unreadable; an unreadable one stays in the index. A file
/// that is gone when it is to be read was never there.
///
/// Of the index's documents only those under `paths` are looked at, by their canonical form and as
/// they were written (forms_of_path: a name may have become a link since), and those whose file is
/// gone and whose content, unless it is empty and read in the same way, a new file has. kNotFound
/// for a path that does not exist, whether or not the index has documents there, and for one with
/// nothing to read below it and two or more documents that are all gone: nothing is deleted by a
/// typing error or a disk that is not mounted. kInvalidArgument for a bad pattern in `exclude` and
/// for an empty path.
Result<ScanResult> scan(Env& env, Index& index, std::span<const std::string> paths,
                        const ScanOptions& options);

/// A document's title where it says none: the file's name without its ending.
std::string title_of_name(const std::string& path);

struct LoadedDocument {
  /// Of exactly these bytes. The title is the document's own, else title_of_name().
  DocumentInfo info;
  std::string text;          // UTF-8; its offsets are what the index has
  documents::LineMap lines;  // of the file, by offsets of the text
  documents::Format format = documents::Format::kPlain;
  bool has_own_title = false;
  std::string guess;  // documents::Document::guess
};

/// A file's text. kUnsupported, with the bare reason as its message, when it is no text or too
/// large.
Result<LoadedDocument> load_document(Env& env, const std::string& path, const ScanOptions& options);

/// Whether a file's bytes are those that a document's content hash is of, in whatever encoding they
/// were read. Reads the file, of at most ScanOptions::max_document_bytes; false where that fails.
bool has_content(Env& env, const std::string& path, std::string_view content_hash);

}  // namespace weft::retrieval
