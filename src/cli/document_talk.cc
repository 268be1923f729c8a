// Two things make a conversation over documents more than a row of questions. A question that
// refers back ("And who built it?") is searched for with what it refers to, which
// library::find_passages decides from the questions before. And the prompt has the earlier
// questions and answers before this question's passages, as exact KV that the prefix cache still
// has, so only the newest turn is computed; engine::DocumentChat holds that.
//
// Earlier passages are not in the prompt: four passages a question would soon fill the context, and
// what an answer said of them is there.
#include "cli/document_talk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/draft_flags.h"
#include "cli/sparse_flags.h"

namespace weft::cli {
namespace {

double rounded_ms(double ms) { return std::round(ms * 100) / 100; }

std::string without_leading_space(const std::string& text) {
  return text.substr(std::min(text.find_first_not_of(" \n"), text.size()));
}

}  // namespace

/// Finds, asks and remembers what after_answer() shows. Where nothing was found the answer is empty
/// and was_asked() false. What /sources shows changes only once nothing can fail any more.
Result<engine::ChatAnswer> DocumentTalk::answer(const std::string& question,
                                                const engine::GenerationOptions& options,
                                                const engine::ChatCallbacks& callbacks) {
  std::vector<std::string> before;
  for (const engine::Exchange& exchange : chat_.exchanges()) before.push_back(exchange.question);
  WEFT_ASSIGN_OR_RETURN(
      library::FoundPassages found,
      library::find_passages(engine_.env(), library_,
                             {.answered = before, .one_was_not = after_unanswered_}, question,
                             passage_options(flags_)));
  question_ = question;
  history_tokens_ = 0;
  max_tokens_ = options.max_tokens;
  if (found.found != retrieval::PassagesFound::kYes && !flags_.answer_anyway) {
    found_ = std::move(found);
    answer_.reset();
    return engine::ChatAnswer{};
  }
  WEFT_ASSIGN_OR_RETURN(const fusion::ReuseMode mode, parse_mode(flags_.mode));
  WEFT_ASSIGN_OR_RETURN(fusion::FusionOptions reuse, fusion_options(flags_.reuse, mode, engine_));
  reuse.cancelled = callbacks.cancelled;
  engine::GenerationOptions generation = options;
  generation.one_line = !flags_.paragraphs;
  bool has_begun = false;
  engine::DocumentChatCallbacks on;
  on.on_dropped = callbacks.on_dropped;
  on.on_text = [&](std::string_view piece) {
    // Answers follow "Answer:", so they begin with a space.
    if (!has_begun) piece.remove_prefix(std::min(piece.find_first_not_of(" \n"), piece.size()));
    has_begun = has_begun || !piece.empty();
    return !callbacks.on_text || callbacks.on_text(piece);
  };
  const std::vector<std::vector<int32_t>> chunks = found.chunks();
  WEFT_ASSIGN_OR_RETURN(engine::DocumentAnswer done, chat_.ask(library_.fusor(), question, chunks,
                                                               std::move(reuse), generation, on));
  // The last ones were left out.
  if (done.n_chunks < chunks.size()) {
    found.notes.push_back(fmt::format("{} of {} chunks fit the context of {} tokens", done.n_chunks,
                                      chunks.size(), engine_.context_tokens()));
    found.passages.resize(done.n_chunks);
  }
  history_tokens_ = done.history_tokens;
  engine::ChatAnswer out;
  out.text = done.generation.text;
  out.stop_reason = done.generation.stop_reason;
  out.prompt_tokens = done.report.prompt_tokens;
  out.reused_tokens = done.report.reused_tokens;
  out.answer_tokens = narrow<int32_t>(std::ssize(done.generation.tokens));
  out.prefill_ms = done.ttft_ms;
  out.decode_ms = done.generation.decode_ms;
  out.drafts = done.generation.drafts;
  held_tokens_ = out.prompt_tokens + out.answer_tokens;
  answer_ = Answer{mode, std::move(done.generation), std::move(done.report), done.ttft_ms};
  found_ = std::move(found);
  shown_ = found_.passages;
  no_sources_ = "the last answer has no sources: the documents have nothing on its question";
  return out;
}

/// A follow-up after a question that was not answered is about the last one that was; that it was
/// not the one before has to be said, so it is remembered over two questions.
Result<engine::ChatAnswer> DocumentTalk::say(std::string text,
                                             const engine::GenerationOptions& options,
                                             const engine::ChatCallbacks& callbacks) {
  after_unanswered_ = last_is_unanswered_;
  auto answered = answer(text, options, callbacks);
  if (answered.is_ok()) {
    n_again_ = 0;
    last_is_unanswered_ = !was_asked();
    if (!was_asked()) {
      shown_.clear();
      no_sources_ = "no sources: the last question was not answered";
    }
  } else if (flags_.json) {
    print_error_object(text, answered.status());
  }
  return answered;
}

/// The last exchange is taken back and asked again with the next seed. Where that fails, or finds
/// nothing, or the answer is empty, the exchange that was there comes back.
Result<engine::ChatAnswer> DocumentTalk::regenerate(const engine::GenerationOptions& options,
                                                    const engine::ChatCallbacks& callbacks) {
  const std::vector<engine::Exchange> before = chat_.exchanges();
  if (before.empty()) return not_found("there is nothing to answer again");
  chat_.set_exchanges({before.begin(), before.end() - 1});
  engine::GenerationOptions again = options;
  again.sampling.seed += ++n_again_;
  auto answered = answer(before.back().question, again, callbacks);
  if (chat_.exchanges().size() < before.size()) chat_.set_exchanges(before);
  if (answered.is_ok()) last_is_unanswered_ = false;  // what was shown last is an answer
  if (!answered.is_ok() && flags_.json) {
    print_error_object(before.back().question, answered.status());
  }
  return answered;
}

bool DocumentTalk::undo() {
  std::vector<engine::Exchange> exchanges = chat_.exchanges();
  if (exchanges.empty()) return false;
  exchanges.pop_back();
  chat_.set_exchanges(std::move(exchanges));
  forget_answer("no sources: the last answer was taken back");
  return true;
}

void DocumentTalk::clear() {
  chat_.set_exchanges({});
  forget_answer("no answer with sources yet");
}

/// `why`: what /sources says from now on.
void DocumentTalk::forget_answer(std::string why) {
  shown_.clear();
  no_sources_ = std::move(why);
  held_tokens_ = 0;
  n_again_ = 0;
  after_unanswered_ = last_is_unanswered_ = false;
}

Status DocumentTalk::set_system(std::optional<std::string> text) {
  return chat_.set_system(std::move(text));
}

/// A chat file may end with a question that has no answer, or have two answers in a row; over
/// documents neither can be put into the form of the prompt. Nothing changes where that is so.
Status DocumentTalk::set_turns(std::vector<text::Turn> turns) {
  std::optional<std::string> system;
  size_t i = 0;
  if (!turns.empty() && turns.front().role == text::Role::kSystem) {
    system = std::move(turns.front().text);
    i = 1;
  }
  std::vector<engine::Exchange> exchanges;
  for (; i < turns.size(); i += 2) {
    if (i + 1 == turns.size() || turns[i].role != text::Role::kUser ||
        turns[i + 1].role != text::Role::kAssistant) {
      return invalid_argument(fmt::format(
          "turn {}: a conversation over documents is questions with an answer each", i + 1));
    }
    exchanges.push_back({std::move(turns[i].text), std::move(turns[i + 1].text)});
  }
  WEFT_RETURN_IF_ERROR(chat_.set_system(std::move(system)));
  clear();
  chat_.set_exchanges(std::move(exchanges));
  return Status::ok();
}

/// As a chat file has it: an answer's leading space is the prompt's form, not the answer's.
std::vector<text::Turn> DocumentTalk::turns() const {
  std::vector<text::Turn> all;
  if (chat_.system()) all.push_back({text::Role::kSystem, *chat_.system()});
  for (const engine::Exchange& exchange : chat_.exchanges()) {
    all.push_back({text::Role::kUser, exchange.question});
    all.push_back({text::Role::kAssistant, without_leading_space(exchange.answer)});
  }
  return all;
}

/// As `ask` prints it. Chunks that were missing are stored last, when all is shown and a person
/// reads.
void DocumentTalk::after_answer() {
  if (!answer_) {
    if (flags_.json) return print_json(not_found_json(question_, found_));
    return print_not_found(found_);
  }
  std::vector<std::string> notes = found_.notes;
  std::string note = note_on_empty(answer_->generation);
  if (note.empty() && !flags_.json) {
    note = note_on_cut(answer_->generation, max_tokens_, engine_.context_flag());
  }
  if (!note.empty()) notes.push_back(std::move(note));
  if (flags_.json) {
    print_as_json(notes);
  } else {
    std::fflush(stdout);
    for (const std::string& line : notes) print_error("note: " + line);
    print_sources_and_absent(found_);
    fmt::print("\n{}\n", timing_line(*answer_, flags_.stats));
    if (flags_.stats) {
      for (const std::string& line : answer_->report.notes)
        fmt::print("note: {}\n", one_line(line));
      fmt::print("{}", stats_table(std::span(&*answer_, 1)));
      const engine::Generation* const one[] = {&answer_->generation};
      print_drafts(one);
      print_sparse(engine_);
    }
    std::fflush(stdout);
  }
  store_missing(library_, found_.chunks(), answer_->asked);
}

/// ask's object, and of a conversation: whether questions before counted in the search, which, and
/// how many tokens of the prompt are history.
void DocumentTalk::print_as_json(const std::vector<std::string>& notes) const {
  Json chunks = Json::array();
  for (const library::Passage& passage : found_.passages) chunks.push_back(passage_json(passage));
  Json json = {{"question", question_},
               {"found", found_.found == retrieval::PassagesFound::kYes},
               {"absent", absent_json(found_)},
               {"did_you_mean", meant_json(found_)},
               {"searched_as", taken_json(found_)},
               {"looked_back", found_.looked_back},
               {"searched_with", found_.searched_with},
               {"history_tokens", history_tokens_},
               {"chunks", std::move(chunks)}};
  json.update(answer_json(*answer_));
  Json all = notes;
  for (const std::string& line : answer_->report.notes) all.push_back(line);
  json["notes"] = std::move(all);
  json["load_ms"] = rounded_ms(engine_.load_ms());
  json["calibration_ms"] = rounded_ms(engine_.calibration_ms());
  add_sparse_json(engine_, json);
  add_draft_json(engine_, json);
  print_json(json);
  std::fflush(stdout);
}

Status DocumentTalk::show_sources() {
  if (shown_.empty()) return not_found(no_sources_);
  print_sources(shown_);
  std::fflush(stdout);
  return Status::ok();
}

}  // namespace weft::cli
