// Bits that change by themselves: in a record for good, in the index for a while.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "simulation/sim_vfs.h"
#include "simulation/world.h"

namespace weft::sim {
namespace {

void flip(std::mt19937_64& random, std::string& bytes) {
  bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
}

}  // namespace

Status World::damage_record(uint64_t seed) {
  std::mt19937_64 random(seed);
  uint64_t bytes = 0;
  const auto records = records_in_folder(bytes);
  if (records.empty()) return Status::ok();
  const Hash128 hash =
      *std::next(records.begin(), static_cast<std::ptrdiff_t>(random() % records.size()));
  const std::string path = join_path(setting_.dir, store::record_file_name(hash));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  flip(random, content);
  file.seekp(0);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  expected_.damaged.insert(hash);
  expected_.stored.erase(hash);
  return Status::ok();
}

/// Whatever the damage, an answer is right or there is none.
Status World::damage_index(const Action& action) {
  const std::string path = cli::index_path(setting_.dir);
  const std::string whole = machine_.database_disk().content(path);
  if (whole.empty() || std::filesystem::exists(path + "-journal")) return Status::ok();
  for (const auto& actor : actors_) actor->close();
  expected_.removed.clear();  // asking may bring it back
  std::mt19937_64 random(action.seed);
  std::string damaged = whole;
  for (uint64_t n = 1 + random() % 3; n > 0; --n) flip(random, damaged);
  WEFT_RETURN_IF_ERROR(machine_.database_disk().overwrite(path, damaged));
  {
    Actor asker(machine_, engines_, setting_, 0);
    Op op = action.ops[0];
    op.kind = Op::kAsk;
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
  }
  const std::string journal = path + "-journal";
  if (std::filesystem::remove(journal)) machine_.database_disk().remove(journal);
  WEFT_RETURN_IF_ERROR(machine_.database_disk().overwrite(path, whole));
  uint64_t bytes = 0;
  const auto there = records_in_folder(bytes);
  // A damaged list of unneeded records may have named one that is needed: that is only a miss.
  std::erase_if(expected_.stored, [&](const Hash128& hash) { return !there.contains(hash); });
  return Status::ok();
}

}  // namespace weft::sim
