// What is done between finding passages and putting them into a prompt. Each passage gets the
// sentence that is shown of it, the state of its file, and a name that tells it from documents of
// the same name. Its token ids are made anew from its text and compared with the index's: an index
// may come from somebody else, and its token ids would otherwise go to the model unread by anyone
// (see trust_texts). That costs one tokenisation of the few passages that were found, not of the
// store.
//
// Notes for the user are made here and not by the command line, so that `ask`, a conversation and
// the JSON output say the same.
#include "library/found_passages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/terminal_text.h"
#include "base/utf8.h"
#include "retrieval/best_sentence.h"
#include "retrieval/follow_up.h"
#include "retrieval/scan.h"

namespace weft::library {
namespace {

constexpr size_t kMaxSentenceBytes = 160;  // two lines of 80 columns
/// The weight of a follow-up's own words for choosing the sentence that is shown. Its passages were
/// found by the subject of the question before ("the harbour"), but the sentence should be the one
/// that answers this question ("and when does it open?").
constexpr double kOwnTermsCount = 16;

constexpr size_t kMaxQuestionBytes = 120;  // of one that a note names
constexpr size_t kMaxWordBytes = 40;

/// The text's first bytes, at most `max_bytes`, cut between characters, and "…" if there were more.
std::string shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while (end > 0 && is_utf8_continuation(text[end])) --end;
  return std::string(text.substr(0, end)) + "…";
}

/// `"a", "b" (did you mean "d"?) or "c"`
std::string quoted(std::span<const AbsentWord> words) {
  std::string line;
  for (size_t i = 0; i < words.size(); ++i) {
    line += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    line += fmt::format("\"{}\"", shortened(words[i].word, kMaxWordBytes));
    if (!words[i].near.empty()) line += fmt::format(" (did you mean \"{}\"?)", words[i].near);
  }
  return line;
}

/// `no passage has "a", "b" or "c"`; "" without words.
std::string no_passage_has(std::span<const AbsentWord> absent) {
  return absent.empty() ? "" : "no passage has " + quoted(absent);
}

/// Finds how much of its path a document is shown with: documents of one name need enough to be
/// told apart, as in `docs ls`. Each name is looked up in the index once.
class ShownRoots {
 public:
  explicit ShownRoots(retrieval::Index& index) : index_(index) {}

  Status set(retrieval::Hit& hit) {
    const std::string name = hit.path.substr(hit.path.rfind('/') + 1);
    const auto [named, is_new] = roots_.try_emplace(name);
    if (is_new) {
      WEFT_ASSIGN_OR_RETURN(const auto documents, index_.documents_named(name));
      std::vector<std::string> roots = retrieval::roots_to_show(documents);
      for (size_t i = 0; i < documents.size(); ++i) {
        named->second[documents[i].info.path] = std::move(roots[i]);
      }
    }
    if (const auto root = named->second.find(hit.path); root != named->second.end()) {
      hit.root = root->second;
    }
    for (retrieval::Hit& other : hit.nearly_same) WEFT_RETURN_IF_ERROR(set(other));
    return Status::ok();
  }

 private:
  retrieval::Index& index_;
  std::map<std::string, std::map<std::string, std::string>> roots_;  // by file name, by path
};

/// Replaces token ids that are not those of the passage's text. An index may come from anyone, and
/// the hashes of its rows protect against damage, not against forgery: anyone can compute them. So
/// ids of control tokens, of another text than the one that is cited, or of an older tokenizer
/// never reach the prompt. The document is marked as incomplete, so that the next ingest makes it
/// anew.
Status trust_texts(Library& library, FoundPassages& found) {
  for (Passage& passage : found.passages) {
    retrieval::Hit& hit = passage.hit;
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                          library.chunk_tokens(hit.title, hit.chunk.text));
    if (tokens == hit.chunk.tokens) continue;
    found.notes.push_back(fmt::format(
        "{}: a chunk's token ids are not those of its text, so they were not used; weft ingest "
        "puts that right",
        hit.path));
    hit.chunk.tokens = std::move(tokens);
    if (library.is_read_only()) continue;
    const Status marked = library.index().mark_incomplete(hit.chunk.document_id);
    if (!marked.is_ok() && marked.code() != StatusCode::kNotFound) return marked;
  }
  return Status::ok();
}

}  // namespace

FileState file_state(Env& env, const retrieval::Hit& hit) {
  const Result<DirEntry> entry = env.stat(hit.path);
  if (entry.status().code() == StatusCode::kNotFound) return FileState::kGone;
  if (!entry.is_ok()) return FileState::kSame;  // unreadable now: nothing says that it changed
  const bool has_time = hit.modified_ns != retrieval::kUnknownTime;
  const bool is_same = entry->size_bytes == hit.size_bytes &&
                       (has_time ? entry->modified_ns == hit.modified_ns
                                 : retrieval::has_content(env, hit.path, hit.content_hash));
  return is_same ? FileState::kSame : FileState::kChanged;
}

std::vector<std::vector<int32_t>> FoundPassages::chunks() const {
  std::vector<std::vector<int32_t>> out;
  for (const Passage& passage : passages) out.push_back(passage.hit.chunk.tokens);
  return out;
}

Result<FoundPassages> find_passages(Env& env, Library& library, const EarlierQuestions& before,
                                    const std::string& question,
                                    const retrieval::PassageOptions& options) {
  FoundPassages out;
  WEFT_ASSIGN_OR_RETURN(
      retrieval::FollowUp found,
      retrieval::find_follow_up(library.index(), before.answered, question, options));
  out.found = found.passages.found;
  out.looked_back = found.looked_back;
  out.searched_with = std::move(found.searched_with);
  for (std::string& word : found.passages.absent) {
    WEFT_ASSIGN_OR_RETURN(retrieval::NearWord near, library.index().near_word(word));
    out.absent.push_back({std::move(word), std::move(near.word)});
  }
  for (std::string& word : found.passages.absent_subjects) {
    const auto known = std::ranges::find(out.absent, word, &AbsentWord::word);
    out.absent_subjects.push_back(known == out.absent.end() ? AbsentWord{std::move(word), ""}
                                                            : *known);
  }
  out.taken = std::move(found.passages.taken);
  if (!out.taken.empty()) out.notes.push_back(taken_line(out.taken));
  if (out.looked_back && before.one_was_not) {
    out.notes.push_back(
        fmt::format("taken to be about \"{}\", the last question that was answered",
                    shortened(one_line(before.answered.back()), kMaxQuestionBytes)));
  } else if (out.looked_back && !found.has_own_terms) {
    std::string questions;
    for (const std::string& one : out.searched_with) {
      questions += fmt::format("{}\"{}\"", questions.empty() ? "" : " and ",
                               shortened(one_line(one), kMaxQuestionBytes));
    }
    out.notes.push_back("no passage has a word of this question itself: these were found with " +
                        questions);
  }
  // The question's own terms are the first n_own_terms; the others come from the questions before.
  if (out.looked_back) {
    for (size_t i = 0; i < std::min(found.n_own_terms, found.passages.terms.size()); ++i) {
      found.passages.terms[i].weight *= kOwnTermsCount;
    }
  }
  std::map<int64_t, FileState> files;  // by document: finding it may mean reading the file
  ShownRoots roots(library.index());
  for (retrieval::Hit& hit : found.passages.hits) {
    WEFT_RETURN_IF_ERROR(roots.set(hit));
    WEFT_ASSIGN_OR_RETURN(std::string sentence,
                          retrieval::best_sentence(library.index(), found.passages.terms, hit.title,
                                                   hit.chunk.text, kMaxSentenceBytes));
    const auto [file, is_new] = files.try_emplace(hit.chunk.document_id, FileState::kSame);
    if (is_new) file->second = file_state(env, hit);
    out.passages.push_back({std::move(hit), std::move(sentence), file->second});
  }
  if (out.found != retrieval::PassagesFound::kYes) {
    WEFT_ASSIGN_OR_RETURN(const retrieval::Counts counts, library.index().counts());
    if (counts.chunks == 0 && counts.documents > 0) {
      return not_found(
          "the documents in the store have no text (weft docs ls lists them); weft ingest puts "
          "others in");
    }
    if (counts.chunks == 0) {
      return not_found("there are no documents in the store; weft ingest puts some in");
    }
    if (!options.anyway) return out;
    out.notes.push_back(why_not(out) + "; asked all the same");
  }
  WEFT_RETURN_IF_ERROR(trust_texts(library, out));
  return out;
}

std::string why_not(const FoundPassages& found) {
  const std::string has_none = no_passage_has(found.absent);
  switch (found.found) {
    case retrieval::PassagesFound::kYes:
      break;
    case retrieval::PassagesFound::kNoTerms:
      return "the question has no words to search for";
    case retrieval::PassagesFound::kNone:
      return has_none.empty() ? "no passage has a word of the question's" : has_none;
    case retrieval::PassagesFound::kWeak:
      return has_none.empty()
                 ? "the nearest passage shares too little with the question"
                 : has_none + ", and the nearest one shares too little with the question";
  }
  return "";
}

std::string taken_line(std::span<const retrieval::TakenWord> words) {
  std::string line = "took ";
  for (size_t i = 0; i < words.size(); ++i) {
    line += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    line += fmt::format("\"{}\" for \"{}\"", shortened(words[i].word, kMaxWordBytes),
                        shortened(words[i].as, kMaxWordBytes));
  }
  return line;
}

std::string absent_line(const FoundPassages& found) {
  if (found.found != retrieval::PassagesFound::kYes) return "";  // then it is told as why_not
  const std::span<const AbsentWord> words(found.absent_subjects);
  if (words.empty()) return "";
  return fmt::format("no document has the word{} {}", words.size() == 1 ? "" : "s", quoted(words));
}

}  // namespace weft::library
