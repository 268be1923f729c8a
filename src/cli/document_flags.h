// The flags of questions over documents, shared by `weft ask` and `weft chat --store`.
#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/flags.h"
#include "cli/reuse_flags.h"
#include "library/library.h"
#include "retrieval/passages.h"

namespace weft::cli {

struct DocumentFlags {
  ReuseFlags reuse;
  library::LibraryOptions library{.cancelled = interrupted};
  std::string mode = "blend";
  int n_chunks = 4;
  double min_score = retrieval::PassageOptions().least_share_of_best;
  bool stats = false;
  bool answer_anyway = false;
  bool json = false;
  bool paragraphs = false;  // the answer goes on after its first line
};

/// All but --store. Returns them, for a command that takes them only with --store.
std::vector<Flag> add_document_flags(Command command, DocumentFlags& flags);

/// What --chunks, --min-score and --answer-anyway say.
retrieval::PassageOptions passage_options(const DocumentFlags& flags);

/// What was wrong with them is said before a model is opened.
Status check_document_flags(const DocumentFlags& flags);

}  // namespace weft::cli
