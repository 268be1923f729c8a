// Everything that must be so whenever nobody is at work.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "fusion/chunk_key.h"
#include "simulation/sim_vfs.h"
#include "simulation/world.h"

namespace weft::sim {
namespace {

namespace fs = std::filesystem;

/// As the ingester says it: a heading in the first line, else the file's name.
std::string title_of(const std::string& path, const std::string& content) {
  if (content.starts_with("# ")) return content.substr(2, content.find('\n') - 2);
  return fs::path(path).stem().string();
}

}  // namespace

std::set<Hash128> World::records_in_folder(uint64_t& bytes) const {
  std::set<Hash128> records;
  bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(setting_.dir, ignored)) {
    const auto hash = store::parse_record_file_name(entry.path().filename().string());
    if (!hash) continue;
    records.insert(*hash);
    bytes += entry.file_size(ignored);
  }
  return records;
}

/// Of documents that the index has as stored. What only an unfinished one needs may have been
/// nobody's for a while: an ingest puts a changed document's new rows in and removes its old
/// records before it comes to a new document with the old text, and may end there.
Result<std::set<Hash128>> World::finished_records(retrieval::Index& index) {
  std::set<Hash128> records;
  WEFT_ASSIGN_OR_RETURN(const auto documents, index.documents());
  for (const retrieval::Document& document : documents) {
    if (document.status != retrieval::DocumentStatus::kStored) continue;
    WEFT_ASSIGN_OR_RETURN(const auto chunks, index.chunks_of(document.id));
    for (const retrieval::Chunk& chunk : chunks) records.insert(chunk.record);
  }
  return records;
}

Status World::check_all(bool is_durable) {
  ++totals_.checks;
  Actor checker(machine_, engines_, setting_, 0);
  checker.process().make_observer();
  const AsProcess as(checker.process());
  int model = Expected::kUnsettled;
  WEFT_RETURN_IF_ERROR(check_settlement(checker, is_durable, model));
  if (model == Expected::kUnsettled) return Status::ok();
  const Status opened = checker.open(model, /*create=*/true);
  if (!opened.is_ok()) return corrupt("the library cannot be opened: " + opened.message());
  std::set<Hash128> records;
  WEFT_RETURN_IF_ERROR(check_documents(checker, is_durable, records));
  WEFT_RETURN_IF_ERROR(check_records(checker, records));
  WEFT_RETURN_IF_ERROR(check_memory(checker));
  return check_folder(/*nobody_is_left=*/!calls_failed_);
}

/// What the index says it is settled for; `model` is kUnsettled where there is no index yet.
Status World::check_settlement(Actor& checker, bool is_durable, int& model) {
  std::optional<retrieval::Settlement> there;
  {
    const auto index = retrieval::Index::open(library::index_path(setting_.dir),
                                              retrieval::Index::Mode::kReadOnly, checker.process());
    if (index.is_ok()) there = (*index)->settlement();
  }
  if (there) {
    for (int m = 0; m < kModels; ++m) {
      if (checker.engine(m).model().fingerprint().to_hex() == there->model) model = m;
    }
  }
  if (!expected_.settled.contains(model)) {
    return corrupt(fmt::format("the store is settled for model {} ({})", model,
                               there ? there->model_name : "none"));
  }
  if (is_durable) expected_.settled = {model};
  if (model != Expected::kUnsettled) return Status::ok();
  for (auto& [path, hashes] : expected_.in_index) {
    if (!hashes.contains(std::string(kAbsent))) return corrupt(path + " is lost with its index");
    if (is_durable) hashes = {std::string(kAbsent)};
  }
  if (!expected_.stored.empty()) return corrupt("records are lost with their index");
  return Status::ok();
}

Status World::check_documents(Actor& checker, bool is_durable, std::set<Hash128>& records) {
  library::Library& library = *checker.library();
  WEFT_RETURN_IF_ERROR(library.index().verify());
  WEFT_ASSIGN_OR_RETURN(const auto documents, library.index().documents());
  std::set<std::string> seen;
  for (const retrieval::Document& document : documents) {
    const std::string& path = document.info.path;
    seen.insert(path);
    if (!expected_.may_hold(path, document.info.content_hash)) {
      return corrupt(path + (expected_.may_hold(path, std::string(kAbsent))
                                 ? " is in the index, and was deleted"
                                 : " is in the index with another content"));
    }
    if (is_durable) expected_.in_index[path] = {document.info.content_hash};
    if (expected_.marked.contains(path) && document.status != retrieval::DocumentStatus::kStored) {
      return corrupt(path + " was stored, and the index has forgotten it");
    }
    WEFT_RETURN_IF_ERROR(check_document(library, document, records));
  }
  for (auto& [path, hashes] : expected_.in_index) {
    if (seen.contains(path)) continue;
    if (!hashes.contains(std::string(kAbsent))) return corrupt(path + " is not in the index");
    if (is_durable) hashes = {std::string(kAbsent)};
  }
  return Status::ok();
}

/// The chunks are the document's text, all of it, and their tokens and records' names follow.
Status World::check_document(library::Library& library, const retrieval::Document& document,
                             std::set<Hash128>& records) {
  const std::string& path = document.info.path;
  const std::string& content = expected_.contents.at(document.info.content_hash);
  const std::string title = title_of(path, content);
  if (document.info.title != title) return corrupt(path + ": another title");
  const size_t body = content.starts_with("# ") ? content.find('\n') + 1 : 0;
  const auto is_blank = [&](size_t begin, size_t end) {
    const size_t text = content.find_first_not_of(" \t\r\n", begin);
    return text == std::string::npos || text >= end;
  };
  WEFT_ASSIGN_OR_RETURN(const auto chunks, library.index().chunks_of(document.id));
  size_t end = body;
  for (const retrieval::Chunk& chunk : chunks) {
    if (chunk.byte_begin < end || !is_blank(end, chunk.byte_begin) ||
        chunk.byte_end > content.size() ||
        content.substr(chunk.byte_begin, chunk.byte_end - chunk.byte_begin) != chunk.text) {
      return corrupt(fmt::format("{}: chunk {} is not its text", path, chunk.ordinal));
    }
    end = chunk.byte_end;
    const size_t visible = chunk.text.find_last_not_of(" \t\r\n");
    WEFT_ASSIGN_OR_RETURN(const auto tokens,
                          library.rag().chunk(title, chunk.text.substr(0, visible + 1)));
    if (tokens != chunk.tokens || chunk.record != library.record_of(tokens)) {
      return corrupt(fmt::format("{}: chunk {} has other tokens", path, chunk.ordinal));
    }
    records.insert(chunk.record);
  }
  return is_blank(end, content.size()) ? Status::ok() : corrupt(path + ": its end is missing");
}

/// `needed`: by the documents in the index.
Status World::check_records(Actor& checker, const std::set<Hash128>& needed) {
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  WEFT_ASSIGN_OR_RETURN(const auto finished, finished_records(checker.library()->index()));
  std::erase_if(expected_.stored, [&](const Hash128& hash) { return !finished.contains(hash); });
  for (const Hash128& hash : there) {
    if (!needed.contains(hash)) return corrupt("record " + hash.to_hex() + " is no document's");
    if (expected_.removed.contains(hash)) {
      return corrupt("record " + hash.to_hex() + " was removed, and is back");
    }
  }
  for (const Hash128& hash : expected_.stored) {
    if (!there.contains(hash)) return corrupt("record " + hash.to_hex() + " is lost");
  }
  if (setting_.disk_limit_bytes > 0 && bytes > setting_.disk_limit_bytes) {
    return corrupt(
        fmt::format("{} bytes of records, the limit is {}", bytes, setting_.disk_limit_bytes));
  }
  for (const Op::Kind kind : {Op::kVerify, Op::kList}) {
    const Op look{.kind = kind, .keep_open = true};
    const Outcome out = checker.perform(look);
    WEFT_RETURN_IF_ERROR(out.status);
    WEFT_RETURN_IF_ERROR(judge_list(look, out, /*alone=*/true));
  }
  return Status::ok();
}

/// A record that fits the memory tier gets into it, whatever was loaded before: nothing that was
/// reserved was forgotten.
Status World::check_memory(Actor& actor) {
  library::Library* const library = actor.library();
  if (library == nullptr || setting_.memory_limit_bytes == 0) return Status::ok();
  const AsProcess as(actor.process());
  actor.process().disarm();
  WEFT_ASSIGN_OR_RETURN(const auto documents, library->index().documents());
  std::vector<int32_t> tokens;  // of the largest record that fits and is whole
  uint64_t largest = 0;
  WEFT_ASSIGN_OR_RETURN(const auto records, library->store().ls());
  for (const retrieval::Document& document : documents) {
    WEFT_ASSIGN_OR_RETURN(const auto chunks, library->index().chunks_of(document.id));
    for (const retrieval::Chunk& chunk : chunks) {
      const auto record = std::ranges::find(records, chunk.record, &store::RecordSummary::hash);
      if (record == records.end() || expected_.damaged.contains(chunk.record)) continue;
      const store::RecordInfo& info = record->info;
      const uint64_t stride = (info.layer_bytes + store::kRecordAlignment - 1) /
                              store::kRecordAlignment * store::kRecordAlignment;
      const uint64_t bytes = info.n_layers * stride;
      if (bytes > setting_.memory_limit_bytes || bytes <= largest) continue;
      largest = bytes;
      tokens = chunk.tokens;
    }
  }
  if (largest == 0) return Status::ok();
  const auto identity =
      fusion::chunk_identity(actor.engine(actor.model()).key_scope(library->anchor()), tokens);
  for (int i = 0; i < 2; ++i) {
    WEFT_ASSIGN_OR_RETURN(auto handle, library->store().find(store::Key::of(identity)));
    if (i == 1 && handle.tier() != store::Tier::kMemory) {
      return corrupt(fmt::format("{} bytes do not get into the memory tier of {}: {} are held",
                                 largest, setting_.memory_limit_bytes,
                                 library->store().stat()->memory.bytes));
    }
    store::AlignedBytes scratch;
    for (uint32_t layer = 0; layer < handle.info().n_layers; ++layer) {
      WEFT_RETURN_IF_ERROR(handle.load_layer(layer, scratch).status());
    }
  }
  return Status::ok();
}

Status World::check_folder(bool nobody_is_left) {
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(setting_.dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".part") && nobody_is_left) {
      return corrupt("an unfinished file is left: " + name);
    }
    if ((fs::status(entry.path()).permissions() & fs::perms(077)) != fs::perms::none) {
      return corrupt(entry.path().string() + ": others may read it");
    }
  }
  return Status::ok();
}

}  // namespace weft::sim
