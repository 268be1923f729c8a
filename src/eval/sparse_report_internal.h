// What the parts of the report on sparse decoding share: the numbers of a row with their names, and
// how a policy looks. Used by sparse_report.cc and sparse_plots.cc alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sparse_rows.h"
#include "eval/svg_plot.h"

namespace weft::eval {

/// A number that rows may have.
struct Metric {
  const char* name = "";
  const char* unit = "";  // empty: none
  std::optional<double> SparseRow::*value = nullptr;
  NumberFormat format = NumberFormat::kThreeDigits;

  /// "Accuracy (%)".
  std::string title() const { return *unit ? name + std::string(" (") + unit + ")" : name; }
  /// "93.8 %".
  std::string text_of(const SparseRow& row) const {
    const std::string number = number_text(*(row.*value), format);
    return *unit ? number + " " + unit : number;
  }
};

inline constexpr Metric kAccuracy{"Accuracy", "%", &SparseRow::accuracy, NumberFormat::kPercent};
inline constexpr Metric kPerplexity{"Perplexity", "", &SparseRow::perplexity,
                                    NumberFormat::kThreeDecimals};
inline constexpr Metric kF1{"F1", "", &SparseRow::f1, NumberFormat::kThreeDecimals};
inline constexpr Metric kRougeL{"ROUGE-L", "", &SparseRow::rouge_l, NumberFormat::kThreeDecimals};
inline constexpr Metric kMassKept{"Attention kept", "%", &SparseRow::mass_kept,
                                  NumberFormat::kPercent};
inline constexpr Metric kSpeed{"Speed", "tokens/s", &SparseRow::tokens_per_s,
                               NumberFormat::kThreeDigits};

/// How good the answers are.
inline constexpr Metric kQualities[] = {kAccuracy, kPerplexity, kF1, kRougeL};

/// The parts of a token's time.
inline constexpr Metric kTimes[] = {
    {"Digest", "ms", &SparseRow::digest_ms, NumberFormat::kThreeDigits},
    {"Score", "ms", &SparseRow::score_ms, NumberFormat::kThreeDigits},
    {"Choose", "ms", &SparseRow::choose_ms, NumberFormat::kThreeDigits},
    {"Attend", "ms", &SparseRow::attend_ms, NumberFormat::kThreeDigits},
    {"Other", "ms", &SparseRow::other_ms, NumberFormat::kThreeDigits},
};

using Rows = std::vector<const SparseRow*>;

/// The policies of a report in the order of their first rows, the dense one first: the same look in
/// all plots.
class PolicyLooks {
 public:
  explicit PolicyLooks(std::span<const SparseRow> rows);
  const std::vector<std::string>& names() const { return names_; }
  /// Of a policy of the rows; `place` is its index in names().
  struct Look {
    int64_t place = 0;
    SeriesStyle style;
  };
  const Look& of(const std::string& policy) const { return looks_.at(policy); }

 private:
  std::vector<std::string> names_;
  std::map<std::string, Look> looks_;
};

inline constexpr std::string_view kReferencePolicy = "dense";
inline constexpr std::string_view kYardstickPolicy = "oracle";

/// Whether one of the rows has the number.
bool any_has(const Rows& rows, const Metric& metric);

/// Different values in ascending order.
std::vector<int32_t> lengths_of(const Rows& rows);
std::vector<int32_t> budgets_of(const Rows& rows);

/// Those that are not of one depth alone.
Rows over_all_depths(const Rows& rows);

/// Groups of plots under headings of level 3, of one task. rows: sorted by length, policy and
/// budget. What has no numbers has no plot.
std::string task_plots_html(const Rows& rows, const PolicyLooks& looks);

}  // namespace weft::eval
