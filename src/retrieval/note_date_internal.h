// The day that a note says of itself: in its file's name or its front matter. Internal to this
// room; opens nothing. Thread-safe; no state.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::retrieval {

/// As the number YYYYMMDD, so that a later day is a larger one; 0: none is said.
using NoteDate = int32_t;

/// Of the first day in a file's name: 2024-05-01, 2024_05_01, 2024.05.01 or 20240501, with no
/// digits beside it. A day that no calendar has is none, and so is one before 1900 or after 2199.
NoteDate date_in_name(std::string_view name);

/// Of the line `date: 2024-05-01` (`date = …` in TOML) among those a document begins with, where
/// its front matter was: before the first blank line, after a heading.
NoteDate date_in_front_matter(std::string_view text);

}  // namespace weft::retrieval
