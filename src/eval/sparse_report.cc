#include "eval/sparse_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "eval/sparse_report_internal.h"

namespace weft::eval {
namespace {

constexpr std::string_view kPageStyle = R"css(
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 1440px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 8px; }
h2 { font-size: 20px; margin: 40px 0 8px; padding-top: 12px; border-top: 1px solid var(--grid); }
h3 { font-size: 16px; margin: 24px 0 2px; }
p { max-width: 75ch; margin: 6px 0 12px; }
p.note { color: var(--muted); font-size: 13px; margin: 0 0 10px; max-width: 100ch; }
h3, p.note { break-after: avoid; }
p.note:empty { display: none; }
nav a { margin-right: 14px; } a { color: inherit; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 16px;
  font-size: 14px; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
.figures { display: flex; flex-wrap: wrap; gap: 20px 28px; align-items: flex-start; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
thead th { white-space: normal; max-width: 7.5em; border-bottom: 1px solid var(--muted); }
.word { text-align: left; }
tr.reference td { font-weight: 600; background: var(--shade); }
tr.yardstick td { font-style: italic; }
:root { --shade: #f2f4f6; color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) { :root { --shade: #1e2329; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  .figures { display: block; }
  .wide { overflow: visible; } table { font-size: 7.5pt; } th, td { padding: 2px 5px; }
  tr { break-inside: avoid; } :root { color-scheme: light; } }
)css";

// ---- Tables ----

/// What names a row of a task's table, before its numbers.
struct Cell {
  std::string text;
  bool is_word = false;
};

std::string table_row(const char* tag, std::string_view css_class, std::span<const Cell> cells) {
  std::string out = css_class.empty() ? "<tr>" : fmt::format("<tr class=\"{}\">", css_class);
  for (const Cell& cell : cells) {
    out += fmt::format("<{}{}>{}</{}>", tag, cell.is_word ? " class=\"word\"" : "",
                       escape_html(cell.text), tag);
  }
  return out + "</tr>\n";
}

std::string table_html(std::span<const Cell> head, std::string_view body) {
  return fmt::format(
      "<div class=\"wide\"><table>\n<thead>{}</thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
      table_row("th", "", head), body);
}

std::string_view row_class(const std::string& policy) {
  if (policy == kReferencePolicy) return "reference";
  return policy == kYardstickPolicy ? "yardstick" : "";
}

std::string budget_text(const SparseRow& row) {
  if (row.budget_tokens) return fmt::format("{}", *row.budget_tokens);
  return row.policy == kReferencePolicy ? "all" : "–";
}

/// The columns of numbers in which one of the rows has a value.
std::vector<Metric> columns_of(const Rows& rows) {
  constexpr Metric kMore[] = {
      {"KL from dense", "nats", &SparseRow::kl, NumberFormat::kThreeDigits},
      kMassKept,
      {"Top-10 recall", "%", &SparseRow::top10_recall, NumberFormat::kPercent},
      {"K and V read", "%", &SparseRow::bytes_read_share, NumberFormat::kPercent},
      kSpeed,
  };
  std::vector<Metric> columns(std::begin(kQualities), std::end(kQualities));
  columns.insert(columns.end(), std::begin(kMore), std::end(kMore));
  columns.insert(columns.end(), std::begin(kTimes), std::end(kTimes));
  std::erase_if(columns, [&](const Metric& metric) { return !any_has(rows, metric); });
  return columns;
}

std::string task_table(const Rows& rows) {
  const auto any = [&](auto has) { return std::ranges::any_of(rows, has); };
  const bool has_budget = any([](const SparseRow* row) { return row->budget_tokens.has_value(); });
  const bool has_trials = any([](const SparseRow* row) { return row->trials > 0; });
  const std::vector<Metric> columns = columns_of(rows);
  std::vector<Cell> head{{"Length (tokens)"}, {"Policy", true}};
  if (has_budget) head.push_back({"Budget (tokens)"});
  if (has_trials) head.push_back({"Trials"});
  for (const Metric& column : columns) head.push_back({column.title()});
  std::string body;
  for (const SparseRow* row : rows) {
    std::vector<Cell> cells{{fmt::format("{}", row->length_tokens)}, {row->policy, true}};
    if (has_budget) cells.push_back({budget_text(*row)});
    if (has_trials) cells.push_back({row->trials > 0 ? fmt::format("{}", row->trials) : ""});
    for (const Metric& column : columns) {
      const std::optional<double>& value = row->*column.value;
      cells.push_back({value ? number_text(*value, column.format) : ""});
    }
    body += table_row("td", row_class(row->policy), cells);
  }
  return table_html(head, body);
}

// ---- The lossless budget ----

bool is_lossless(const Metric& quality, double value, double dense) {
  constexpr double kAllowedPerplexity = 1.01;
  return quality.value == kPerplexity.value ? value <= kAllowedPerplexity * dense : value >= dense;
}

/// rows: of one task and length. Null: no budget of the policy's is.
const SparseRow* lossless_row(const Rows& rows, const std::string& policy, const Metric& quality,
                              double dense) {
  const SparseRow* least = nullptr;
  for (const SparseRow* row : rows) {
    const std::optional<double>& value = row->*quality.value;
    if (row->policy != policy || !row->budget_tokens || !value) continue;
    if (!is_lossless(quality, *value, dense)) continue;
    if (least == nullptr || *row->budget_tokens < *least->budget_tokens) least = row;
  }
  return least;
}

/// With what a token takes, where that was measured.
std::string with_latency(std::string text, const SparseRow& row) {
  return row.tokens_per_s ? fmt::format("{} ({:.1f} ms)", text, 1e3 / *row.tokens_per_s) : text;
}

/// The rows of the table for one task: a line for each length and kind of quality.
std::string lossless_lines(const std::string& task, const Rows& rows,
                           std::span<const std::string> policies) {
  std::string lines;
  for (const Metric& quality : kQualities) {
    for (const int32_t length : lengths_of(rows)) {
      Rows of;
      const SparseRow* reference = nullptr;
      for (const SparseRow* row : rows) {
        if (row->length_tokens != length) continue;
        of.push_back(row);
        if (row->policy == kReferencePolicy) reference = row;
      }
      if (reference == nullptr || !(reference->*quality.value)) continue;
      const double dense = *(reference->*quality.value);
      std::vector<Cell> cells{{task, true},
                              {quality.title(), true},
                              {fmt::format("{}", length)},
                              {with_latency(number_text(dense, quality.format), *reference)}};
      for (const std::string& policy : policies) {
        const SparseRow* const row = lossless_row(of, policy, quality, dense);
        cells.push_back(
            {row != nullptr ? with_latency(fmt::format("{}", *row->budget_tokens), *row) : "–"});
      }
      lines += table_row("td", "", cells);
    }
  }
  return lines;
}

// ---- The page ----

using Task = std::pair<std::string, Rows>;  // its name and rows

/// In the order of their first rows, with other weights as other ones; each one's rows by length,
/// policy and budget.
std::vector<Task> tasks_of(std::span<const SparseRow> rows, const PolicyLooks& looks) {
  std::vector<Task> tasks;
  for (const SparseRow& row : rows) {
    const std::string name = row.weights.empty() ? row.task : row.task + ", " + row.weights;
    auto task = std::ranges::find(tasks, name, &Task::first);
    if (task == tasks.end()) task = tasks.insert(task, {name, {}});
    task->second.push_back(&row);
  }
  for (Task& task : tasks) {
    std::ranges::stable_sort(task.second, {}, [&](const SparseRow* row) {
      return std::tuple(row->length_tokens, looks.of(row->policy).place, row->budget_tokens);
    });
  }
  return tasks;
}

std::string head_html(const SparseReportHead& head) {
  const std::pair<const char*, const std::string&> fields[] = {
      {"Model", head.model},
      {"CPU", head.cpu},
      {"Instruction set", head.isa},
      {"Threads", head.threads},
      {"Types of K, V", head.kv_types},
      {"Tokens of a page", head.page_tokens},
      {"Layers that read everything", head.dense_layers},
      {"Seed", head.seed},
      {"weft", head.version},
      {"Date", head.date},
      {"Unfinished", head.unfinished},
  };
  std::string out = "<dl>\n";
  for (const auto& [name, value] : fields) {
    if (!value.empty()) out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escape_html(value));
  }
  if (!head.command_line.empty()) {
    out += "<dt>Command</dt><dd><code>" + escape_html(head.command_line) + "</code></dd>\n";
  }
  return out + "</dl>\n";
}

/// Whether all of it is how well a text is predicted, which asks nothing.
bool is_perplexity(std::span<const SparseRow> rows) {
  return !rows.empty() &&
         std::ranges::all_of(rows, [](const SparseRow& row) { return row.perplexity.has_value(); });
}

std::string what_was_measured(const SparseReportHead& head, std::span<const SparseRow> rows) {
  const std::string pages =
      head.page_tokens.empty() ? "pages" : fmt::format("pages of {} tokens", head.page_tokens);
  const bool has_dense =
      rows.empty() || std::ranges::count(rows, kReferencePolicy, &SparseRow::policy) > 0;
  return fmt::format(
      "<p>Each text was prefilled dense, every token attending to all before it; then {}. There "
      "a policy chooses the {} of K and V that a token reads in the layers that select (labels, "
      "labels-sample and the oracle, without locks: runs of eight tokens of them), as many as the "
      "budget holds{}.</p>\n",
      is_perplexity(rows)
          ? "its last tokens came one by one through the sparse path, each predicted from those "
            "before it"
          : "the question was fed token by token through the sparse path, on which the answer was "
            "decoded too",
      escape_html(pages),
      has_dense ? ", and is compared with the dense path, which reads all of them"
                : "; the dense path, which reads all of them, was not measured beside it");
}

std::string lossless_section(std::span<const Task> tasks, const PolicyLooks& looks) {
  std::vector<std::string> policies = looks.names();
  std::erase(policies, kReferencePolicy);
  std::vector<Cell> head{{"Task", true}, {"Quality", true}, {"Length (tokens)"}, {"Dense"}};
  for (const std::string& policy : policies) head.push_back({policy});
  std::string lines;
  for (const auto& [task, rows] : tasks) {
    lines += lossless_lines(task, over_all_depths(rows), policies);
  }
  if (lines.empty() || policies.empty()) return {};
  return "<h2 id=\"lossless\">Lossless budget</h2>\n<p>The least budget, in tokens, at which a "
         "policy's accuracy, F1 or ROUGE-L is no less than the dense path's, or its perplexity at "
         "most 1 % more, – where none is; and what a token takes then.</p>\n" +
         table_html(head, lines);
}

/// One policy's lines for one task: of each length what dense decoding and the budgets reach.
std::string grid_lines(const Task& task, const std::string& policy,
                       std::span<const int32_t> budgets) {
  std::string lines;
  for (const Metric& quality : kQualities) {
    for (const int32_t length : lengths_of(task.second)) {
      std::vector<Cell> cells{
          {policy, true}, {task.first, true}, {quality.title(), true}, {fmt::format("{}", length)}};
      bool has_any = false;
      const auto add = [&](const std::string& of, std::optional<int32_t> budget) {
        const auto row = std::ranges::find_if(task.second, [&](const SparseRow* r) {
          return r->policy == of && r->length_tokens == length && r->budget_tokens == budget &&
                 (r->*quality.value).has_value();
        });
        const bool has = row != task.second.end();
        cells.push_back({has ? number_text(*((*row)->*quality.value), quality.format) : ""});
        return has;
      };
      add(std::string(kReferencePolicy), std::nullopt);
      for (const int32_t budget : budgets) has_any |= add(policy, budget);
      if (has_any) lines += table_row("td", "", cells);
    }
  }
  return lines;
}

/// Length by budget by weights, where there are several of each but the budgets.
std::string grid_section(std::span<const SparseRow> rows, std::span<const Task> tasks,
                         const PolicyLooks& looks) {
  if (std::ranges::all_of(rows, [](const SparseRow& row) { return row.weights.empty(); }))
    return {};
  Rows all;
  for (const SparseRow& row : rows) all.push_back(&row);
  const std::vector<int32_t> budgets = budgets_of(all);
  std::vector<Cell> head{{"Policy", true}, {"Task and weights", true}, {"Quality", true}};
  head.insert(head.end(), {{"Length (tokens)"}, {"Dense"}});
  for (const int32_t budget : budgets) head.push_back({fmt::format("{}", budget)});
  std::string lines;
  for (const std::string& policy : looks.names()) {
    if (policy == kReferencePolicy) continue;
    for (const auto& [task, its_rows] : tasks) {
      lines += grid_lines({task, over_all_depths(its_rows)}, policy, budgets);
    }
  }
  if (lines.empty()) return {};
  return "<h2 id=\"grid\">Length, budget and weights</h2>\n<p>What each policy reaches at each "
         "budget, in tokens.</p>\n" +
         table_html(head, lines);
}

std::string navigation(std::span<const Task> tasks) {
  if (tasks.size() < 2) return {};
  std::string out = "<nav>";
  for (size_t i = 0; i < tasks.size(); ++i) {
    out += fmt::format("<a href=\"#task-{}\">{}</a> ", i, escape_html(tasks[i].first));
  }
  return out + "</nav>\n";
}

}  // namespace

PolicyLooks::PolicyLooks(std::span<const SparseRow> rows) {
  int32_t n_measured = 0;
  for (const SparseRow& row : rows) {
    if (looks_.contains(row.policy)) continue;
    SeriesStyle style;
    if (row.policy == kReferencePolicy) {
      style.kind = SeriesKind::kReference;
      names_.insert(names_.begin(), row.policy);
    } else {
      const bool is_yardstick = row.policy == kYardstickPolicy;
      style.kind = is_yardstick ? SeriesKind::kYardstick : SeriesKind::kMeasured;
      if (!is_yardstick) style.index = n_measured++;
      names_.push_back(row.policy);
    }
    looks_[row.policy].style = style;
  }
  for (int64_t i = 0; i < std::ssize(names_); ++i) looks_[names_[i]].place = i;
}

bool any_has(const Rows& rows, const Metric& metric) {
  return std::ranges::any_of(
      rows, [&](const SparseRow* row) { return (row->*metric.value).has_value(); });
}

std::vector<int32_t> lengths_of(const Rows& rows) {
  std::set<int32_t> lengths;
  for (const SparseRow* row : rows) lengths.insert(row->length_tokens);
  return {lengths.begin(), lengths.end()};
}

std::vector<int32_t> budgets_of(const Rows& rows) {
  std::set<int32_t> budgets;
  for (const SparseRow* row : rows) {
    if (row->budget_tokens) budgets.insert(*row->budget_tokens);
  }
  return {budgets.begin(), budgets.end()};
}

Rows over_all_depths(const Rows& rows) {
  Rows whole;
  for (const SparseRow* row : rows) {
    if (!row->depth) whole.push_back(row);
  }
  return whole;
}

std::string sparse_report_html(const SparseReportHead& head, std::span<const SparseRow> rows) {
  const PolicyLooks looks(rows);
  const std::vector<Task> tasks = tasks_of(rows, looks);
  const std::string title =
      head.model.empty() ? "Sparse decoding" : "Sparse decoding of " + escape_html(head.model);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      title, plot_style_sheet(), kPageStyle, title);
  out += what_was_measured(head, rows);
  out += head_html(head);
  out += navigation(tasks);
  if (rows.empty()) out += "<p>Nothing was measured.</p>\n";
  out += lossless_section(tasks, looks);
  out += grid_section(rows, tasks, looks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Rows whole = over_all_depths(tasks[i].second);
    out += fmt::format("<h2 id=\"task-{}\">Task: {}</h2>\n", i, escape_html(tasks[i].first));
    out += task_plots_html(tasks[i].second, looks);
    if (!whole.empty()) out += "<h3>All numbers</h3>\n" + task_table(whole);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace weft::eval
