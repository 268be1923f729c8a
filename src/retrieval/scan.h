// Which files there are under the paths that the user named, and what has changed since they were
// ingested. It reads files and the index; it changes neither and cuts nothing into chunks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "retrieval/index.h"

namespace weft::retrieval {

struct ScanOptions {
  std::string store_dir;                             // skipped wherever it is met; may be empty
  uint64_t max_document_bytes = uint64_t{64} << 20;  // larger files are skipped by name
};

enum class Change {
  kNew,
  kChanged,     // other content than the index has
  kIncomplete,  // same content, but not DocumentStatus::kStored: its KV is still to be made
  kTouched,     // same content, other time: Index::touch_document spares the next scan a read
  kUnchanged,
  kMoved,    // a new path; its content is a document's whose own file is gone
  kDeleted,  // in the index, but no longer a text file at its path: Index::remove_document
};

struct ScannedFile {
  Change change = Change::kNew;
  DocumentInfo info;       // as it is now; for a deleted one, as the index has it
  std::string moved_from;  // of a moved one: its path in the index
};

struct SkippedFile {
  std::string path;
  std::string reason;  // as in "PATH: skipped, REASON"
};

struct ScanResult {
  std::vector<std::string> roots;    // the paths that were named, canonical
  std::vector<ScannedFile> files;    // sorted by path
  std::vector<SkippedFile> skipped;  // sorted by path
};

/// Absolute and without links, as far as the path exists; what does not exist is made normal.
std::string canonical_path(const std::string& path);

/// Whether it is that folder (or file) or lies in it; both canonical.
bool is_under(const std::string& path, const std::string& folder);

/// A document's path as people named it: from the folder that holds its root. With no root, or one
/// that it does not lie under, the path itself.
std::string path_from_root(const std::string& path, const std::string& root);

/// kInvalidArgument when one of `paths` is the store's folder or lies in it.
Status check_outside_store(std::span<const std::string> paths, const std::string& store_dir);

/// Walks files and, recursively, folders. Documents are named by their canonical path (absolute,
/// without links), so a file reached in two ways is one document and links may form loops. Left out
/// without a word: the store's folder, and whatever starts with a dot unless it was named itself.
/// Left out by name: links that lead out of `paths` (a folder from elsewhere could name a key of
/// the user's, or all that lies above it), binary files (a NUL in the first 8 KB), files that are
/// not UTF-8, too large or unreadable; an unreadable one stays in the index. Of the index's
/// documents only those under `paths` are looked at, and those whose file is gone and whose content
/// a new file has. kNotFound for a path that neither exists nor is known to the index.
Result<ScanResult> scan(Env& env, Index& index, std::span<const std::string> paths,
                        const ScanOptions& options);

struct LoadedDocument {
  DocumentInfo info;  // of exactly these bytes; the title is the file's name without its ending
  std::string text;   // UTF-8
};

/// A file's text. kUnsupported, with the bare reason as its message, when it is binary, not UTF-8
/// or larger than max_bytes.
Result<LoadedDocument> load_document(Env& env, const std::string& path, uint64_t max_bytes);

}  // namespace weft::retrieval
