// People edit their lines, call earlier ones back and paste whole pages. libedit (BSD licence;
// readline's is the GPL) does the editing. What reads the keys for it is ours, for four reasons:
//   - Ctrl-C must end a wait for a key at once, and no signal handler may call into libedit;
//   - pasted text arrives between two marks of the terminal (bracketed paste), and a line break in
//     it must not end the line;
//   - Ctrl-Z and fg leave the terminal in the mode that the shell had, and libedit does not look;
//   - bytes that are no UTF-8 must not end the input.
//
// The terminal has three modes: the shell's, which is given back whatever ends the program
// (base/terminal_mode.h); libedit's while a line is typed; and between two lines, while an answer
// is printed, one where keys are kept and not shown. So what is typed during an answer is the
// beginning of the next line, and Ctrl-C is a signal in all three.
#include "cli/line_input.h"

#include <fmt/format.h>
#include <histedit.h>
#include <poll.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/terminal_mode.h"
#include "base/terminal_streams.h"
#include "cli/app.h"
#include "cli/pasted_text.h"

namespace weft::cli {
namespace {

constexpr int kHistoryLines = 1000;
// How often a wait looks whether Ctrl-C came between the last look and poll().
constexpr int kWaitMs = 100;

enum class Wait { kReady, kInterrupt, kTimeout };

/// Looks for Ctrl-C before and after: a signal between the look and poll() is found kWaitMs later.
Wait wait_for_input() {
  if (interrupted()) return Wait::kInterrupt;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, kWaitMs) > 0) return Wait::kReady;
  return interrupted() ? Wait::kInterrupt : Wait::kTimeout;
}

constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";
constexpr std::string_view kPasteBegin = "[200~";  // after ESC
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr int kSequenceMs = 50;  // the bytes of a terminal's sequence come together

/// Reads by itself and not by std::getline, which could not say that Ctrl-C came, would take a line
/// of any length into memory, and could not tell whether a line is there already. Each byte is
/// searched for a line break once, however slowly a line arrives.
class PlainInput : public LineInput {
 public:
  Result<Line> read(const std::string&) override {
    while (!has_line()) {
      Wait wait = Wait::kTimeout;
      while (wait == Wait::kTimeout) wait = wait_for_input();
      if (wait == Wait::kInterrupt) {
        clear_interrupt();
        return Line{Line::Kind::kInterrupt, take(buffer_.size())};
      }
      fill();
    }
    // Its beginning is handed out, marked, and the rest dropped as it comes: the next line is
    // whole.
    if (searched_ - at_ > kMaxLineBytes) {
      Line line{Line::Kind::kText, take(at_ + kMaxLineBytes)};
      line.is_cut = is_dropping_ = true;
      return line;
    }
    const bool is_whole = searched_ < buffer_.size();
    if (!is_whole && error_ != 0) {
      return io_error(fmt::format("standard input: {}", std::strerror(error_)));
    }
    if (!is_whole && at_ == buffer_.size()) return Line{Line::Kind::kEnd, ""};
    std::string line = take(searched_);
    if (is_whole) searched_ = ++at_;
    if (line.ends_with('\r')) line.pop_back();
    return Line{Line::Kind::kText, std::move(line)};
  }

  /// A line's beginning is taken in and kept: read() would wait for its end.
  bool is_ready() override {
    while (!has_line()) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, 0) <= 0) return false;
      fill();
    }
    return true;
  }

  void remember(const std::string&) override {}

 private:
  /// Whether read() has what it needs: a line, the end, an error, or a line that is too long.
  /// Invariant: at_ <= searched_ <= buffer_.size(), and no line break lies between the first two.
  bool has_line() {
    searched_ = std::min(buffer_.find('\n', searched_), buffer_.size());
    if (is_dropping_) {  // up to and with the line break
      is_dropping_ = searched_ == buffer_.size();
      at_ = searched_ + (is_dropping_ ? 0 : 1);
      searched_ = std::min(buffer_.find('\n', at_), buffer_.size());
    }
    return searched_ < buffer_.size() || is_end_ || searched_ - at_ > kMaxLineBytes;
  }

  /// What was not handed out before `end`.
  /// The caller goes past the line break.
  std::string take(size_t end) {
    std::string text = buffer_.substr(at_, end - at_);
    searched_ = at_ = end;
    return text;
  }

  /// Waits for some bytes.
  /// What was handed out is erased first, so the buffer holds one line and what came with it.
  void fill() {
    constexpr size_t kStep = 64 * 1024;
    buffer_.erase(0, at_);
    searched_ -= at_;
    at_ = 0;
    const size_t held = buffer_.size();
    buffer_.resize(held + kStep);
    const ssize_t n = ::read(STDIN_FILENO, buffer_.data() + held, kStep);
    const int error = n < 0 ? errno : 0;
    buffer_.resize(held + std::max<ssize_t>(n, 0));
    if (error == EINTR) return;
    error_ = error;
    is_end_ = n <= 0;
  }

  std::string buffer_;
  size_t at_ = 0;             // of the first byte that was not handed out
  size_t searched_ = 0;       // no line ends in [at_, searched_)
  bool is_dropping_ = false;  // the rest of a line that was cut
  bool is_end_ = false;
  int error_ = 0;  // errno of a failed read, which ends the input
};

/// A person's lines, with libedit. There is one in a program, as there is one terminal.
class TerminalInput : public LineInput {
 public:
  TerminalInput(Env& env, const std::string& history_file) : env_(env) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // libedit counts columns by it
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    // The same line twice in a row is kept once.
    history(history_, &event, H_SETUNIQUE, 1);
    open_history(history_file);
    keep_terminal_mode();  // before libedit changes it
    // Unfiltered: libedit moves the cursor by control sequences, which the streams that all else is
    // written to would make harmless (base/terminal_streams.h).
    edit_ = el_init("weft", stdin, unfiltered(stdout), unfiltered(stderr));
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &TerminalInput::prompt_of);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, &TerminalInput::read_char);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // Ctrl-C signals; it does not also make the kernel drop what was written meanwhile.
    for (const char* mode : {"-d", "-x"}) el_set(edit_, EL_SETTY, mode, "+noflsh", nullptr);
    const char* terminal = nullptr;
    el_get(edit_, EL_TERMINAL, &terminal);
    marks_pastes_ = terminal != nullptr && std::string_view(terminal) != "dumb";
  }
  ~TerminalInput() override {
    release_keys();
    el_end(edit_);
    history_end(history_);
  }

  Result<Line> read(const std::string& prompt) override {
    prompt_ = prompt;
    interrupted_ = false;
    paste_.clear();
    el_resize(edit_);  // the window may have another size by now
    // Before the prompt shows: a key pressed on seeing it is one for the editor, not the terminal.
    el_set(edit_, EL_PREP_TERM, 1);
    int length = 0;
    mark_pastes(true);
    const char* text = el_gets(edit_, &length);
    hold_keys();
    mark_pastes(false);
    if (interrupted_) {
      std::fputc('\n', stdout);
      return Line{Line::Kind::kInterrupt, dropped_};
    }
    if (text == nullptr || length <= 0) {
      std::fputc('\n', stdout);
      return Line{Line::Kind::kEnd, ""};
    }
    std::string line(text, length);
    if (line.ends_with('\n')) line.pop_back();
    paste_.put_back(line);
    return Line{Line::Kind::kText, std::move(line), paste_.has_breaks()};
  }

  /// After fg the shell's mode is set, in which keys would show amid the answer.
  void look() override {
    if (held_ && was_continued()) hold_keys();
  }

  void remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
    if (!history_file_.empty()) no_history_unless(save_history());
  }

 private:
  static TerminalInput& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<TerminalInput*>(data);
  }

  static char* prompt_of(EditLine* edit) { return self(edit).prompt_.data(); }

  /// 1 with a character, 0 at the end of the input, -1 when the line is to be dropped. A character
  /// of UTF-8 is read byte by byte; what is none becomes U+FFFD and does not end the line.
  static int read_char(EditLine* edit, wchar_t* out) {
    constexpr size_t kUnfinished = -2;  // what mbrtowc returns while bytes of a character follow
    constexpr size_t kNoCharacter = -1;
    std::mbstate_t state{};
    char byte = 0;
    while (self(edit).next_byte(edit, byte)) {
      const size_t used = std::mbrtowc(out, &byte, 1, &state);
      if (used == kUnfinished) continue;
      if (used == kNoCharacter) *out = L'\ufffd';
      return 1;
    }
    return self(edit).interrupted_ ? -1 : 0;
  }

  /// False at the end of the input and when the line is to be dropped. Pending bytes, of a paste or
  /// of keys that were looked at, come before new ones.
  bool next_byte(EditLine* edit, char& byte) {
    while (true) {
      if (!pending_.empty()) {
        byte = pending_.front();
        pending_.pop_front();
        return true;
      }
      const Wait wait = wait_for_input();
      if (wait == Wait::kInterrupt) {
        drop_line();
        return false;
      }
      if (wait == Wait::kTimeout) {
        if (was_continued()) take_terminal_back(edit);
        continue;
      }
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      if (byte != '\x1b') return true;
      read_escape();
    }
  }

  /// Ctrl-C: what the line held is kept for whoever asks whether it was empty.
  void drop_line() {
    clear_interrupt();
    pending_.clear();
    const LineInfo* line = el_line(edit_);
    dropped_.assign(line->buffer, line->lastchar);
    interrupted_ = true;
  }

  /// The kernel keeps what is typed, byte for byte and unseen, until the editor reads it. Ctrl-C
  /// still signals, and does not make it drop what it keeps.
  void hold_keys() {
    termios mode{};
    if (::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;  // not our terminal at present
    if (::tcgetattr(STDIN_FILENO, &mode) != 0) return;
    // Called again after Ctrl-Z and fg, where `mode` is the shell's: the first one is what to go
    // back to.
    if (!held_) before_hold_ = mode;
    held_ = true;
    mode.c_lflag &= ~(ECHO | ECHONL | ICANON | IEXTEN);
    mode.c_lflag |= NOFLSH;
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  }

  void release_keys() {
    if (!std::exchange(held_, false)) return;
    if (::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_hold_);
  }

  /// Ctrl-Z and fg: whatever mode the shell left the terminal in.
  void take_terminal_back(EditLine* edit) {
    el_set(edit, EL_PREP_TERM, 0);
    el_set(edit, EL_PREP_TERM, 1);
    mark_pastes(true);
    el_set(edit, EL_REFRESH);
  }

  /// Off whenever no line is being typed, however that ends: a shell that does not know the marks
  /// would show them as text.
  void mark_pastes(bool on) {
    if (!marks_pastes_) return;
    if (on) undo_with_terminal_mode(kPasteOff.data());
    write_control(stdout, on ? kPasteOn : kPasteOff);
    if (!on) undo_with_terminal_mode("");
  }

  /// A byte that follows at once; none when the terminal is quiet.
  /// Fifty milliseconds tell a sequence, whose bytes a terminal sends at once, from a person who
  /// presses Escape and then another key.
  static bool read_soon(char& byte) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, kSequenceMs) > 0 && ::read(STDIN_FILENO, &byte, 1) == 1;
  }

  /// After an ESC: what the terminal marks as pasted (xterm's bracketed paste, CSI 200~ to CSI
  /// 201~) becomes characters of the line; all else are keys, as they came.
  void read_escape() {
    std::string bytes;
    char byte = 0;
    while (bytes.size() < kPasteBegin.size() && kPasteBegin.starts_with(bytes) && read_soon(byte)) {
      if (byte == '\x1b') {  // the one before was a key by itself
        pending_.push_back('\x1b');
        pending_.insert(pending_.end(), bytes.begin(), bytes.end());
        bytes.clear();
      } else {
        bytes.push_back(byte);
      }
    }
    if (bytes == kPasteBegin) return read_paste();
    pending_.push_back('\x1b');
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }

  /// Ends at the mark, or at the limit of a line: a terminal that never sends the end must not take
  /// all memory.
  void read_paste() {
    std::string text;
    char byte = 0;
    while (!text.ends_with(kPasteEnd) && text.size() < kMaxLineBytes) {
      const Wait wait = wait_for_input();
      if (wait == Wait::kTimeout) continue;
      if (wait == Wait::kInterrupt) {  // the rest of it must not be taken for typed lines
        while (!text.ends_with(kPasteEnd) && read_soon(byte)) text.push_back(byte);
        return;
      }
      if (::read(STDIN_FILENO, &byte, 1) != 1) break;
      text.push_back(byte);
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    const std::string line = paste_.as_line(text);
    pending_.insert(pending_.end(), line.begin(), line.end());
  }

  void open_history(const std::string& file) {
    if (file.empty()) return;
    history_file_ = file;
    no_history_unless(load_history());
  }

  /// Said once: with no file, nothing is tried again.
  void no_history_unless(const Status& kept) {
    if (kept.is_ok()) return;
    history_file_.clear();
    print_error("no history is kept: " + kept.message());
  }

  // libedit would wait for a FIFO's other end and follow a link, and leave half a file where it is
  // interrupted. So it gets the name of what was checked only, and what it writes goes through us.

  /// Writes an empty history where there is none, so that a folder that cannot be written is said
  /// at the start and not after the first line.
  Status load_history() {
    const size_t slash = history_file_.rfind('/');
    if (slash != std::string::npos) {
      WEFT_RETURN_IF_ERROR(env_.make_dirs(history_file_.substr(0, slash)));
    }
    const auto found = env_.stat_link(history_file_);
    if (found.status().code() == StatusCode::kNotFound) return save_history();
    WEFT_RETURN_IF_ERROR(found.status());
    if (found->is_link) {
      return invalid_argument(history_file_ + ": a symbolic link, which is not followed here");
    }
    if (!found->is_regular) return invalid_argument(history_file_ + ": not a regular file");
    HistEvent event;
    const bool loaded =
        found->size_bytes == 0 || history(history_, &event, H_LOAD, history_file_.c_str()) >= 0;
    return loaded ? Status::ok() : corrupt(history_file_ + ": this is no history; remove it");
  }

  /// Whole after each line, so that a chat that is killed has lost nothing; a thousand lines are
  /// soon written.
  Status save_history() {
    const Status no_memory = resource_exhausted("no memory for its lines");
    const int fd = ::memfd_create("history", MFD_CLOEXEC);  // libedit wants a descriptor
    if (fd < 0) return no_memory;
    const std::unique_ptr<FILE, int (*)(FILE*)> memory(::fdopen(fd, "w+"), std::fclose);
    if (memory == nullptr) {
      ::close(fd);
      return no_memory;
    }
    HistEvent event;
    if (history(history_, &event, H_SAVE_FP, memory.get()) < 0) return no_memory;
    const long size = std::fflush(memory.get()) == 0 ? std::ftell(memory.get()) : -1;
    if (size < 0) return no_memory;
    std::string text(size, '\0');
    std::rewind(memory.get());
    if (std::fread(text.data(), 1, text.size(), memory.get()) != text.size()) return no_memory;
    return write_file_durably(env_, history_file_, text,
                              {.links = Links::kRefuse, .mode = kPrivateFileMode});
  }

  Env& env_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string history_file_;  // "": none is kept
  std::string prompt_;
  bool marks_pastes_ = false;  // the terminal may know bracketed paste
  bool interrupted_ = false;
  bool held_ = false;         // keys are held
  termios before_hold_{};     // the terminal's mode when they were not
  std::string dropped_;       // what the line held when Ctrl-C came
  std::deque<char> pending_;  // bytes that were read and the editor has not taken yet
  PastedText paste_;          // of this line
};

}  // namespace

std::unique_ptr<LineInput> plain_input() { return std::make_unique<PlainInput>(); }

std::unique_ptr<LineInput> terminal_input(Env& env, const std::string& history_file) {
  return std::make_unique<TerminalInput>(env, history_file);
}

}  // namespace weft::cli
