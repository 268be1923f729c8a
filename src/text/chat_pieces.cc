#include <algorithm>

#include "text/chat_pieces_internal.h"

namespace weft::text {
namespace {

// Bytes [begin, end) of the prompt.
std::vector<Segment> cut(const std::vector<Segment>& segments, size_t begin, size_t end) {
  std::vector<Segment> out;
  size_t at = 0;
  for (const Segment& segment : segments) {
    const size_t from = std::max(begin, at);
    const size_t to = std::min(end, at + segment.text.size());
    if (from < to) out.push_back({segment.text.substr(from - at, to - from), segment.special});
    at += segment.text.size();
  }
  return out;
}

constexpr size_t kNone = std::string::npos;

// Byte of the first or last place of the marker.
size_t find_marker(const std::vector<Segment>& segments, std::string_view marker, bool last) {
  size_t found = kNone;
  size_t at = 0;
  for (const Segment& segment : segments) {
    if (!segment.special) {
      const size_t here = last ? segment.text.rfind(marker) : segment.text.find(marker);
      if (here != kNone && (last || found == kNone)) found = at + here;
    }
    at += segment.text.size();
  }
  return found;
}

Status no_marker() {
  return unsupported(
      "the chat template does not print what a user says, so it has no place for it");
}

}  // namespace

std::string joined(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

Result<std::vector<Segment>> before(const std::vector<Segment>& segments, std::string_view marker) {
  const size_t at = find_marker(segments, marker, false);
  if (at == kNone) return no_marker();
  return cut(segments, 0, at);
}

Result<std::vector<Segment>> text_after(const std::vector<Segment>& segments,
                                        std::string_view marker) {
  const size_t at = find_marker(segments, marker, true);
  if (at == kNone) return no_marker();
  return cut(segments, at + marker.size(), kNone);
}

std::optional<std::vector<Segment>> without_prefix(const std::vector<Segment>& segments,
                                                   std::string_view prefix) {
  if (!joined(segments).starts_with(prefix)) return std::nullopt;
  return cut(segments, prefix.size(), kNone);
}

std::vector<Segment> without_suffix(const std::vector<Segment>& segments, std::string_view suffix) {
  const std::string text = joined(segments);
  return text.ends_with(suffix) ? cut(segments, 0, text.size() - suffix.size()) : segments;
}

}  // namespace weft::text
