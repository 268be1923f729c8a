// weft template: a conversation from standard input to the prompt that a chat template makes of it.
// For looking at what a model is really given, and for tools/compare_templates.py, which compares
// it with jinja2's: --as-given, --now and --bos are there so that both render the same.
// docs/templates.md has the language and its limits.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "cli/app.h"
#include "cli/model_get.h"
#include "text/chat_template.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxConversationBytes = uint64_t{64} << 20;

struct TemplateFlags {
  std::string model;
  std::string file;
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  std::string now;
  bool no_generation_prompt = false;
  bool as_given = false;
  bool json = false;
};

/// A template with what it may name.
struct Source {
  std::string name;  // for messages
  std::string text;
  text::ChatTemplateOptions options;
};

/// Reads the metadata and the vocabulary's special tokens; no weights, so it works on a file of a
/// vocabulary alone.
Result<Source> source_of_model(App& app, const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(const std::string path, resolve_model(app.env, model, app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  const auto text = file->get_string("tokenizer.chat_template");
  if (!text.is_ok() && text.status().code() == StatusCode::kNotFound) {
    return not_found(path + ": the model has no chat template");
  }
  if (!text.is_ok()) return text.status();
  WEFT_ASSIGN_OR_RETURN(const text::VocabData vocab, text::read_vocab(*file));
  const auto token = [&](int32_t id) {
    return id == text::kNoToken ? std::string() : vocab.tokens[id];
  };
  Source source{path, std::string(*text), {}};
  source.options.bos = token(vocab.bos_id);
  source.options.eos = token(vocab.eos_id);
  return source;
}

/// $WEFT_MODEL counts only where neither -m nor a FILE is given: a file that is named must not be
/// passed over for a variable.
Result<Source> read_source(App& app, const TemplateFlags& flags) {
  if (!flags.model.empty()) return source_of_model(app, flags.model);
  if (flags.file.empty() && !app.default_model.empty()) {
    return source_of_model(app, app.default_model);
  }
  if (flags.file.empty()) {
    return invalid_argument(
        "no template: name a model with -m or in WEFT_MODEL, or a file; see weft template --help");
  }
  WEFT_ASSIGN_OR_RETURN(std::string text, read_file(app.env, flags.file, kMaxTemplateBytes));
  return Source{flags.file, std::move(text), {}};
}

/// "2026-03-09T14:05:07" or "2026-03-09".
/// strptime takes a 31st of February; timegm makes the 3rd of March of it, whose weekday is then
/// the one that strftime prints.
Result<std::tm> parse_time(const std::string& text) {
  std::tm time{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%d", &time);
  if (rest != nullptr && *rest != '\0') rest = strptime(rest, "T%H:%M:%S", &time);
  if (rest == nullptr || *rest != '\0') {
    return invalid_argument("--now " + text + ": must be YYYY-MM-DD or YYYY-MM-DDThh:mm:ss");
  }
  std::tm whole = time;
  if (timegm(&whole) == -1) return invalid_argument("--now " + text + ": no such time");
  time.tm_wday = whole.tm_wday;
  time.tm_yday = whole.tm_yday;
  return time;
}

/// Which text is the template's, and so may become control tokens, and which is from the input.
void print_segments(const std::vector<text::Segment>& segments) {
  Json list = Json::array();
  for (const text::Segment& segment : segments) {
    list.push_back({{"text", segment.text}, {"from_input", !segment.special}});
  }
  print_json({{"segments", std::move(list)}});
}

/// What is wrong with a template or a conversation is no wrong usage.
/// kInvalidArgument would end with status 2 and read as a fault of the flags.
Status at(const std::string& where, const Status& status) {
  const bool usage = status.code() == StatusCode::kInvalidArgument;
  return {usage ? StatusCode::kUnsupported : status.code(), where + ": " + status.message()};
}

Status run_template(App& app, const TemplateFlags& flags) {
  std::tm now = local_time();
  if (!flags.now.empty()) {
    WEFT_ASSIGN_OR_RETURN(now, parse_time(flags.now));
  }
  WEFT_ASSIGN_OR_RETURN(Source source, read_source(app, flags));
  if (flags.bos) source.options.bos = *flags.bos;
  if (flags.eos) source.options.eos = *flags.eos;
  source.options.now = now;
  const auto chat = text::ChatTemplate::compile(source.text, std::move(source.options));
  if (!chat.is_ok()) return at(source.name, chat.status());

  WEFT_ASSIGN_OR_RETURN(const std::string json, read_stdin(kMaxConversationBytes));
  const auto conversation = text::parse_conversation(json);
  if (!conversation.is_ok()) return at("standard input", conversation.status());
  const bool generation =
      !flags.no_generation_prompt && conversation->add_generation_prompt.value_or(true);
  const auto adapt =
      flags.as_given ? text::ChatTemplate::Adapt::kNo : text::ChatTemplate::Adapt::kToTemplate;
  const auto segments = chat->render(*conversation, generation, adapt);
  if (!segments.is_ok()) return at(source.name, segments.status());
  if (flags.json) {
    print_segments(*segments);
    return Status::ok();
  }
  for (const text::Segment& segment : *segments) {
    std::fwrite(segment.text.data(), 1, segment.text.size(), stdout);
  }
  return Status::ok();
}

}  // namespace

void add_template_command(Command root, App& app) {
  auto flags = std::make_shared<TemplateFlags>();
  Command command = root.add_command(
      "template", "Write a conversation from standard input (JSON) as a chat template does");
  command
      .add_option("-m,--model", flags->model,
                  "the model whose template it is (or $WEFT_MODEL, without a FILE)")
      .value_name("MODEL");
  command.add_option("FILE", flags->file, "a file that holds a template, where no model is named")
      .value_name("FILE")
      .excludes(command.get_option("-m"));
  command.add_flag("--no-generation-prompt", flags->no_generation_prompt,
                   "end where the conversation ends");
  command
      .add_option("--bos", flags->bos,
                  "text of BOS, '' for none (default: the model's; none for a FILE)")
      .may_be_empty();
  command
      .add_option("--eos", flags->eos,
                  "text of EOS, '' for none (default: the model's; none for a FILE)")
      .may_be_empty();
  command.add_option("--now", flags->now, "the time to print, as 2026-03-09T14:05:07");
  command.add_flag("--as-given", flags->as_given,
                   "adapt nothing to the template: just what transformers would do");
  command.add_flag("--json", flags->json, "print {\"segments\":[{\"text\",\"from_input\"}]}");
  add_verbose_flag(command);
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_template(app, *flags); }; });
}

}  // namespace weft::cli
