// The file is what the OpenAI API takes as `messages`, so that a conversation can go to any other
// program and come from it. It comes from anyone, so it is read with jinja/json.h, which has limits
// on depth and size and says line and column, and not with nlohmann's parser, whose errors are made
// for programmers; it is written with nlohmann's, which is sure to escape all.
//
// A conversation that is lost cannot be made again, so a file is only ever replaced whole
// (base/atomic_file.h), and only where it still holds what this conversation last read or wrote:
// FileContent is how that is known.
#include "cli/chat_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jinja/json.h"

namespace weft::cli {
namespace {

using jinja::Value;
using Json = nlohmann::ordered_json;
using text::Role;

// Some four million tokens: more than any context.
constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

// Others (tool, developer) would be dropped or renamed by the next /save, so they are refused.
constexpr std::pair<std::string_view, Role> kRoles[] = {
    {"system", Role::kSystem}, {"user", Role::kUser}, {"assistant", Role::kAssistant}};

const Value* find(const Value& value, std::string_view key) {
  return value.is(jinja::Kind::kDict) ? value.dict().find(key) : nullptr;
}

/// "Hello" or [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], which the API
/// means the same. A part that is an image has no text: refused rather than left out.
Result<std::string> parse_content(const Value* content) {
  if (content != nullptr && content->is_string()) return std::string(content->view());
  if (content == nullptr || !content->is(jinja::Kind::kList)) {
    return corrupt("no content that is a string or a list of parts");
  }
  std::string text;
  for (const Value& part : content->items()) {
    const Value* type = find(part, "type");
    const Value* part_text = find(part, "text");
    const bool is_text = type != nullptr && type->is_string() && type->view() == "text" &&
                         part_text != nullptr && part_text->is_string();
    if (!is_text) return unsupported("a part of its content is no text");
    text.append(part_text->view());
  }
  return text;
}

/// Other keys of a message (name, refusal) are passed over.
Result<text::Turn> parse_turn(const Value& message) {
  const Value* role = find(message, "role");
  if (role == nullptr || !role->is_string()) return corrupt("no role");
  for (const auto& [name, value] : kRoles) {
    if (role->view() != name) continue;
    WEFT_ASSIGN_OR_RETURN(std::string content, parse_content(find(message, "content")));
    return text::Turn{value, std::move(content)};
  }
  return unsupported("its role is none of system, user and assistant");
}

}  // namespace

/// Indented, as people do read and edit these files.
std::string write_conversation(std::span<const text::Turn> turns) {
  Json messages = Json::array();
  for (const text::Turn& turn : turns) {
    for (const auto& [name, role] : kRoles) {
      if (role == turn.role) messages.push_back({{"role", name}, {"content", turn.text}});
    }
  }
  const Json conversation = {{"messages", std::move(messages)}};
  return conversation.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<text::Turn>> parse_turns(std::string_view json) {
  const auto parsed = jinja::parse_json(json);
  if (!parsed.is_ok()) return corrupt(parsed.error().to_string());
  const Value* messages = &*parsed;
  if (parsed->is(jinja::Kind::kDict)) messages = find(*parsed, "messages");
  if (messages == nullptr || !messages->is(jinja::Kind::kList)) {
    return corrupt("a conversation is an object with a list `messages`, or that list");
  }
  std::vector<text::Turn> turns;
  for (const Value& message : messages->items()) {
    auto turn = parse_turn(message);
    if (!turn.is_ok()) {
      // Counted from 1, as a reader of the file counts.
      return Status(turn.status().code(),
                    fmt::format("message {}: {}", turns.size() + 1, turn.status().message()));
    }
    turns.push_back(*std::move(turn));
  }
  return turns;
}

/// What people say to a model is private: a new file is readable for its owner alone, whatever the
/// umask. One that was there keeps the mode that its owner gave it.
AtomicFileOptions conversation_options(bool replace) {
  return {.replace = replace, .mode = kPrivateFileMode};
}

Status save_conversation(Env& env, const std::string& path, std::span<const text::Turn> turns,
                         bool replace) {
  return write_file_durably(env, path, write_conversation(turns), conversation_options(replace));
}

/// Not by its time: a clock's tick may hold two writes, and a copy back and forth changes the time
/// of a file that is the same.
FileContent content_of(std::string_view bytes) {
  return {bytes.size(), hash128(std::as_bytes(std::span(bytes)))};
}

bool holds(Env& env, const std::string& path, const FileContent& content) {
  const auto entry = env.stat(path);
  // First, so that a file that became huge is not read.
  if (!entry.is_ok() || entry->size_bytes != content.size_bytes) return false;
  const auto bytes = read_file(env, path, content.size_bytes);
  return bytes.is_ok() && content_of(*bytes) == content;
}

Result<LoadedConversation> load_conversation(Env& env, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string json, read_file(env, path, kMaxFileBytes));
  auto turns = parse_turns(json);
  if (!turns.is_ok()) {
    return Status(turns.status().code(), path + ": " + turns.status().message());
  }
  return LoadedConversation{*std::move(turns), content_of(json)};
}

}  // namespace weft::cli
