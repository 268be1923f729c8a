#include "engine/rag_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace weft::engine {
namespace {

constexpr uint64_t kMaxAnchorBytes = 64 * 1024;
constexpr int64_t kMaxAnchorTokens = 128 * 1024;  // those bytes, and what the template opens with
constexpr std::string_view kPassagesHeading = "Passages:\n\n";
constexpr std::string_view kAnswer = "Answer:";  // the chat form's answers begin with it

bool has_bos(const text::Tokenizer& tokenizer) {
  return tokenizer.wants_bos() && tokenizer.bos() != text::kNoToken;
}

/// Without white space at its ends: a model's answer begins with some.
std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

// Three passages about nothing in particular, some 130 tokens together: the sweet spot for the
// models that were measured (reference: fusion.md). Facts that could leak into an answer are kept
// out.
struct Passage {
  std::string_view title;
  std::string_view text;
};
constexpr std::array<Passage, 3> kNeutralPassages{{
    {"The orchard",
     "Behind the old wall stands an orchard with a few pear trees and a narrow stream. In spring "
     "the "
     "neighbours sow peas along the path, and in autumn they rake the leaves into heaps."},
    {"Weather station",
     "The weather station is read every morning and every evening. The keeper writes down wind, "
     "rain "
     "and temperature, and at the end of the month the sheets are bound and put on a shelf."},
    {"Book of dances",
     "The book describes some eighty dances for small groups. Most of them were noted down in "
     "mountain "
     "villages by travelling teachers, who added remarks on steps, music and dress."},
}};

// The few-shot form's examples: made up, so that a model cannot know the answers otherwise.
constexpr std::string_view kExamples =
    "Passage: Lighthouse of Orm: The lighthouse was lit for the first time in 1874 and is 31 "
    "metres high.\n"
    "Question: How high is the lighthouse of Orm?\n"
    "Answer: 31 metres\n\n"
    "Passage: Beekeepers' club: The club was founded by Marta Lind, who led it for twelve "
    "years.\n"
    "Question: Who founded the beekeepers' club?\n"
    "Answer: Marta Lind\n\n"
    "Passage: River ferry: The ferry crosses the river Tamsel between Hollen and Abery.\n"
    "Question: Which river does the ferry cross?\n"
    "Answer: the Tamsel\n\n";

}  // namespace

Result<std::optional<PromptForm>> parse_prompt_form(const std::string& name) {
  if (name.empty()) return std::optional<PromptForm>();
  const std::optional<PromptForm> form = kPromptForms.find(name);
  if (form) return form;
  return invalid_argument(fmt::format("--prompt {}: must be {}", name, kPromptForms.listed()));
}

Result<AnchorSpec> AnchorSpec::parse(Env& env, const std::string& text) {
  const std::optional<Kind> kind = kAnchors.find(text);
  if (kind && *kind != Kind::kFile) return AnchorSpec{*kind, ""};
  auto passages = read_file(env, text, kMaxAnchorBytes);
  if (!passages.is_ok() && passages.status().code() == StatusCode::kNotFound) {
    return invalid_argument(fmt::format("--anchor {}: must be {}", text, choices()));
  }
  if (!passages.is_ok()) return passages.status();
  return AnchorSpec{Kind::kFile, std::move(*passages)};
}

std::string AnchorSpec::choices() {
  std::vector<std::string> words;
  for (const auto& one : kAnchors) {
    if (one.value != Kind::kFile) words.emplace_back(one.name);
  }
  words.emplace_back("a file");
  return listed(words);
}

RagPrompt::RagPrompt(const Engine& engine, std::optional<text::ChatTemplate> chat_template)
    : engine_(&engine),
      tokenizer_(&engine.tokenizer()),
      limits_{.tokens = engine.counted_tokens()},
      chat_template_(std::move(chat_template)) {}

Result<RagPrompt> RagPrompt::for_engine(const Engine& engine, std::optional<PromptForm> form) {
  if (form == PromptForm::kFewShot) return RagPrompt(engine, std::nullopt);
  auto chat = engine.chat_template();
  if (chat.is_ok()) return RagPrompt(engine, *std::move(chat));
  if (form || chat.status().code() != StatusCode::kNotFound) return chat.status();
  return RagPrompt(engine, std::nullopt);
}

Result<std::vector<int32_t>> RagPrompt::prefix() const {
  std::vector<text::Segment> segments;
  if (chat_template_) {
    WEFT_ASSIGN_OR_RETURN(segments, current_template().user_opening(std::nullopt));
    segments.push_back({std::string(kPassagesHeading), false});
  } else {
    segments.push_back({std::string(kExamples), false});
  }
  return text::encode_prompt(*tokenizer_, segments, limits_);
}

std::string RagPrompt::passage(std::string_view title, std::string_view text) const {
  std::string passage;
  if (chat_template_) {
    if (!title.empty()) passage.append(title).append("\n");
    return passage.append(text).append("\n\n");
  }
  passage = "Passage: ";
  if (!title.empty()) passage.append(title).append(": ");
  return passage.append(text).append("\n");
}

Result<std::vector<int32_t>> RagPrompt::chunk(std::string_view title, std::string_view text) const {
  return tokenizer_->encode(passage(title, text), {.add_bos = false, .parse_special = false});
}

Result<std::vector<int32_t>> RagPrompt::suffix(std::string_view question) const {
  std::vector<text::Segment> closing;
  if (chat_template_) {
    WEFT_ASSIGN_OR_RETURN(closing, current_template().user_closing());
  }
  return suffix_before(question, closing);
}

Result<std::vector<int32_t>> RagPrompt::suffix_before(
    std::string_view question, std::span<const text::Segment> closing) const {
  std::vector<text::Segment> segments;
  if (chat_template_) {
    segments.push_back({"\n\n" + asked(question), false});
    segments.insert(segments.end(), closing.begin(), closing.end());
    segments.push_back({std::string(kAnswer), false});
  } else {
    segments.push_back({asked(question), false});
  }
  return text::encode_segments(*tokenizer_, segments, limits_);
}

std::string RagPrompt::asked(std::string_view question) const {
  return "Question: " + std::string(question) + (chat_template_ ? "\nShort answer:" : "\nAnswer:");
}

Result<RagPrompt::Frame> RagPrompt::frame(const std::optional<std::string>& system,
                                          std::span<const Exchange> earlier,
                                          std::string_view question) const {
  Frame out;
  if (!chat_template_) {
    if (system) return invalid_argument("the few-shot form of the prompt has no system turn");
    std::string text(kExamples);
    for (const Exchange& exchange : earlier) {
      text += asked(exchange.question) + " " + trimmed(exchange.answer) + "\n\n";
    }
    const text::Segment segments[] = {{std::move(text), false}};
    WEFT_ASSIGN_OR_RETURN(out.prefix, text::encode_prompt(*tokenizer_, segments, limits_));
    WEFT_ASSIGN_OR_RETURN(out.suffix, suffix_before(question, {}));
    return out;
  }
  std::vector<text::Turn> turns;
  if (system) turns.push_back({text::Role::kSystem, *system});
  for (const Exchange& exchange : earlier) {
    turns.push_back({text::Role::kUser, asked(exchange.question)});
    turns.push_back(
        {text::Role::kAssistant, std::string(kAnswer) + " " + trimmed(exchange.answer)});
  }
  WEFT_ASSIGN_OR_RETURN(text::ChatTemplate::UserFrame around, current_template().user_frame(turns));
  around.opening.push_back({std::string(kPassagesHeading), false});
  WEFT_ASSIGN_OR_RETURN(out.prefix, text::encode_prompt(*tokenizer_, around.opening, limits_));
  WEFT_ASSIGN_OR_RETURN(out.suffix, suffix_before(question, around.closing));
  return out;
}

Result<std::vector<int32_t>> RagPrompt::anchor(const AnchorSpec& spec) const {
  if (spec.kind == AnchorSpec::Kind::kNone) return std::vector<int32_t>{};
  std::vector<text::Segment> segments;
  const bool bos = has_bos(*tokenizer_);
  if (!bos && chat_template_) {
    WEFT_ASSIGN_OR_RETURN(segments, chat_template_->turn_opening());
    segments.push_back({std::string(kPassagesHeading), false});
  } else if (!bos) {
    segments.push_back({std::string(kExamples), false});
  }
  switch (spec.kind) {
    case AnchorSpec::Kind::kNone:
    case AnchorSpec::Kind::kOpening:
      break;
    case AnchorSpec::Kind::kNeutral:
      for (const Passage& p : kNeutralPassages)
        segments.push_back({passage(p.title, p.text), false});
      break;
    case AnchorSpec::Kind::kFile:
      segments.push_back({passage("", spec.passages), false});
      break;
  }
  // Not the context of this engine: stores are keyed by the whole anchor, and a smaller context can
  // use them.
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                        text::encode_segments(*tokenizer_, segments, {.tokens = kMaxAnchorTokens}));
  if (bos) tokens.insert(tokens.begin(), tokenizer_->bos());
  if (std::ssize(tokens) > kMaxAnchorTokens) {
    return resource_exhausted(
        fmt::format("the anchor has more than {} tokens, the limit", kMaxAnchorTokens));
  }
  return tokens;
}

}  // namespace weft::engine
