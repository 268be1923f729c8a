// The notes and lines around passages, for `ask` and for a conversation over documents alike: what
// people and programs see of a search is in one place. The words of the lines are the library's
// (library::why_not, absent_line), since a server would say the same.
#include "cli/found_passages.h"

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "base/utf8.h"
#include "cli/ask_report.h"

namespace weft::cli {
namespace {

/// For programs; "" where something was found.
const char* reason_name(retrieval::PassagesFound found) {
  switch (found) {
    case retrieval::PassagesFound::kYes:
      break;
    case retrieval::PassagesFound::kNoTerms:
      return "no-words";
    case retrieval::PassagesFound::kNone:
      return "no-match";
    case retrieval::PassagesFound::kWeak:
      return "too-little";
  }
  return "";
}

}  // namespace

/// A log piped in by mistake has lines of megabytes, each of them an error: the first 1,000 bytes
/// tell which it was. Cut between two characters.
std::string beginning_of(const std::string& question) {
  constexpr size_t kShown = 1000;
  if (question.size() <= retrieval::kMaxQuestionBytes) return question;
  const std::string_view shown = std::string_view(question).substr(0, kShown);
  return std::string(shown.substr(0, shown.size() - utf8_unfinished_bytes(shown))) + "…";
}

void print_error_object(const std::string& question, const Status& status) {
  print_json({{"question", beginning_of(question)}, {"error", status.message()}});
}

void print_not_found(const library::FoundPassages& found, bool is_whole) {
  if (!found.taken.empty()) print_error("note: " + library::taken_line(found.taken));
  // Where nothing was looked for, nobody knows what is in the documents.
  // "Thanks!" has no words to search for, which says nothing of the documents.
  const bool was_searched = found.found != retrieval::PassagesFound::kNoTerms;
  fmt::print("{}: {} (--answer-anyway asks all the same).{}\n",
             was_searched ? "Not in the documents" : "Not asked", one_line(library::why_not(found)),
             is_whole || !was_searched ? "" : " But not all of them are in the store yet.");
}

Json absent_json(const library::FoundPassages& found) {
  Json words = Json::array();
  for (const library::AbsentWord& one : found.absent) words.push_back(one.word);
  return words;
}

Json meant_json(const library::FoundPassages& found) {
  Json meant = Json::object();
  for (const library::AbsentWord& one : found.absent) {
    if (!one.near.empty()) meant[one.word] = one.near;
  }
  return meant;
}

Json taken_json(const library::FoundPassages& found) {
  Json taken = Json::object();
  for (const retrieval::TakenWord& one : found.taken) taken[one.word] = one.as;
  return taken;
}

Json not_found_json(const std::string& question, const library::FoundPassages& found) {
  return {{"question", question},
          {"found", false},
          {"reason", reason_name(found.found)},
          {"absent", absent_json(found)},
          {"did_you_mean", meant_json(found)},
          {"searched_as", taken_json(found)},
          {"answer", nullptr},
          {"chunks", Json::array()},
          {"notes", found.notes}};
}

void print_sources(std::span<const library::Passage> passages) {
  const std::vector<Source> sources = sources_of(passages);
  for (size_t i = 0; i < sources.size(); ++i) {
    fmt::print("{}\n", source_line(sources[i], i + 1));
    if (!sources[i].sentence.empty()) fmt::print("    {}\n", one_line(sources[i].sentence));
    const std::string left_out = left_out_line(sources[i]);
    if (!left_out.empty()) fmt::print("    {}\n", left_out);
  }
}

void print_sources_and_absent(const library::FoundPassages& found) {
  if (!found.passages.empty()) fmt::print("\n");
  print_sources(found.passages);
  const std::string absent = library::absent_line(found);
  if (!absent.empty()) fmt::print("{}\n", one_line(absent));
}

/// `--reuse none` and `prefix` use no chunk's KV and so store none. A chunk that cannot be stored
/// (a full disk) is a line and no error, as the answer is right without it.
void store_missing(library::Library& library, const std::vector<std::vector<int32_t>>& chunks,
                   fusion::ReuseMode asked) {
  if (!fusion::reuses_chunks(asked)) return;
  library.store_missing(chunks, [](const Status& failed) {
    print_error("a chunk was not stored: " + failed.message());
  });
}

}  // namespace weft::cli
