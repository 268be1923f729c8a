// A conversation over documents, for the commands that begin one: `weft chat --store` and
// `weft ask -i`.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/app.h"
#include "cli/document_flags.h"
#include "engine/generation.h"

namespace weft::cli {

/// What the flags of either command said; each field as the flag of its name.
struct DocumentChatStart {
  ModelFlags model;  // without one, the store's own
  DocumentFlags documents;
  std::optional<std::string> system;
  std::string load;
  std::string save;
  engine::GenerationOptions generation;
  std::optional<std::string> question;  // the first one
};

/// Returns at the end of the conversation.
Status run_document_chat(App& app, DocumentChatStart start);

}  // namespace weft::cli
