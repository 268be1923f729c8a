// weft generate: continue a prompt, as a chat turn or as it is.
// One prompt and one answer, without batcher: the plain way, whose tokens --parallel and --batch
// have to give again (tests/batch_program_test.cc compares them). A prompt is bytes: NUL and what
// is not UTF-8 are tokens like others, and nothing of it is cut but the line break that an editor
// or echo has put at its end.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/counts_text.h"
#include "base/narrow.h"
#include "cli/app.h"
#include "cli/draft_flags.h"
#include "cli/generate_batch.h"
#include "cli/generate_beams.h"
#include "cli/session_flag.h"
#include "cli/sparse_flags.h"
#include "engine/generation.h"
#include "engine/session.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;

struct GenerateFlags {
  ModelFlags model;
  std::optional<std::string> words;   // the prompt, as arguments
  std::optional<std::string> prompt;  // the same, by -p
  std::string file;                   // "-": standard input
  std::string batch;                  // a file of requests; "-": standard input
  std::string session;                // a file; "": none
  int32_t parallel = 1;
  int32_t beams = 0;  // 0: none, tokens are sampled
  bool raw = false;
  bool quiet = false;
  bool json = false;
  engine::GenerationOptions generation;
  ShiftFlags shift;
};

constexpr int32_t kMostTokens = 1 << 24;
// Samples, whose pages but for the answers are shared.
constexpr int32_t kMostParallel = 256;

/// The likeliest tokens have their bytes beside their ids; both are the model's own probabilities,
/// before penalties and samplers.
Json to_json(const engine::Engine& engine, const engine::Generation& generation,
             int32_t n_logprobs) {
  Json tokens = Json::array();
  Json logprobs = Json::array();
  for (const engine::GeneratedToken& token : generation.tokens) {
    tokens.push_back(token.id);
    if (n_logprobs == 0) continue;
    Json top = Json::array();
    for (const sampling::TokenLogprob& t : token.top) {
      top.push_back({{"id", t.id},
                     {"token", std::string(engine.tokenizer().token_bytes(t.id, true))},
                     {"logprob", t.logprob}});
    }
    logprobs.push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return {{"text", generation.text},
          {"tokens", std::move(tokens)},
          {"logprobs", std::move(logprobs)},
          {"stop_reason", engine::stop_reason_name(generation.stop_reason)}};
}

/// A prompt of a file or a pipe: the line break that ends its last line is none of it, as for
/// llama.cpp.
std::string without_last_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

/// As words, by -p, from a file, or from a pipe; the parser has refused two of them. nullopt: none
/// was given. On a terminal waiting for typed input would look as if the program hung, and
/// `echo | weft generate` has an empty prompt and not a missing one.
Result<std::optional<std::string>> read_prompt(App& app, const GenerateFlags& flags) {
  // "$UNSET", as a rule: a text from nothing on is -p "".
  if (flags.words && flags.words->empty()) return invalid_argument("the prompt is empty");
  if (flags.words) return flags.words;
  if (flags.prompt) return flags.prompt;
  if (!flags.file.empty() && flags.file != "-") {
    WEFT_ASSIGN_OR_RETURN(std::string text, read_file(app.env, flags.file, kMaxPromptBytes));
    if (text.empty() && flags.session.empty()) {
      return invalid_argument(fmt::format("{} is empty: no prompt", flags.file));
    }
    return std::optional(without_last_break(std::move(text)));
  }
  const bool is_closed = fcntl(STDIN_FILENO, F_GETFD) == -1;
  if (flags.file.empty() && (is_closed || isatty(STDIN_FILENO) == 1)) {
    return std::optional<std::string>();
  }
  WEFT_ASSIGN_OR_RETURN(std::string text, read_stdin(kMaxPromptBytes));
  if (flags.file.empty() && text.empty()) return std::optional<std::string>();
  return std::optional(without_last_break(std::move(text)));
}

Status no_prompt(const std::string& session) {
  if (session.empty()) {
    return invalid_argument("no prompt: weft generate -m MODEL PROMPT, or -f FILE, or pipe one in");
  }
  return invalid_argument(
      fmt::format("no prompt: --session {} is not there yet, and begins with one", session));
}

/// The prompt's tokens; an error for none of them, and for more than the context.
Result<std::vector<int32_t>> tokens_of(const engine::Engine& engine, const std::string& prompt,
                                       const GenerateFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, prompt_tokens(engine, prompt, flags.raw));
  if (tokens.empty()) return invalid_argument("the prompt is empty");
  if (std::ssize(tokens) <= engine.context_tokens()) return tokens;
  const Status status =
      engine::prompt_too_long(engine, flags.generation, "the prompt", std::ssize(tokens));
  const bool extends = std::ssize(tokens) > engine.longest_context() &&
                       flags.model.group_tokens == 1 && flags.parallel == 1 &&
                       flags.session.empty();
  if (!extends) return status;
  return Status(status.code(), status.message() + ", and four times as many with --grp-attn-n 4");
}

/// A prompt that came to be empty must not take the place of a text.
Status check_replaces(const std::optional<std::string>& prompt, const GenerateFlags& flags) {
  if (flags.session.empty() || flags.prompt || !prompt || !prompt->empty()) return Status::ok();
  return invalid_argument(
      fmt::format("the prompt is empty: --session {} stays as it is; -p \"\" begins it anew, no "
                  "prompt (< /dev/null) goes on with it",
                  flags.session));
}

/// A text up to where this run goes on with it.
struct TextStart {
  engine::Session session;
  engine::Prefilled prefilled;
};

/// The logits of the last of them. In pieces, so that a long text shows how far it is read.
Result<std::vector<float>> read_tokens(engine::Engine& engine, const kv::OwnedSequence& sequence,
                                       std::span<const int32_t> tokens) {
  constexpr int64_t kPieceTokens = 2048, kShortTokens = 512;
  const int64_t n_tokens = std::ssize(tokens), n_layers = engine.model().config().n_layers;
  Progress progress("reading");
  int64_t begin = 0, n_piece = 0, n_layers_done = 0;
  const auto is_stopped = [&] {
    const int64_t n_steps = (n_piece - 1) / engine.step_rows() + 1;
    const int64_t done = begin + n_piece * n_layers_done++ / (n_layers * n_steps);
    if (n_tokens > kShortTokens) progress.show(std::min(done, n_tokens), n_tokens, "tokens");
    return interrupted();
  };
  const FunctionRef<bool()> cancelled(is_stopped);
  std::vector<float> logits;
  for (; begin < n_tokens; begin += n_piece) {
    n_piece = std::min(kPieceTokens, n_tokens - begin);
    n_layers_done = 0;
    const auto piece = tokens.subspan(begin, n_piece);
    WEFT_ASSIGN_OR_RETURN(logits, engine.append(sequence, piece, {.cancelled = &cancelled}));
  }
  return logits;
}

/// With a prompt: that, of which the session's KV may have the start. Without: where the session
/// ended. `saved` may be null where there is a prompt.
Result<TextStart> begin_text(engine::Engine& engine, const engine::SavedSession* saved,
                             const std::optional<std::string>& prompt, const GenerateFlags& flags) {
  const auto is_stopped = [] { return interrupted(); };
  const FunctionRef<bool()> cancelled(is_stopped);
  if (!prompt) {
    auto resumed = saved->resume(engine, cancelled);
    if (!resumed.is_ok()) return of_session(resumed.status(), flags.session);
    return TextStart{saved->session(), *std::move(resumed)};
  }
  engine::Session session;
  WEFT_ASSIGN_OR_RETURN(session.tokens, tokens_of(engine, *prompt, flags));
  session.prompt_tokens = narrow<uint32_t>(session.tokens.size());
  if (saved != nullptr) {
    auto prefilled = saved->prefill(engine, session.tokens, cancelled);
    if (!prefilled.is_ok()) return of_session(prefilled.status(), flags.session);
    return TextStart{std::move(session), *std::move(prefilled)};
  }
  kv::OwnedSequence sequence = engine.create_sequence();
  WEFT_ASSIGN_OR_RETURN(std::vector<float> logits, read_tokens(engine, sequence, session.tokens));
  return TextStart{std::move(session), {std::move(sequence), std::move(logits)}};
}

/// --keep counts tokens beside BOS.
engine::GenerationOptions with_bos_kept(const engine::Engine& engine,
                                        engine::GenerationOptions options,
                                        std::span<const int32_t> tokens) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  const bool begins_with_bos = tokenizer.wants_bos() && tokens.front() == tokenizer.bos();
  const bool is_half = options.shift.policy == engine::ShiftPolicy::kHalf;
  if (begins_with_bos && is_half && options.shift.keep_tokens != engine::kUsualKept) {
    ++options.shift.keep_tokens;
  }
  return options;
}

/// On standard output as it comes, unless it is to be JSON, which comes at the end.
Result<engine::Generation> print_text(engine::Engine& engine, TextStart& start,
                                      const GenerateFlags& flags) {
  Status written;
  const auto on_text = [&](std::string_view piece) {
    if (!flags.json) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      written = output_written();
    }
    return written.is_ok() && !interrupted();
  };
  const engine::Session& session = start.session;
  const std::span<const int32_t> tokens = session.tokens;
  WEFT_ASSIGN_OR_RETURN(
      engine::Generation generation,
      engine::generate(engine, start.prefilled.sequence, std::move(start.prefilled.logits),
                       with_bos_kept(engine, flags.generation, tokens), on_text,
                       tokens.first(session.prompt_tokens),
                       {tokens.subspan(session.prompt_tokens), session.n_draws}));
  WEFT_RETURN_IF_ERROR(written);
  if (flags.json) {
    Json json = to_json(engine, generation, flags.generation.n_logprobs);
    if (flags.generation.shift.is_on()) json["dropped_tokens"] = generation.dropped_tokens;
    add_sparse_json(engine, json);
    add_draft_json(engine, json);
    print_json(json);
  } else {
    fmt::print("\n");
    for (const engine::GeneratedToken& token : generation.tokens) {
      if (token.top.empty()) continue;
      fmt::print("{:>7} {:8.4f} ", token.id, token.logprob);
      for (const sampling::TokenLogprob& t : token.top) fmt::print(" {}:{:.4f}", t.id, t.logprob);
      fmt::print("\n");
    }
  }
  // A session does not go past a text that nobody got.
  WEFT_RETURN_IF_ERROR(output_written());
  return generation;
}

/// The text with what was generated now, in place of what the file had.
Status keep_session(engine::Engine& engine, const engine::SavedSession* saved, TextStart start,
                    const engine::Generation& generation, const GenerateFlags& flags) {
  engine::Session& session = start.session;
  for (const engine::GeneratedToken& token : generation.tokens) session.tokens.push_back(token.id);
  session.n_draws = generation.n_draws;
  session.sampling = flags.generation.sampling;
  std::optional<kv::SessionStamp> stamp;
  if (saved != nullptr) stamp = saved->file().stamp();
  return engine::SavedSession::save(engine, flags.session, session, start.prefilled.sequence,
                                    stamp);
}

/// note_end, but for what only a text can be that goes on past its end or its context.
void note_end_of_text(const engine::Engine& engine, const engine::Generation& generation,
                      bool goes_on, const GenerateFlags& flags) {
  if (flags.quiet || flags.json) return;
  const engine::StopReason reason = generation.stop_reason;
  const bool is_endless = flags.generation.ignore_end && flags.generation.shift.is_on();
  if (goes_on && generation.tokens.empty() && reason == engine::StopReason::kEnd) {
    print_error("the text had ended here; --ignore-eos goes on past that");
  } else if (is_endless && reason == engine::StopReason::kMaxTokens) {
    print_error(fmt::format("{}: the limit (-n); -n -1 goes on until Ctrl-C",
                            counted(std::ssize(generation.tokens), "token")));
  } else {
    note_end(engine, generation);
  }
}

Status run_text(App& app, GenerateFlags flags, Command command) {
  WEFT_ASSIGN_OR_RETURN(const std::optional<std::string> prompt, read_prompt(app, flags));
  if (!prompt && flags.session.empty()) return no_prompt("");
  WEFT_RETURN_IF_ERROR(check_replaces(prompt, flags));
  std::unique_ptr<engine::SavedSession> saved;
  if (!flags.session.empty()) {
    WEFT_ASSIGN_OR_RETURN(saved, open_session(app, flags.session, engine::SessionKind::kText));
    if (!prompt && saved == nullptr) return no_prompt(flags.session);
  }
  ModelFlags model = flags.model;
  model.n_contexts = std::max(flags.parallel, flags.beams);
  model.sparse.measure_every = flags.json ? kMeasuredEvery : 0;
  model.steps = {.n_sequences = model.n_contexts, .batches = flags.parallel > 1};
  model.rolls_windows = flags.session.empty() && !flags.generation.shift.is_on();
  if (saved != nullptr) take_compute(*saved, model);
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, model));
  if (flags.parallel > 1) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokens_of(*engine, *prompt, flags));
    return run_parallel(*engine, tokens,
                        {.n = flags.parallel,
                         .json = flags.json,
                         .quiet = flags.quiet,
                         .generation = flags.generation});
  }
  if (flags.beams > 0) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokens_of(*engine, *prompt, flags));
    const engine::GenerationOptions& g = flags.generation;
    return run_beams(*engine, tokens,
                     {.json = flags.json,
                      .quiet = flags.quiet,
                      .search = {.n_beams = flags.beams,
                                 .max_tokens = g.max_tokens,
                                 .ignore_end = g.ignore_end,
                                 .stops = g.stops}});
  }
  if (saved != nullptr) {
    WEFT_RETURN_IF_ERROR(of_session(saved->check_engine(*engine), flags.session));
  }
  // With a prompt the answer is the one of the same command without --session.
  if (!prompt) {
    flags.generation.sampling =
        with_given_flags(command, flags.generation.sampling, saved->session().sampling);
  }
  WEFT_ASSIGN_OR_RETURN(TextStart start, begin_text(*engine, saved.get(), prompt, flags));
  WEFT_ASSIGN_OR_RETURN(const engine::Generation generation, print_text(*engine, start, flags));
  log_answer(std::ssize(generation.tokens), generation.decode_ms, generation.drafts);
  log_sparse(*engine);
  note_end_of_text(*engine, generation, !prompt, flags);
  if (generation.stop_reason == engine::StopReason::kCancelled) {
    return cancelled(flags.session.empty()
                         ? "interrupted: the text ends here"
                         : fmt::format("interrupted: the text ends here; {} {}", flags.session,
                                       saved != nullptr ? "is as it was" : "was not written"));
  }
  if (flags.session.empty()) return Status::ok();
  return keep_session(*engine, saved.get(), std::move(start), generation, flags);
}

Status run_generate(App& app, GenerateFlags flags, Command command) {
  WEFT_ASSIGN_OR_RETURN(flags.generation.shift, context_shift(flags.shift));
  WEFT_RETURN_IF_ERROR(engine::check_options(flags.generation));
  if (flags.beams > 0 && flags.model.draft != spec::kDrafters.name(spec::DrafterKind::kNone)) {
    return invalid_argument(
        "--draft and --beams do not go together: a search runs its beams in one step, and has no "
        "answer to guess at before it ends; give one");
  }
  if (flags.batch.empty()) return run_text(app, flags, command);
  ModelFlags model = flags.model;
  model.n_contexts = kBatchAtOnce;
  model.sparse.measure_every = kMeasuredEvery;  // each line says what was kept
  model.steps = {.n_sequences = kBatchAtOnce, .batches = true};
  model.rolls_windows = true;
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, model));
  return run_batch(app, *engine,
                   {.file = flags.batch,
                    .raw = flags.raw,
                    .quiet = flags.quiet,
                    .generation = flags.generation,
                    .most_tokens = kMostTokens});
}

}  // namespace

/// Counts no further than the engine would: 64 MiB of text are refused after the first few thousand
/// tokens, and Ctrl-C ends the counting.
Result<std::vector<int32_t>> prompt_tokens(const engine::Engine& engine, const std::string& prompt,
                                           bool raw) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  const auto is_stopped = [] { return interrupted(); };
  const FunctionRef<bool()> cancelled(is_stopped);
  const text::EncodeLimits limits{engine.counted_tokens(), &cancelled};
  if (raw) return tokenizer.encode(prompt, {.add_bos = tokenizer.wants_bos()}, limits);
  WEFT_ASSIGN_OR_RETURN(const text::ChatTemplate chat, engine.chat_template());
  const text::Turn turns[] = {{text::Role::kUser, prompt}};
  WEFT_ASSIGN_OR_RETURN(const std::vector<text::Segment> segments, chat.render(turns, true));
  return text::encode_prompt(tokenizer, segments, limits);
}

void add_generate_command(Command root, App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  Command command = root.add_command("generate", "Continue a prompt");
  add_model_flags(command, flags->model);
  add_window_flag(command, flags->model);
  Flag words = command.add_words("prompt", flags->words,
                                 "the prompt; without one it is read from standard input");
  Flag prompt = command.add_option("-p,--prompt", flags->prompt, "the prompt, as one text")
                    .may_be_empty()  // all the text is the model's then, from BOS on
                    .excludes(words);
  Flag file =
      command
          .add_option("-f,--file", flags->file, "a file that holds the prompt; -: standard input")
          .value_name("FILE")
          .excludes(words)
          .excludes(prompt);
  Flag parallel =
      command
          .add_option("--parallel", flags->parallel,
                      "samples of the prompt, made at once; each with the seed after the last's "
                      "(default: 1)")
          .in_range(1, kMostParallel);
  Flag session = add_session_flag(command, flags->session,
                                  "go on with the text in this file, and keep it there")
                     .excludes(parallel);
  Flag batch =
      command
          .add_option("--batch", flags->batch,
                      "answer each line of a file, {\"prompt\",\"n\",\"temp\",\"top_k\",\"top_p\","
                      "\"min_p\",\"seed\",\"stop\",\"raw\",\"cache_salt\"}; -: standard input")
          .value_name("FILE")
          .excludes(words)
          .excludes(prompt)
          .excludes(file)
          .excludes(parallel)
          .excludes(session);
  add_self_extend_flags(command, flags->model).excludes(session).excludes(parallel).excludes(batch);
  add_sparse_flags(command, flags->model);
  add_draft_flags(command, flags->model);
  command.add_flag("--raw", flags->raw, "the prompt as it is, without the model's chat turns");
  command
      .add_flag("-q,--quiet", flags->quiet,
                "no notes: on an answer that is cut or empty, on speed; errors stay")
      .excludes(command.get_option("--verbose"));
  engine::GenerationOptions& g = flags->generation;
  add_sampling_flags(command, g, kMostTokens);
  for (Flag& flag :
       add_shift_flags(command, flags->shift, fmt::format("{}", engine::kSinkTokens))) {
    flag.excludes(parallel).excludes(batch).excludes(session);
  }
  command.add_option("--logprobs", g.n_logprobs, "report this many likeliest tokens for each")
      .in_range(0, 1000)
      .excludes(parallel)
      .excludes(batch);
  Flag beams =
      command
          .add_option("--beams", flags->beams,
                      "the likeliest answer of a search that follows so many at once; --json: all "
                      "of them, with scores")
          .in_range(1, engine::kMostBeams);
  exclude_from_beams(command, beams);
  command.add_flag("--json", flags->json, "print {\"text\",\"tokens\",\"logprobs\",…}");
  command.when_given([flags, &app, command] {
    app.run = [flags, &app, command] { return run_generate(app, *flags, command); };
  });
}

}  // namespace weft::cli
