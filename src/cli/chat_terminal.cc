// A chat has two kinds of users. People sit at a terminal: they see prompts and notes, edit lines,
// and stop an answer by Ctrl-C. Programs write lines into a pipe and read answers from another: for
// them standard output has the answers alone, a failed input makes the exit status 1 but the next
// line is still answered, and Ctrl-C ends all. `terminal_` tells the two apart, and only where both
// streams are terminals are there people.
//
// The order of things in this file is that a conversation must not be lost. Whatever ends it,
// --save's file has it; a file is only replaced while it holds what this conversation knows of; a
// command that fails changes nothing.
#include "cli/chat_terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/counts_text.h"
#include "base/parse_number.h"
#include "base/terminal_text.h"
#include "cli/chat_file.h"
#include "cli/draft_flags.h"
#include "cli/line_input.h"
#include "cli/sparse_flags.h"
#include "cli/suggestion.h"
#include "engine/chat_session.h"

namespace weft::cli {
namespace {

constexpr const char* kSettings =
    "temp, top-k, top-p, min-p, repeat-penalty, repeat-last-n, presence-penalty, "
    "frequency-penalty, seed or tokens";

/// Ollama's and the OpenAI API's names of settings in weft's words: "repeat_penalty",
/// "temperature".
std::string setting_of(std::string_view typed) {
  if (typed == "temperature") return "temp";
  if (typed == "num_predict" || typed == "max_tokens") return "tokens";
  std::string name(typed);
  std::ranges::replace(name, '_', '-');
  return name;
}

/// Everything but answers goes to stderr, so that stdout holds what the model said.
/// After what was said so far, where both are one terminal.
void note(const std::string& text) {
  (void)output_written();
  const std::string line = text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// The first word, and what follows the white space after it: "/save my notes.json" has a path with
/// a space. Spaces at the end are typed by accident and left out.
std::pair<std::string_view, std::string_view> split_word(std::string_view text) {
  const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  std::string_view argument = text.substr(end);
  argument.remove_prefix(std::min(argument.find_first_not_of(" \t\n"), argument.size()));
  while (argument.ends_with(' ') || argument.ends_with('\t')) argument.remove_suffix(1);
  return {text.substr(0, end), argument};
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// "3 turns (1 system, 1 question, 1 answer)"
std::string counted_turns(const std::vector<text::Turn>& turns) {
  const auto count = [&](text::Role role) {
    return std::ranges::count(turns, role, &text::Turn::role);
  };
  std::string text = counted(std::ssize(turns), "turn");
  if (turns.empty()) return text;
  return fmt::format("{} ({}{}, {})", text, count(text::Role::kSystem) > 0 ? "1 system, " : "",
                     counted(count(text::Role::kUser), "question"),
                     counted(count(text::Role::kAssistant), "answer"));
}

/// Writes the answer as it comes.
/// Flushed piece by piece, as whoever reads it sees it word by word.
class AnswerPrinter {
 public:
  void print(std::string_view piece) {
    if (piece.empty()) return;
    ended_line_ = piece.back() == '\n';
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    (void)output_written();
  }
  /// Every answer ends with a line break, its own or this one.
  void end() {
    if (!ended_line_) std::fputc('\n', stdout);
    (void)output_written();
  }

 private:
  bool ended_line_ = false;
};

/// A conversation from its first line to its last. One thread; signals are looked at between pieces
/// of an answer and between lines.
class Chat {
 public:
  Chat(App& app, const ChatTerminalOptions& options, engine::Engine& engine, Talk& talk,
       Beginning beginning)
      : app_(app),
        engine_(engine),
        talk_(talk),
        options_(options.generation),
        verbose_(options.verbose),
        beginning_(std::move(beginning)),
        save_path_(options.save),
        session_path_(options.session),
        keep_session_(options.keep_session) {
    if (beginning_.loaded) own(options.load, *beginning_.loaded);
    terminal_ = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    const std::string history =
        app.state_dir.empty() ? "" : join_path(app.state_dir, "chat_history");
    input_ = terminal_ ? terminal_input(app.env, history) : plain_input();
  }

  /// However it ends, --save's file and --session's have the conversation then.
  Status run() {
    const Status talked = talk_on();
    const bool unsaved = unsaved_ && !save_path_.empty();
    const Status saved = unsaved ? save_to(save_path_) : Status::ok();
    const Status kept = session_unsaved_ ? keep_session() : Status::ok();
    if (!talked.is_ok()) {
      if (!saved.is_ok()) print_error(saved.message());
      if (!kept.is_ok()) print_error(kept.message());
      return talked;
    }
    if (!saved.is_ok() && !kept.is_ok()) print_error(kept.message());
    WEFT_RETURN_IF_ERROR(saved);
    WEFT_RETURN_IF_ERROR(kept);
    if (terminal_ || failed_ == 0) return Status::ok();
    return not_found(counted(failed_, "input") + " failed, each with a line above");
  }

 private:
  struct Message {
    Line::Kind kind = Line::Kind::kText;
    std::string text;
    std::string typed;      // as it was, for the history
    bool is_block = false;  // was between """ marks, so it is no command
  };

  /// Reads and answers until something ends it. Ctrl-C at the prompt clears the line, as in a
  /// shell; two of them on empty lines mean that somebody wants to leave and does not know how.
  /// terminated() is looked at on both sides of the wait for a line: SIGTERM ends a chat that waits
  /// and one that was answering.
  Status talk_on() {
    if (terminal_) {
      note(fmt::format("{}, {} tokens of context; /help lists the commands, Ctrl-D leaves",
                       one_line(engine_.model().file().path()), engine_.context_tokens()));
    }
    if (!beginning_.note.empty()) note(beginning_.note);
    if (beginning_.question) say(*beginning_.question);
    int interrupts = 0;
    while (!left_) {
      if (terminated()) return cancelled("stopped");
      // To the end, as no step follows before the next line. It is milliseconds for a GB.
      while (engine_.give_back_memory()) {
      }
      WEFT_ASSIGN_OR_RETURN(Message message, read_message());
      if (terminated()) return cancelled("stopped");
      if (message.kind == Line::Kind::kEnd) break;
      if (message.kind == Line::Kind::kInterrupt) {
        if (!terminal_) return cancelled("stopped");
        interrupts = message.text.empty() ? interrupts + 1 : 0;
        if (interrupts >= 2) note("/exit or Ctrl-D leaves");
        continue;
      }
      interrupts = 0;
      if (is_blank(message.text)) continue;
      if (can_be_called_back(message)) input_->remember(message.typed);
      handle(message);
    }
    return Status::ok();
  }

  /// A line of several, called back from the history, is read as it was typed: one by one.
  Result<Line> next_line(const std::string& prompt) {
    if (called_back_.empty()) {
      WEFT_ASSIGN_OR_RETURN(Line line, input_->read(prompt));
      if (line.is_cut) {
        return resource_exhausted(
            fmt::format("standard input: a line over the limit of {} bytes", kMaxLineBytes));
      }
      const bool one = line.kind != Line::Kind::kText || line.pasted;
      if (one || line.text.find('\n') == std::string::npos) return line;
      std::istringstream lines(line.text);
      for (std::string text; std::getline(lines, text);) called_back_.push_back(text);
    }
    Line line{Line::Kind::kText, called_back_.front()};
    called_back_.pop_front();
    return line;
  }

  /// A line, and those that belong to it: after one that ends in a backslash, or up to the end of a
  /// block. What was pasted at once is one text whatever it looks like, since a pasted page with a
  /// line "/exit" in it means none; the history gets it as a block, which reads as the same text.
  /// Ctrl-C on a later line drops all of it.
  Result<Message> read_message() {
    WEFT_ASSIGN_OR_RETURN(Line line, next_line("> "));
    Message message{line.kind, line.text, line.text, line.text.starts_with(kBlockMark)};
    if (line.kind != Line::Kind::kText) return message;
    if (line.pasted) {
      const std::string block = fmt::format("{}{}{}", kBlockMark, line.text, kBlockMark);
      return Message{line.kind, line.text, block, true};
    }
    if (message.is_block) message.text.erase(0, kBlockMark.size());
    const auto goes_on = [&] {
      return message.is_block ? !message.text.ends_with(kBlockMark) : message.text.ends_with('\\');
    };
    while (goes_on()) {
      WEFT_ASSIGN_OR_RETURN(line, next_line(". "));
      if (line.kind == Line::Kind::kInterrupt) return Message{line.kind, message.typed};
      if (line.kind == Line::Kind::kEnd) return message;  // what there is
      if (!message.is_block) message.text.pop_back();
      message.text += "\n" + line.text;
      message.typed += "\n" + line.text;
      if (message.text.size() > kMaxMessageBytes) {
        return resource_exhausted(
            fmt::format("one input is over the limit of {} bytes", kMaxMessageBytes));
      }
    }
    if (message.is_block) message.text.resize(message.text.size() - kBlockMark.size());
    return message;
  }

  /// A pasted block mark would end the block early, and make questions of the lines after it.
  static bool can_be_called_back(const Message& message) {
    return !message.is_block || message.text.find(kBlockMark) == std::string::npos;
  }

  /// "/stats" is a command, "//stats" the text "/stats", and a block is never a command. A "/" that
  /// begins no command is an error: a typo as "/sav x" must not become a question to the model.
  void handle(const Message& message) {
    std::string_view text = message.text;
    // A script's lines are its own: there a word is a question.
    if (terminal_ && !message.is_block && (text == "exit" || text == "quit")) {
      left_ = true;
      return;
    }
    if (message.is_block || !text.starts_with('/')) return say(text);
    if (text.starts_with("//")) return say(text.substr(1));
    const auto [name, argument] = split_word(text);
    for (const Command& command : commands()) {
      const bool is_here = !command.over_documents || talk_.has_documents();
      if (is_here && command.name == name) return report((this->*command.run)(argument));
    }
    if (const auto meant = foreign_command("chat", name)) {
      return report(not_found(std::string(*meant)));
    }
    report(
        not_found(fmt::format("no command {}; /help lists them, // begins a text with /", name)));
  }

  /// One line, and the conversation goes on. How many failed is what a script learns at the end.
  void report(const Status& status) {
    if (status.is_ok()) return;
    ++failed_;
    print_error(status.message());
  }

  /// In a pipe over documents each question is shown before its answer, which would else be hard to
  /// find between sources; a model alone has only answers to tell apart.
  void say(std::string_view text) {
    if (!terminal_ && !talk_.is_json()) {
      // In a pipe nobody sees what was typed: an empty line parts the answers. A model alone is
      // often given one line by a script, which wants the answer and nothing else.
      if (std::exchange(said_, true)) fmt::print("\n");
      if (talk_.has_documents()) fmt::print("> {}\n", one_line(text));
    }
    answer([&](const engine::ChatCallbacks& callbacks) {
      return talk_.say(std::string(text), options_, callbacks);
    });
  }

  /// Runs `run` and shows what comes. Whatever is typed meanwhile waits for the next line, so the
  /// terminal's mode is looked at with each piece (Ctrl-Z and fg may have changed it). An answer
  /// that was stopped after its first word stays in the conversation, as it was read; one stopped
  /// before takes the question back. The interrupt is forgotten before anything else is done with
  /// it: it was meant for this answer.
  template <class Fn>
  void answer(Fn run) {
    AnswerPrinter printer;
    engine::ChatCallbacks callbacks;
    callbacks.on_text = [&](std::string_view piece) {
      input_->look();
      if (!talk_.is_json()) printer.print(piece);
      return !interrupted();
    };
    callbacks.on_dropped = [&](int32_t n) {
      note(fmt::format("(the context of {} tokens is full: the oldest {} no longer seen)",
                       engine_.context_tokens(),
                       n == 1 ? "question and its answer are"
                              : fmt::format("{} questions and their answers are", n)));
    };
    callbacks.cancelled = [&] {
      input_->look();
      return interrupted();
    };
    auto answered = run(callbacks);
    clear_interrupt();
    if (!answered.is_ok() && answered.status().code() == StatusCode::kCancelled) {
      return note("(stopped before the answer began; the conversation is as it was)");
    }
    if (!answered.is_ok()) return report(answered.status());
    if (!talk_.was_asked()) {
      forget_answer("the last question was not answered");
      return talk_.after_answer();
    }
    if (!talk_.is_json() && !(talk_.has_documents() && answered->text.empty())) printer.end();
    last_ = *std::move(answered);
    log_answer(last_->answer_tokens, last_->decode_ms, last_->drafts);
    log_sparse(engine_);
    if (!talk_.has_documents() || last_->stop_reason == engine::StopReason::kCancelled) note_stop();
    talk_.after_answer();
    if (verbose_) note(kv_text());
    save_answer();
  }

  std::string kv_text() const {
    return fmt::format("{}", fmt::join(kv_lines(engine_.kv_use()), "\n"));
  }

  /// What /stats then says in place of the last answer's figures.
  void forget_answer(std::string_view why) {
    last_.reset();
    no_answer_ = why;
  }

  /// What a reader could not know: an answer that was cut at a limit may end with a full stop.
  void note_stop() const {
    switch (last_->stop_reason) {
      case engine::StopReason::kEnd:
      case engine::StopReason::kStopText:
        if (last_->text.empty()) note("(the model gave an empty answer)");
        return;
      case engine::StopReason::kCancelled:
        return note("(stopped)");
      case engine::StopReason::kMaxTokens:
        return note(fmt::format("(cut at {}; /set tokens N allows more)",
                                counted(last_->answer_tokens, "token")));
      case engine::StopReason::kContextFull:
        return note(
            fmt::format("(cut: the context of {} tokens is full)", engine_.context_tokens()));
    }
  }

  /// Remembers that this file has the conversation, and may be replaced by more of it while it
  /// holds `content`.
  void own(const std::string& path, const FileContent& content) {
    const auto resolved = app_.env.resolve(path);
    if (resolved.is_ok()) own_files_[*resolved] = content;
  }
  /// Null where it is not there, or never had this conversation.
  const FileContent* own_content(const std::string& path) const {
    const auto resolved = app_.env.resolve(path);
    const auto found = resolved.is_ok() ? own_files_.find(*resolved) : own_files_.end();
    return found == own_files_.end() ? nullptr : &found->second;
  }
  /// Three cases. A file that this conversation never had is created, never replaced, but by
  /// `force` (/save!). One that it had and that holds the same still is replaced by more of it. One
  /// that it had and that another program has changed since stays, with an error: the other might
  /// be a second chat with the same --save. A file that is gone is simply made again, as there is
  /// nothing to lose: own_content() is null for it.
  Status save_turns(const std::string& path, std::span<const text::Turn> turns,
                    bool force = false) {
    const FileContent* own_before = own_content(path);
    if (!force && own_before != nullptr && !holds(app_.env, path, *own_before)) {
      return already_exists(fmt::format(
          "{0}: another program changed this file after it had this conversation; /save keeps this "
          "one under another name, /save! {0} replaces that one",
          path));
    }
    const bool replace = force || own_before != nullptr;
    Status saved = save_conversation(app_.env, path, turns, replace);
    // When only the folder's sync failed, the file is there and this conversation's.
    const FileContent content = content_of(write_conversation(turns));
    if (saved.is_ok() || holds(app_.env, path, content)) own(path, content);
    return saved;
  }
  Status save_to(const std::string& path) { return save_turns(path, talk_.turns()); }
  /// Whatever of the conversation or its settings has changed.
  void changed() {
    unsaved_ = true;
    session_unsaved_ = keep_session_ != nullptr;
  }
  Status keep_session() {
    const Status kept = keep_session_(options_.sampling);
    session_unsaved_ = !kept.is_ok();
    return kept;
  }
  /// Before another conversation takes this one's place: --session's file keeps this one.
  void keep_changed_session() {
    if (session_unsaved_) report(keep_session());
  }
  void leave_session() {
    if (keep_session_ == nullptr) return;
    if (!session_unsaved_) {
      note(fmt::format("({} keeps the conversation before)", one_line(session_path_)));
    }
    keep_session_ = nullptr;
    session_unsaved_ = false;
  }
  /// After an answer, to --session's file and --save's.
  void save_answer() {
    session_unsaved_ = keep_session_ != nullptr;
    if (session_unsaved_) {
      const Status kept = keep_session();
      const bool is_taken = kept.code() == StatusCode::kAlreadyExists;
      if (!kept.is_ok()) print_error(kept.message() + (is_taken ? kWayToKeep : ""));
    }
    unsaved_ = !save_path_.empty();
    if (!unsaved_) return;
    const Status saved = save_to(save_path_);
    unsaved_ = !saved.is_ok();
    if (unsaved_) print_error(saved.message());
  }
  /// --save's file keeps the conversation that it has; another one does not take its place.
  /// Before /clear and /load. `turns` is the conversation that is left.
  void leave_save_file(std::span<const text::Turn> turns) {
    const bool has_talk =
        std::ranges::find(turns, text::Role::kUser, &text::Turn::role) != turns.end();
    if (save_path_.empty() || !(has_talk || unsaved_)) return;
    if (unsaved_) report(save_turns(save_path_, turns));
    unsaved_ = false;
    note(fmt::format("({} keeps the conversation before; /save keeps this one)",
                     one_line(save_path_)));
    save_path_.clear();
  }

  // The commands; `argument` is what follows the name.

  Status help(std::string_view) {
    std::string text;
    for (const Command& command : commands()) {
      if (command.over_documents && !talk_.has_documents()) continue;
      if (!command.help.empty()) text += fmt::format("{:<18} {}\n", command.usage, command.help);
    }
    text +=
        "A line that ends in \\ goes on in the next; \"\"\" opens and closes several lines.\n"
        "// begins a text with /. Ctrl-C stops an answer, Ctrl-D leaves.";
    note(text);
    return Status::ok();
  }

  Status exit(std::string_view) {
    left_ = true;
    return Status::ok();
  }

  /// Files that the old conversation had are no longer this one's: /save to one of them is refused.
  Status clear(std::string_view) {
    leave_save_file(talk_.turns());
    keep_changed_session();
    leave_session();
    own_files_.clear();
    talk_.clear();
    forget_answer(kNoAnswerYet);
    note("(a new conversation)");
    return Status::ok();
  }

  Status system(std::string_view argument) {
    if (argument.empty()) {
      WEFT_RETURN_IF_ERROR(talk_.set_system(std::nullopt));
      changed();
      note("(no system turn)");
      return Status::ok();
    }
    WEFT_RETURN_IF_ERROR(talk_.set_system(std::string(argument)));
    changed();
    note("(the system turn is set)");
    return Status::ok();
  }

  Status regenerate(std::string_view) {
    answer([&](const engine::ChatCallbacks& callbacks) {
      return talk_.regenerate(options_, callbacks);
    });
    return Status::ok();
  }

  /// --save's file is written when the next answer comes, or at the end, not now.
  Status undo(std::string_view) {
    if (!talk_.undo()) return not_found("there is nothing to undo");
    changed();
    forget_answer("the last answer was taken back");
    note(fmt::format("(taken back; the conversation has {})",
                     counted(std::ssize(talk_.turns()), "turn")));
    return Status::ok();
  }

  /// The error of a file that exists is worded for someone who typed the command, with the other
  /// one.
  Status save(std::string_view argument) {
    if (argument.empty()) return invalid_argument("/save needs a file");
    const std::string path(argument);
    const Status saved = save_to(path);
    if (saved.code() == StatusCode::kAlreadyExists && own_content(path) == nullptr) {
      return already_exists(fmt::format(
          "/save {0}: the file exists and is not of this conversation; /save! {0} replaces it",
          path));
    }
    WEFT_RETURN_IF_ERROR(saved);
    note(fmt::format("(saved to {})", one_line(path)));
    return Status::ok();
  }

  Status save_over(std::string_view argument) {
    if (argument.empty()) return invalid_argument("/save! needs a file");
    const std::string path(argument);
    WEFT_RETURN_IF_ERROR(save_turns(path, talk_.turns(), /*force=*/true));
    note(fmt::format("(saved to {})", one_line(path)));
    return Status::ok();
  }

  /// All that can fail comes first, so that a bad file leaves conversation and --save as they were.
  Status load(std::string_view argument) {
    if (argument.empty()) return invalid_argument("/load needs a file");
    const std::string path(argument);
    WEFT_ASSIGN_OR_RETURN(LoadedConversation loaded, load_conversation(app_.env, path));
    const std::vector<text::Turn> before = talk_.turns();
    keep_changed_session();
    if (const Status set = talk_.set_turns(std::move(loaded.turns)); !set.is_ok()) {
      return {set.code(), path + ": " + set.message()};
    }
    forget_answer(kNoAnswerYet);
    leave_save_file(before);
    leave_session();
    own_files_.clear();
    own(path, loaded.content);
    note(loaded_line(talk_.turns()));
    unsaved_ = true;
    return Status::ok();
  }

  Status sources(std::string_view) { return talk_.show_sources(); }

  Status stats(std::string_view) {
    std::string context =
        fmt::format("context  {} of {} tokens; {}, {} no longer seen", talk_.held_tokens(),
                    engine_.context_tokens(), counted_turns(talk_.turns()), talk_.dropped_turns());
    if (talk_.shifted_tokens() > 0) {
      context += fmt::format(" ({} dropped by shifts; what followed still depends on them)",
                             counted(talk_.shifted_tokens(), "token"));
    }
    if (!last_) {
      note(fmt::format("{}; {}\n{}", context, no_answer_, kv_text()));
      return Status::ok();
    }
    // 0 where all was reused and there is nothing to divide.
    const auto speed = [](int32_t n, double ms) { return ms <= 0 ? 0.0 : n * 1e3 / ms; };
    const int32_t computed = last_->prompt_tokens - last_->reused_tokens;
    const std::string drafts = drafts_text(last_->drafts), read = sparse_read_text(engine_);
    const std::string locks = locks_text(engine_);
    note(fmt::format(
        "prompt   {}: {} reused, {} computed in {:.0f} ms ({:.1f} tokens/s)\n"
        "answer   {} in {:.0f} ms ({:.1f} tokens/s)\n{}{}{}{}\n{}",
        counted(last_->prompt_tokens, "token"), last_->reused_tokens, computed, last_->prefill_ms,
        speed(computed, last_->prefill_ms), counted(last_->answer_tokens, "token"),
        last_->decode_ms, speed(last_->answer_tokens, last_->decode_ms),
        drafts.empty() ? "" : fmt::format("drafts   {}\n", drafts),
        read.empty() ? "" : fmt::format("sparse   of all answers so far: {}\n", read),
        locks.empty() ? "" : fmt::format("locks    {}\n", locks), context, kv_text()));
    return Status::ok();
  }

  /// Changes a copy, which the engine's own check has to pass, so that ranges are those of the
  /// flags. Without a name it shows what is set.
  Status set(std::string_view argument) {
    auto [typed, value] = split_word(argument);
    // Ollama's; once, and not by calling set() again: a line may say it a million times.
    if (typed == "parameter" && !value.empty()) std::tie(typed, value) = split_word(value);
    if (typed == "system") return system(value);
    const std::string name = setting_of(typed);
    engine::GenerationOptions changed = options_;
    sampling::SamplingOptions& s = changed.sampling;
    sampling::PenaltyOptions& p = s.penalties;
    bool good = true;
    if (name == "temp") {
      good = parse_number(value, s.temperature);
    } else if (name == "top-k") {
      good = parse_number(value, s.top_k);
    } else if (name == "top-p") {
      good = parse_number(value, s.top_p);
    } else if (name == "min-p") {
      good = parse_number(value, s.min_p);
    } else if (name == "repeat-penalty") {
      good = parse_number(value, p.repeat);
    } else if (name == "repeat-last-n") {
      good = parse_number(value, p.repeat_last_n);
    } else if (name == "presence-penalty") {
      good = parse_number(value, p.presence);
    } else if (name == "frequency-penalty") {
      good = parse_number(value, p.frequency);
    } else if (name == "seed") {
      good = parse_number(value, s.seed);
    } else if (name == "tokens") {
      const bool number = parse_number(value, changed.max_tokens);
      good = number && (changed.max_tokens == engine::kNoTokenLimit ||
                        (changed.max_tokens >= 1 && changed.max_tokens <= kMaxAnswerTokens));
    } else if (!name.empty()) {
      return not_found(fmt::format(
          "/set {}: must be {}, then a value; what a chat is opened with, as -c and --budget, is a "
          "flag of weft chat",
          typed, kSettings));
    }
    if (value.empty() && !name.empty()) {
      return invalid_argument(fmt::format("/set {}: needs a value", name));
    }
    if (!good && name == "tokens") {
      return invalid_argument(fmt::format("/set tokens {}: must be 1 to {}, or -1 (no limit)",
                                          value, kMaxAnswerTokens));
    }
    // "/set seed -1" is llama.cpp's random seed, which there is not.
    if (!good && name == "seed") {
      return invalid_argument(
          fmt::format("/set seed {}: no such value: a whole number from 0; the same seed gives the "
                      "same answer, /regen takes the next",
                      value));
    }
    if (!good) return invalid_argument(fmt::format("/set {} {}: no such value", name, value));
    if (const Status checked = engine::check_options(changed); !checked.is_ok()) {
      return {checked.code(), "/set " + checked.message()};
    }
    options_ = changed;
    if (!name.empty()) session_unsaved_ = keep_session_ != nullptr;
    note(
        fmt::format("(temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, repeat-last-n {}, "
                    "presence-penalty {}, frequency-penalty {}, seed {}, tokens {})",
                    s.temperature, s.top_k, s.top_p, s.min_p, p.repeat, p.repeat_last_n, p.presence,
                    p.frequency, s.seed, changed.max_tokens));
    return Status::ok();
  }

  /// A row of the table below, which /help prints.
  struct Command {
    std::string_view name;
    std::string_view usage;
    std::string_view help;  // empty: another name of the command before it
    Status (Chat::*run)(std::string_view);
    bool over_documents = false;  // only there
  };
  static std::span<const Command> commands();

  // As Ollama has it.
  static constexpr std::string_view kBlockMark = "\"\"\"";
  static constexpr std::string_view kNoAnswerYet = "no answer yet";
  /// Of a session whose file another program wrote: while the conversation goes on, nothing is
  /// lost.
  static constexpr const char* kWayToKeep =
      "; /save NAME keeps its turns, and once that file is moved away the next answer keeps them "
      "there with the KV";
  static constexpr size_t kMaxMessageBytes = size_t{64} << 20;

  App& app_;
  engine::Engine& engine_;
  Talk& talk_;
  engine::GenerationOptions options_;
  const bool verbose_;
  bool terminal_ = false;
  std::unique_ptr<LineInput> input_;
  std::deque<std::string> called_back_;  // lines that were not handed out yet
  std::optional<engine::ChatAnswer> last_;
  std::string_view no_answer_ = kNoAnswerYet;  // why there is none
  Beginning beginning_;
  std::string save_path_;  // --save's file, while it is this conversation's
  // That have this conversation, by paths without links: what each held when it was read or
  // written.
  std::map<std::string, FileContent> own_files_;
  bool unsaved_ = false;  // something changed since it was written
  std::string session_path_;
  // Null: no --session, or its file has another conversation.
  std::function<Status(const sampling::SamplingOptions&)> keep_session_;
  bool session_unsaved_ = false;  // something changed since that file was written
  int64_t failed_ = 0;
  bool said_ = false;  // something
  bool left_ = false;
};

std::span<const Chat::Command> Chat::commands() {
  static const Command kCommands[] = {
      {"/help", "/help", "this list", &Chat::help},
      {"/?", "", "", &Chat::help},
      {"/exit", "/exit, /quit, /bye", "leave; so do exit and quit", &Chat::exit},
      {"/quit", "", "", &Chat::exit},
      {"/bye", "", "", &Chat::exit},
      {"/clear", "/clear, /reset", "begin a new conversation; the system turn stays", &Chat::clear},
      {"/reset", "", "", &Chat::clear},
      {"/sources", "/sources", "the sources of the last answer", &Chat::sources, true},
      {"/system", "/system [TEXT]", "the system turn, from the beginning on; without TEXT none",
       &Chat::system},
      {"/regen", "/regen", "answer the last question again, with another seed", &Chat::regenerate},
      {"/undo", "/undo", "take the last question and its answer back", &Chat::undo},
      {"/save", "/save FILE", "the conversation as OpenAI messages (JSON)", &Chat::save},
      {"/save!", "/save! FILE", "the same, in place of another file", &Chat::save_over},
      {"/load", "/load FILE", "go on with the conversation in such a file", &Chat::load},
      {"/stats", "/stats", "tokens and times of the last answer, turns so far", &Chat::stats},
      {"/set", "/set [NAME VALUE]", kSettings, &Chat::set},
  };
  return kCommands;
}

}  // namespace

/// "(5 turns (1 system, 2 questions, 2 answers) loaded; -s takes the place of its system turn)"
std::string loaded_line(const std::vector<text::Turn>& turns, std::string_view more) {
  const bool open = !turns.empty() && turns.back().role == text::Role::kUser;
  return fmt::format("({} loaded{}{})", counted_turns(turns),
                     open ? "; the last has no answer: /regen gives one" : "", more);
}

Status talk_on_terminal(App& app, const ChatTerminalOptions& options, engine::Engine& engine,
                        Talk& talk, Beginning beginning) {
  const Status ended = Chat(app, options, engine, talk, std::move(beginning)).run();
  app.fullest.clear();  // each answer has said what is held
  return ended;
}

}  // namespace weft::cli
