// Cutting a rendered prompt round a marker. Internal to chat_template.cc. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"

namespace weft::text {

std::string joined(const std::vector<Segment>& segments);

/// What comes before the first, or after the last place of `marker` in text that is not the
/// template's; kUnsupported where there is none.
Result<std::vector<Segment>> before(const std::vector<Segment>& segments, std::string_view marker);
Result<std::vector<Segment>> text_after(const std::vector<Segment>& segments,
                                        std::string_view marker);

/// Nothing where the text does not begin with `prefix`.
std::optional<std::vector<Segment>> without_prefix(const std::vector<Segment>& segments,
                                                   std::string_view prefix);
/// As it is where the text does not end with `suffix`.
std::vector<Segment> without_suffix(const std::vector<Segment>& segments, std::string_view suffix);

}  // namespace weft::text
