// Which passages a question of a conversation is about. A follow-up ("and when was it built?") says
// too little by itself, so it is searched for with the questions that it follows; a question that
// names its own subject is searched for alone. It knows no answers and changes nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "retrieval/passages.h"

namespace weft::retrieval {

/// How a question's wording says that it follows another.
struct Reference {
  /// It has a word for what was said before (it, she, those, the second one; in the languages of
  /// function_words.h), and none of its own names before that word: "Who governs Bolivia, and is it
  /// rich?" means Bolivia.
  bool refers_back = false;
  /// It begins as a continuation: "and …", "what about …".
  bool goes_on = false;
  /// It names something: a capitalised word that does not begin a sentence (not in German, where
  /// every noun is one).
  bool has_name = false;
};
/// Of the first 4096 bytes.
Reference reference_of(std::string_view question);

struct FollowUp {
  Passages passages;
  bool looked_back = false;                // the questions before were searched for, too
  std::vector<std::string> searched_with;  // these, the last one first
  size_t n_own_terms = 0;     // the first of the passages' terms, which are the question's own
  bool has_own_terms = true;  // a passage has one of them, or there are none
};

/// `before`: the questions that were answered, oldest first. A question is searched for
///   - with those before it where it refers back or has no content words ("Why?");
///   - with one content word that passages have, alone; of several such passages those that also
///     have words of the questions before are taken ("and the entrance?");
///   - where nothing is found and it goes on without naming anything, again with those before it,
///     unless what it names is in no document ("what about zeppelins?"); "and the price?" names
///     nothing;
///   - else alone: what is not in the documents is not looked for under the subject before.
/// "Those before it" are the last question and, where that one does not say what it is about, the
/// last before it that does. Where that one only goes on from another ("and the library?"),
/// passages of what it names come first, and the other is searched for only where there are none.
/// What they found stays found, however little of it a follow-up's own words have.
Result<FollowUp> find_follow_up(Index& index, std::span<const std::string> before,
                                std::string_view question, const PassageOptions& options);

/// For tests: "those before it", joined: "" where there are none. At most 4096 bytes of each.
std::string subject_of(std::span<const std::string> before);

}  // namespace weft::retrieval
