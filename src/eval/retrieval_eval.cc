// Every question has its gold passages marked, so what is counted needs no model and no judge: the
// share of them among what `ask` would put into the prompt, beside how many tokens that takes,
// since showing everything finds everything. The index holds all sets at once (the passages of one
// alone would be too easy to tell apart), and once more all sets but one, over which that one's
// questions have no answer: there "not in the documents" is right. The rules of find_passages were
// tuned on the even questions only.
#include "eval/retrieval_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/hash.h"
#include "retrieval/index.h"
#include "retrieval/passages.h"

namespace weft::eval {
namespace {

using retrieval::Index;

// Of the bootstrap: 50 of them are beyond each end of the interval.
constexpr int kResamples = 2000;
constexpr double kZ95 = 1.959964;

/// A passage by what it says, whichever set it is in.
using PassageName = std::pair<std::string, std::string>;

PassageName name_of(const EvalPassage& passage) { return {passage.title, passage.text}; }

/// What came of one question, one way.
struct Outcome {
  double gold = 0;  // share of its gold passages that were shown
  double passages = 0;
  double tokens = 0;
  bool none = false;  // "not in the documents"
};

/// One question in the three ways that are compared.
struct Asked {
  int set = 0;
  bool is_even = false;
  Outcome plain;
  Outcome chosen;
  Outcome foreign;
};

/// An index in a file of its own, as ingest would make it but without records of KV.
class Passages {
 public:
  /// An index of all sets' passages but those of `left_out` (-1: none left out).
  static Result<Passages> make(Env& env, const text::Tokenizer& tokenizer,
                               const std::vector<RetrievalSet>& sets, int left_out,
                               const std::string& folder, FunctionRef<bool()> goes_on) {
    Passages passages;
    const std::string file = fmt::format("{}/passages{}.sqlite", folder, left_out + 1);
    WEFT_ASSIGN_OR_RETURN(passages.index_, Index::open(file, Index::Mode::kCreate, env));
    std::map<std::string, std::set<std::string>> by_title;
    for (int s = 0; s < std::ssize(sets); ++s) {
      if (s == left_out) continue;
      for (const Example& example : sets[s].examples) {
        for (const EvalPassage& p : example.passages) by_title[p.title].insert(p.text);
      }
    }
    for (const auto& [title, texts] : by_title) {
      WEFT_RETURN_IF_ERROR(passages.add(tokenizer, title, texts, goes_on));
    }
    return passages;
  }

  Index& index() { return *index_; }

 private:
  Status add(const text::Tokenizer& tokenizer, const std::string& title,
             const std::set<std::string>& texts, FunctionRef<bool()> goes_on) {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<retrieval::ChunkText> chunks;
    for (const std::string& text : texts) {
      if (!goes_on()) return cancelled("stopped");
      // As a passage looks in a chat prompt.
      WEFT_ASSIGN_OR_RETURN(tokens.emplace_back(),
                            tokenizer.encode(title + "\n" + text + "\n\n", {}));
    }
    size_t i = 0;
    for (const std::string& text : texts) {
      chunks.push_back({.byte_begin = i,
                        .byte_end = i + 1,
                        .text = text,
                        .tokens = tokens[i],
                        .record = hash128(std::as_bytes(std::span(tokens[i])))});
      ++i;
    }
    return index_
        ->replace_document({.path = "/" + title, .title = title, .content_hash = title}, chunks)
        .status();
  }

  std::unique_ptr<Index> index_;
};

/// What was shown, beside what should have been.
Outcome outcome_of(const std::vector<retrieval::Hit>& hits, const std::set<PassageName>& gold) {
  Outcome out;
  for (const retrieval::Hit& hit : hits) {
    out.gold += gold.contains({hit.title, hit.chunk.text}) ? 1 : 0;
    out.tokens += hit.chunk.tokens.size();
  }
  if (!gold.empty()) out.gold /= gold.size();
  out.passages = hits.size();
  out.none = hits.empty();
  return out;
}

/// Wilson's interval of a proportion: of 0 in 1,300 it is 0 to 0.3 %, where the normal
/// approximation would have no width.
Interval wilson(double successes, double n) {
  if (n == 0) return {};
  const double p = successes / n;
  const double z2 = kZ95 * kZ95;
  const double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double reach = kZ95 * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n);
  return {p, std::max(0.0, middle - reach), std::min(1.0, middle + reach)};
}

/// The mean, with the 2.5 % and 97.5 % quantiles of means of resamples (seeded).
Interval bootstrapped(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto mean_of = [&](auto pick) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[pick(i)];
    return sum / values.size();
  };
  std::mt19937_64 random(1);
  std::vector<double> means;
  for (int r = 0; r < kResamples; ++r) {
    means.push_back(mean_of([&](size_t) { return random() % values.size(); }));
  }
  std::ranges::sort(means);
  return {mean_of([](size_t i) { return i; }), means[kResamples / 40],
          means[kResamples - 1 - kResamples / 40]};
}

RetrievalFigures figures_of(const std::vector<Outcome>& outcomes) {
  RetrievalFigures out{.questions = std::ssize(outcomes)};
  std::vector<double> gold;
  double none = 0;
  for (const Outcome& o : outcomes) {
    gold.push_back(o.gold);
    out.passages += o.passages;
    out.tokens += o.tokens;
    none += o.none ? 1 : 0;
  }
  const double n = std::max<size_t>(outcomes.size(), 1);
  out.passages /= n;
  out.tokens /= n;
  out.gold = bootstrapped(gold);
  out.not_in_documents = wilson(none, outcomes.size());
  return out;
}

/// The figures of one set (or of all: -1) over one half of its questions.
RetrievalResult result_of(const std::string& name, Half half, const std::vector<Asked>& all,
                          int set, bool has_foreign) {
  std::vector<Outcome> plain;
  std::vector<Outcome> chosen;
  std::vector<Outcome> foreign;
  std::vector<double> difference;
  for (const Asked& asked : all) {
    if (set >= 0 && asked.set != set) continue;
    if (half != Half::kAll && asked.is_even != (half == Half::kEven)) continue;
    plain.push_back(asked.plain);
    chosen.push_back(asked.chosen);
    foreign.push_back(asked.foreign);
    difference.push_back(asked.chosen.gold - asked.plain.gold);
  }
  return {name,
          half,
          figures_of(plain),
          figures_of(chosen),
          bootstrapped(difference),
          has_foreign ? std::optional(figures_of(foreign)) : std::nullopt};
}

/// By what they say: the index may have merged equal passages of several examples.
std::set<PassageName> gold_of(const Example& example) {
  std::set<PassageName> gold;
  for (const EvalPassage& p : example.passages) {
    if (p.is_gold) gold.insert(name_of(p));
  }
  return gold;
}

/// Before an index is made for nothing.
Status check_gold(const std::vector<RetrievalSet>& sets) {
  for (const RetrievalSet& set : sets) {
    for (size_t i = 0; i < set.examples.size(); ++i) {
      if (std::ranges::any_of(set.examples[i].passages, &EvalPassage::is_gold)) continue;
      return invalid_argument(
          fmt::format("{}: example {}: no passage is marked as gold", set.name, i));
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<RetrievalResult>> evaluate_retrieval(
    Env& env, const text::Tokenizer& tokenizer, const std::vector<RetrievalSet>& sets,
    const RetrievalOptions& options, FunctionRef<bool(int64_t done, int64_t total)> progress) {
  WEFT_RETURN_IF_ERROR(check_gold(sets));
  retrieval::PassageOptions passage_options;
  passage_options.n_passages = options.n_passages;
  int64_t total = 0;
  for (const RetrievalSet& set : sets) total += std::ssize(set.examples);
  std::vector<Asked> all;
  const auto goes_on = [&] { return progress(std::ssize(all), total); };
  WEFT_ASSIGN_OR_RETURN(Passages everything,
                        Passages::make(env, tokenizer, sets, -1, options.folder, goes_on));
  for (int s = 0; s < std::ssize(sets); ++s) {
    std::optional<Passages> others;
    if (sets.size() > 1) {
      WEFT_ASSIGN_OR_RETURN(others,
                            Passages::make(env, tokenizer, sets, s, options.folder, goes_on));
    }
    for (size_t i = 0; i < sets[s].examples.size(); ++i) {
      if (!goes_on()) return cancelled("stopped");
      const Example& example = sets[s].examples[i];
      const std::set<PassageName> gold = gold_of(example);
      Asked asked{.set = s, .is_even = i % 2 == 0};
      WEFT_ASSIGN_OR_RETURN(const auto plain,
                            everything.index().search(example.question, options.n_passages));
      asked.plain = outcome_of(plain, gold);
      WEFT_ASSIGN_OR_RETURN(
          const auto chosen,
          retrieval::find_passages(everything.index(), example.question, passage_options));
      asked.chosen = outcome_of(chosen.hits, gold);
      if (others) {
        WEFT_ASSIGN_OR_RETURN(
            const auto foreign,
            retrieval::find_passages(others->index(), example.question, passage_options));
        asked.foreign = outcome_of(foreign.hits, gold);
      }
      all.push_back(asked);
    }
  }
  std::vector<RetrievalResult> results;
  for (int s = 0; s <= std::ssize(sets); ++s) {
    const bool is_sum = s == std::ssize(sets);
    for (const Half half : {Half::kEven, Half::kOdd, Half::kAll}) {
      RetrievalResult result =
          result_of(is_sum ? "all" : sets[s].name, half, all, is_sum ? -1 : s, sets.size() > 1);
      if (result.chosen.questions > 0) results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace weft::eval
