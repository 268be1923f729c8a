#include "cli/batch_requests.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/terminal_text.h"

namespace weft::cli {
namespace {

using Json = nlohmann::json;

/// A value as an error shows it.
std::string shown(const Json& value) {
  constexpr size_t kMostShownBytes = 80;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMostShownBytes) text = text.substr(0, kMostShownBytes) + "...";
  return text;
}

Status wrong(const char* key, const Json& value, std::string_view expected) {
  return invalid_argument(fmt::format("\"{}\" {}: must be {}", key, shown(value), expected));
}

/// A whole number of any JSON spelling that fits T and lies in [least, most].
template <class T>
Status read_integer(const char* key, const Json& value, T least, T most, std::string_view expected,
                    T& out) {
  bool fits = false;
  if (value.is_number_unsigned()) {
    const auto n = value.get<uint64_t>();
    fits = std::cmp_greater_equal(n, least) && std::cmp_less_equal(n, most);
    out = static_cast<T>(n);
  } else if (value.is_number_integer()) {
    const auto n = value.get<int64_t>();
    fits = std::cmp_greater_equal(n, least) && std::cmp_less_equal(n, most);
    out = static_cast<T>(n);
  }
  return fits ? Status::ok() : wrong(key, value, expected);
}

template <class Fits>
Status read_number(const char* key, const Json& value, std::string_view expected, float& out,
                   Fits fits) {
  if (!value.is_number()) return wrong(key, value, expected);
  const auto x = value.get<double>();
  if (!(std::fabs(x) <= double{std::numeric_limits<float>::max()}) || !fits(x)) {
    return wrong(key, value, expected);
  }
  out = static_cast<float>(x);
  return Status::ok();
}

Status read_stops(const Json& value, std::vector<std::string>& stops) {
  constexpr const char* kExpected = "a text or a list of texts";
  if (value.is_string()) {
    stops = {value.get<std::string>()};
    return Status::ok();
  }
  if (!value.is_array()) return wrong("stop", value, kExpected);
  stops.clear();
  for (const Json& one : value) {
    if (!one.is_string()) return wrong("stop", value, kExpected);
    stops.push_back(one.get<std::string>());
  }
  return Status::ok();
}

Status read_key(const std::string& key, const Json& value, int32_t most_tokens, BatchLine& out) {
  constexpr auto kMostInt = std::numeric_limits<int32_t>::max();
  constexpr auto kMostSeed = std::numeric_limits<uint64_t>::max();
  sampling::SamplingOptions& sampling = out.options.sampling;
  const auto is_share = [](double x) { return x >= 0 && x <= 1; };
  if (key == "prompt") {
    if (!value.is_string()) return wrong("prompt", value, "a text");
    out.prompt = value.get<std::string>();
    return Status::ok();
  }
  if (key == "raw") {
    if (!value.is_boolean()) return wrong("raw", value, "true or false");
    out.raw = value.get<bool>();
    return Status::ok();
  }
  if (key == "n") {
    WEFT_RETURN_IF_ERROR(read_integer<int32_t>(
        "n", value, -1, most_tokens,
        fmt::format("a whole number from 1 to {}, or -1 (no limit)", most_tokens),
        out.options.max_tokens));
    return out.options.max_tokens == 0 ? wrong("n", value, "1 or more, or -1 (no limit)")
                                       : Status::ok();
  }
  if (key == "temp") {
    return read_number("temp", value, "a number from 0 (greedy)", sampling.temperature,
                       [](double x) { return x >= 0; });
  }
  if (key == "top_k") {
    return read_integer<int32_t>("top_k", value, 0, kMostInt, "a whole number from 0 (all)",
                                 sampling.top_k);
  }
  if (key == "top_p") {
    return read_number("top_p", value, "a number over 0 and at most 1 (all)", sampling.top_p,
                       [&](double x) { return is_share(x) && static_cast<float>(x) > 0; });
  }
  if (key == "min_p") {
    return read_number("min_p", value, "a number from 0 (all) to 1", sampling.min_p, is_share);
  }
  if (key == "seed") {
    return read_integer<uint64_t>("seed", value, 0, kMostSeed,
                                  fmt::format("a whole number from 0 to {}", kMostSeed),
                                  sampling.seed);
  }
  if (key == "stop") return read_stops(value, out.options.stops);
  return invalid_argument(fmt::format(
      "no key {}; there are prompt, n, temp, top_k, top_p, min_p, seed, stop, raw", shown(key)));
}

}  // namespace

Result<BatchLine> parse_batch_line(std::string_view line, const BatchLine& defaults,
                                   int32_t most_tokens) {
  if (line.size() > kMaxBatchLineBytes) {
    return resource_exhausted(
        fmt::format("{} bytes: a line has {} at most", line.size(), kMaxBatchLineBytes));
  }
  // Depth costs the parser's destructor its stack; a request is no deeper than a list in an object.
  constexpr int kMostDepth = 4;
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kMostDepth; };
  const Json json = Json::parse(line, shallow, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return invalid_argument(
        "no JSON object: a line is {\"prompt\": \"...\"}, and what else it sets");
  }
  BatchLine out = defaults;
  bool has_prompt = false;
  for (const auto& [key, value] : json.items()) {
    WEFT_RETURN_IF_ERROR(read_key(key, value, most_tokens, out));
    has_prompt = has_prompt || key == "prompt";
  }
  if (!has_prompt) return invalid_argument("\"prompt\" is missing");
  WEFT_RETURN_IF_ERROR(engine::check_options(out.options));
  return out;
}

}  // namespace weft::cli
