#include "cli/chat_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jinja/json.h"

namespace weft::cli {
namespace {

using jinja::Value;
using Json = nlohmann::ordered_json;
using text::Role;

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

constexpr std::pair<std::string_view, Role> kRoles[] = {
    {"system", Role::kSystem}, {"user", Role::kUser}, {"assistant", Role::kAssistant}};

const Value* find(const Value& value, std::string_view key) {
  return value.is(jinja::Kind::kDict) ? value.dict().find(key) : nullptr;
}

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
      return Status(turn.status().code(),
                    fmt::format("message {}: {}", turns.size() + 1, turn.status().message()));
    }
    turns.push_back(*std::move(turn));
  }
  return turns;
}

AtomicFileOptions conversation_options(bool replace) {
  return {.replace = replace, .mode = kPrivateFileMode};
}

Status save_conversation(Env& env, const std::string& path, std::span<const text::Turn> turns,
                         bool replace) {
  return write_file_durably(env, path, write_conversation(turns), conversation_options(replace));
}

FileContent content_of(std::string_view bytes) {
  return {bytes.size(), hash128(std::as_bytes(std::span(bytes)))};
}

bool holds(Env& env, const std::string& path, const FileContent& content) {
  const auto entry = env.stat(path);
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
