// A fuzz target without libFuzzer, for machines without clang: runs the corpus, then seeded
// mutations of it (bits, numbers, pieces cut, moved, repeated, spliced) until its time is over. It
// sees no coverage, so it finds less in an hour than libFuzzer; what it finds is as real. One line
// at the end; an input that crashes the target is kept and named.
//   NAME_standalone --seconds S [--seed N] [--save DIR] [CORPUS_FILE_OR_FOLDER …]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

constexpr size_t kMaxInputBytes = 1 << 16;
constexpr int kSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

struct Flags {
  double seconds = 10;
  uint64_t seed = 1;
  std::string save = ".";
  std::vector<std::string> corpus;
};

// For the signal handler, which may neither allocate nor wait.
char save_path[4096];
const char* program_path = "";
const char* input_data = nullptr;
size_t input_bytes = 0;

void say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

extern "C" void keep_input(int signal) {
  const int file = open(save_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0) {
    (void)!write(file, input_data, input_bytes);
    close(file);
  }
  if (file >= 0) {
    say("crashed; again: ");
    say(program_path);
    say(" --seconds 0 ");
    say(save_path);
    say("\n");
  } else {
    say("crashed; the input could not be written\n");
  }
  for (const int other : kSignals) std::signal(other, SIG_DFL);
  std::raise(signal);
}

void install_handlers(const std::string& name, const std::string& dir) {
  std::snprintf(save_path, sizeof save_path, "%s/crash-%s-%d", dir.c_str(), name.c_str(),
                static_cast<int>(getpid()));
  static char stack[64 << 10];  // a stack that overflowed holds no handler
  const stack_t other{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = keep_input;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

/// Of the thread, so that a busy machine makes no input slow.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<std::string> read_corpus(const std::vector<std::string>& paths) {
  std::vector<std::string> inputs;
  const auto read = [&](const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  };
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      read(path);
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) read(file);
  }
  return inputs;
}

size_t draw(Random& random, size_t n) { return n == 0 ? 0 : random() % n; }

/// Short lengths more often than long ones.
size_t draw_length(Random& random, size_t n) {
  return n == 0 ? 0 : 1 + draw(random, std::min(n, size_t{1} << draw(random, 13)));
}

/// A number at the edge of what some width holds, in 1, 2, 4 or 8 bytes.
std::string draw_number(Random& random) {
  uint64_t value = uint64_t{1} << draw(random, 64);
  value += draw(random, 3) - 1;
  if (draw(random, 4) == 0) value = ~value;
  char bytes[8];
  std::memcpy(bytes, &value, sizeof bytes);
  return {bytes, size_t{1} << draw(random, 4)};
}

void mutate(Random& random, const std::vector<std::string>& corpus, std::string& input) {
  const size_t at = draw(random, input.size() + 1);
  const size_t length = std::min(draw_length(random, input.size()), input.size() - at);
  switch (draw(random, 9)) {
    case 0:  // a bit
      if (at < input.size()) input[at] ^= static_cast<char>(1u << draw(random, 8));
      break;
    case 1:  // a byte
      if (at < input.size()) input[at] = static_cast<char>(random());
      break;
    case 2:
      input.erase(at, length);
      break;
    case 3: {  // a number in place of what is there
      const std::string number = draw_number(random);
      input.replace(at, std::min(number.size(), input.size() - at), number);
      break;
    }
    case 4:
      input.insert(at, draw(random, 2) == 0 ? std::string(draw_length(random, 64), '\0')
                                            : std::string(1, static_cast<char>(random())));
      break;
    case 5: {  // a piece, again and again: what is quadratic shows
      const std::string piece = input.substr(at, length);
      const size_t times = draw_length(random, piece.empty() ? 0 : kMaxInputBytes / piece.size());
      std::string repeated;
      for (size_t i = 0; i < times; ++i) repeated += piece;
      input.insert(at, repeated);
      break;
    }
    case 6: {  // moved
      const std::string piece = input.substr(at, length);
      input.insert(draw(random, input.size() + 1), piece);
      break;
    }
    case 7: {  // this one's beginning, another one's end
      const std::string& other = corpus[draw(random, corpus.size())];
      input.replace(at, std::string::npos, other, draw(random, other.size() + 1));
      break;
    }
    default:
      input.resize(at);
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
}

bool parse_flags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--")) {
      flags.corpus.emplace_back(name);
      continue;
    }
    if (++i == argc) return false;
    const std::string_view value = argv[i];
    const char* const end = value.data() + value.size();
    if (name == "--seconds") {
      if (std::from_chars(value.data(), end, flags.seconds).ptr != end) return false;
    } else if (name == "--seed") {
      if (std::from_chars(value.data(), end, flags.seed).ptr != end) return false;
    } else if (name == "--save") {
      flags.save = value;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (!parse_flags(argc, argv, flags)) {
    say("usage: NAME_standalone --seconds S [--seed N] [--save DIR] [CORPUS …]\n");
    return 2;
  }
  program_path = argv[0];
  std::string name = fs::path(argv[0]).filename();
  if (const size_t ending = name.rfind("_standalone"); ending != std::string::npos) {
    name.resize(ending);
  }
  std::error_code error;
  fs::create_directories(flags.save, error);
  install_handlers(name, flags.save);

  std::vector<std::string> corpus = read_corpus(flags.corpus);
  if (corpus.empty()) corpus.emplace_back();
  uint64_t n_runs = 0;
  double slowest_s = 0;
  size_t slowest_bytes = 0;
  const auto run = [&](const std::string& input) {
    input_data = input.data();
    input_bytes = input.size();
    const double begin = cpu_seconds();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    const double took = cpu_seconds() - begin;
    ++n_runs;
    if (took <= slowest_s) return;
    slowest_s = took;
    slowest_bytes = input.size();
  };
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  for (const std::string& input : corpus) run(input);
  Random random(flags.seed);
  while (seconds() < flags.seconds) {
    std::string input = corpus[draw(random, corpus.size())];
    for (size_t n = draw_length(random, 8); n > 0; --n) mutate(random, corpus, input);
    run(input);
  }
  std::printf("%s: %llu runs, %.0f s, slowest input %.0f ms of CPU (%zu bytes)\n", name.c_str(),
              static_cast<unsigned long long>(n_runs), seconds(), slowest_s * 1e3, slowest_bytes);
  return 0;
}
