// weft ask: a question over ingested documents.
// A question goes through three hands: library::find_passages says which passages, and whether
// there are any; library::question_prompt makes the prompt; the fusor prefills it from stored KV.
// What is here is the order of these, and what is shown of them. Questions come one at a time
// (ask), or several together in the engine's batcher (ask_together), with the same answers: a
// question's tokens do not depend on what runs beside it.
//
// People get an answer as it is generated, then sources and a line about time; programs one JSON
// object a question, also for one that failed, so that the lines of their input and of the output
// stay in step.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/ask_report.h"
#include "cli/chat.h"
#include "cli/document_flags.h"
#include "cli/draft_flags.h"
#include "cli/found_passages.h"
#include "cli/line_input.h"
#include "cli/local_models.h"
#include "cli/reuse_flags.h"
#include "cli/sparse_flags.h"
#include "cli/unfinished.h"
#include "engine/batcher.h"
#include "engine/generation.h"
#include "library/library.h"
#include "library/question_prompt.h"
#include "retrieval/passages.h"

namespace weft::cli {
namespace {

using fusion::ReuseMode;

// Also the number of answered questions whose missing chunks wait to be stored (store_kept).
constexpr int32_t kMaxParallel = 64;

struct AskFlags {
  ModelFlags model;
  DocumentFlags documents;
  bool compare = false;
  bool interactive = false;
  int32_t parallel = 1;
  std::optional<std::string> question;
  engine::GenerationOptions generation;
};

/// What a question is asked over; `prompt` is empty where it is not asked.
struct Retrieved : library::FoundPassages {
  fusion::Prompt prompt;
};

/// A question whose prompt is in the KV cache.
struct Begun {
  Answer answer;
  fusion::Prefilled prefilled;
  std::vector<int32_t> tokens;  // of the prompt
};

/// A question of several that are answered together, and what became of it.
struct Pending {
  std::string question;
  Retrieved found;
  ReuseMode asked = ReuseMode::kBlend;
  std::optional<Answer> answer;  // none: the documents have nothing on it, or `status` says why
  Status status;
  bool is_done = false;
};

class Asker {
 public:
  /// `unfinished` is unfinished_line's; people have read it already.
  Asker(App& app, const AskFlags& flags, engine::Engine& engine, library::Library& library,
        std::string unfinished)
      : app_(app),
        flags_(flags),
        engine_(engine),
        library_(library),
        unfinished_(std::move(unfinished)) {}

  /// Answers and shows. A program gets an object even when that fails.
  Status ask(const std::string& question) {
    Status status = answer_and_show(question);
    if (!status.is_ok()) show_error(question, status);
    return status;
  }

  /// Answers what `read` gives until it gives none, `parallel` of them in the same steps (while
  /// some run only what `is_ready` is read, so that nobody waits for the next line), and shows each
  /// in its turn: `on_next` is called before it, `on_done` gets what became of it. Ctrl-C ends
  /// those that run with what they have.
  Status ask_together(FunctionRef<Result<std::optional<std::string>>()> read,
                      FunctionRef<bool()> is_ready, FunctionRef<void(const std::string&)> on_next,
                      FunctionRef<void(const Status&)> on_done) {
    WEFT_ASSIGN_OR_RETURN(const auto batcher,
                          engine::Batcher::create(engine_, {.max_running = flags_.parallel}));
    // A deque, since `open` points at its elements while new ones come and old ones go.
    std::deque<Pending> pending;      // in order, the first of them not shown yet
    std::map<size_t, Pending*> open;  // by the batcher's index
    Status failed;                    // the step that ended them all
    const auto end_one = [&](size_t index, Result<engine::BatchAnswer> answer) {
      Pending& one = *open.extract(index).mapped();
      one.is_done = true;
      one.status = failed.is_ok() ? answer.status() : failed;
      if (one.status.is_ok()) one.answer = answer_of(*std::move(answer), one.asked);
    };
    const auto is_stopped = [] { return interrupted(); };
    const model::Executor::Cancelled stopped(is_stopped);
    bool is_end = false;
    Status unread;  // why there are no more
    for (;;) {
      // Questions are read as long as there is room for one more in the step. At most twice
      // `parallel` are held: an early long answer would else keep thousands of finished ones
      // waiting. With nothing under way this waits for a line; else only a line that is there
      // already is taken, since whoever asked before waits for an answer (a program that asks,
      // reads, and asks again).
      while (!is_end && !interrupted() && std::ssize(open) < flags_.parallel &&
             std::ssize(pending) < 2 * flags_.parallel && (open.empty() || is_ready())) {
        Result<std::optional<std::string>> question = read();
        is_end = !question.is_ok() || !question->has_value();
        if (!question.is_ok()) unread = question.status();  // those before it are answered
        if (is_end) break;
        Pending& one = pending.emplace_back(Pending{.question = **std::move(question)});
        const Result<std::optional<size_t>> index = begin(one, *batcher);
        one.status = index.status();
        one.is_done = !index.is_ok() || !*index;
        if (one.is_done) break;  // it is shown before the next is waited for
        open.emplace(**index, &one);
      }
      const Result<bool> stepped = batcher->step(end_one, &stopped);
      if (!stepped.is_ok()) {
        if (!interrupted()) failed = stepped.status();
        batcher->cancel(end_one);
      }
      for (; !pending.empty() && pending.front().is_done; pending.pop_front()) {
        // After Ctrl-C an answer that has begun is shown as far as it came, one that has not is
        // not.
        if (interrupted() && !has_text(pending.front())) continue;
        on_next(pending.front().question);
        show_pending(pending.front());
        on_done(pending.front().status);
      }
      // With no answer under way the pages are free, which computing chunks needs.
      if (open.empty()) store_kept();
      if (interrupted()) return Status::ok();  // whoever called looks, too
      WEFT_RETURN_IF_ERROR(failed);
      if (is_end && pending.empty()) return unread;
    }
  }

 private:
  void show_error(const std::string& question, const Status& status) {
    if (flags_.documents.json) print_error_object(question, status);
  }

  /// --answer-anyway asks over what was found, be it nothing.
  bool is_answered(const Retrieved& found) const {
    return found.found == retrieval::PassagesFound::kYes || flags_.documents.answer_anyway;
  }

  void show_not_found(const std::string& question, const Retrieved& found) {
    if (flags_.documents.json) {
      print_json(not_found_json(question, found));
    } else {
      print_not_found(found, unfinished_.empty());
    }
  }

  /// Finds the passages and hands the prompt over; none: there is nothing to ask.
  Result<std::optional<size_t>> begin(Pending& one, engine::Batcher& batcher) {
    WEFT_ASSIGN_OR_RETURN(one.found, retrieve(one.question));
    if (!is_answered(one.found)) return std::optional<size_t>();
    WEFT_ASSIGN_OR_RETURN(one.asked, parse_mode(flags_.documents.mode));
    WEFT_ASSIGN_OR_RETURN(fusion::FusionOptions options, options_for(one.asked));
    WEFT_ASSIGN_OR_RETURN(const size_t index, batcher.submit({.fusor = &library_.fusor(),
                                                              .prompt = one.found.prompt,
                                                              .fusion = std::move(options),
                                                              .options = flags_.generation}));
    return std::optional(index);
  }

  /// Where there is no report its fields stay at zero.
  static Answer answer_of(engine::BatchAnswer from, ReuseMode asked) {
    Answer answer{.asked = asked, .generation = {}, .report = {}, .ttft_ms = from.ttft_ms};
    if (from.report) answer.report = *std::move(from.report);
    answer.generation = std::move(from);
    return answer;
  }

  static bool has_text(const Pending& one) {
    return one.answer && !one.answer->generation.tokens.empty();
  }

  /// As answer() prints it, at once: the leading space of an answer after "Answer:" is left out.
  void show_pending(const Pending& one) {
    if (!one.status.is_ok()) return show_error(one.question, one.status);
    if (!one.answer) return show_not_found(one.question, one.found);
    const std::string& text = one.answer->generation.text;
    const size_t first = std::min(text.find_first_not_of(" \n"), text.size());
    if (!flags_.documents.json && first < text.size()) fmt::print("{}\n", text.substr(first));
    show(one.question, one.found, {*one.answer});
    to_store_.emplace_back(one.found.prompt.chunks, one.asked);
    if (std::ssize(to_store_) >= kMaxParallel) store_kept();
  }

  /// What questions had to do without. Not while others run where that can be helped: they may have
  /// all pages.
  void store_kept() {
    for (const auto& [chunks, asked] : std::exchange(to_store_, {})) {
      store_missing(library_, chunks, asked);
    }
  }

  /// Missing chunks are stored after the answer is shown: the first answer over a new document
  /// would else wait for the disk.
  Status answer_and_show(const std::string& question) {
    WEFT_ASSIGN_OR_RETURN(Retrieved found, retrieve(question));
    if (!is_answered(found)) {
      show_not_found(question, found);
      return Status::ok();
    }
    std::vector<Answer> answers;
    if (flags_.compare) {
      for (const ReuseMode mode : fusion::kReuseModes.values()) {
        WEFT_RETURN_IF_ERROR(warm(mode, found.prompt));
        WEFT_ASSIGN_OR_RETURN(Answer a, answer(found.prompt, mode, /*stream=*/false));
        if (!flags_.documents.json)
          fmt::print("{:<7} {}\n", fusion::kReuseModes.name(mode), in_one_line(a.generation.text));
        answers.push_back(std::move(a));
      }
    } else {
      WEFT_ASSIGN_OR_RETURN(const ReuseMode mode, parse_mode(flags_.documents.mode));
      WEFT_ASSIGN_OR_RETURN(Answer a, answer(found.prompt, mode, !flags_.documents.json));
      answers.push_back(std::move(a));
    }
    show(question, found, answers);
    store_missing(library_, found.prompt.chunks, answers.back().asked);
    return Status::ok();
  }

  /// The line about an unfinished store is a note of every JSON answer, as a program may never see
  /// standard error.
  Result<Retrieved> retrieve(const std::string& question) {
    Retrieved found;
    WEFT_ASSIGN_OR_RETURN(static_cast<library::FoundPassages&>(found),
                          library::find_passages(app_.env, library_, {}, question,
                                                 passage_options(flags_.documents)));
    if (flags_.documents.json && !unfinished_.empty()) found.notes.push_back(unfinished_);
    if (!is_answered(found)) return found;
    WEFT_ASSIGN_OR_RETURN(found.prompt, library::question_prompt(engine_, library_, question,
                                                                 flags_.generation, found));
    return found;
  }

  /// The state that --compare lets each mode start from: `none` nothing; `prefix` the system turn
  /// and the first chunk in its usual place; `full` and `blend` the store with an empty memory
  /// tier.
  Status warm(ReuseMode mode, const fusion::Prompt& prompt) {
    engine_.forget_prefixes();
    if (fusion::traits_of(mode).shares_prompt) {
      fusion::Prompt before;
      before.prefix = prompt.prefix;
      before.suffix = prompt.chunks.empty() ? prompt.suffix : prompt.chunks.front();
      const auto fusor = engine_.make_fusor(nullptr, library_.anchor(), library_.record_type());
      WEFT_RETURN_IF_ERROR(fusor->prefill(before, {.mode = ReuseMode::kPrefix}).status());
    }
    return library_.reopen_store(app_.env);
  }

  Result<fusion::FusionOptions> options_for(ReuseMode mode) const {
    return fusion_options(flags_.documents.reuse, mode, engine_);
  }

  /// The time to the first token is the prefill's: what comes out of it are the logits that the
  /// first token is sampled from.
  Result<Begun> prefill(const fusion::Prompt& prompt, ReuseMode mode) {
    WEFT_ASSIGN_OR_RETURN(const fusion::FusionOptions options, options_for(mode));
    const int64_t begin_ns = app_.env.monotonic_ns();
    WEFT_ASSIGN_OR_RETURN(fusion::Prefilled prefilled, library_.fusor().prefill(prompt, options));
    Begun begun{.answer = {}, .prefilled = std::move(prefilled), .tokens = prompt.tokens()};
    begun.answer.asked = mode;
    begun.answer.ttft_ms = (app_.env.monotonic_ns() - begin_ns) * 1e-6;
    begun.answer.report = begun.prefilled.report;
    return begun;
  }

  Result<Answer> answer(const fusion::Prompt& prompt, ReuseMode mode, bool stream) {
    WEFT_ASSIGN_OR_RETURN(Begun begun, prefill(prompt, mode));
    bool first = true;
    WEFT_ASSIGN_OR_RETURN(
        begun.answer.generation,
        engine::generate(
            engine_, begun.prefilled.sequence, std::move(begun.prefilled.logits), flags_.generation,
            [&](std::string_view piece) {
              // White space before the first word is left out, and may come in a piece of its own.
              if (stream) {
                if (first) {
                  piece.remove_prefix(std::min(piece.find_first_not_of(" \n"), piece.size()));
                }
                first = first && piece.empty();
                std::fwrite(piece.data(), 1, piece.size(), stdout);
                std::fflush(stdout);
              }
              return !interrupted();
            },
            begun.tokens));
    if (stream && !first) fmt::print("\n");
    const engine::Generation& generation = begun.answer.generation;
    log_answer(std::ssize(generation.tokens), generation.decode_ms, generation.drafts);
    log_sparse(engine_);
    return std::move(begun.answer);
  }

  /// About the answers themselves; the report's notes are about how they were computed.
  /// JSON says that an answer was cut by its stop_reason, so it has no note for that.
  std::vector<std::string> notes_on(const std::vector<Answer>& answers) const {
    std::vector<std::string> notes;
    for (const Answer& a : answers) {
      std::string note = note_on_empty(a.generation);
      if (note.empty() && !flags_.documents.json) {
        note = note_on_cut(a.generation, flags_.generation.max_tokens, engine_.context_flag());
      }
      if (note.empty()) continue;
      notes.push_back(
          flags_.compare ? fmt::format("{}: {}", fusion::kReuseModes.name(a.asked), note) : note);
    }
    return notes;
  }

  /// Notes to standard error before the sources, after the answer: what they say is about it.
  void show(const std::string& question, const Retrieved& found,
            const std::vector<Answer>& answers) {
    std::vector<std::string> notes = found.notes;
    for (std::string& note : notes_on(answers)) notes.push_back(std::move(note));
    const std::string on_rates = note_on_rates(answers.front(), engine_.rates_kept_file());
    if (!flags_.compare && !on_rates.empty()) notes.push_back(on_rates);
    if (flags_.documents.json) return show_json(question, found, answers, std::move(notes));
    std::fflush(stdout);
    for (const std::string& note : notes) print_error("note: " + note);
    print_sources_and_absent(found);
    fmt::print("\n");
    const bool with_stats = flags_.documents.stats || flags_.compare;
    if (!flags_.compare) {
      fmt::print("{}\n", timing_line(answers.front(), with_stats));
    }
    if (with_stats) show_stats(answers);
  }

  /// With --compare the fields of an answer are in "modes", else beside the question.
  void show_json(const std::string& question, const Retrieved& found,
                 const std::vector<Answer>& answers, std::vector<std::string> notes) {
    Json chunks = Json::array();
    for (const library::Passage& passage : found.passages) chunks.push_back(passage_json(passage));
    Json modes = Json::array();
    for (const Answer& a : answers) modes.push_back(answer_json(a));
    Json json = {{"question", question},
                 {"found", found.found == retrieval::PassagesFound::kYes},
                 {"absent", absent_json(found)},
                 {"did_you_mean", meant_json(found)},
                 {"searched_as", taken_json(found)},
                 {"chunks", std::move(chunks)},
                 {"notes", notes}};
    if (flags_.compare) {
      json["modes"] = std::move(modes);
    } else {
      json.update(modes.front());
      for (const std::string& note : answers.front().report.notes) notes.push_back(note);
      json["notes"] = notes;
    }
    json["load_ms"] = std::round(engine_.load_ms() * 100) / 100;
    json["calibration_ms"] = std::round(engine_.calibration_ms() * 100) / 100;
    add_sparse_json(engine_, json);
    add_draft_json(engine_, json);
    print_json(json);
  }

  void show_stats(const std::vector<Answer>& answers) {
    for (const Answer& a : answers) {
      for (const std::string& note : a.report.notes) {
        fmt::print("note: {}{}\n",
                   flags_.compare ? std::string(fusion::kReuseModes.name(a.asked)) + ": " : "",
                   one_line(note));
      }
    }
    fmt::print("{}", stats_table(answers));
    std::vector<const engine::Generation*> generations;
    for (const Answer& a : answers) generations.push_back(&a.generation);
    print_drafts(generations);
    print_sparse(engine_);
    if (flags_.compare) {
      fmt::print("{}\n", saved_line(answers));
      const std::string predicted = predicted_line(answers.back());
      if (!predicted.empty()) fmt::print("{}\n", predicted);
      fmt::print(
          "each from its own state: none nothing; prefix the system turn and the first chunk in "
          "its usual place; full and blend the store, nothing in memory\n");
    }
    if (!std::exchange(load_shown_, true)) {
      fmt::print("not counted above: loading the model {:.0f} ms, calibration {:.0f} ms\n",
                 engine_.load_ms(), engine_.calibration_ms());
    }
  }

  App& app_;
  const AskFlags& flags_;
  engine::Engine& engine_;
  library::Library& library_;
  std::string unfinished_;
  bool load_shown_ = false;
  // Of answers that were shown: what of them is missing is stored when nothing is under way.
  std::vector<std::pair<std::vector<std::vector<int32_t>>, ReuseMode>> to_store_;  // chunks
};

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

/// The questions of standard input, one a line.
/// Each line is a question, whatever became of those before it. Printed before its answer where
/// nobody saw it being typed. Exit status 1 where any failed.
Status ask_lines(App& app, const AskFlags& flags, Asker& asker) {
  const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  const auto input = terminal ? terminal_input(app.env, "") : plain_input();
  int64_t asked = 0;
  int64_t failed = 0;
  const auto on_next = [&](const std::string& question) {
    ++asked;
    if (!flags.documents.json && !terminal) {
      fmt::print("{}> {}\n", asked == 1 ? "" : "\n", one_line(beginning_of(question)));
    }
  };
  const auto on_done = [&](const Status& status) {
    std::fflush(stdout);  // whoever reads a pipe may wait for it before asking the next
    if (status.is_ok()) return;
    ++failed;  // one bad question does not end the others
    print_error(fmt::format("question {}: {}", asked, status.message()));
  };
  // None: there are no more.
  const auto read = [&]() -> Result<std::optional<std::string>> {
    for (;;) {
      WEFT_ASSIGN_OR_RETURN(const Line line, input->read("> "));
      if (line.kind == Line::Kind::kInterrupt) return cancelled("interrupted");
      if (line.kind == Line::Kind::kEnd || interrupted()) return std::optional<std::string>();
      if (is_blank(line.text)) continue;
      input->remember(line.text);
      return std::optional(line.text);
    }
  };
  if (flags.parallel > 1) {
    WEFT_RETURN_IF_ERROR(asker.ask_together(
        read, [&] { return input->is_ready(); }, on_next, on_done));
  } else {
    while (!interrupted()) {
      WEFT_ASSIGN_OR_RETURN(const std::optional<std::string> question, read());
      if (!question) break;
      on_next(*question);
      on_done(asker.ask(*question));
    }
  }
  if (asked == 0 && !interrupted()) {
    return invalid_argument(
        "no question: give one as the last argument, or one a line on standard input");
  }
  if (interrupted()) return cancelled("interrupted");
  if (failed == 0) return Status::ok();
  return not_found(fmt::format("{} of {} questions were not answered", failed, asked));
}

/// All that is wrong with the flags is said before the model is opened, which takes longest; what
/// only the model can tell (--check's layers), right after. -i is a chat over documents, and goes
/// there.
Status run_ask(App& app, AskFlags flags) {
  if (flags.question && is_blank(*flags.question)) {
    return invalid_argument("the question is empty");
  }
  WEFT_RETURN_IF_ERROR(check_document_flags(flags.documents));
  if (flags.interactive) {
    DocumentChatStart start;
    start.model = std::move(flags.model);
    start.documents = std::move(flags.documents);
    start.generation = std::move(flags.generation);
    start.question = std::move(flags.question);
    return run_document_chat(app, std::move(start));
  }
  if (flags.parallel > 1 && flags.question) {
    return invalid_argument("--parallel is for questions from standard input, one a line");
  }
  flags.model.n_contexts = flags.parallel;
  flags.model.steps = {.n_sequences = flags.parallel,
                       .batches = flags.parallel > 1,
                       .makes_chunks = true,
                       .fuses = true};
  flags.generation.one_line = !flags.documents.paragraphs;
  const std::string given_model = flags.model.model;
  if (flags.model.model.empty()) {
    WEFT_ASSIGN_OR_RETURN(flags.model.model,
                          model_of_store(app.env, flags.documents.library.dir, app.models_dir));
  }
  flags.model.sparse.measure_every = flags.documents.json ? kMeasuredEvery : 0;
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_RETURN_IF_ERROR(check_reuse_flags(flags.documents.reuse, *engine));
  flags.documents.library.model_is_from_variable = is_from_variable(app, flags.model);
  WEFT_ASSIGN_OR_RETURN(library::Library library,
                        library::Library::open(app.env, flags.documents.library, *engine));
  WEFT_ASSIGN_OR_RETURN(
      const std::string unfinished,
      unfinished_line_of(app.env, library, flags.documents.library.dir, given_model));
  if (!unfinished.empty()) print_error(unfinished);
  Asker asker(app, flags, *engine, library, unfinished);
  if (flags.question) {
    WEFT_RETURN_IF_ERROR(asker.ask(*flags.question));
    return interrupted() ? cancelled("interrupted: the answer ends here") : Status::ok();
  }
  return ask_lines(app, flags, asker);
}

}  // namespace

void add_ask_command(Command root, App& app) {
  auto flags = std::make_shared<AskFlags>();
  Command command = root.add_command("ask", "Answer a question over ingested documents");
  add_model_flags(command, flags->model, /*model_is_optional=*/true)
      .describe("GGUF file, or the name of a fetched model (default: the store's own)");
  command.add_option("--store", flags->documents.library.dir, "folder that weft ingest filled")
      .value_name("DIR")
      .or_environment("WEFT_STORE");
  add_document_flags(command, flags->documents);
  Flag compare =
      command.add_flag("--compare", flags->compare, "answer in all four modes, side by side");
  Flag interactive =
      command
          .add_flag("-i,--interactive", flags->interactive,
                    "go on asking: questions may refer to those before, as in weft chat --store")
          .excludes(compare);
  Flag parallel =
      command
          .add_option("--parallel", flags->parallel,
                      "questions of standard input that are answered at once (default: 1)")
          .in_range(1, kMaxParallel)
          .excludes(compare)
          .excludes(interactive);
  add_self_extend_flags(command, flags->model).excludes(parallel);
  add_sparse_flags(command, flags->model);
  add_draft_flags(command, flags->model);
  add_sampling_flags(command, flags->generation, 1 << 20);
  command.add_words("question", flags->question, "default: one a line from standard input");
  command.when_given([flags, &app] { app.run = [flags, &app] { return run_ask(app, *flags); }; });
}

}  // namespace weft::cli
