// A request is read by nlohmann's SAX parser and not made a tree first: a tree takes sixteen times
// the bytes of a line such as [[[[..., and a line may have 64 MiB. What is read goes straight into
// the request, the first thing that is wrong ends it, and nothing nests: a line is flat, but for
// the list of "stop".
//
// A line is one object of the words that the flags have, with the flags' ranges and defaults. Files
// that were written for an OpenAI or llama.cpp server have other keys; these are not taken
// silently: the error names the key that is meant (kElsewhere).
#include "cli/batch_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/narrow.h"
#include "base/utf8.h"
#include "engine/stop_texts.h"

namespace weft::cli {
namespace {

using Json = nlohmann::json;

/// What other programs' requests call a key.
struct Alias {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Alias kElsewhere[] = {{"max_tokens", "n"},     {"max_completion_tokens", "n"},
                                {"n_predict", "n"},      {"num_predict", "n"},
                                {"temperature", "temp"}, {"messages", "prompt"},
                                {"content", "prompt"},   {"input", "prompt"}};

constexpr std::string_view kLineForm = "a line is {\"prompt\": \"...\"}, and what else it sets";

/// `at` counts bytes from 1, as the parser does.
Status not_json(size_t at) {
  return invalid_argument(fmt::format("byte {}: not valid JSON; {}", at, kLineForm));
}

/// A value as an error shows it.
/// Cut between characters and not within one: the error is printed as UTF-8.
std::string shown(const Json& value) {
  constexpr size_t kMostShownBytes = 80;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kMostShownBytes) return text;
  text.resize(kMostShownBytes);
  text.resize(text.size() - utf8_unfinished_bytes(text));
  return text + "...";
}

Status wrong(const char* key, const Json& value, std::string_view expected) {
  return invalid_argument(fmt::format("\"{}\" {}: must be {}", key, shown(value), expected));
}

/// A number without point and exponent that fits T and lies in [least, most].
template <class T>
/// 5.0 and 5e0 are no integers here, as on the command line. JSON's numbers are read as uint64_t or
/// int64_t by nlohmann, whichever holds them, hence two cases: a seed may be 2^64 - 1, an n -1.
Status read_integer(const char* key, const Json& value, T least, T most, std::string_view expected,
                    T& out) {
  bool fits = false;
  if (value.is_number_unsigned()) {
    const auto n = value.get<uint64_t>();
    fits = std::cmp_greater_equal(n, least) && std::cmp_less_equal(n, most);
    if (fits) out = narrow<T>(n);
  } else if (value.is_number_integer()) {
    const auto n = value.get<int64_t>();
    fits = std::cmp_greater_equal(n, least) && std::cmp_less_equal(n, most);
    if (fits) out = narrow<T>(n);
  }
  return fits ? Status::ok() : wrong(key, value, expected);
}

template <class Fits>
/// The range is looked at in double and the value stored as float: 1e39 must be an error, not
/// infinity, and the comparison is written so that NaN, of which no JSON knows but a parser might,
/// fails it.
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
    return engine::check_stop_texts(stops);
  }
  if (!value.is_array()) return wrong("stop", value, kExpected);
  stops.clear();
  for (const Json& one : value) {
    if (!one.is_string()) return wrong("stop", value, kExpected);
    stops.push_back(one.get<std::string>());
  }
  return engine::check_stop_texts(stops);
}

/// The order is that of docs/cli.md. A key that is not known is an error, since "tempp" would else
/// be silently taken for nothing; the line then lists all that there are.
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
  if (key == "cache_salt") {
    if (!value.is_string()) return wrong("cache_salt", value, "a text");
    out.cache_salt = value.get<std::string>();
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
    return read_number("temp", value, "a number from 0 (greedy) to 3.4e38", sampling.temperature,
                       [](double x) { return x >= 0; });
  }
  if (key == "top_k") {
    return read_integer<int32_t>("top_k", value, 0, kMostInt, "a whole number from 0 (all)",
                                 sampling.top_k);
  }
  if (key == "top_p") {
    // 1e-50 is over 0 as a double and 0 as the float that it becomes: "over 0" is about the latter.
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
  const auto meant = std::ranges::find(kElsewhere, key, &Alias::theirs);
  return invalid_argument(fmt::format(
      "no key {}; {}there are prompt, n, temp, top_k, top_p, min_p, seed, stop, raw, "
      "cache_salt",
      shown(key),
      meant == std::end(kElsewhere) ? "" : fmt::format("\"{}\" is meant; ", meant->ours)));
}

/// Reads a line as the parser goes through it, and stops at the first thing that is wrong: a tree
/// of all that a hostile line says may take sixteen times its bytes.
class LineReader : public nlohmann::json_sax<Json> {
 public:
  LineReader(BatchLine& out, int32_t most_tokens) : out_(out), most_tokens_(most_tokens) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool b) override { return put(b); }
  bool number_integer(number_integer_t i) override { return put(i); }
  bool number_unsigned(number_unsigned_t u) override { return put(u); }
  bool number_float(number_float_t x, const string_t&) override { return put(x); }
  bool string(string_t& text) override { return put(std::move(text)); }
  bool binary(binary_t&) override { return false; }

  /// The first one is the request; one inside is handed to read_key as an empty object, so that the
  /// error names the key.
  bool start_object(size_t) override {
    if (is_inside_) return put(Json::object());  // no key takes one
    return is_inside_ = true;
  }
  bool key(string_t& text) override {
    key_ = std::move(text);
    has_prompt_ = has_prompt_ || key_ == "prompt";
    return true;
  }
  bool end_object() override { return true; }
  /// A list is gathered under "stop" alone; elsewhere, and inside that list, it is a wrong value.
  bool start_array(size_t) override {
    if (list_ || key_ != "stop") return put(Json::array());  // it is not to be there
    list_ = Json::array();
    return true;
  }
  bool end_array() override {
    const Json list = *std::exchange(list_, std::nullopt);
    return put(list);
  }
  bool parse_error(size_t at, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;
    status_ = error.id == kNumberOutOfRange
                  ? invalid_argument(fmt::format("byte {}: a number that is too large", at))
                  : not_json(at);
    return false;
  }

  Status status() const {
    if (!status_.is_ok() || has_prompt_) return status_;
    return invalid_argument("\"prompt\" is missing");
  }

 private:
  /// All values come through here. A list is cut off at the number of stop texts that a request may
  /// have: a line of a million of them ends at the 65th.
  bool put(Json value) {
    if (!is_inside_) {
      status_ = invalid_argument(fmt::format("no JSON object; {}", kLineForm));
    } else if (list_ && list_->size() == engine::kMaxStopTexts) {
      status_ =
          invalid_argument(fmt::format("\"stop\": more than {} texts", engine::kMaxStopTexts));
    } else if (list_) {
      list_->push_back(value);
      // Fails at once, and shows the list up to the value that is wrong.
      if (!value.is_string()) status_ = read_key(key_, *list_, most_tokens_, out_);
    } else {
      status_ = read_key(key_, value, most_tokens_, out_);
    }
    return status_.is_ok();
  }

  BatchLine& out_;
  int32_t most_tokens_;
  bool is_inside_ = false;
  bool has_prompt_ = false;
  std::string key_;
  // Of "stop", while it is open.
  std::optional<Json> list_;
  Status status_;
};

}  // namespace

Result<BatchLine> parse_batch_line(std::string_view line, const BatchLine& defaults,
                                   int32_t most_tokens) {
  if (line.size() > kMaxBatchLineBytes) {
    return resource_exhausted(
        fmt::format("{} bytes: a line has {} at most", line.size(), kMaxBatchLineBytes));
  }
  // The parser takes one for the end of the text, whatever follows it.
  const size_t nul = line.find('\0');
  if (nul != std::string_view::npos) return not_json(nul + 1);
  BatchLine out = defaults;
  LineReader reader(out, most_tokens);
  // Its own result says no more than the reader's status does.
  Json::sax_parse(line, &reader);
  WEFT_RETURN_IF_ERROR(reader.status());
  // All of it together, as the command line's flags are checked.
  WEFT_RETURN_IF_ERROR(engine::check_options(out.options));
  return out;
}

}  // namespace weft::cli
