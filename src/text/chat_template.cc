#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/json.h"
#include "text/chat_pieces_internal.h"

namespace weft::text {
namespace {

using jinja::Origin;
using jinja::Value;

jinja::Value input_text(std::string_view text) {
  return Value::string(std::string(text), Origin::kInput);
}

jinja::Value template_text(std::string_view text) {
  return Value::string(std::string(text), Origin::kTemplate);
}

using Items = std::vector<std::pair<Value, Value>>;

jinja::Value object(std::initializer_list<std::pair<std::string_view, Value>> fields) {
  Items items;
  for (const auto& [key, value] : fields) items.emplace_back(template_text(key), value);
  return jinja::make_dict(std::move(items));
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      break;
  }
  return "assistant";
}

Conversation to_conversation(std::span<const Turn> turns) {
  std::vector<Value> messages;
  for (const Turn& turn : turns) {
    messages.push_back(object(
        {{"role", template_text(role_name(turn.role))}, {"content", input_text(turn.text)}}));
  }
  return {.messages = jinja::make_list(std::move(messages))};
}

/// The list with fn(message) in place of each message that is an object.
template <class Fn>
Value map_messages(const Value& messages, Fn fn) {
  std::vector<Value> out;
  for (const Value& message : messages.items()) {
    out.push_back(message.is(jinja::Kind::kDict) ? fn(message) : message);
  }
  return jinja::make_list(std::move(out));
}

/// The object with fn(value) as the value of `key`, if it has it.
template <class Fn>
Value map_field(const Value& dict, std::string_view key, Fn fn) {
  if (!dict.is(jinja::Kind::kDict) || dict.dict().find(key) == nullptr) return dict;
  Items items = dict.dict().items;
  for (auto& [name, value] : items) {
    if (name.is_string() && name.view() == key) value = fn(value);
  }
  return jinja::make_dict(std::move(items));
}

// Templates put roles into control tokens ("<|" + role + "|>"), so the known ones are trusted.
Value trust_role(const Value& message) {
  return map_field(message, "role", [](const Value& role) {
    static constexpr std::string_view kKnown[] = {"system",    "user",     "assistant", "tool",
                                                  "developer", "function", "model",     "ipython"};
    const bool known = role.is_string() && std::find(std::begin(kKnown), std::end(kKnown),
                                                     role.view()) != std::end(kKnown);
    return known ? template_text(role.view()) : role;
  });
}

Value parse_arguments(const Value& message) {
  return map_field(message, "tool_calls", [](const Value& calls) {
    if (!calls.is(jinja::Kind::kList)) return calls;
    return map_messages(calls, [](const Value& call) {
      return map_field(call, "function", [](const Value& function) {
        return map_field(function, "arguments", [](const Value& arguments) {
          if (!arguments.is_string()) return arguments;
          auto parsed = jinja::parse_json(arguments.view());
          return parsed.is_ok() && parsed->is(jinja::Kind::kDict) ? *parsed : arguments;
        });
      });
    });
  });
}

Value fill_null_content(const Value& message) {
  return map_field(message, "content", [](const Value& content) {
    return content.is_none() ? input_text("") : content;
  });
}

bool has_tool_calls(const Value& messages) {
  for (const Value& message : messages.items()) {
    if (!message.is(jinja::Kind::kDict)) continue;
    const Value* calls = message.dict().find("tool_calls");
    if (calls != nullptr && calls->is(jinja::Kind::kList) && !calls->items().empty()) return true;
  }
  return false;
}

// A few words take no more, so that asking several times costs little beside the prompt itself.
jinja::Limits of_a_few_turns(jinja::Limits limits) {
  limits.steps /= 8;
  return limits;
}

std::vector<Segment> to_segments(std::vector<jinja::Segment> rendered) {
  std::vector<Segment> segments;
  segments.reserve(rendered.size());
  for (jinja::Segment& segment : rendered) {
    segments.push_back({std::move(segment.text), !segment.from_input});
  }
  return segments;
}

}  // namespace

Result<Conversation> parse_conversation(std::string_view json) {
  auto parsed = jinja::parse_json(json);
  if (!parsed.is_ok()) return corrupt(parsed.error().to_string());
  Conversation conversation;
  Value messages = *parsed;
  if (parsed->is(jinja::Kind::kDict)) {
    messages = Value();
    for (const auto& [key, value] : parsed->dict().items) {
      const std::string_view name = key.view();
      if (name == "messages") {
        messages = value;
      } else if (name == "tools") {
        conversation.tools = value;
      } else if (name == "add_generation_prompt") {
        if (!value.is(jinja::Kind::kBool)) return corrupt("add_generation_prompt must be a bool");
        conversation.add_generation_prompt = value.as_bool();
      } else if (name == "chat_template_kwargs") {
        if (!value.is(jinja::Kind::kDict)) return corrupt("chat_template_kwargs must be an object");
        for (const auto& [more, v] : value.dict().items) {
          conversation.variables.emplace_back(std::string(more.view()), v);
        }
      } else {
        conversation.variables.emplace_back(std::string(name), value);
      }
    }
  }
  if (!messages.is(jinja::Kind::kList)) {
    return corrupt("a conversation is an object with a list `messages`, or that list");
  }
  conversation.messages = map_messages(messages, trust_role);
  return conversation;
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, ChatTemplateOptions options) {
  auto compiled = jinja::Template::compile(source, options.limits);
  if (!compiled.is_ok()) {
    return unsupported("the chat template: " + compiled.error().to_string());
  }
  return ChatTemplate(*compiled, std::move(options));
}

jinja::Result<std::vector<Segment>> ChatTemplate::render_as_given(
    const Conversation& conversation, bool add_generation_prompt, bool pass_none,
    const jinja::Limits& limits) const {
  jinja::Variables variables = {{"bos_token", template_text(options_.bos)},
                                {"eos_token", template_text(options_.eos)}};
  if (pass_none) variables.emplace_back("documents", Value::none());
  for (const auto& variable : conversation.variables) variables.push_back(variable);
  variables.emplace_back("messages", conversation.messages);
  if (pass_none || !conversation.tools.is_none()) {
    variables.emplace_back("tools", conversation.tools);
  }
  variables.emplace_back("add_generation_prompt", Value::boolean(add_generation_prompt));
  auto rendered = template_.render(variables, {.limits = limits, .now = options_.now});
  if (!rendered.is_ok()) return rendered.error();
  return to_segments(*std::move(rendered));
}

// A template that prints an object's keys, but not those of JSON in a string.
bool ChatTemplate::wants_argument_objects() const {
  const auto prints_key = [this](const Value& arguments) {
    const Value call =
        object({{"id", input_text("call00001")},
                {"type", input_text("function")},
                {"function", object({{"name", input_text("probe")}, {"arguments", arguments}})}});
    const Value messages = jinja::make_list(
        {object({{"role", template_text("user")}, {"content", input_text("probe")}}),
         object({{"role", template_text("assistant")},
                 {"content", input_text("")},
                 {"tool_calls", jinja::make_list({call})}})});
    const auto rendered =
        render_as_given({.messages = messages}, false, true, of_a_few_turns(options_.limits));
    if (!rendered.is_ok()) return false;
    const std::string text = joined(*rendered);
    return text.find("weftprobe") != std::string::npos &&
           text.find("\\\"weftprobe") == std::string::npos;
  };
  return !prints_key(input_text("{\"weftprobe\": \"value\"}")) &&
         prints_key(object({{"weftprobe", input_text("value")}}));
}

Result<std::vector<Segment>> ChatTemplate::render(const Conversation& conversation,
                                                  bool add_generation_prompt, Adapt adapt) const {
  return render_within(conversation, add_generation_prompt, adapt, options_.limits);
}

Result<std::vector<Segment>> ChatTemplate::render_within(const Conversation& conversation,
                                                         bool add_generation_prompt, Adapt adapt,
                                                         const jinja::Limits& limits) const {
  const auto result = [](jinja::Result<std::vector<Segment>> rendered) {
    if (rendered.is_ok()) return Result<std::vector<Segment>>(*std::move(rendered));
    return Result<std::vector<Segment>>(
        unsupported("the chat template: " + rendered.error().to_string()));
  };
  if (adapt == Adapt::kNo) {
    return result(render_as_given(conversation, add_generation_prompt, true, limits));
  }
  Conversation adapted = conversation;
  if (has_tool_calls(conversation.messages) && wants_argument_objects()) {
    adapted.messages = map_messages(adapted.messages, parse_arguments);
  }
  auto rendered = render_as_given(adapted, add_generation_prompt, true, limits);
  if (rendered.is_ok() || rendered.error().at_limit) return result(std::move(rendered));
  adapted.messages = map_messages(adapted.messages, fill_null_content);
  auto again = render_as_given(adapted, add_generation_prompt, false, limits);
  return result(again.is_ok() ? std::move(again) : std::move(rendered));
}

Result<std::vector<Segment>> ChatTemplate::render(std::span<const Turn> turns,
                                                  bool add_generation_prompt) const {
  if (turns.empty()) return invalid_argument("a conversation needs at least one turn");
  return render(to_conversation(turns), add_generation_prompt);
}

namespace {

// Stand for what people say; letters only, so that no template changes them.
constexpr std::string_view kMarkA = "weftmarkerone";
constexpr std::string_view kMarkB = "weftmarkertwo";
constexpr std::string_view kMarkC = "weftmarkerthree";

Turn user(std::string_view text) { return {Role::kUser, std::string(text)}; }
Turn assistant(std::string_view text) { return {Role::kAssistant, std::string(text)}; }

/// kMarkA, with more letters than follow it anywhere in the turns.
std::string marker_beside(std::span<const Turn> turns) {
  constexpr char kMore = 'x';
  size_t n_more = 0;
  for (const Turn& turn : turns) {
    const std::string& text = turn.text;
    size_t at = text.find(kMarkA);
    while (at != std::string::npos) {
      const size_t from = at + kMarkA.size();
      const size_t end = std::min(text.find_first_not_of(kMore, from), text.size());
      n_more = std::max(n_more, end - from + 1);
      at = text.find(kMarkA, end);
    }
  }
  return std::string(kMarkA) + std::string(n_more, kMore);
}

}  // namespace

Result<std::vector<Segment>> ChatTemplate::user_opening(
    std::optional<std::string_view> system) const {
  std::vector<Turn> turns;
  if (system) turns.push_back({Role::kSystem, std::string(*system)});
  turns.push_back(user(kMarkA));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Segment> whole, render_few(turns, true));
  return before(whole, kMarkA);
}

Result<std::vector<Segment>> ChatTemplate::user_closing() const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Segment> whole,
                        render_few(std::vector<Turn>{user(kMarkA)}, true));
  return text_after(whole, kMarkA);
}

Result<ChatTemplate::UserFrame> ChatTemplate::user_frame(std::span<const Turn> earlier) const {
  std::vector<Turn> turns(earlier.begin(), earlier.end());
  const std::string marker = marker_beside(turns);
  turns.push_back(user(marker));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Segment> whole, render(turns, true));
  UserFrame frame;
  WEFT_ASSIGN_OR_RETURN(frame.opening, before(whole, marker));
  WEFT_ASSIGN_OR_RETURN(frame.closing, text_after(whole, marker));
  return frame;
}

Result<std::vector<Segment>> ChatTemplate::render_few(std::span<const Turn> turns,
                                                      bool add_generation_prompt) const {
  return render_within(to_conversation(turns), add_generation_prompt, Adapt::kToTemplate,
                       of_a_few_turns(options_.limits));
}

// In user A, assistant B, user C: what comes between B and C, without what closes B's turn.
Result<std::vector<Segment>> ChatTemplate::turn_opening() const {
  std::vector<Turn> turns = {user(kMarkA), assistant(kMarkB)};
  const auto two = render_few(turns, false);
  turns.push_back(user(kMarkC));
  const auto three = render_few(turns, true);
  if (two.is_ok() && three.is_ok()) {
    auto closing = text_after(*two, kMarkB);
    auto rest = text_after(*three, kMarkB);
    if (closing.is_ok() && rest.is_ok()) {
      const auto between = before(*rest, kMarkC);
      for (int i = 0; i < 2 && between.is_ok(); ++i) {
        if (auto opening = without_prefix(*between, joined(*closing))) return *std::move(opening);
        *closing = without_suffix(*closing, options_.eos);  // of the conversation, not the turn
      }
    }
  }
  // Else what opens the first turn, without BOS.
  WEFT_ASSIGN_OR_RETURN(std::vector<Segment> opening, user_opening(std::nullopt));
  if (auto rest = without_prefix(opening, options_.bos)) opening = *std::move(rest);
  return opening;
}

Result<std::vector<int32_t>> encode_segments(const Tokenizer& tokenizer,
                                             std::span<const Segment> segments,
                                             const EncodeLimits& limits) {
  std::vector<TextPart> parts;
  for (const Segment& segment : segments) parts.push_back({segment.text, segment.special});
  return tokenizer.encode_parts(parts, limits);
}

Result<std::vector<int32_t>> encode_prompt(const Tokenizer& tokenizer,
                                           std::span<const Segment> segments,
                                           const EncodeLimits& limits) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> ids, encode_segments(tokenizer, segments, limits));
  const int32_t bos = tokenizer.bos();
  if (bos != kNoToken && tokenizer.wants_bos() && (ids.empty() || ids.front() != bos)) {
    ids.insert(ids.begin(), bos);
  }
  return ids;
}

}  // namespace weft::text
