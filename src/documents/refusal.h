// Why a file is no document: what readers return in place of a text.
#pragma once

#include <string>
#include <variant>

namespace weft::documents {

struct Refusal {
  std::string kind;    // for counts: "PDF", "image", "binary"
  std::string reason;  // for a line: "a PDF: weft reads text; pdftotext makes text of it"
};

template <class T>
using Read = std::variant<T, Refusal>;

}  // namespace weft::documents
