// Bits that change by themselves: in a record for good, in the index for a while.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>

#include "simulation/sim_vfs.h"
#include "simulation/world.h"

namespace weft::sim {
namespace {

/// A bit of a byte that is not 0 before: the others are mostly room that nothing is kept in.
void flip(std::mt19937_64& random, std::span<char> bytes) {
  size_t at = random() % bytes.size();
  for (size_t n = 0; bytes[at] == 0 && n < bytes.size(); ++n) at = (at + 1) % bytes.size();
  bytes[at] ^= static_cast<char>(1u << random() % 8);
}

}  // namespace

Status World::damage_record(uint64_t seed) {
  std::mt19937_64 random(seed);
  uint64_t bytes = 0;
  const auto records = records_in_folder(bytes);
  if (records.empty()) return Status::ok();
  const Hash128 hash =
      *std::next(records.begin(), static_cast<std::ptrdiff_t>(random() % records.size()));
  if (expected_.damaged.contains(hash)) return Status::ok();  // the same bit would mend it
  const std::string path = join_path(setting_.dir, store::record_file_name(hash));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  const size_t head_bytes = std::min<size_t>(content.size(), store::kRecordAlignment);
  flip(random, std::span(content).first(random() % 2 == 0 ? head_bytes : content.size()));
  file.seekp(0);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  expected_.damaged.insert(hash);
  expected_.stored.erase(hash);
  Actor checker(machine_, engines_, setting_, 0);
  const Outcome out = checker.perform({.kind = Op::kVerify});
  WEFT_RETURN_IF_ERROR(out.status);
  const bool is_noticed = std::ranges::any_of(
      out.report.bad, [&](const auto& bad) { return bad.file == store::record_file_name(hash); });
  return is_noticed ? Status::ok() : corrupt("verify takes a damaged record for whole");
}

/// Whatever the damage, an answer is right or there is none.
Status World::damage_index(const Action& action) {
  constexpr int kTimes = 6;
  const std::string path = library::index_path(setting_.dir);
  const std::string whole = machine_.database_disk().content(path);
  if (whole.empty() || std::filesystem::exists(path + "-journal")) return Status::ok();
  for (const auto& actor : actors_) actor->close();
  expected_.removed.clear();  // asking may bring it back
  std::mt19937_64 random(action.seed);
  for (int i = 0; i < kTimes; ++i) {
    std::string damaged = whole;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) flip(random, damaged);
    WEFT_RETURN_IF_ERROR(machine_.database_disk().overwrite(path, damaged));
    Op op = action.ops[0];
    op.kind = Op::kAsk;
    op.seed = random();
    WEFT_RETURN_IF_ERROR(ask_damaged(op));
    const std::string journal = path + "-journal";
    if (std::filesystem::remove(journal)) machine_.database_disk().remove(journal);
    WEFT_RETURN_IF_ERROR(machine_.database_disk().overwrite(path, whole));
  }
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  // A damaged list of unneeded records may have named one that is needed: that is only a miss.
  std::erase_if(expected_.stored, [&](const Hash128& hash) { return !there.contains(hash); });
  return Status::ok();
}

Status World::ask_damaged(Op op) {
  Actor asker(machine_, engines_, setting_, 0);
  op.keep_open = true;
  prepare(op);
  const Outcome out = asker.perform(op);
  WEFT_RETURN_IF_ERROR(check_pages(asker, op.model));
  if (out.status.is_ok()) {
    // What is found may be less than is there, but nothing else.
    WEFT_RETURN_IF_ERROR(check_hits(asker, op, out, /*alone=*/false));
    WEFT_RETURN_IF_ERROR(check_logits(op, out));
  }
  const AsProcess as(asker.process());
  if (asker.library() != nullptr) (void)asker.library()->index().verify();
  return Status::ok();
}

}  // namespace weft::sim
