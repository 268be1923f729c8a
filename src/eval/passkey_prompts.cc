// All pieces are tokenised by themselves and their ids joined, so that a prompt is the same whether
// it is run in one go or from a fork on (passkey.cc), and so that the text can be cut to the token.
#include "eval/passkey_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/counts_text.h"
#include "base/narrow.h"
#include "base/utf8.h"
#include "text/chat_template.h"

namespace weft::eval {
namespace {

// Of sentences that no space follows.
constexpr std::array<std::string_view, 3> kWideEnds{"\u3002", "\uFF01", "\uFF1F"};
constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr size_t kMostSentenceBytes = 400;

// The papers' filler.
constexpr std::string_view kGeneratedText =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

constexpr std::string_view kIntroduction =
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I "
    "will quiz you about the important information there.";

constexpr std::array<std::string_view, 12> kColours{"amber", "black",  "blue",  "brown",
                                                    "green", "grey",   "ivory", "orange",
                                                    "red",   "silver", "white", "yellow"};
constexpr std::array<std::string_view, 12> kThings{"anchor", "basket", "bridge", "candle",
                                                   "castle", "garden", "hammer", "lantern",
                                                   "mirror", "piano",  "river",  "wagon"};

using Random = std::mt19937_64;  // whose numbers are the same everywhere

/// One of `n` > 0 numbers from 0. Not std::uniform_int_distribution, whose numbers are each
/// library's own; that some are likelier by n / 2^64 does not matter.
size_t one_of(Random& random, size_t n) { return random() % n; }

std::string uuid(Random& random) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 36; ++i) {
    text += i == 8 || i == 13 || i == 18 || i == 23 ? '-' : kDigits[one_of(random, 16)];
  }
  return text;
}

/// So many, each another one.
std::vector<std::string> names(Random& random, size_t n) {
  std::vector<size_t> all(kColours.size() * kThings.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) {
    std::swap(all[i], all[i + one_of(random, all.size() - i)]);
    out.push_back(
        fmt::format("{} {}", kColours[all[i] / kThings.size()], kThings[all[i] % kThings.size()]));
  }
  return out;
}

/// A key as the text has it, and the question for it. Without "Answer with the number." SmolLM2
/// may say what a pass key is: of ten prompts of 1,024 tokens 7 were answered with the number in a
/// novel and 5 in the papers' filler, with it 10 and 10.
struct Key {
  std::string name;  // "": the only one
  std::string value;

  std::string called() const { return name.empty() ? "pass key" : "pass key of the " + name; }
  std::string needle() const {
    return fmt::format(" The {0} is {1}. Remember it. {1} is the {0}.", called(), value);
  }
  std::string question() const {
    return fmt::format("\n\nWhat is the {}? Answer with the {}.", called(),
                       name.empty() ? "number" : "key");
  }
  std::string answer_begin() const { return fmt::format("The {} is", called()); }
};

Result<std::vector<int32_t>> encode_within(const text::Tokenizer& tokenizer,
                                           std::string_view text) {
  return tokenizer.encode(text, {.continues_text = true});
}

/// The number of bytes of `word` up to where it may be cut: after an end of a sentence that no
/// space follows, or where it is too long.
size_t piece_bytes(std::string_view word) {
  size_t end = std::min(word.size(), kMostSentenceBytes);
  while (end < word.size() && end > 0 && is_utf8_continuation(word[end])) --end;
  for (const std::string_view mark : kWideEnds) {
    const size_t at = word.substr(0, end).find(mark);
    if (at != std::string_view::npos) end = at + mark.size();
  }
  return end;
}

bool ends_sentence(std::string_view word) {
  for (const std::string_view mark : kWideEnds) {
    if (word.ends_with(mark)) return true;
  }
  for (const std::string_view closing : {"\"", "'", ")", "]", "_", "\u201D", "\u2019", "\u00BB"}) {
    if (word.ends_with(closing)) word.remove_suffix(closing.size());
  }
  constexpr std::array<std::string_view, 5> kTitles{"Mr.", "Mrs.", "Ms.", "Dr.", "St."};
  const bool is_title =
      std::ranges::any_of(kTitles, [&](std::string_view t) { return word.ends_with(t); });
  return !is_title && !word.empty() && std::string_view(".!?").find(word.back()) < 3;
}

}  // namespace

int32_t passkey_answer_tokens(int32_t n_needles) { return n_needles == 1 ? 16 : 48; }

std::vector<double> passkey_depths(int32_t n_trials) {
  std::vector<double> depths;
  for (int32_t i = 0; i < n_trials; ++i) {
    const int32_t which = (2 * i + 1) * kPasskeyDepths / (2 * n_trials);
    depths.push_back((2 * which + 1) / (2.0 * kPasskeyDepths));
  }
  return depths;
}

std::vector<std::string> sentences_of(std::string_view text) {
  std::vector<std::string> out;
  std::string sentence;
  const auto finish = [&] {
    if (!sentence.empty()) out.push_back(std::move(sentence));
    sentence.clear();
  };
  std::string gap = " ";
  for (size_t at = text.find_first_not_of(kSpace); at < text.size();) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    const size_t next = std::min(text.find_first_not_of(kSpace, end), text.size());
    for (std::string_view word = text.substr(at, end - at); !word.empty(); gap.clear()) {
      const size_t n = piece_bytes(word);
      if (sentence.size() + gap.size() + n > kMostSentenceBytes) finish();
      sentence += gap;
      sentence += word.substr(0, n);
      word.remove_prefix(n);
      if (!word.empty()) finish();
    }
    const std::string_view between = text.substr(end, next - end);
    const bool is_paragraph = std::ranges::count(between, '\n') > 1;
    gap = is_paragraph ? "\n\n" : " ";
    const bool goes_on = next < text.size() && text[next] >= 'a' && text[next] <= 'z';
    if (is_paragraph || (!goes_on && ends_sentence(sentence))) finish();
    at = next;
  }
  finish();
  return out;
}

Result<PasskeyPrompts> PasskeyPrompts::create(const engine::Engine& engine,
                                              const std::optional<PasskeyText>& text,
                                              const PasskeyOptions& options) {
  PasskeyPrompts prompts(options, text ? text->name : "");
  const std::string_view running = text ? std::string_view(text->text) : kGeneratedText;
  WEFT_RETURN_IF_ERROR(prompts.read_text(engine.tokenizer(), running));
  WEFT_RETURN_IF_ERROR(prompts.make_groups(engine));
  return prompts;
}

Status PasskeyPrompts::read_text(const text::Tokenizer& tokenizer, std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (!is_valid_utf8(text)) return corrupt(text_name_ + ": is not UTF-8");
  for (const std::string& sentence : sentences_of(text)) {
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, encode_within(tokenizer, sentence));
    if (!tokens.empty()) sentences_.push_back(std::move(tokens));
  }
  if (sentences_.empty()) return corrupt(text_name_ + ": has no text");
  return Status::ok();
}

Status PasskeyPrompts::make_groups(const engine::Engine& engine) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  std::vector<text::Segment> opening, closing;
  auto chat = engine.chat_template();
  if (chat.is_ok()) {
    WEFT_ASSIGN_OR_RETURN(opening, chat->user_opening(std::nullopt));
    WEFT_ASSIGN_OR_RETURN(closing, chat->user_closing());
  } else if (chat.status().code() != StatusCode::kNotFound) {
    return chat.status();
  } else {
    closing.push_back({" ", false});
  }
  opening.push_back({std::string(kIntroduction), false});
  WEFT_ASSIGN_OR_RETURN(opening_, text::encode_prompt(tokenizer, opening));

  const auto trial = [&](double depth, Key key) -> Result<Trial> {
    Trial out{.depth = depth, .value = key.value, .needle = {}, .closing = {}};
    WEFT_ASSIGN_OR_RETURN(out.needle, encode_within(tokenizer, key.needle()));
    std::vector<text::Segment> segments = closing;
    segments.insert(segments.begin(), {key.question(), false});
    segments.push_back({key.answer_begin(), false});
    WEFT_ASSIGN_OR_RETURN(out.closing, text::encode_segments(tokenizer, segments));
    return out;
  };
  Random random(options_.seed);
  for (int32_t n_left = options_.n_trials; n_left > 0; n_left -= kPasskeyDepths) {
    Group& group = groups_.emplace_back();
    const int32_t n_trials = std::min(n_left, kPasskeyDepths);
    const int32_t n_others = options_.n_needles - 1;
    const auto name = names(random, n_others + n_trials);
    for (int32_t i = 0; i < n_others; ++i) {
      const Key key{name[i], uuid(random)};
      WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, encode_within(tokenizer, key.needle()));
      group.others.push_back(std::move(tokens));
    }
    for (const double depth : passkey_depths(n_trials)) {
      const auto i = group.trials.size();
      Key key{.name = n_others == 0 ? "" : name[n_others + i], .value = ""};
      key.value = n_others == 0 ? fmt::format("{}", 10000 + one_of(random, 90000)) : uuid(random);
      WEFT_ASSIGN_OR_RETURN(Trial one, trial(options_.depth.value_or(depth), std::move(key)));
      group.trials.push_back(std::move(one));
    }
  }
  return choose_places(random);
}

int64_t PasskeyPrompts::body_tokens(const Trial& trial) const {
  return options_.length_tokens - std::ssize(opening_) - std::ssize(trial.needle) -
         std::ssize(trial.closing);
}

int64_t PasskeyPrompts::others_tokens(const Group& group) {
  int64_t n = 0;
  for (const auto& other : group.others) n += std::ssize(other);
  return n;
}

/// Each group begins at a sentence of its own choice after which there is text enough.
Status PasskeyPrompts::choose_places(Random& random) {
  int64_t least_length = 0, needed = 0;
  for (const Group& group : groups_) {
    for (const Trial& trial : group.trials) {
      const int64_t text_tokens = body_tokens(trial) - others_tokens(group);
      least_length = std::max(least_length, options_.length_tokens - text_tokens);
      needed = std::max(needed, text_tokens);
    }
  }
  if (options_.length_tokens < least_length) {
    return resource_exhausted(fmt::format(
        "{} {}: {} and the question take {} tokens, so it must be {} or more{}",
        options_.length_flag, options_.length_tokens, counted(options_.n_needles, "pass key"),
        least_length, least_length,
        options_.has_needles_flag && options_.n_needles > 1 ? ", or there must be fewer --needles"
                                                            : ""));
  }
  size_t n_places = sentences_.size();
  if (!text_name_.empty()) {
    int64_t n_after = 0;
    while (n_places > 0 && n_after < needed) n_after += std::ssize(sentences_[--n_places]);
    if (n_after < needed) {
      return resource_exhausted(
          fmt::format("{}: has {} tokens, a prompt of {} {} takes {} of it: give a longer text or "
                      "a smaller {}",
                      text_name_, n_after, options_.length_flag, options_.length_tokens, needed,
                      options_.length_flag));
    }
    ++n_places;  // the sentence from which on it is enough is one of them
  }
  for (Group& group : groups_) group.first_sentence = one_of(random, n_places);
  return Status::ok();
}

/// The other keys are spread evenly over what every prompt of the group has of the text.
PasskeyPrompts::Body PasskeyPrompts::body(const Group& group) const {
  int64_t least = options_.length_tokens, most = 0;
  for (const Trial& trial : group.trials) {
    least = std::min(least, body_tokens(trial));
    most = std::max(most, body_tokens(trial));
  }
  const int64_t n_text = least - others_tokens(group);
  const int64_t n_others = std::ssize(group.others);
  Body body{.tokens = {}, .borders = {0}};
  int64_t n_read = 0, n_placed = 0;
  const auto add = [&](const std::vector<int32_t>& tokens) {
    body.tokens.insert(body.tokens.end(), tokens.begin(), tokens.end());
    body.borders.push_back(std::ssize(body.tokens));
  };
  for (size_t i = group.first_sentence; std::ssize(body.tokens) < most; ++i) {
    // Where the next one belongs lies in this sentence, or at its beginning: it comes before it.
    const int64_t end = n_read + std::ssize(sentence(i));
    while (n_placed < n_others && (2 * n_placed + 1) * n_text < 2 * n_others * end) {
      add(group.others[n_placed++]);
    }
    if (std::ssize(body.tokens) < most) add(sentence(i));
    n_read = end;
  }
  return body;
}

std::vector<PasskeyPrompt> PasskeyPrompts::group(int64_t index) const {
  const Group& group = groups_[index];
  const Body body = this->body(group);
  int64_t least = options_.length_tokens;
  for (const Trial& trial : group.trials) least = std::min(least, body_tokens(trial));
  std::vector<PasskeyPrompt> prompts;
  for (const Trial& trial : group.trials) {
    const double wanted = trial.depth * least;
    const int64_t border = *std::ranges::min_element(body.borders, {}, [&](int64_t at) {
      return at > least ? std::numeric_limits<double>::infinity() : std::abs(at - wanted);
    });
    PasskeyPrompt& prompt = prompts.emplace_back();
    prompt.depth = trial.depth;
    prompt.value = trial.value;
    prompt.tokens.reserve(options_.length_tokens);
    const auto add = [&](std::span<const int32_t> tokens) {
      prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
    };
    add(opening_);
    add(std::span(body.tokens).first(border));
    prompt.needle_begin = narrow<int32_t>(std::ssize(prompt.tokens));
    add(trial.needle);
    add(std::span(body.tokens).subspan(border, body_tokens(trial) - border));
    prompt.question_begin = narrow<int32_t>(std::ssize(prompt.tokens));
    add(trial.closing);
  }
  return prompts;
}

}  // namespace weft::eval
