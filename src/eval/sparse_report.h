// The report on an evaluation of sparse decoding: one HTML page that needs nothing else, neither
// scripts nor fonts nor style from outside, for a light or a dark screen and for paper. It measures
// nothing and writes no file.
#pragma once

#include <span>
#include <string>

#include "eval/sparse_rows.h"

namespace weft::eval {

/// What was measured with what, as text; empty ones are left out.
struct SparseReportHead {
  std::string model;
  std::string cpu;
  std::string isa;  // whose kernels ran
  std::string threads;
  std::string kv_types;
  std::string page_tokens;
  std::string dense_layers;  // the first layers, which read everything
  std::string seed;
  std::string date;
  std::string version;  // of weft
  std::string command_line;
  std::string unfinished;  // that it was stopped, and what is left out
};

/// The page, in UTF-8. For each task in the order of the rows a table, without columns that no row
/// has a value for, and plots; before them, for each policy, its lossless budget: the least whose
/// accuracy, F1 and ROUGE-L are no less, and whose perplexity is at most 1 % more, than the dense
/// row's of the same task and length. Rows at one depth are in the heat maps alone. Text from
/// outside is escaped. Thread-safe.
std::string sparse_report_html(const SparseReportHead& head, std::span<const SparseRow> rows);

}  // namespace weft::eval
