// weft chat: with whom the terminal (chat_terminal.h) talks, a model alone or one over documents,
// and what the conversation begins with.
// `weft chat`, `weft chat --store` and `weft ask -i` end in the same terminal and differ in whom it
// talks with. What is said at the beginning is in this order: first what is wrong with files (a
// --save that would replace another conversation), then with flags, then the model is opened, which
// takes longest, then what was loaded is compared with what the model can do.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/narrow.h"
#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/chat.h"
#include "cli/chat_file.h"
#include "cli/chat_terminal.h"
#include "cli/document_talk.h"
#include "cli/draft_flags.h"
#include "cli/local_models.h"
#include "cli/session_flag.h"
#include "cli/sparse_flags.h"
#include "cli/talk.h"
#include "cli/unfinished.h"
#include "engine/chat_session.h"
#include "engine/session.h"

namespace weft::cli {
namespace {

/// A conversation goes on more freely and longer than one answer, so its defaults differ from
/// generate's: temperature 0.8 and 1024 tokens. Over documents they are generate's again.
struct ChatFlags {
  ModelFlags model;
  std::optional<std::string> system;
  std::string load;
  std::string save;
  std::string session;
  engine::GenerationOptions generation{.sampling = {.temperature = 0.8f}, .max_tokens = 1024};
  ShiftFlags shift;
  DocumentFlags documents;  // where they name a store
};

/// A model alone.
/// Hands everything to the session; it has no sources to show and asks about nothing.
class ModelTalk : public Talk {
 public:
  explicit ModelTalk(engine::ChatSession& session) : session_(session) {}
  Result<engine::ChatAnswer> say(std::string text, const engine::GenerationOptions& options,
                                 const engine::ChatCallbacks& callbacks) override {
    return session_.say(std::move(text), options, callbacks);
  }
  Result<engine::ChatAnswer> regenerate(const engine::GenerationOptions& options,
                                        const engine::ChatCallbacks& callbacks) override {
    return session_.regenerate(options, callbacks);
  }
  bool undo() override { return session_.undo(); }
  void clear() override { session_.clear(); }
  Status set_system(std::optional<std::string> text) override {
    return session_.set_system(std::move(text));
  }
  Status set_turns(std::vector<text::Turn> turns) override {
    return session_.set_turns(std::move(turns));
  }
  std::vector<text::Turn> turns() const override { return session_.turns(); }
  int32_t dropped_turns() const override { return session_.dropped_turns(); }
  int32_t held_tokens() const override {
    return narrow<int32_t>(std::ssize(session_.held_tokens()));
  }
  int64_t shifted_tokens() const override { return session_.shifted_tokens(); }

 private:
  engine::ChatSession& session_;
};

ChatTerminalOptions terminal_options(const ChatFlags& flags) {
  return {.generation = flags.generation,
          .load = flags.load,
          .save = flags.save,
          .verbose = flags.model.verbose};
}

const char* what_s_replaces(const ChatFlags& flags, const std::vector<text::Turn>& turns) {
  if (!flags.system) return "";
  const bool has_system = !turns.empty() && turns.front().role == text::Role::kSystem;
  return has_system ? "; -s takes the place of its system turn" : "; -s adds a system turn";
}

/// A conversation is not lost to another one, and a file that cannot be written is said now.
/// Tries it, by beginning to write the file: missing rights and a missing folder show there and
/// nowhere before. `--load a.json --save a.json` goes on with one file, whatever way the two names
/// take there (equivalent() follows links).
Status check_save(App& app, const ChatFlags& flags) {
  if (flags.save.empty()) return Status::ok();
  std::error_code ignored;
  const bool goes_on = std::filesystem::equivalent(flags.save, flags.load, ignored);
  const auto written = AtomicFile::create(app.env, flags.save, conversation_options(goes_on));
  if (written.is_ok()) return Status::ok();  // it goes without a commit, and leaves nothing
  if (written.status().code() == StatusCode::kAlreadyExists) {
    return invalid_argument(fmt::format(
        "--save {}: the file exists; go on with it by --load, or name another one", flags.save));
  }
  return {written.status().code(),
          fmt::format("--save {}: {}", flags.save, written.status().message())};
}

/// Loads --load's conversation and sets -s's system turn.
/// The loaded turns come before -s: it replaces the system turn that they have.
Result<Beginning> begin(App& app, const ChatFlags& flags, Talk& talk) {
  Beginning out;
  if (!flags.load.empty()) {
    WEFT_ASSIGN_OR_RETURN(LoadedConversation loaded, load_conversation(app.env, flags.load));
    if (const Status set = talk.set_turns(std::move(loaded.turns)); !set.is_ok()) {
      return corrupt(flags.load + ": " + set.message());
    }
    out.loaded = loaded.content;
    const std::vector<text::Turn> turns = talk.turns();
    out.note = loaded_line(turns, what_s_replaces(flags, turns));
  }
  if (flags.system) WEFT_RETURN_IF_ERROR(talk.set_system(flags.system));
  return out;
}

/// What there is for -m. The first of several models is nobody's choice, so none is taken unasked.
std::string models_to_name(App& app) {
  const auto models = list_models(app.env, app.models_dir);
  if (!models.is_ok() || models->empty()) return "weft model get fetches one";
  std::string names;
  for (const LocalModel& model : *models) names += " " + one_line(model.name);
  return "there are:" + names;
}

/// The conversation of --session's file, where there is one, and how it is kept there.
/// `stamp`: what the file holds; it must live as long as the options.
Result<Beginning> begin_session(engine::ChatSession& session, engine::Engine& engine,
                                const engine::SavedSession* saved, const ChatFlags& flags,
                                std::optional<kv::SessionStamp>& stamp,
                                ChatTerminalOptions& options) {
  Beginning out;
  if (saved != nullptr) {
    WEFT_RETURN_IF_ERROR(of_session(session.resume(*saved), flags.session));
    stamp = saved->file().stamp();
    const std::vector<text::Turn> turns = session.turns();
    out.note = loaded_line(turns, what_s_replaces(flags, turns));
  }
  options.session = flags.session;
  options.keep_session = [&session, &engine, &stamp,
                          path = flags.session](const sampling::SamplingOptions& sampling) {
    engine::Session now = session.session();
    now.sampling = sampling;
    return engine::SavedSession::save(engine, path, now, session.sequence(), stamp);
  };
  if (flags.system) WEFT_RETURN_IF_ERROR(session.set_system(flags.system));
  return out;
}

/// Ctrl-C ends the program while the model is being opened, as anywhere, and from
/// outlive_interrupts() on only an answer.
Status run_chat(App& app, ChatFlags flags, Command command) {
  if (flags.model.model.empty()) {
    return invalid_argument(fmt::format("--model MODEL is missing, and WEFT_MODEL is not set; {}",
                                        models_to_name(app)));
  }
  WEFT_RETURN_IF_ERROR(check_save(app, flags));
  WEFT_RETURN_IF_ERROR(engine::check_options(flags.generation));
  std::unique_ptr<engine::SavedSession> saved;
  if (!flags.session.empty()) {
    WEFT_ASSIGN_OR_RETURN(saved, open_session(app, flags.session, engine::SessionKind::kChat));
    if (saved != nullptr) take_compute(*saved, flags.model);
  }
  flags.model.rolls_windows = flags.session.empty() && !flags.generation.shift.is_on();
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  if (saved != nullptr) {
    WEFT_RETURN_IF_ERROR(of_session(saved->check_engine(*engine), flags.session));
    flags.generation.sampling =
        with_given_flags(command, flags.generation.sampling, saved->session().sampling);
  }
  auto session = engine::ChatSession::open(*engine);
  if (!session.is_ok() && session.status().code() == StatusCode::kNotFound) {
    return not_found(fmt::format(
        "{}: a base model, without a chat template: weft generate --raw continues a text with it, "
        "weft ask and weft chat --store answer over documents",
        engine->model().file().path()));
  }
  if (!session.is_ok()) return session.status();
  ModelTalk talk(**session);
  ChatTerminalOptions options = terminal_options(flags);
  std::optional<kv::SessionStamp> stamp;
  WEFT_ASSIGN_OR_RETURN(Beginning beginning, flags.session.empty()
                                                 ? begin(app, flags, talk)
                                                 : begin_session(**session, *engine, saved.get(),
                                                                 flags, stamp, options));
  saved.reset();
  outlive_interrupts();
  return talk_on_terminal(app, options, *engine, talk, std::move(beginning));
}

Status run_over_documents(App& app, ChatFlags flags, std::optional<std::string> question) {
  const std::string& dir = flags.documents.library.dir;
  WEFT_RETURN_IF_ERROR(check_document_flags(flags.documents));
  WEFT_RETURN_IF_ERROR(check_save(app, flags));
  WEFT_RETURN_IF_ERROR(engine::check_options(flags.generation));
  if (flags.model.model.empty()) {
    WEFT_ASSIGN_OR_RETURN(flags.model.model, model_of_store(app.env, dir, app.models_dir));
  }
  flags.model.steps = {.makes_chunks = true, .fuses = true};
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_RETURN_IF_ERROR(check_reuse_flags(flags.documents.reuse, *engine));
  flags.documents.library.model_is_from_variable = is_from_variable(app, flags.model);
  WEFT_ASSIGN_OR_RETURN(library::Library library,
                        library::Library::open(app.env, flags.documents.library, *engine));
  WEFT_ASSIGN_OR_RETURN(const std::string unfinished, unfinished_line_of(app.env, library, dir));
  if (!unfinished.empty()) print_error(unfinished);
  DocumentTalk talk(flags.documents, *engine, library);
  WEFT_ASSIGN_OR_RETURN(Beginning beginning, begin(app, flags, talk));
  beginning.question = std::move(question);
  outlive_interrupts();
  return talk_on_terminal(app, terminal_options(flags), *engine, talk, std::move(beginning));
}

}  // namespace

/// What `ask -i` has no flag for (-s, --load, --save) is empty.
Status run_document_chat(App& app, DocumentChatStart start) {
  ChatFlags flags;
  flags.model = std::move(start.model);
  flags.documents = std::move(start.documents);
  flags.system = std::move(start.system);
  flags.load = std::move(start.load);
  flags.save = std::move(start.save);
  flags.generation = std::move(start.generation);
  return run_over_documents(app, std::move(flags), std::move(start.question));
}

/// ask's flags are there with and without --store, as one command has one help; without it they are
/// refused by name, since they would silently do nothing. The defaults that --store changes can
/// only be set when the flags have been read: nobody knows before whether --temp was given.
void add_chat_command(Command root, App& app) {
  auto flags = std::make_shared<ChatFlags>();
  Command command = root.add_command("chat", "Talk with a model, alone or over documents");
  add_model_flags(command, flags->model, /*model_is_optional=*/true)
      .describe("GGUF file, or the name of a fetched model (with --store, default: the store's)");
  add_window_flag(command, flags->model);
  command
      .add_option("-s,--system", flags->system,
                  "the system turn; '': an empty one, not the template's own")
      .may_be_empty();
  const std::vector<Flag> of_shift = add_shift_flags(command, flags->shift, "the system turn");
  const engine::GenerationOptions usual = flags->generation;
  add_sampling_flags(command, flags->generation, kMaxAnswerTokens);
  command.get_option("--temp").describe(fmt::format(
      "temperature; 0 is greedy (default: {}, with --store 0)", usual.sampling.temperature));
  command.get_option("--tokens")
      .describe(fmt::format(
          "tokens to generate at most; -1: until the end or a full context (default: {}, "
          "with --store {})",
          usual.max_tokens, engine::GenerationOptions().max_tokens));
  Flag load = command.add_option("--load", flags->load, "go on with the conversation in this file");
  command.add_option("--save", flags->save,
                     "keep the conversation in this file, as OpenAI messages (JSON)");
  Flag session =
      add_session_flag(command, flags->session,
                       "go on with the conversation in this file, and keep it there with its KV")
          .excludes(load);
  add_self_extend_flags(command, flags->model).excludes(session);
  add_sparse_flags(command, flags->model);
  add_draft_flags(command, flags->model);
  command
      .add_option("--store", flags->documents.library.dir,
                  "talk over the documents in this folder, which weft ingest filled")
      .value_name("DIR");
  const std::vector<Flag> of_documents = add_document_flags(command, flags->documents);
  command.when_given([flags, &app, command, of_documents, of_shift, session]() mutable {
    app.run = [flags, &app, command, of_documents, of_shift, session]() mutable -> Status {
      WEFT_ASSIGN_OR_RETURN(flags->generation.shift, context_shift(flags->shift));
      if (flags->documents.library.dir.empty()) {
        for (const Flag& flag : of_documents) {
          if (!flag.was_given()) continue;
          return invalid_argument(
              fmt::format("{} goes with --store: it is about documents", flag.name()));
        }
        return run_chat(app, std::move(*flags), command);
      }
      if (session.was_given()) {
        return invalid_argument("--session goes without --store: a session has no documents");
      }
      for (const Flag& flag : of_shift) {
        if (!flag.was_given()) continue;
        return invalid_argument(
            fmt::format("{} does not go with --store: each question has a prompt of its own there",
                        flag.name()));
      }
      const engine::GenerationOptions over_documents;
      if (!command.get_option("--temp").was_given()) {
        flags->generation.sampling.temperature = over_documents.sampling.temperature;
      }
      if (!command.get_option("--tokens").was_given()) {
        flags->generation.max_tokens = over_documents.max_tokens;
      }
      return run_over_documents(app, std::move(*flags), std::nullopt);
    };
  });
}

}  // namespace weft::cli
