// Lines that a person types or a script pipes in. On a terminal they can be edited and called back
// from a history that is kept in a file (libedit); elsewhere they are read as they are. What a line
// means is not known here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/env.h"
#include "base/status.h"

namespace weft::cli {

struct Line {
  enum class Kind {
    kText,
    kInterrupt,  // Ctrl-C; the interrupt is cleared, `text` is what the line held
    kEnd,        // Ctrl-D at an empty line, or the end of the input
  };
  Kind kind = Kind::kText;
  std::string text;     // without its line break
  bool pasted = false;  // on a terminal, at once with line breaks in it
  bool is_cut = false;  // it is longer than kMaxLineBytes; `text` is its beginning
};

inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

/// Not thread-safe. From one read to the next, what is typed on a terminal does not show in what is
/// written there meanwhile: it is the beginning of the next line.
class LineInput {
 public:
  virtual ~LineInput() = default;
  /// Waits for a line; `prompt` is before it on a terminal.
  virtual Result<Line> read(const std::string& prompt) = 0;
  /// Whether read() would return at once; a terminal says no, whoever types may take their time.
  virtual bool is_ready() { return false; }
  /// To be called now and then between two reads: Ctrl-Z and fg may have changed the terminal.
  virtual void look() {}
  /// Puts what was typed into the history, where there is one.
  virtual void remember(const std::string& text) = 0;
};

/// Standard input line by line.
std::unique_ptr<LineInput> plain_input();

/// The terminal at standard input and output. History is read from and kept in `history_file`,
/// which is created with its folder, readable for its owner alone, and replaced as a whole
/// (base/atomic_file.h); "" keeps none. When that fails, or the file is a link or no regular file,
/// one line on stderr says so and there is no history beyond this session. Text is UTF-8.
std::unique_ptr<LineInput> terminal_input(Env& env, const std::string& history_file);

}  // namespace weft::cli
