// weft tokenize: text from standard input to token ids; one text, or with --batch one a line.
// --batch and arrays of bytes are there for tools/compare_tokenizers.py, which compares ten
// thousand strings of every kind with other tokenizers in one process: JSON strings can hold line
// breaks, arrays what is not UTF-8.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "cli/app.h"
#include "cli/model_get.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

struct TokenizeFlags {
  std::string model;
  bool bos = false;
  bool eos = false;
  bool special = false;
  bool json = false;
  bool batch = false;
};

/// A line of --batch: a JSON string, or an array of bytes for what is not UTF-8.
/// "caf\u00e9\n" or [99, 97, 102, 195]. `number` counts from 1.
Result<std::string> text_of_line(std::string_view line, size_t number) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_string()) return json.get<std::string>();
  bool is_bytes = json.is_array();
  std::string bytes;
  for (size_t i = 0; is_bytes && i < json.size(); ++i) {
    is_bytes = json[i].is_number_unsigned() && json[i].get<uint64_t>() <= 255;
    if (is_bytes) bytes.push_back(static_cast<char>(json[i].get<uint8_t>()));
  }
  if (is_bytes) return bytes;
  return invalid_argument(fmt::format(
      "standard input, line {}: not a JSON string, nor an array of bytes (0 to 255)", number));
}

/// Each line's ids are printed as they are made: a bad line ends it after those before it.
Status tokenize_lines(const text::Tokenizer& tokenizer, text::EncodeOptions options,
                      std::string_view lines) {
  std::string out;
  for (size_t number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    WEFT_ASSIGN_OR_RETURN(const std::string text, text_of_line(lines.substr(0, end), number));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.encode(text, options));
    out = fmt::format("[{}]\n", fmt::join(tokens, ","));
    std::fwrite(out.data(), 1, out.size(), stdout);
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return Status::ok();
}

Status run_tokenize(App& app, const TokenizeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const std::string path,
                        resolve_model(app.env, flags.model, app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  WEFT_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::open(*file));
  WEFT_ASSIGN_OR_RETURN(const std::string text, read_stdin(kMaxTextBytes));
  const text::EncodeOptions options = {
      .add_bos = flags.bos, .add_eos = flags.eos, .parse_special = flags.special};
  if (flags.batch) return tokenize_lines(tokenizer, options, text);
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.encode(text, options));
  if (flags.json) {
    print_json(Json{{"tokens", tokens}});
    return Status::ok();
  }
  for (const int32_t id : tokens) {
    // As JSON, since a token may be a line break, or part of a character.
    const Json piece = std::string(tokenizer.token_bytes(id, /*show_control=*/true));
    fmt::print("{:>7}  {}\n", id, piece.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return Status::ok();
}

}  // namespace

void add_tokenize_command(Command root, App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  Command command = root.add_command("tokenize", "Turn text on standard input into token ids");
  command.add_option("-m,--model", flags->model, "GGUF file, or the name of a fetched model")
      .value_name("MODEL")
      .or_environment("WEFT_MODEL");
  command.add_flag("--bos", flags->bos, "put BOS first");
  command.add_flag("--eos", flags->eos, "put EOS last");
  command.add_flag("--special", flags->special, "control tokens in the text become those tokens");
  Flag json = command.add_flag("--json", flags->json, "print {\"tokens\":[ids]}");
  command
      .add_flag("--batch", flags->batch,
                "one text a line: JSON strings (or arrays of bytes) in, JSON arrays of ids out")
      .excludes(json);
  add_verbose_flag(command);
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_tokenize(app, *flags); }; });
}

}  // namespace weft::cli
