#include "simulation/expected.h"

#include <algorithm>
#include <array>
#include <span>

namespace weft::sim {
namespace {

bool is_under(const std::string& path, const std::string& root) {
  return path == root || path.starts_with(root + "/");
}

// Documents share them, and with them records.
constexpr std::array<std::string_view, 5> kParagraphs{
    "The harbour was dredged in spring, and the ferry moved to the north pier while it lasted.",
    "Every mill on the river pays for its water. The keeper of the weir reads the gauge at dawn "
    "and writes the level into a book, which the council looks at once a year.",
    "Bees swarm in May.",
    "The station's clock is wound by hand, and whoever winds it signs the card. In winter the oil "
    "thickens and the clock loses a minute a day; in summer it gains one. Nobody minds, since the "
    "trains have clocks of their own.\n\nThe card hangs by the door.",
    "Of the forty houses in the lane, nine are empty, two are shops and one is a school."};
constexpr std::array<std::string_view, 3> kTitles{"Harbour", "The mill and the weir", "Notes"};

}  // namespace

void Expected::write_source(const std::string& path, const std::string& content) {
  sources[path] = content;
  contents[source_hash(path)] = content;
}

std::string Expected::source_hash(const std::string& path) const {
  const auto source = sources.find(path);
  if (source == sources.end()) return std::string(kAbsent);
  return hash128(std::as_bytes(std::span(source->second))).to_hex();
}

std::vector<std::string> Expected::paths_under(const std::string& root) const {
  std::set<std::string> paths;
  for (const auto& [path, content] : sources) {
    if (is_under(path, root)) paths.insert(path);
  }
  for (const auto& [path, hashes] : in_index) {
    if (is_under(path, root)) paths.insert(path);
  }
  return {paths.begin(), paths.end()};
}

void Expected::may_be_taken_over(const std::string& root) {
  std::set<std::string> now;
  for (const auto& [path, content] : sources) {
    if (is_under(path, root)) now.insert(source_hash(path));
  }
  for (auto& [path, hashes] : in_index) {
    if (is_under(path, root) || sources.contains(path)) continue;
    const bool has_copy =
        std::ranges::any_of(hashes, [&](const std::string& hash) { return now.contains(hash); });
    if (!has_copy) continue;
    hashes.emplace(kAbsent);
    marked.erase(path);
  }
}

void Expected::ingested(const std::string& root) {
  may_be_taken_over(root);
  for (const std::string& path : paths_under(root)) {
    in_index[path] = {source_hash(path)};
    if (sources.contains(path)) {
      marked.insert(path);
    } else {
      marked.erase(path);
    }
  }
}

void Expected::maybe_ingested(const std::string& root) {
  may_be_taken_over(root);
  for (const std::string& path : paths_under(root)) {
    std::set<std::string>& may = in_index[path];
    if (may.empty()) may.emplace(kAbsent);
    may.insert(source_hash(path));
    marked.erase(path);
  }
}

void Expected::settled_by(int model, bool is_sure) {
  if (is_sure) {
    settled = {model};
  } else if (settled.contains(kUnsettled)) {
    settled.insert(model);
  }
}

bool Expected::may_hold(const std::string& path, const std::string& hash) const {
  const auto may = in_index.find(path);
  return may == in_index.end() ? hash == kAbsent : may->second.contains(hash);
}

std::vector<std::string> Expected::sure_contents() const {
  std::vector<std::string> sure;
  for (const auto& [path, hashes] : in_index) {
    if (hashes.size() == 1 && *hashes.begin() != kAbsent) {
      sure.push_back(contents.at(*hashes.begin()));
    }
  }
  return sure;
}

std::string make_content(std::mt19937_64& random, int number) {
  std::string content;
  if (random() % 2 == 0) {
    content = "# " + std::string(kTitles[random() % kTitles.size()]) + "\n\n";
  }
  const uint64_t n_paragraphs = random() % 4 == 0 ? random() % 9 : random() % 3;
  const uint64_t place = random() % (n_paragraphs + 1);
  for (uint64_t i = 0; i <= n_paragraphs; ++i) {
    if (i == place) content += "The mark of this is mark" + std::to_string(number) + ".\n\n";
    if (i < n_paragraphs) {
      content.append(kParagraphs[random() % kParagraphs.size()]).append("\n\n");
    }
  }
  return content;
}

std::string mark_of(const std::string& content) {
  const size_t begin = content.find("mark", content.find("The mark of this is ") + 5);
  return content.substr(begin, content.find('.', begin) - begin);
}

}  // namespace weft::sim
