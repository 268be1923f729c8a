#include "eval/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft::eval {
namespace {

using Json = nlohmann::json;

// A hundred questions with their passages are about 1 MB. A file is held whole, and again as JSON
// values that take several times its bytes.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

/// The string at `key`, empty when it is missing and not `required`.
Result<std::string> string_field(const Json& object, const char* key, bool required,
                                 const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() && !required) return std::string();
  if (found == object.end() || !found->is_string()) {
    return corrupt(fmt::format("{}: '{}' is no string", where, key));
  }
  return found->get<std::string>();
}

Result<Example> read_dialogue(const Json& item, const std::string& where) {
  Example example{.question = "Summarize the dialogue.", .is_dialogue = true};
  WEFT_ASSIGN_OR_RETURN(std::string dialogue, string_field(item, "dialogue", true, where));
  WEFT_ASSIGN_OR_RETURN(std::string summary, string_field(item, "summary", true, where));
  example.passages.push_back({.title = "Dialogue", .text = std::move(dialogue), .is_gold = true});
  example.answers.push_back(std::move(summary));
  return example;
}

/// kCorrupt, with `where` first, for a field that is missing or of another type. Unknown fields are
/// let pass: the sets carry ids and scores of their own.
Result<Example> read_example(const Json& item, const std::string& where) {
  if (!item.is_object()) return corrupt(where + ": no object");
  if (!item.contains("question") && item.contains("dialogue")) return read_dialogue(item, where);
  Example example;
  WEFT_ASSIGN_OR_RETURN(example.question, string_field(item, "question", true, where));
  const auto answers = item.find("answers");
  if (answers != item.end() && answers->is_array() && answers->empty()) {
    return corrupt(where + ": 'answers' is empty");
  }
  if (answers == item.end() || !answers->is_array()) {
    return corrupt(where + ": 'answers' is no list of strings");
  }
  for (const Json& answer : *answers) {
    if (!answer.is_string()) return corrupt(where + ": 'answers' is no list of strings");
    example.answers.push_back(answer.get<std::string>());
  }
  const auto passages = item.find("ctxs");
  if (passages != item.end() && passages->is_array() && passages->empty()) {
    return corrupt(where + ": 'ctxs' is empty");
  }
  if (passages == item.end() || !passages->is_array()) {
    return corrupt(where + ": 'ctxs' is no list of passages");
  }
  for (const Json& passage : *passages) {
    if (!passage.is_object()) return corrupt(where + ": 'ctxs' is no list of passages");
    EvalPassage p;
    WEFT_ASSIGN_OR_RETURN(p.title, string_field(passage, "title", false, where));
    WEFT_ASSIGN_OR_RETURN(p.text, string_field(passage, "text", true, where));
    if (const auto gold = passage.find("gold"); gold != passage.end()) {
      if (!gold->is_boolean()) return corrupt(where + ": 'gold' is not true or false");
      p.is_gold = gold->get<bool>();
    }
    // Wikipedia's titles as they come in SQuAD: "Super_Bowl_50".
    std::replace(p.title.begin(), p.title.end(), '_', ' ');
    example.passages.push_back(std::move(p));
  }
  return example;
}

}  // namespace

Result<std::vector<Example>> read_dataset(Env& env, const std::string& path, int64_t limit) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, read_file(env, path, kMaxFileBytes));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return corrupt(path + ": not valid JSON");
  if (!json.is_array()) return corrupt(path + ": no list of examples");
  if (json.empty()) return corrupt(path + ": an empty list of examples");
  std::vector<Example> examples;
  for (const Json& item : json) {
    if (limit > 0 && std::ssize(examples) == limit) break;
    WEFT_ASSIGN_OR_RETURN(Example example,
                          read_example(item, fmt::format("{}: example {}", path, examples.size())));
    examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace weft::eval
