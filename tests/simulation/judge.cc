// What came out of an operation, against the model.
#include <fmt/format.h>

#include <algorithm>

#include "kv/invariants.h"
#include "simulation/sim_vfs.h"
#include "simulation/world.h"

namespace weft::sim {

Status World::judge(Actor& actor, const Op& op, const Outcome& out, bool alone) {
  if (!out.status.is_ok() && out.status.message().find('\n') != std::string::npos) {
    return corrupt("an error of more than one line: " + out.status.message());
  }
  WEFT_RETURN_IF_ERROR(check_pages(actor, op.model));
  switch (op.kind) {
    case Op::kIngest:
      return judge_ingest(actor, op, out, alone);
    case Op::kAsk:
      return judge_ask(actor, op, out, alone);
    case Op::kRemove:
    case Op::kClear:
      return judge_removal(out, alone);
    case Op::kVerify:
    case Op::kList:
      return judge_list(op, out, alone);
    case Op::kGc:
    case Op::kHalfLoad:
      break;
  }
  return alone && machine_.has_power() ? check_nothing_lost() : Status::ok();
}

/// Records that were promised are there as long as the index has their documents as stored.
Status World::check_nothing_lost() {
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  if (std::ranges::includes(there, expected_.stored)) return Status::ok();
  Process process(machine_);
  const AsProcess as(process);
  WEFT_ASSIGN_OR_RETURN(const auto index,
                        retrieval::Index::open(library::index_path(setting_.dir),
                                               retrieval::Index::Mode::kReadOnly, process));
  WEFT_ASSIGN_OR_RETURN(const auto finished, finished_records(*index));
  for (const Hash128& hash : expected_.stored) {
    if (!there.contains(hash) && finished.contains(hash)) {
      return corrupt("record " + hash.to_hex() + " is needed and was removed");
    }
  }
  return Status::ok();
}

/// Records were removed that nobody named. Of two at work the other one may have put some of them
/// back, which a power cut may undo.
void World::forget_what_may_be_gone(bool alone) {
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  std::erase_if(expected_.stored,
                [&](const Hash128& hash) { return !alone || !there.contains(hash); });
}

bool World::may_be_refused(const Op& op, const Status& status) const {
  const bool is_others = std::ranges::any_of(expected_.settled, [&](int model) {
    return model != Expected::kUnsettled && model != op.model;
  });
  if (is_others && status.code() == StatusCode::kInvalidArgument) return true;
  // Nothing was ingested, or not for sure.
  return op.kind != Op::kIngest && expected_.sure_contents().empty() &&
         (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorrupt);
}

/// Whether another process at work may be the reason. That it holds the lock is none: it lets go.
bool World::may_be_in_the_way(const Status& status) const {
  return status.code() == StatusCode::kInvalidArgument ||  // it settled the store
         status.code() == StatusCode::kNotFound;
}

Status World::judge_ingest(Actor& actor, const Op& op, const Outcome& out, bool alone) {
  const bool is_sure = out.status.is_ok() && actor.process().is_alive();
  if (!is_sure) {
    const bool has_reason =
        !actor.process().is_alive() || actor.process().has_failed() || !machine_.has_power() ||
        setting_.disk_limit_bytes > 0 || op.cancel_after >= 0 || may_be_refused(op, out.status) ||
        out.status.code() == StatusCode::kNotFound || (!alone && may_be_in_the_way(out.status));
    if (!has_reason) return corrupt("ingest fails for no reason: " + out.status.message());
    if (out.status.code() == StatusCode::kCorrupt && !actor.process().has_failed() &&
        actor.process().is_alive()) {
      return out.status;
    }
    if (!expected_.settled.contains(Expected::kUnsettled) &&
        !expected_.settled.contains(op.model)) {
      return Status::ok();  // another's store: it did nothing
    }
    expected_.settled_by(op.model, /*is_sure=*/false);
    expected_.maybe_ingested(op.root);
    return Status::ok();
  }
  if (!expected_.settled.contains(Expected::kUnsettled) && !expected_.settled.contains(op.model)) {
    return corrupt("documents of two models in one store");
  }
  expected_.settled_by(op.model, /*is_sure=*/true);
  expected_.ingested(op.root);
  return alone ? check_ingested(op) : Status::ok();
}

/// The records are there now, and must be from here on.
Status World::check_ingested(const Op& op) {
  std::set<Hash128> needed;
  Actor checker(machine_, engines_, setting_, 0);
  checker.process().make_observer();
  WEFT_RETURN_IF_ERROR(checker.open(op.model, /*create=*/true));
  const AsProcess as(checker.process());
  WEFT_RETURN_IF_ERROR(check_documents(checker, /*is_durable=*/false, needed));
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  for (const std::string& path : expected_.paths_under(op.root)) {
    WEFT_ASSIGN_OR_RETURN(const auto document, checker.library()->index().find_document(path));
    if (!document) continue;
    WEFT_ASSIGN_OR_RETURN(const auto chunks, checker.library()->index().chunks_of(document->id));
    for (const retrieval::Chunk& chunk : chunks) {
      if (!there.contains(chunk.record)) {
        return corrupt(fmt::format("{} was ingested, but its record {} is not there", path,
                                   chunk.record.to_hex()));
      }
      if (!expected_.damaged.contains(chunk.record)) expected_.stored.insert(chunk.record);
    }
  }
  std::erase_if(expected_.stored, [&](const Hash128& hash) { return !needed.contains(hash); });
  return check_records(checker, needed);
}

Status World::judge_ask(Actor& actor, const Op& op, const Outcome& out, bool alone) {
  if (setting_.disk_limit_bytes > 0) forget_what_may_be_gone(alone);  // it evicts
  if (!actor.process().is_alive()) return Status::ok();               // nobody saw an answer
  if (!out.status.is_ok()) {
    if (out.status.code() == StatusCode::kCorrupt && !may_be_refused(op, out.status)) {
      return out.status;
    }
    const bool has_reason = actor.process().has_failed() || may_be_refused(op, out.status) ||
                            (!alone && may_be_in_the_way(out.status));
    return has_reason ? Status::ok() : corrupt("ask fails for no reason: " + out.status.message());
  }
  if (alone && !expected_.settled.contains(op.model)) {
    return corrupt("an answer by another model than the documents' own");
  }
  WEFT_RETURN_IF_ERROR(check_hits(actor, op, out, alone));
  WEFT_RETURN_IF_ERROR(check_logits(op, out));
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  if (setting_.disk_limit_bytes > 0) {
    if (alone && bytes > setting_.disk_limit_bytes) {
      return corrupt(
          fmt::format("{} bytes of records, the limit is {}", bytes, setting_.disk_limit_bytes));
    }
    return Status::ok();
  }
  if (!alone) return Status::ok();
  for (const Hash128& hash : out.kept) {
    if (!there.contains(hash)) return corrupt(hash.to_hex() + " was stored, but it is not there");
    if (!expected_.damaged.contains(hash)) expected_.stored.insert(hash);
  }
  return Status::ok();
}

Status World::check_hits(Actor& actor, const Op& op, const Outcome& out, bool alone) {
  WEFT_ASSIGN_OR_RETURN(const auto rag, engine::RagPrompt::for_engine(actor.engine(op.model)));
  bool is_found = false;
  for (const retrieval::Hit& hit : out.hits) {
    is_found = is_found || hit.chunk.text.find(op.question) != std::string::npos;
    std::set<std::string> may;
    const auto known = expected_.in_index.find(hit.path);
    if (known != expected_.in_index.end()) may = known->second;
    if (!alone) {  // another process ingests meanwhile: before it, or after
      may.insert(expected_.source_hash(hit.path));
      const auto before = in_index_before_.find(hit.path);
      if (before != in_index_before_.end())
        may.insert(before->second.begin(), before->second.end());
    }
    const bool is_right = std::ranges::any_of(may, [&](const std::string& hash) {
      if (hash == kAbsent) return false;
      const std::string& content = expected_.contents.at(hash);
      return hit.chunk.byte_end <= content.size() &&
             content.substr(hit.chunk.byte_begin, hit.chunk.byte_end - hit.chunk.byte_begin) ==
                 hit.chunk.text;
    });
    if (!is_right) return corrupt("asking finds what is not in " + hit.path);
    const size_t visible = hit.chunk.text.find_last_not_of(" \t\r\n");
    WEFT_ASSIGN_OR_RETURN(const auto tokens,
                          rag.chunk(hit.title, hit.chunk.text.substr(0, visible + 1)));
    if (tokens != hit.chunk.tokens) return corrupt("other tokens than the text of " + hit.path);
  }
  const auto sure = expected_.sure_contents();
  const bool is_sure = alone && std::ranges::any_of(sure, [&](const std::string& content) {
                         return mark_of(content) == op.question;
                       });
  if (is_sure && !is_found) return corrupt("asking for " + op.question + " does not find it");
  return Status::ok();
}

Status World::check_logits(const Op& op, const Outcome& out) {
  if (out.hits.empty()) return Status::ok();
  ++totals_.answers;
  WEFT_ASSIGN_OR_RETURN(const std::vector<float> reference,
                        engines_.reference(op.model, out.prompt, out.anchor, op.fusion));
  if (reference == out.logits) return Status::ok();
  return corrupt(fmt::format("mode {}: other logits than without a store",
                             fusion::kReuseModes.name(op.fusion.mode)));
}

Status World::judge_removal(const Outcome& out, bool alone) {
  if (!alone || !out.status.is_ok()) {
    forget_what_may_be_gone(alone);
    return Status::ok();
  }
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  for (const Hash128& hash : out.removed) {
    if (there.contains(hash)) return corrupt(hash.to_hex() + " was removed, and is there");
    expected_.stored.erase(hash);
    expected_.removed.insert(hash);
  }
  return check_nothing_lost();
}

Status World::judge_list(const Op& op, const Outcome& out, bool alone) {
  if (!out.status.is_ok() || !alone) return Status::ok();
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  if (op.kind == Op::kVerify) {
    for (const auto& bad : out.report.bad) {
      const auto hash = store::parse_hash(bad.file.substr(0, 32));
      if (hash && expected_.damaged.contains(*hash)) continue;
      return corrupt("verify: " + bad.status.message());
    }
    return Status::ok();
  }
  std::set<Hash128> listed;
  for (const store::RecordSummary& record : out.records) {
    if (record.file_bytes > 0) listed.insert(record.hash);  // others are in its memory alone
  }
  if (listed != there || out.stats.disk.records != there.size() || out.stats.disk.bytes != bytes) {
    return corrupt(fmt::format("{} records listed, {} of {} bytes counted; {} of {} bytes there",
                               listed.size(), out.stats.disk.records, out.stats.disk.bytes,
                               there.size(), bytes));
  }
  return Status::ok();
}

/// Outside an operation no sequence holds a page, but the anchors of open libraries, and none is
/// lost.
Status World::check_pages(Actor& actor, int model) {
  const engine::Engine& engine = actor.engine(model);
  const kv::Usage kv = engine.kv_usage();
  const auto wrong = kv::violations(engine.kv_snapshots());
  if (!wrong.empty()) return corrupt("KV cache: " + wrong.front());
  int64_t of_anchors = 0;
  for (Actor* const one : {actors_[0].get(), actors_[1].get(), &actor}) {
    if (one == nullptr || one->library() == nullptr || one->model() != model) continue;
    if (&one->engine(model) != &engine) continue;
    of_anchors += (std::ssize(one->library()->anchor()) + kv.page_tokens - 1) / kv.page_tokens;
  }
  if (kv.held() <= of_anchors) return Status::ok();
  return corrupt(fmt::format("KV cache: {} pages held by sequences, {} of them anchors'", kv.held(),
                             of_anchors));
}

}  // namespace weft::sim
