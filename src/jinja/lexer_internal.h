// Cuts a template into tokens as jinja2 does with trim_blocks and lstrip_blocks on: what whitespace
// round tags belongs to the output is decided here and nowhere else. It knows nothing of what
// tokens mean. Thread safety: none needed, it is one function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/budget_internal.h"
#include "jinja/result.h"

namespace weft::jinja {

/// What a token is. Comments, the inside of `raw` and white space in tags leave no tokens of their
/// own.
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

/// A piece of the source. There can be as many as the source has bytes, so they hold views and the
/// string's escapes are undone only when the parser takes it.
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // into the source
  Position at;
};

/// The source as tokens are cut from it: \r\n and \r become \n, and one newline at the very end is
/// dropped (jinja2's keep_trailing_newline is off). An editor that ends files with a newline would
/// otherwise put one at the end of every prompt.
std::string normalise_newlines(std::string_view source);

/// `source` must outlive the tokens, and be normalised. Linear in it. Lines and columns of the
/// tokens count from 1, columns in characters, as an editor shows them. Throws Failure for what
/// cannot be a token: a string or comment without end, a bracket that closes nothing, a character
/// that no operator begins with.
std::vector<Token> tokenise(std::string_view source, Budget& budget);

}  // namespace weft::jinja
