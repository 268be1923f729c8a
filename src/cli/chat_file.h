// A conversation as a file: the `messages` of the OpenAI API, of system, user and assistant texts.
// What is read is from anyone and checked; nothing else is kept in such a file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "text/chat_template.h"

namespace weft::cli {

/// `{"messages":[{"role","content"}]}`; bytes that are not UTF-8 become U+FFFD.
std::string write_conversation(std::span<const text::Turn> turns);

/// That, or the bare list. content may be a list of parts of type text, which are joined. kCorrupt
/// for malformed JSON (with line and column) and other content, kUnsupported for other roles, both
/// with the number of the message.
Result<std::vector<text::Turn>> parse_turns(std::string_view json);

/// Replaces the file, but only when the new one is whole.
Status save_conversation(Env& env, const std::string& path, std::span<const text::Turn> turns);
/// At most 16 MiB. Errors name the file.
Result<std::vector<text::Turn>> load_conversation(Env& env, const std::string& path);

}  // namespace weft::cli
