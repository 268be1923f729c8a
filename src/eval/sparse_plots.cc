// Which plots a task gets. A plot that would need more than two of policy, budget and length is
// drawn once for each value of the third, so that its lines are the policies.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/function_ref.h"
#include "eval/sparse_report_internal.h"

namespace weft::eval {
namespace {

/// "quest, 512 of 8192 tokens: ".
std::string hint_of(const SparseRow& row) {
  if (!row.budget_tokens) return fmt::format("{}, {} tokens: ", row.policy, row.length_tokens);
  return fmt::format("{}, {} of {} tokens: ", row.policy, *row.budget_tokens, row.length_tokens);
}

Rows only(const Rows& rows, FunctionRef<bool(const SparseRow&)> keeps) {
  Rows kept;
  for (const SparseRow* row : rows) {
    if (keeps(*row)) kept.push_back(row);
  }
  return kept;
}

Rows of_length(const Rows& rows, int32_t length_tokens) {
  return only(rows, [&](const SparseRow& r) { return r.length_tokens == length_tokens; });
}

/// A series for each policy, of its rows that have a point; they come in the order of the line.
std::vector<Series> series_by_policy(
    const Rows& rows, const PolicyLooks& looks,
    FunctionRef<std::optional<PlotPoint>(const SparseRow&)> point_of) {
  std::vector<Series> all;
  for (const std::string& policy : looks.names()) {
    Series series{.name = policy, .style = looks.of(policy).style};
    for (const SparseRow* row : rows) {
      if (row->policy != policy) continue;
      if (const std::optional<PlotPoint> point = point_of(*row)) series.points.push_back(*point);
    }
    if (!series.points.empty()) all.push_back(std::move(series));
  }
  return all;
}

Axis token_axis(const char* title) {
  Axis axis{.title = title, .format = NumberFormat::kCount};
  axis.is_log = true;
  axis.ticks_at_values = true;
  return axis;
}

/// Where the axis of perplexities ends if one or two policies ruin the text: half as far again from
/// the least as three quarters of the values reach. A log axis instead left all others one line.
std::optional<double> perplexity_cap(const Rows& rows) {
  std::vector<double> values;
  for (const SparseRow* row : rows) {
    if (row->perplexity && std::isfinite(*row->perplexity)) values.push_back(*row->perplexity);
  }
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const double least = values.front();
  const double usual = values[3 * (values.size() - 1) / 4];
  const double cap = std::max(least + 1.5 * (usual - least), 1.1 * least);
  return values.back() > 1.5 * cap ? std::optional(cap) : std::nullopt;
}

/// Accuracies are seen whole, from 0 to 100 %.
Axis value_axis(const Metric& metric, const Rows& rows) {
  Axis axis{.title = metric.title(), .format = metric.format};
  if (metric.value == kAccuracy.value) {
    axis.least = 0;
    axis.most = 1;
  }
  if (metric.value == kPerplexity.value) axis.cap = perplexity_cap(rows);
  return axis;
}

/// For the figures of a metric.
std::string_view note_of(const Metric& metric) {
  return metric.value == kPerplexity.value
             ? "Less is better. Where a policy ruins the text the axis is cut: hollow marks at its "
               "upper edge and names with an arrow are beyond it."
             : "";
}

std::string group_html(std::string_view title, std::string_view note, std::string_view figures) {
  if (figures.empty()) return {};
  return fmt::format("<h3>{}</h3>\n<p class=\"note\">{}</p>\n<div class=\"figures\">\n{}</div>\n",
                     escape_html(title), escape_html(note), figures);
}

std::string length_title(int32_t length_tokens) {
  return fmt::format("Length {} tokens", length_tokens);
}

/// What has no budget, the dense policy first of all, is a line across.
std::string plots_against_budget(const Rows& rows, const PolicyLooks& looks, const Metric& metric) {
  std::string figures;
  for (const int32_t length : lengths_of(rows)) {
    const Rows of = of_length(rows, length);
    const auto point = [&](const SparseRow& row, double x) -> std::optional<PlotPoint> {
      const std::optional<double>& y = row.*metric.value;
      if (!y) return std::nullopt;
      return PlotPoint{x, *y, hint_of(row) + metric.text_of(row)};
    };
    LinePlot plot{.title = length_title(length),
                  .x = token_axis("Budget (tokens)"),
                  .y = value_axis(metric, of),
                  .series = series_by_policy(of, looks, [&](const SparseRow& row) {
                    return row.budget_tokens ? point(row, *row.budget_tokens) : std::nullopt;
                  })};
    for (Series& level : series_by_policy(of, looks, [&](const SparseRow& row) {
           return row.budget_tokens ? std::nullopt : point(row, 0);
         })) {
      level.is_level = true;
      plot.series.push_back(std::move(level));
    }
    figures += figure_of(plot);
  }
  return group_html(std::string(metric.name) + " against budget", note_of(metric), figures);
}

/// One plot for each budget, with what has none in all of them.
std::string plots_against_length(const Rows& rows, const PolicyLooks& looks, const Metric& metric) {
  if (lengths_of(rows).size() < 2) return {};
  std::string figures;
  for (const int32_t budget : budgets_of(rows)) {
    const Rows of = only(rows, [&](const SparseRow& r) {
      return r.budget_tokens.value_or(budget) == budget && (r.*metric.value).has_value();
    });
    const LinePlot plot{
        .title = fmt::format("Budget {} tokens", budget),
        .x = token_axis("Length (tokens)"),
        .y = value_axis(metric, of),
        .series = series_by_policy(of, looks, [&](const SparseRow& row) {
          return std::optional(PlotPoint{double(row.length_tokens), *(row.*metric.value),
                                         hint_of(row) + metric.text_of(row)});
        })};
    figures += figure_of(plot);
  }
  return group_html(std::string(metric.name) + " against length", note_of(metric), figures);
}

/// rows: of one policy and length, at one depth each.
HeatMap depth_map(const Rows& rows, std::string title) {
  std::set<double> depths;
  std::set<std::optional<int32_t>> budgets;
  for (const SparseRow* row : rows) {
    depths.insert(*row->depth);
    budgets.insert(row->budget_tokens);
  }
  HeatMap map{
      .title = std::move(title), .column_title = "Budget (tokens)", .row_title = "Depth (%)"};
  for (const auto& budget : budgets) {
    map.columns.push_back(budget ? fmt::format("{}", *budget) : "all");
  }
  for (const double depth : depths) {
    map.rows.push_back(number_text(100 * depth, NumberFormat::kCount));
    for (const auto& budget : budgets) {
      const auto cell = std::ranges::find_if(rows, [&](const SparseRow* row) {
        return row->depth == depth && row->budget_tokens == budget;
      });
      map.shares.push_back(cell == rows.end() ? std::nullopt : (*cell)->accuracy);
    }
  }
  return map;
}

std::string depth_maps(const Rows& rows, const PolicyLooks& looks) {
  const Rows at_depth = only(
      rows, [](const SparseRow& r) { return r.accuracy && r.depth && std::isfinite(*r.depth); });
  std::string groups;
  for (const int32_t length : lengths_of(at_depth)) {
    std::string figures;
    for (const std::string& policy : looks.names()) {
      const Rows of = only(at_depth, [&](const SparseRow& r) {
        return r.policy == policy && r.length_tokens == length;
      });
      if (!of.empty()) figures += figure_of(depth_map(of, policy));
    }
    groups += group_html(
        fmt::format("Accuracy by depth, length {} tokens", length),
        "Accuracy in %; the depth is where in the text the wanted passage lies, from its beginning "
        "(0\u00a0%) to its end.",
        figures);
  }
  return groups;
}

/// The largest budget of each policy that has the shares by layer.
Rows most_budget_by_layer(const Rows& rows, const PolicyLooks& looks) {
  Rows chosen;
  for (const std::string& policy : looks.names()) {
    const SparseRow* most = nullptr;
    for (const SparseRow* row : rows) {
      if (row->policy != policy || row->mass_by_layer.empty()) continue;
      if (!most || row->budget_tokens >= most->budget_tokens) most = row;
    }
    if (most) chosen.push_back(most);
  }
  return chosen;
}

constexpr double kSmallMark = 0.75;  // where layers are many

std::string plots_by_layer(const Rows& rows, const PolicyLooks& looks) {
  std::string figures;
  for (const int32_t length : lengths_of(rows)) {
    LinePlot plot{.title = length_title(length),
                  .x = {.title = "Layer among those that select", .format = NumberFormat::kCount},
                  .y = value_axis(kMassKept, rows)};
    const Rows chosen = most_budget_by_layer(of_length(rows, length), looks);
    const bool same_budget = std::ranges::all_of(chosen, [&](const SparseRow* row) {
      return row->budget_tokens == chosen.front()->budget_tokens;
    });
    for (const SparseRow* row : chosen) {
      Series series{.name = row->policy, .style = looks.of(row->policy).style};
      const std::string budget =
          row->budget_tokens ? fmt::format("{}", *row->budget_tokens) : "all";
      if (same_budget) {
        plot.title = fmt::format("Length {}, budget {} tokens", length, budget);
      } else {
        series.name += " " + budget;
      }
      for (int64_t layer = 0; layer < std::ssize(row->mass_by_layer); ++layer) {
        const double mass = row->mass_by_layer[layer];
        series.points.push_back({double(layer), mass,
                                 fmt::format("{}layer {}: {} %", hint_of(*row), layer,
                                             number_text(mass, NumberFormat::kPercent)),
                                 kSmallMark});
      }
      plot.series.push_back(std::move(series));
    }
    figures += figure_of(plot);
  }
  return group_html("Attention kept by layer",
                    "At each policy's largest budget that leaves something out; layer 0 is the "
                    "first that selects pages.",
                    figures);
}

/// What a token costs where answers are equally good: further right at the same height is better.
std::string speed_plots(const Rows& rows, const PolicyLooks& looks) {
  std::string figures;
  for (const Metric& quality : kQualities) {
    for (const int32_t length : lengths_of(rows)) {
      const Rows of = only(rows, [&](const SparseRow& r) {
        return r.length_tokens == length && r.tokens_per_s && (r.*quality.value).has_value();
      });
      const std::vector<int32_t> budgets = budgets_of(of);
      const auto size_of = [&](const SparseRow& row) {
        if (!row.budget_tokens) return 1.2;
        const auto rank = std::ranges::find(budgets, *row.budget_tokens) - budgets.begin();
        return 0.85 + 0.65 * rank / std::max<double>(1, std::ssize(budgets) - 1);
      };
      figures += figure_of(LinePlot{
          .title = length_title(length),
          .x = {.title = kSpeed.title(), .format = kSpeed.format},
          .y = value_axis(quality, of),
          .series = series_by_policy(of, looks,
                                     [&](const SparseRow& row) {
                                       return std::optional(PlotPoint{
                                           *row.tokens_per_s, *(row.*quality.value),
                                           fmt::format("{}{}, {}", hint_of(row),
                                                       quality.text_of(row), kSpeed.text_of(row)),
                                           size_of(row)});
                                     }),
          .names_at_line_ends = false});
    }
    if (!figures.empty()) break;  // the first that the task has
  }
  return group_html("Speed at equal quality",
                    "A mark for each budget, the larger the mark the larger the budget. Of two "
                    "marks at the same height the right one is faster.",
                    figures);
}

/// The bars of one plot: a group for each policy, of the rows at that budget and those without.
StackedBars time_bars(const Rows& timed, const PolicyLooks& looks, std::optional<int32_t> budget) {
  StackedBars plot{.title = budget ? fmt::format("Budget {} tokens", *budget) : "All pages",
                   .group_title = "Policy",
                   .name_title = "Length (tokens)",
                   .value_title = "Time of a decoded token (ms)"};
  for (const Metric& time : kTimes) plot.part_names.push_back(time.name);
  for (const std::string& policy : looks.names()) {
    for (const SparseRow* row : timed) {
      if (row->policy != policy || (row->budget_tokens && row->budget_tokens != budget)) continue;
      StackedBars::Bar bar{.group = policy, .name = fmt::format("{}", row->length_tokens)};
      for (const Metric& time : kTimes) bar.parts.push_back((row->*time.value).value_or(0));
      plot.bars.push_back(std::move(bar));
    }
  }
  return plot;
}

std::string time_plots(const Rows& rows, const PolicyLooks& looks) {
  const Rows timed = only(rows, [](const SparseRow& r) {
    return std::ranges::any_of(kTimes, [&](const Metric& t) { return (r.*t.value).has_value(); });
  });
  const std::vector<int32_t> budgets = budgets_of(timed);
  std::string figures;
  for (const int32_t budget : budgets) figures += figure_of(time_bars(timed, looks, budget));
  if (budgets.empty()) figures += figure_of(time_bars(timed, looks, std::nullopt));
  return group_html(
      "Time of a decoded token",
      "Making digests, scoring pages, choosing among them, reading those that were chosen, and all "
      "the rest. The speed above leaves out digests: a text needs them once, however long its "
      "answer, and here each policy and budget made its own.",
      figures);
}

}  // namespace

std::string task_plots_html(const Rows& rows, const PolicyLooks& looks) {
  const Rows whole = over_all_depths(rows);
  std::string out;
  for (const Metric& quality : kQualities) out += plots_against_budget(whole, looks, quality);
  out += plots_against_length(whole, looks, kPerplexity);
  out += depth_maps(rows, looks);
  out += plots_against_budget(whole, looks, kMassKept);
  out += plots_by_layer(whole, looks);
  out += speed_plots(whole, looks);
  out += time_plots(whole, looks);
  return out;
}

}  // namespace weft::eval
