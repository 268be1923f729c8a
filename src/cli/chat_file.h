// A conversation as a file: the `messages` of the OpenAI API, of system, user and assistant texts.
// What is read is from anyone and checked; nothing else is kept in such a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/status.h"
#include "text/chat_template.h"

namespace weft::cli {

/// `{"messages":[{"role","content"}]}`; bytes that are not UTF-8 become U+FFFD.
std::string write_conversation(std::span<const text::Turn> turns);

/// That, or the bare list. content may be a list of parts of type text, which are joined. kCorrupt
/// for malformed JSON (with line and column) and other content, kUnsupported for other roles, both
/// with the number of the message.
/// Turns come in the file's order; whether they make a conversation (a question, an answer, a
/// question) is for who takes them.
Result<std::vector<text::Turn>> parse_turns(std::string_view json);

/// How base/atomic_file.h writes such a file: for its owner alone when it is new, through a link;
/// with `replace` false kAlreadyExists where anything has the name.
AtomicFileOptions conversation_options(bool replace);
/// When it is ok the file holds the conversation durably; else it is the old one, or the new one
/// perhaps not yet durably.
Status save_conversation(Env& env, const std::string& path, std::span<const text::Turn> turns,
                         bool replace);

/// What such a file held, to find out whether it still does.
struct FileContent {
  uint64_t size_bytes = 0;
  Hash128 hash;
  bool operator==(const FileContent&) const = default;
};
FileContent content_of(std::string_view bytes);
/// Whether the file is there and holds that.
bool holds(Env& env, const std::string& path, const FileContent& content);

struct LoadedConversation {
  std::vector<text::Turn> turns;
  FileContent content;
};
/// At most 16 MiB. Errors name the file.
Result<LoadedConversation> load_conversation(Env& env, const std::string& path);

}  // namespace weft::cli
