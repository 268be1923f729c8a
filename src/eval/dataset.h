// Questions over passages, as the data sets' JSON has them: a list of {"question", "answers": [..],
// "ctxs": [{"title", "text", "gold"}]}; title and gold (true or false) may be missing. Or dialogues
// with summaries, {"dialogue", "summary"}, as SAMSum's: one passage, and what is asked is ours.
// Hostile like any file: checked, bounded, one line for what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace weft::eval {

struct EvalPassage {
  std::string title;  // underscores become spaces
  std::string text;
  bool is_gold = false;  // it holds the answer, says the data set
};

struct Example {
  std::string question;
  std::vector<std::string> answers;   // any of them is right
  std::vector<EvalPassage> passages;  // in the prompt's order
  bool is_dialogue = false;
};

/// The first `limit` examples (0: all). kCorrupt names the file, the example and the field.
Result<std::vector<Example>> read_dataset(Env& env, const std::string& path, int64_t limit);

}  // namespace weft::eval
