// The prompts of the pass key test (Mohtashami and Jaggi 2023, "Landmark Attention"; Self-Extend,
// section 4): a number somewhere in a long running text, and the question for it at the end. With
// several keys (as RULER's needles) each has a name and a UUID, and one is asked for. Token ids
// alone: no model is run.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace weft::eval {

/// Depths that trials are spread over: 0.05, 0.15 … 0.95.
inline constexpr int32_t kPasskeyDepths = 10;
inline constexpr int32_t kMostNeedles = 64;

struct PasskeyOptions {
  int32_t length_tokens = 0;    // of the whole prompt
  std::optional<double> depth;  // 0 to 1, where the key is; none: kPasskeyDepths
  int32_t n_trials = 20;
  int32_t n_needles = 1;  // 1: a number of five digits; more, to kMostNeedles: UUIDs with names
  uint64_t seed = 1;      // of keys, names, and where in the text a prompt begins
  const char* length_flag = "--length";  // that sets length_tokens, for errors
  bool has_needles_flag = true;          // whether n_needles can be set, likewise
};

/// New tokens that an answer has at most.
int32_t passkey_answer_tokens(int32_t n_needles);

/// Depths of so many trials over one stretch of text, at most kPasskeyDepths; ascending and spread
/// evenly.
std::vector<double> passkey_depths(int32_t n_trials);

/// A text as running text: its sentences, each with the white space that comes before it, a space
/// or an empty line. What has no end for long counts as one at a border of words.
std::vector<std::string> sentences_of(std::string_view text);

struct PasskeyPrompt {
  std::vector<int32_t> tokens;  // exactly length_tokens
  int32_t needle_begin = 0;     // where the key that is asked for is said
  int32_t question_begin = 0;   // and where the question
  double depth = 0;             // that was asked for: the nearest end of a sentence is
  std::string value;            // the right answer
};

struct PasskeyText {
  std::string name;  // for errors
  std::string text;
};

/// Immutable; any thread.
class PasskeyPrompts {
 public:
  /// In `text`, or where none is given in the five sentences of the papers, over and over. In the
  /// model's chat template, if it has one. kCorrupt for a text that is empty or no UTF-8,
  /// kResourceExhausted with the numbers where the text or the length is too short.
  static Result<PasskeyPrompts> create(const engine::Engine& engine,
                                       const std::optional<PasskeyText>& text,
                                       const PasskeyOptions& options);

  const PasskeyOptions& options() const { return options_; }
  int64_t n_groups() const { return std::ssize(groups_); }
  /// Up to kPasskeyDepths prompts over the same stretch of text, needle_begin ascending: each has
  /// the tokens of the next one up to its own needle_begin.
  std::vector<PasskeyPrompt> group(int64_t index) const;

 private:
  struct Trial {
    double depth = 0;
    std::string value;
    std::vector<int32_t> needle;
    std::vector<int32_t> closing;  // the question and all after it
  };
  struct Group {
    std::vector<std::vector<int32_t>> others;  // keys that nobody asks for
    std::vector<Trial> trials;                 // depths ascending
    size_t first_sentence = 0;
  };
  /// The text of a group with the other keys in it.
  struct Body {
    std::vector<int32_t> tokens;
    std::vector<int64_t> borders;  // of sentences, ascending from 0
  };

  PasskeyPrompts(const PasskeyOptions& options, std::string text_name)
      : options_(options), text_name_(std::move(text_name)) {}
  Status read_text(const text::Tokenizer& tokenizer, std::string_view text);
  Status make_groups(const engine::Engine& engine);
  Status choose_places(std::mt19937_64& random);
  /// Tokens for text and other keys.
  int64_t body_tokens(const Trial& trial) const;
  static int64_t others_tokens(const Group& group);
  Body body(const Group& group) const;
  const std::vector<int32_t>& sentence(size_t index) const {
    return sentences_[index % sentences_.size()];
  }

  PasskeyOptions options_;
  std::string text_name_;  // "": generated, which goes on with its beginning
  std::vector<std::vector<int32_t>> sentences_;
  std::vector<int32_t> opening_;
  std::vector<Group> groups_;
};

}  // namespace weft::eval
