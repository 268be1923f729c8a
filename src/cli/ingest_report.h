// The words of `weft ingest`: the plan's line, the progress line, what was skipped in groups. Pure
// functions of numbers and names; they print nothing. Names are as they are: who prints makes them
// harmless (base/terminal_text.h), but for the progress line, which is drawn as it is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "library/ingester.h"

namespace weft::cli {

/// "8 s", "2 min 5 s", "3 h 20 min".
std::string duration_text(double seconds);

/// "ingesting 14 documents, 31 chunks, 5,210 tokens: 120 MB of KV (31 GB free)"; where some of the
/// chunks have their KV, "ingesting 1 document, 2 new chunks, 840 tokens: 19 MB of KV (31 GB free);
/// 12 more chunks repeat these or are stored already". Of more than 1 GB it names the document that
/// takes more than half.
std::string plan_line(const library::IngestPlan& plan);

/// "3 new, 0 changed, 0 completed, 1 deleted, 2 unchanged documents; 4 skipped".
std::string counts_line(const library::IngestCounts& counts);

/// What the progress line shows.
struct ShownProgress {
  library::IngestProgress at;
  int64_t new_tokens = 0;  // of the plan: those to compute
  double elapsed_s = 0;    // since the first chunk began
};
/// "ingest  42 %  1,234/5,210 tokens  310 tokens/s  2 min 5 s left  notes/file.md", at most
/// `columns` wide (a wide character is two): what does not fit is left off from the end, a path
/// from its front. Rate and remaining time come once something was computed. Made harmless.
std::string progress_line(const ShownProgress& progress, int columns);

/// Names under a few headings, each heading with its number and a few of its names.
class NameGroups {
 public:
  void add(const std::string& group, const std::string& name);
  bool is_empty() const { return groups_.empty(); }
  /// "3 hidden, 2 PDF (a.pdf, b.pdf), 9 images (a.png, b.png, c.png, …)".
  std::string line() const;
  /// For each group its number and "a.pdf, b.pdf, c.pdf, …".
  struct Group {
    std::string name;
    int64_t n = 0;
    std::string names;
  };
  std::vector<Group> groups() const;

 private:
  struct Names {
    int64_t n = 0;
    std::vector<std::string> first;
  };
  std::map<std::string, Names> groups_;
};

/// Whether a group of skipped files is told by its number alone: what is hidden or ignored.
bool is_told_by_number(std::string_view kind);

/// "PDF" for any number, "image" for one and "images" for more.
std::string plural_kind(const std::string& kind, int64_t n);

}  // namespace weft::cli
