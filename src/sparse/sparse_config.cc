// yaml-cpp throws, and its nodes throw again when they are read as what they are not: both end
// here.
#include "sparse/sparse_config.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <set>
#include <sstream>

#include "base/parse_number.h"
#include "base/terminal_text.h"

namespace weft::sparse {
namespace {

/// "FILE: line 3: ".
std::string place_of(const std::string& name, const YAML::Mark& mark) {
  return mark.is_null() ? name + ": " : fmt::format("{}: line {}: ", name, mark.line + 1);
}

Status wrong(const std::string& name, const YAML::Node& node, const std::string& what) {
  return invalid_argument(place_of(name, node.Mark()) + what);
}

/// Of a key or a value in an error: what is not a scalar has no text.
std::string text_of(const YAML::Node& node) {
  constexpr size_t kShown = 40;
  if (node.IsNull()) return "(nothing)";
  return node.IsScalar() ? terminal_text(one_line(node.Scalar().substr(0, kShown)))
                         : "(a list or a map)";
}

/// In quotes, or with a tag, it is a text, whatever is in it.
const char* if_a_text(const YAML::Node& value) {
  return value.IsScalar() && value.Tag() != "?" ? ", without quotes and tags" : "";
}

template <class T>
bool read_number(const YAML::Node& value, T& number) {
  return value.IsScalar() && value.Tag() == "?" && parse_number(value.Scalar(), number);
}

/// A whole number from `least` on.
Status read_count(const std::string& name, const YAML::Node& key, const YAML::Node& value,
                  int32_t least, int32_t& count) {
  constexpr int32_t kMost = 1 << 20;
  int32_t n = 0;
  if (!read_number(value, n) || n < least || n > kMost) {
    return wrong(name, value,
                 fmt::format("{} {}: must be a whole number from {} to {}{}", key.Scalar(),
                             text_of(value), least, kMost, if_a_text(value)));
  }
  count = n;
  return Status::ok();
}

Status read_key(const std::string& name, const YAML::Node& key, const YAML::Node& value,
                SparseOptions& options) {
  const std::string& word = key.Scalar();
  if (word == "checkpoint_interval") {
    return read_count(name, key, value, 1, options.lock.interval_tokens);
  }
  if (word == "lock_duration") {
    return read_count(name, key, value, 1, options.lock.duration_tokens);
  }
  if (word == "update_threshold") {
    return read_count(name, key, value, 0, options.lock.update_threshold);
  }
  if (word == "base_method") {
    const auto policy = value.IsScalar() ? kPolicies.find(value.Scalar()) : std::nullopt;
    // What is drawn for one query is not kept for others, and the file always says a lock.
    const auto can_lock = [](Policy one) {
      return one != Policy::kDense && one != Policy::kLabelsSample;
    };
    if (!policy || !can_lock(*policy)) {
      std::vector<std::string> choosing;
      for (const auto& one : kPolicies) {
        if (can_lock(one.value)) choosing.push_back(one.name);
      }
      return wrong(name, value,
                   fmt::format("base_method {}: must be a policy whose choice can be kept: {}",
                               text_of(value), listed(choosing)));
    }
    options.policy = *policy;
    return Status::ok();
  }
  if (word == "sparse_ratio") {
    double ratio = 0;
    if (!read_number(value, ratio) || !(ratio > 0 && ratio <= 1)) {
      return wrong(name, value,
                   fmt::format("sparse_ratio {}: must be a number over 0 and at most 1{}",
                               text_of(value), if_a_text(value)));
    }
    options.ratio = ratio;
    return Status::ok();
  }
  return wrong(name, key,
               fmt::format("{}: no such key; kvstar has base_method, checkpoint_interval, "
                           "lock_duration, update_threshold and sparse_ratio",
                           text_of(key)));
}

/// Looks at nothing.
class NoHandler : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// YAML::LoadAll would say, too, but finds documents without end in ", a: b" (yaml-cpp 0.7), each
/// of which takes memory.
bool has_one_document(std::string_view yaml) {
  std::istringstream stream{std::string(yaml)};
  YAML::Parser parser(stream);
  NoHandler handler;
  return parser.HandleNextDocument(handler) && !parser.HandleNextDocument(handler);
}

Result<SparseOptions> read_config(std::string_view yaml, const std::string& name) {
  const std::string form = "must hold one map of the name kvstar, as kvstar: {base_method: gsa}";
  if (!has_one_document(yaml)) {
    return invalid_argument(fmt::format("{}: {}, in one document", name, form));
  }
  const YAML::Node root = YAML::Load(std::string(yaml));
  if (!root.IsMap() || root.size() == 0) return wrong(name, root, form);
  for (const auto& pair : root) {
    if (pair.first.IsScalar() && pair.first.Scalar() == "kvstar") continue;
    return wrong(name, pair.first, fmt::format("{}: {}", text_of(pair.first), form));
  }
  const YAML::Node kvstar = root.begin()->second;
  if (root.size() != 1 || !kvstar.IsMap()) return wrong(name, kvstar, form);
  SparseOptions options{.policy = Policy::kGsa, .ratio = 0.3};
  options.lock.interval_tokens = 8;
  std::set<std::string> seen;
  for (const auto& pair : kvstar) {
    const YAML::Node &key = pair.first, &value = pair.second;
    if (!key.IsScalar()) return wrong(name, key, "a key of kvstar must be a word");
    if (!seen.insert(key.Scalar()).second) {
      return wrong(name, key, fmt::format("{} is there twice", text_of(key)));
    }
    WEFT_RETURN_IF_ERROR(read_key(name, key, value, options));
  }
  if (!seen.contains("lock_duration")) {
    options.lock.duration_tokens = usual_duration(options.lock.interval_tokens);
  }
  if (options.lock.duration_tokens <= options.lock.interval_tokens) {
    return wrong(
        name, kvstar,
        fmt::format("lock_duration {} is not more than checkpoint_interval {}: nothing would "
                    "ever be compared",
                    options.lock.duration_tokens, options.lock.interval_tokens));
  }
  return options;
}

}  // namespace

Result<SparseOptions> parse_sparse_config(std::string_view yaml, const std::string& name) {
  if (yaml.size() > kMostConfigBytes) {
    return invalid_argument(fmt::format("{}: has more than {} bytes", name, kMostConfigBytes));
  }
  try {
    return read_config(yaml, name);
  } catch (const YAML::Exception& error) {
    return invalid_argument(place_of(name, error.mark) +
                            "no YAML: " + terminal_text(one_line(error.msg)));
  }
}

}  // namespace weft::sparse
