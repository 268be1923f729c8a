// Cuts a template into tokens as jinja2 does with trim_blocks and lstrip_blocks on: what whitespace
// round tags belongs to the output is decided here. It knows nothing of what tokens mean.
// Thread safety: none needed, it is one function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/budget_internal.h"
#include "jinja/result.h"

namespace weft::jinja {

enum class TokenKind : uint8_t {
  kData,
  kPrintBegin,  // {{
  kPrintEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // with its quotes
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // into the source
  Position at;
};

/// The source as tokens are cut from it: newlines are \n, and one at the very end is dropped.
std::string normalise_newlines(std::string_view source);

/// `source` must outlive the tokens, and be normalised. Linear in it. Throws Failure.
std::vector<Token> tokenise(std::string_view source, Budget& budget);

}  // namespace weft::jinja
