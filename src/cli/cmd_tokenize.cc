// weft tokenize: text from standard input to token ids.
#include <fmt/format.h>

#include "cli/app.h"
#include "cli/model_get.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

struct TokenizeFlags {
  std::string model;
  bool bos = false;
  bool special = false;
  bool json = false;
};

Status run_tokenize(App& app, const TokenizeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const std::string path,
                        resolve_model(app.env, flags.model, app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  WEFT_ASSIGN_OR_RETURN(text::VocabData vocab, text::read_vocab(*file));
  WEFT_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::create(std::move(vocab)));
  WEFT_ASSIGN_OR_RETURN(const std::string text, read_stdin(kMaxTextBytes));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<int32_t> tokens,
      tokenizer.encode(text, {.add_bos = flags.bos, .parse_special = flags.special}));
  if (flags.json) {
    print_json(Json{{"tokens", tokens}});
    return Status::ok();
  }
  for (const int32_t id : tokens) {
    const Json piece = std::string(tokenizer.token_bytes(id, /*show_control=*/true));
    fmt::print("{:>7}  {}\n", id, piece.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return Status::ok();
}

}  // namespace

void add_tokenize_command(CLI::App& root, App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = root.add_subcommand("tokenize", "Turn text on standard input into token ids");
  command->add_option("-m,--model", flags->model, "GGUF file, or the name of a fetched model")
      ->required();
  command->add_flag("--bos", flags->bos, "put BOS first");
  command->add_flag("--special", flags->special, "control tokens in the text become those tokens");
  command->add_flag("--json", flags->json, "print {\"tokens\":[ids]}");
  command->callback(
      [flags, &app] { app.run = [flags, &app] { return run_tokenize(app, *flags); }; });
}

}  // namespace weft::cli
