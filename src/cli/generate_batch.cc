// Both commands give all requests to one engine::Batcher, which decides what each step has: so the
// answers of a batch are those that each request gets alone (tests/batch_program_test.cc compares
// them), and the weights are read once for all decoded rows of a step instead of once for each.
// Sixteen at once is where SmolLM2 decodes 4.3 times the tokens a second of one
// (docs/measurements.md, "Many sequences").
//
// Input is read to its end first, because every request is checked before the first one runs: a
// line that can never fit is refused at once, and not when its turn comes.
#include "cli/generate_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/counts_text.h"
#include "cli/batch_requests.h"
#include "cli/draft_flags.h"
#include "cli/sparse_flags.h"
#include "engine/batcher.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

/// A request's line of the output.
struct BatchAnswer {
  std::optional<engine::Generation> generation;
  std::string error;
};

/// Those that were sampled, without the one that ended the answer.
Json ids_of(const engine::Generation& generation) {
  Json ids = Json::array();
  for (const engine::GeneratedToken& token : generation.tokens) ids.push_back(token.id);
  return ids;
}

Json generation_json(const engine::Generation& generation) {
  return {{"text", generation.text},
          {"tokens", ids_of(generation)},
          {"stop_reason", engine::stop_reason_name(generation.stop_reason)}};
}

/// The answers of a file's lines, printed in the order of the lines as soon as that is possible.
/// Answers end in any order and are held until those before them are there; a printed one is let
/// go. A request's index here is the order in which expect() was called; `line` is its number in
/// the file, from 0, blank lines counted.
class OrderedAnswers {
 public:
  explicit OrderedAnswers(const engine::Engine& engine) : engine_(engine) {}
  void expect(size_t line) { lines_.emplace_back(line, std::nullopt); }
  size_t size() const { return lines_.size(); }
  int64_t n_failed() const { return n_failed_; }
  size_t n_printed() const { return next_; }

  void put(size_t index, BatchAnswer answer) {
    lines_[index].second = std::move(answer);
    for (; next_ < lines_.size() && lines_[next_].second; ++next_) {
      print(lines_[next_].first, *lines_[next_].second);
      lines_[next_].second->generation.reset();
    }
    // Looked at after each answer: a batch of hours whose output goes to a full disk ends here.
    written_ = output_written();
  }
  /// Whether what was printed has arrived.
  const Status& written() const { return written_; }

  /// Every line that has no answer yet gets this error.
  /// So that the output has a line for every request, whatever ended it.
  void put_rest(const std::string& error) {
    for (size_t i = next_; i < lines_.size(); ++i) {
      if (!lines_[i].second) put(i, {std::nullopt, error});
    }
  }

 private:
  void print(size_t line, const BatchAnswer& answer) {
    Json json{{"index", line}};
    if (answer.generation) {
      json.update(generation_json(*answer.generation));
      add_sparse_json(engine_, json);  // of all so far: rows of a step choose together
      add_draft_json(engine_, json);
    } else {
      json["error"] = fmt::format("line {}: {}", line + 1, answer.error);
      ++n_failed_;
    }
    print_json(json);
  }

  const engine::Engine& engine_;
  std::vector<std::pair<size_t, std::optional<BatchAnswer>>> lines_;  // by request
  size_t next_ = 0;
  int64_t n_failed_ = 0;
  Status written_;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// Errors have no line number yet; put() adds the file's.
Result<engine::BatchRequest> request_of(const engine::Engine& engine, std::string_view line,
                                        const BatchFlags& flags) {
  const BatchLine defaults{.prompt = "", .raw = flags.raw, .options = flags.generation};
  WEFT_ASSIGN_OR_RETURN(const BatchLine read, parse_batch_line(line, defaults, flags.most_tokens));
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, prompt_tokens(engine, read.prompt, read.raw));
  if (tokens.empty()) return invalid_argument("the prompt is empty");
  return engine::BatchRequest{std::move(tokens), read.options, read.cache_salt};
}

/// Runs all that was submitted; `on_done` gets each end. After Ctrl-C what has not ended ends with
/// what it has, and kCancelled is returned. Once `output` is an error, that is returned.
Status run_all(engine::Batcher& batcher, engine::Batcher::OnDone on_done,
               const Status& output = Status::ok()) {
  const auto is_stopped = [] { return interrupted(); };
  const model::Executor::Cancelled cancelled_ref(is_stopped);
  for (;;) {
    const Result<bool> goes_on = batcher.step(on_done, &cancelled_ref);
    if (interrupted()) {
      batcher.cancel(on_done);
      return cancelled("interrupted: answers that had not ended stop here");
    }
    WEFT_RETURN_IF_ERROR(goes_on.status());
    WEFT_RETURN_IF_ERROR(output);
    if (!*goes_on) return Status::ok();
  }
}

}  // namespace

Status run_batch(App& app, engine::Engine& engine, const BatchFlags& flags) {
  std::string text;
  if (flags.file == "-") {
    WEFT_ASSIGN_OR_RETURN(text, read_stdin(kMaxFileBytes));
  } else {
    WEFT_ASSIGN_OR_RETURN(text, read_file(app.env, flags.file, kMaxFileBytes));
  }
  WEFT_ASSIGN_OR_RETURN(const auto batcher,
                        engine::Batcher::create(engine, {.max_running = kBatchAtOnce}));
  OrderedAnswers answers(engine);
  // By the batcher's index: the index in `answers`. Refused lines have none there.
  std::vector<size_t> requests;  // of the batcher's indices
  std::vector<std::pair<size_t, std::string>> refused;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    if (interrupted()) return cancelled("interrupted");
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (is_blank(line)) continue;
    answers.expect(number);
    auto request = request_of(engine, line, flags);
    Status status = request.status();
    if (status.is_ok()) status = batcher->submit(*std::move(request)).status();
    if (status.is_ok()) {
      requests.push_back(answers.size() - 1);
    } else {
      refused.emplace_back(answers.size() - 1, status.message());
    }
  }
  if (answers.size() == 0) {
    return invalid_argument(flags.file + ": no requests; a line is {\"prompt\": \"...\"}");
  }

  for (auto& [index, error] : refused) answers.put(index, {std::nullopt, std::move(error)});

  Progress progress("generate");
  int64_t n_tokens = 0;
  const int64_t begin_ns = app.env.monotonic_ns();
  const auto on_done = [&](size_t index, Result<engine::BatchAnswer> generation) {
    progress.hide();
    if (generation.is_ok()) {
      n_tokens += std::ssize(generation->tokens);
      answers.put(requests[index], {*std::move(generation), ""});
    } else {
      answers.put(requests[index], {std::nullopt, generation.status().message()});
    }
    progress.show(answers.n_printed(), answers.size(), "prompts");
  };
  const Status status = run_all(*batcher, on_done, answers.written());
  progress.hide();
  if (!status.is_ok()) answers.put_rest(status.message());
  const double seconds = (app.env.monotonic_ns() - begin_ns) * 1e-9;
  if (!flags.quiet && n_tokens > 0) {  // else there is no speed to speak of
    print_error(fmt::format("{}, {} generated in {:.1f} s: {:.1f} tokens/s",
                            counted(std::ssize(requests), "prompt"), counted(n_tokens, "token"),
                            seconds, seconds > 0 ? n_tokens / seconds : 0));
  }
  WEFT_RETURN_IF_ERROR(status);
  if (answers.n_failed() == 0) return Status::ok();
  return not_found(fmt::format("{} of {} failed", answers.n_failed(),
                               counted(std::ssize(requests) + std::ssize(refused), "request")));
}

/// The same prompt n times: the prefix index finds its pages for all but the first, so they are
/// computed and held once. Samples are printed together at the end, as text that grows in four
/// places at once cannot be read.
Status run_parallel(engine::Engine& engine, std::vector<int32_t> prompt,
                    const ParallelFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto batcher,
                        engine::Batcher::create(engine, {.max_running = flags.n}));
  if (flags.n > 1 && flags.generation.sampling.temperature <= 0 && !flags.quiet) {
    print_error(fmt::format(
        "at temperature 0 all {} samples are the same; --temp 0.7 makes them differ", flags.n));
  }
  for (int32_t i = 0; i < flags.n; ++i) {
    engine::BatchRequest request{prompt, flags.generation};
    request.options.sampling.seed += i;
    WEFT_RETURN_IF_ERROR(batcher->submit(std::move(request)).status());
  }
  Progress progress("generate");
  std::vector<engine::Generation> samples(flags.n);
  int64_t n_done = 0;
  Status failed;
  const auto on_done = [&](size_t index, Result<engine::BatchAnswer> generation) {
    if (!generation.is_ok()) {
      failed = generation.status();
    } else {
      samples[index] = *std::move(generation);
    }
    progress.show(++n_done, flags.n, "samples");
  };
  const Status status = run_all(*batcher, on_done);
  progress.hide();
  if (!status.is_ok() && status.code() != StatusCode::kCancelled) return status;
  WEFT_RETURN_IF_ERROR(failed);
  if (flags.json) {
    Json choices = Json::array();
    for (const engine::Generation& sample : samples) choices.push_back(generation_json(sample));
    const engine::BatchStats& stats = batcher->stats();
    Json json = {{"choices", std::move(choices)},
                 {"kv",
                  {{"pages_peak", stats.pages_peak},
                   {"pages_shared", stats.pages_shared},
                   {"page_bytes", engine.page_bytes()}}}};
    add_sparse_json(engine, json);
    add_draft_json(engine, json);
    print_json(json);
    return status;
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    fmt::print("{}--- {} (--seed {})\n", i == 0 ? "" : "\n", i + 1,
               flags.generation.sampling.seed + i);
    std::fwrite(samples[i].text.data(), 1, samples[i].text.size(), stdout);
    fmt::print("\n");
  }
  std::fflush(stdout);
  if (!flags.quiet && status.is_ok()) {
    for (size_t i = 0; i < samples.size(); ++i) {
      note_end(engine, samples[i], fmt::format("sample {}: ", i + 1));
    }
  }
  return status;
}

}  // namespace weft::cli
