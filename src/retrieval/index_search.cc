// The index's search: which chunks have any of some terms, and how often terms are where.
//
// FTS5 finds and ranks candidates, and knows only terms. What it cannot say of a found chunk (how
// often each term is in title, text and file name, whether several words follow each other) is
// counted here in the text again, with FTS5's own tokenizer, so that both always agree on what a
// word is. That is linear in the text of the candidates, of which there are at most a few hundred.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>

#include "retrieval/index_state_internal.h"

namespace weft::retrieval {
namespace {

/// A word as a string of FTS5's query language (fts5.html, section 3.1): quotes are doubled, and
/// nothing else has a meaning in it, so a question can contain no operators.
std::string quoted(std::string_view word) {
  std::string text = "\"";
  for (const char c : word) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}
std::string quoted(const Term& term) {
  std::string text = quoted(term.text) + (term.is_beginning ? " *" : "");
  for (const std::string& spelling : term.spellings) text += " OR " + quoted(spelling);
  return text;
}

Database::Splitting splitting_of(int64_t version) {
  return version > kVersionWithoutLines ? Database::Splitting::kStems : Database::Splitting::kWords;
}

/// The terms that the index makes of a text, at most `limit`.
Result<std::vector<std::string>> terms_of(Database& database, std::string_view text,
                                          Database::Splitting as, size_t limit) {
  std::vector<std::string> terms;
  WEFT_RETURN_IF_ERROR(database.for_each_term(text, as, [&](std::string_view one) {
    terms.emplace_back(one);
    return terms.size() < limit;
  }));
  return terms;
}

/// The first of them; empty for none.
Result<std::string> first_term(Database& database, std::string_view text, Database::Splitting as) {
  WEFT_ASSIGN_OR_RETURN(auto terms, terms_of(database, text, as, 1));
  return terms.empty() ? std::string() : std::move(terms.front());
}

constexpr size_t kMaxPhraseWords = 8;  // of a Term's spelling; more are cut off

/// Counts phrases in a text that is told word by word, by comparing them with its last few words.
class PhraseFinder {
 public:
  explicit PhraseFinder(const Index::Forms& forms) : forms_(forms) {}

  void add(std::string_view term, std::vector<int64_t>& n) {
    if (forms_.phrases.empty()) return;
    last_.emplace_back(term);
    if (last_.size() > kMaxPhraseWords) last_.pop_front();
    for (const auto& [words, i] : forms_.phrases) {
      if (words.size() > last_.size()) continue;
      const auto begin = last_.end() - std::ssize(words);
      n[i] += std::equal(words.begin(), words.end(), begin) ? 1 : 0;
    }
  }

 private:
  const Index::Forms& forms_;
  std::deque<std::string> last_;
};

}  // namespace

Result<std::vector<std::string>> Index::words(std::string_view text, size_t limit) {
  return state_->database->terms(text, limit);
}

Result<std::string> Index::stem_of(std::string_view word) {
  return first_term(*state_->database, word, splitting_of(state_->rows.version()));
}

Status Index::each_word(std::string_view text, FunctionRef<bool(std::string_view)> fn) {
  return state_->database->for_each_term(text, Database::Splitting::kWords, fn);
}

Result<std::vector<Hit>> Index::search(std::string_view question, int k) {
  WEFT_ASSIGN_OR_RETURN(const auto found, words(question, kMaxQueryTerms));
  std::vector<Term> any;
  for (const std::string& word : found) any.push_back({word});
  return search(any, k);
}

Result<std::vector<Hit>> Index::search(std::span<const Term> any, int k,
                                       std::span<const int64_t> also) {
  Database& database = *state_->database;
  std::vector<Hit> hits;
  if (k <= 0) return hits;
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  // FTS5 has stems only, so terms that ask for whole words are left to `also`.
  std::string match;
  for (const Term& term : any) {
    if (term.only.empty()) match += (match.empty() ? "" : " OR ") + quoted(term);
  }

  const Rows& as = state_->rows;
  ReadLimit limit(database);
  const auto take = [&](const Statement& row) -> Status {
    WEFT_ASSIGN_OR_RETURN(Chunk chunk, as.chunk(row));
    WEFT_ASSIGN_OR_RETURN(Document document, as.document(row, Rows::kChunkColumns));
    WEFT_RETURN_IF_ERROR(limit.add(chunk));
    hits.push_back({.chunk = std::move(chunk),
                    .path = std::move(document.info.path),
                    .title = std::move(document.info.title),
                    .root = std::move(document.info.root),
                    .size_bytes = document.info.size_bytes,
                    .modified_ns = document.info.modified_ns,
                    .content_hash = std::move(document.info.content_hash)});
    return Status::ok();
  };
  if (!match.empty()) {
    WEFT_ASSIGN_OR_RETURN(
        Statement rows,
        database.prepare(
            fmt::format("SELECT {}, {}, best.score FROM"
                        " (SELECT chunk_terms.rowid AS id, bm25(chunk_terms) AS score"
                        "  FROM chunk_terms CROSS JOIN chunks ON chunks.id = chunk_terms.rowid"
                        "  CROSS JOIN documents ON documents.id = chunks.document_id"
                        "  WHERE chunk_terms MATCH ?1 ORDER BY score, path, ordinal LIMIT ?2) best"
                        " JOIN chunks c ON c.id = best.id JOIN documents d ON d.id = c.document_id"
                        " ORDER BY best.score, d.path, c.ordinal",
                        as.chunk_columns(), as.document_columns())));
    rows.bind_text(match).bind(k);
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
      if (!has_row) break;
      WEFT_RETURN_IF_ERROR(take(rows));
      hits.back().score = -rows.real(Rows::kChunkColumns + Rows::kDocumentColumns);
    }
  }
  for (const int64_t id : also) {
    if (std::ranges::any_of(hits, [&](const Hit& hit) { return hit.chunk.id == id; })) continue;
    WEFT_ASSIGN_OR_RETURN(
        Statement row, database.prepare(fmt::format("SELECT {}, {} FROM chunks c JOIN documents d"
                                                    " ON d.id = c.document_id WHERE c.id = ?",
                                                    as.chunk_columns(), as.document_columns())));
    WEFT_ASSIGN_OR_RETURN(const bool has_row, row.bind(id).step());
    if (has_row) WEFT_RETURN_IF_ERROR(take(row));
  }
  return hits;
}

Result<std::optional<std::vector<int64_t>>> Index::chunks_with_words(const Term& term) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  const Term by_stem{.text = term.text};
  WEFT_ASSIGN_OR_RETURN(const TermCounts with_stem, count(std::span(&by_stem, 1)));
  std::optional<std::vector<int64_t>> ids;
  if (with_stem.chunks_with.front() > kMaxChunksRead) return ids;
  ids.emplace();
  WEFT_ASSIGN_OR_RETURN(const Forms forms, forms_of(std::span(&term, 1)));
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        database.prepare("SELECT id, text, title FROM chunk_source WHERE id IN"
                                         " (SELECT rowid FROM chunk_terms"
                                         "  WHERE chunk_terms MATCH ?)"));
  rows.bind_text(quoted(by_stem));
  ReadLimit limit(database);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return ids;
    const std::string both = rows.bytes(1) + "\n" + rows.bytes(2);
    WEFT_RETURN_IF_ERROR(limit.add(both));
    WEFT_ASSIGN_OR_RETURN(const auto n, occurrences(forms, both));
    if (n.front() > 0) ids->push_back(rows.integer(0));
  }
}

Result<TermCounts> Index::count(std::span<const Term> terms) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  TermCounts out;
  // From the documents' rows, where they have these sums: there are far fewer of them than chunks.
  const bool has_sums = state_->rows.version() != kVersionWithoutHashes;
  WEFT_ASSIGN_OR_RETURN(Statement all,
                        database.prepare(has_sums ? "SELECT ifnull(sum(n_chunks), 0),"
                                                    " ifnull(sum(n_tokens), 0) FROM documents"
                                                  : "SELECT count(*), ifnull(sum(n_tokens), 0)"
                                                    " FROM chunks"));
  WEFT_RETURN_IF_ERROR(all.step().status());
  out.chunks = std::max<int64_t>(all.integer(0), 0);
  const double n_tokens = std::max<int64_t>(all.integer(1), 0);
  out.mean_tokens = out.chunks == 0 ? 0 : n_tokens / out.chunks;
  for (const Term& term : terms) {
    if (!term.only.empty()) {
      out.chunks_with.push_back(0);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(
        Statement with,
        database.prepare("SELECT count(*) FROM chunk_terms WHERE chunk_terms MATCH ?"));
    WEFT_RETURN_IF_ERROR(with.bind_text(quoted(term)).step().status());
    out.chunks_with.push_back(with.integer(0));
  }
  return out;
}

Result<Index::Forms> Index::forms_of(std::span<const Term> terms) {
  const auto as = splitting_of(state_->rows.version());
  Forms forms{.n_terms = terms.size()};
  for (size_t i = 0; i < terms.size(); ++i) {
    for (const std::string& word : terms[i].only) forms.whole_words[word].push_back(i);
    if (!terms[i].only.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(std::string term,
                          first_term(*state_->database, terms[i].text,
                                     terms[i].is_beginning ? Database::Splitting::kWords : as));
    if (term.empty()) continue;
    if (terms[i].is_beginning) {
      forms.beginnings.emplace_back(std::move(term), i);
    } else {
      forms.words[std::move(term)].push_back(i);
    }
    for (const std::string& spelling : terms[i].spellings) {
      WEFT_ASSIGN_OR_RETURN(auto form, terms_of(*state_->database, spelling, as, kMaxPhraseWords));
      if (form.empty()) continue;
      if (form.size() > 1) {
        forms.phrases.emplace_back(std::move(form), i);
        continue;
      }
      std::vector<size_t>& numbers = forms.words[form.front()];
      if (numbers.empty() || numbers.back() != i) numbers.push_back(i);
    }
  }
  return forms;
}

Result<std::vector<int64_t>> Index::occurrences(std::span<const Term> terms,
                                                std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Forms forms, forms_of(terms));
  return occurrences(forms, text);
}

Result<std::vector<int64_t>> Index::occurrences(const Forms& forms, std::string_view text) {
  std::vector<int64_t> n(forms.n_terms, 0);
  std::string key;  // keeps its memory
  PhraseFinder phrases(forms);
  WEFT_RETURN_IF_ERROR(state_->database->for_each_term(
      text, splitting_of(state_->rows.version()), [&](std::string_view term) {
        key = term;
        if (const auto found = forms.words.find(key); found != forms.words.end()) {
          for (const size_t i : found->second) ++n[i];
        }
        for (const auto& [begin, i] : forms.beginnings) n[i] += term.starts_with(begin) ? 1 : 0;
        phrases.add(term, n);
        return true;
      }));
  if (forms.whole_words.empty()) return n;
  WEFT_RETURN_IF_ERROR(state_->database->for_each_term(
      text, Database::Splitting::kWords, [&](std::string_view word) {
        key = word;
        if (const auto found = forms.whole_words.find(key); found != forms.whole_words.end()) {
          for (const size_t i : found->second) ++n[i];
        }
        return true;
      }));
  return n;
}

}  // namespace weft::retrieval
