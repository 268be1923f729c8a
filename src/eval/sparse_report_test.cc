#include "eval/sparse_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace weft::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

SparseRow row_of(std::string task, std::string policy, std::optional<int32_t> budget_tokens,
                 int32_t length_tokens = 4096) {
  return {.task = std::move(task),
          .policy = std::move(policy),
          .budget_tokens = budget_tokens,
          .length_tokens = length_tokens};
}

SparseRow accuracy_row(std::string policy, std::optional<int32_t> budget_tokens, double accuracy,
                       int32_t length_tokens = 4096) {
  SparseRow row = row_of("passkey", std::move(policy), budget_tokens, length_tokens);
  row.accuracy = accuracy;
  return row;
}

/// All kinds of rows and numbers.
std::vector<SparseRow> many_rows() {
  std::vector<SparseRow> rows;
  for (const char* task : {"passkey", "needles", "perplexity", "answers"}) {
    for (const int32_t length : {4096, 8192}) {
      for (const char* policy : {"quest", "oracle", "dense"}) {
        for (const int32_t budget : {256, 512, 1024}) {
          const bool is_dense = policy == std::string("dense");
          if (is_dense && budget > 256) continue;
          SparseRow row =
              row_of(task, policy, is_dense ? std::nullopt : std::optional(budget), length);
          row.trials = 20;
          row.tokens_per_s = 10 + 1000.0 / budget;
          row.score_ms = 1;
          row.other_ms = 20;
          if (!is_dense) {
            row.mass_kept = 0.9;
            row.mass_by_layer = {0.8, 0.9, 1};
          }
          if (task == std::string("perplexity")) {
            row.perplexity = 10 + 100.0 / budget;
            if (!is_dense) row.kl = 1.0 / budget;
          } else if (task == std::string("answers")) {
            row.f1 = 0.5;
            row.rouge_l = 0.25;
          } else {
            row.accuracy = 0.75;
            for (const double depth : {0.0, 0.5, 1.0}) {
              rows.push_back(row);
              rows.back().depth = depth;
            }
          }
          rows.push_back(row);
        }
      }
    }
  }
  return rows;
}

/// What is wrong with the page's tags; empty: each is closed where it must be.
std::string tag_fault(const std::string& page) {
  static const std::regex kTag(
      "<(/?)([a-z][a-z0-9]*)((?:\\s+[-a-zA-Z0-9]+=\"[^\"<>]*\")*)\\s*(/?)>");
  std::vector<std::string> open;
  auto from = page.cbegin() + std::string("<!DOCTYPE html>").size();
  for (std::smatch tag; std::regex_search(from, page.cend(), tag, kTag);
       from = tag.suffix().first) {
    const std::string before = tag.prefix();
    if (before.find_first_of("<") != std::string::npos) return "no tag: " + before;
    if (before.find('>') != std::string::npos && open.back() != "style") return "> in " + before;
    if (tag[1].length() == 0) {
      if (tag[4].length() == 0) open.push_back(tag[2]);
    } else if (open.empty() || open.back() != tag[2]) {
      return tag.str() + " closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

/// From one heading to the next of its level or above.
std::string section(const std::string& page, const std::string& heading) {
  const size_t begin = page.find(heading + "</h");
  if (begin == std::string::npos) return {};
  const size_t level_at = begin + heading.size() + 3;
  size_t end = page.size();
  for (char level = '1'; level <= page[level_at]; ++level) {
    end = std::min(end, page.find(std::string("<h") + level, begin));
  }
  return page.substr(begin, end - begin);
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

std::vector<std::string> cells(const std::string& html, const std::string& tag) {
  const std::regex cell("<" + tag + "(?: [^>]*)?>([^<]*)</" + tag + ">");
  std::vector<std::string> found;
  for (std::sregex_iterator at(html.begin(), html.end(), cell), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

TEST(SparseReport, IsOneWellFormedPageThatNeedsNothingElse) {
  const std::string page = sparse_report_html({.model = "m"}, many_rows());
  EXPECT_EQ(tag_fault(page), "");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  for (const char* foreign : {"<script", "<link", "http", "url(", "@import", "src="}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
  EXPECT_THAT(page, HasSubstr("prefilled dense"));
  EXPECT_THAT(page, HasSubstr("the question was fed token by token through the sparse path"));
}

TEST(SparseReport, OfPerplexityAloneSaysThatNothingIsAsked) {
  std::vector<SparseRow> rows = many_rows();
  std::erase_if(rows, [](const SparseRow& row) { return !row.perplexity; });
  ASSERT_FALSE(rows.empty());
  const std::string page = sparse_report_html({}, rows);
  EXPECT_THAT(page, HasSubstr("each predicted from those before it"));
  EXPECT_THAT(page, Not(HasSubstr("the question")));
}

TEST(SparseReport, TagFaultsAreFound) {
  EXPECT_EQ(tag_fault("<!DOCTYPE html><p><b>x</b></p>"), "");
  EXPECT_NE(tag_fault("<!DOCTYPE html><p><b>x</p></b>"), "");
  EXPECT_NE(tag_fault("<!DOCTYPE html><p>"), "");
  EXPECT_NE(tag_fault("<!DOCTYPE html><p>a < b</p>"), "");
}

TEST(SparseReport, TextFromOutsideIsEscaped) {
  const std::string bad = "<script>alert(\"&'\")</script>";
  SparseReportHead head{bad, bad, bad, bad, bad, bad, bad, bad, bad, bad, bad};
  std::vector<SparseRow> rows = many_rows();
  for (SparseRow& row : rows) {
    row.task += bad;
    if (row.policy != "dense") row.policy += bad;
  }
  const std::string page = sparse_report_html(head, rows);
  EXPECT_EQ(tag_fault(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;&amp;&#39;&quot;)&lt;/script&gt;"));
}

TEST(SparseReport, EveryTaskHasATableOfItsRows) {
  const std::string page = sparse_report_html({}, many_rows());
  for (const char* task : {"passkey", "needles", "perplexity", "answers"}) {
    const std::string table = section(section(page, std::string("Task: ") + task), "All numbers");
    EXPECT_EQ(count(table, "<tr"), 1 + 2 * 7) << task;  // per length dense and two by three budgets
    EXPECT_EQ(count(table, "<tr class=\"reference\">"), 2) << task;
    EXPECT_EQ(count(table, "<tr class=\"yardstick\">"), 6) << task;
  }
}

TEST(SparseReport, NumbersThatAreMissingLeaveNoColumn) {
  const std::string page = sparse_report_html({}, many_rows());
  const auto columns = [&](const char* task) {
    return cells(section(section(page, task), "All numbers"), "th");
  };
  EXPECT_THAT(columns("Task: passkey"),
              ElementsAre("Length (tokens)", "Policy", "Budget (tokens)", "Trials", "Accuracy (%)",
                          "Attention kept (%)", "Speed (tokens/s)", "Score (ms)", "Other (ms)"));
  EXPECT_THAT(columns("Task: answers"),
              ElementsAre("Length (tokens)", "Policy", "Budget (tokens)", "Trials", "F1", "ROUGE-L",
                          "Attention kept (%)", "Speed (tokens/s)", "Score (ms)", "Other (ms)"));
  EXPECT_THAT(columns("Task: perplexity"), IsSupersetOf({"Perplexity", "KL from dense (nats)"}));
  const SparseRow bare[] = {row_of("t", "dense", std::nullopt)};
  EXPECT_THAT(cells(section(sparse_report_html({}, bare), "All numbers"), "th"),
              ElementsAre("Length (tokens)", "Policy"));
}

TEST(SparseReport, TableRowsAreByLengthPolicyAndBudget) {
  const SparseRow rows[] = {
      accuracy_row("quest", 512, 0.5, 8192),
      accuracy_row("quest", 512, 0.25),
      accuracy_row("quest", 256, 0.125),
      accuracy_row("dense", std::nullopt, 1),
  };
  EXPECT_THAT(cells(section(sparse_report_html({}, rows), "All numbers"), "td"),
              ElementsAre("4096", "dense", "all", "100.0", "4096", "quest", "256", "12.5", "4096",
                          "quest", "512", "25.0", "8192", "quest", "512", "50.0"));
}

TEST(SparseReport, PlotsHaveAPointForEachRow) {
  const std::string page = sparse_report_html({}, many_rows());
  const std::string passkey = section(page, "Task: passkey");
  const auto marks = [](const std::string& html) { return count(html, "class=\"mark\""); };
  const std::string accuracy = section(passkey, "Accuracy against budget");
  EXPECT_EQ(count(accuracy, "<figure>"), 2);  // one a length
  EXPECT_EQ(marks(accuracy), 2 * 2 * 3);
  EXPECT_EQ(count(accuracy, "class=\"line level\""), 2);  // dense
  EXPECT_EQ(marks(section(passkey, "Attention kept against budget")), 2 * 2 * 3);
  EXPECT_EQ(marks(section(passkey, "Attention kept by layer")), 2 * 2 * 3);  // three layers each
  EXPECT_EQ(marks(section(passkey, "Speed at equal quality")), 2 * 7);
  const std::string time = section(passkey, "Time of a decoded token");
  EXPECT_EQ(count(time, "<figure>"), 3);  // one a budget
  EXPECT_EQ(count(time, "class=\"bar\""), 3 * 2 * 3);
  const std::string depths = section(passkey, "Accuracy by depth, length 4096 tokens");
  EXPECT_EQ(count(depths, "<figure>"), 3);  // one a policy
  EXPECT_EQ(count(depths, "<rect class=\"cell\""), 3 * 7);

  const std::string perplexity = section(page, "Task: perplexity");
  EXPECT_EQ(marks(section(perplexity, "Perplexity against budget")), 2 * 2 * 3);
  EXPECT_EQ(count(section(perplexity, "Perplexity against length"), "<figure>"), 3);
  EXPECT_EQ(marks(section(perplexity, "Perplexity against length")), 3 * 3 * 2);
  const std::string answers = section(page, "Task: answers");
  EXPECT_EQ(marks(section(answers, "F1 against budget")), 2 * 2 * 3);
  EXPECT_EQ(marks(section(answers, "ROUGE-L against budget")), 2 * 2 * 3);
}

TEST(SparseReport, LayersAreShownAtTheLargestBudgetThatHasThem) {
  std::vector<SparseRow> rows = {row_of("t", "quest", 256), row_of("t", "quest", 512),
                                 row_of("t", "quest", 1024)};
  rows[0].mass_by_layer = {0.5, 0.6};
  rows[1].mass_by_layer = {0.7, 0.8};
  const std::string plots = section(sparse_report_html({}, rows), "Attention kept by layer");
  EXPECT_THAT(plots, HasSubstr("Length 4096, budget 512 tokens"));
  EXPECT_THAT(plots, HasSubstr("layer 1: 80.0 %"));
  EXPECT_THAT(plots, Not(HasSubstr("50.0 %")));
}

/// The cells of the only line of the table of lossless budgets.
std::vector<std::string> lossless(const std::vector<SparseRow>& rows) {
  return cells(section(sparse_report_html({}, rows), "Lossless budget"), "td");
}

TEST(SparseReport, TheLosslessBudgetIsTheLeastThatIsAsAccurateAsDense) {
  EXPECT_THAT(lossless({accuracy_row("dense", std::nullopt, 0.9), accuracy_row("quest", 1024, 0.95),
                        accuracy_row("quest", 512, 0.9), accuracy_row("quest", 256, 0.89),
                        accuracy_row("h2o", 1024, 0.85)}),
              ElementsAre("passkey", "Accuracy (%)", "4096", "90.0", "512", "–"));
  // Where it was measured with its latency.
  std::vector<SparseRow> timed = {accuracy_row("dense", std::nullopt, 0.9),
                                  accuracy_row("quest", 512, 0.9), accuracy_row("quest", 256, 0.9)};
  timed[0].tokens_per_s = 80;
  timed[1].tokens_per_s = 100;
  timed[2].tokens_per_s = 125;
  EXPECT_THAT(lossless(timed),
              ElementsAre("passkey", "Accuracy (%)", "4096", "90.0 (12.5 ms)", "256 (8.0 ms)"));
  // Another length's or depth's rows do not count.
  std::vector<SparseRow> rows = {accuracy_row("dense", std::nullopt, 0.9),
                                 accuracy_row("quest", 512, 1.0, 8192),
                                 accuracy_row("quest", 256, 1.0)};
  rows[2].depth = 0.5;
  EXPECT_THAT(lossless(rows), ElementsAre("passkey", "Accuracy (%)", "4096", "90.0", "–"));
  EXPECT_THAT(lossless({accuracy_row("quest", 512, 1.0)}), ElementsAre());  // nothing to be like
}

TEST(SparseReport, ALosslessPerplexityIsWithinOnePercent) {
  const auto with = [](double at_256, double at_512) {
    std::vector<SparseRow> rows = {row_of("t", "dense", std::nullopt), row_of("t", "quest", 256),
                                   row_of("t", "quest", 512)};
    rows[0].perplexity = 10;
    rows[1].perplexity = at_256;
    rows[2].perplexity = at_512;
    return lossless(rows).back();
  };
  EXPECT_EQ(with(10.11, 10.09), "512");
  EXPECT_EQ(with(10.09, 10.5), "256");
  EXPECT_EQ(with(9.5, 9.5), "256");
  EXPECT_EQ(with(10.2, 10.11), "–");
  EXPECT_EQ(with(std::nan(""), 10.05), "512");
}

// It would make the others one line.
TEST(SparseReport, WeightsBesideEachOtherHaveTablesOfTheirOwnAndAGrid) {
  std::vector<SparseRow> rows;
  for (const char* weights : {"f16", "q4_0"}) {
    for (const int32_t length : {1024, 4096}) {
      for (const int32_t budget : {0, 128, 256}) {
        SparseRow row = accuracy_row(budget == 0 ? "dense" : "quest",
                                     budget == 0 ? std::nullopt : std::optional(budget),
                                     length / 8192.0 + budget / 1024.0, length);
        row.weights = weights;
        rows.push_back(row);
      }
    }
  }
  const std::string page = sparse_report_html({}, rows);
  EXPECT_THAT(page, HasSubstr(">Task: passkey, f16</h2>"));
  EXPECT_THAT(page, HasSubstr(">Task: passkey, q4_0</h2>"));
  const size_t grid = page.find("Length, budget and weights");
  ASSERT_NE(grid, std::string::npos);
  const std::string table = page.substr(grid, page.find("</table>", grid) - grid);
  EXPECT_THAT(table, HasSubstr("<td class=\"word\">quest</td><td class=\"word\">passkey, q4_0</td>"
                               "<td class=\"word\">Accuracy (%)</td><td>4096</td><td>50.0</td>"
                               "<td>62.5</td><td>75.0</td>"));
  EXPECT_EQ(sparse_report_html({}, many_rows()).find("Length, budget and weights"),
            std::string::npos);
}

TEST(SparseReport, ARuinedPerplexityDoesNotStretchTheAxis) {
  std::vector<SparseRow> rows = {row_of("t", "dense", std::nullopt), row_of("t", "quest", 256),
                                 row_of("t", "quest", 512), row_of("t", "streaming", 256)};
  for (SparseRow& row : rows) row.perplexity = 10;
  rows[3].perplexity = 10.5;
  EXPECT_THAT(sparse_report_html({}, rows), Not(HasSubstr("mark beyond")));
  rows[3].perplexity = 500;
  const std::string page = sparse_report_html({}, rows);
  EXPECT_EQ(count(page, "class=\"mark beyond\""), 1);
  EXPECT_THAT(page, HasSubstr("streaming, 256 of 4096 tokens: 500.000"));
}

TEST(SparseReport, SaysWhetherTheDensePathWasMeasured) {
  const SparseRow dense = accuracy_row("dense", std::nullopt, 1),
                  quest = accuracy_row("quest", 64, 1);
  const std::string without = sparse_report_html({}, std::vector{quest});
  EXPECT_THAT(without, HasSubstr("was not measured beside it"));
  EXPECT_THAT(sparse_report_html({}, std::vector{quest, dense}),
              HasSubstr("is compared with the dense path"));
}

TEST(SparseReport, HeadFieldsThatAreEmptyAreLeftOut) {
  const std::string page =
      sparse_report_html({.cpu = "Zen 3", .page_tokens = "16", .command_line = "weft eval"}, {});
  EXPECT_THAT(cells(page, "dt"), ElementsAre("CPU", "Tokens of a page", "Command"));
  EXPECT_THAT(page, HasSubstr("<code>weft eval</code>"));
  EXPECT_THAT(page, HasSubstr("pages of 16 tokens"));
  EXPECT_THAT(page, HasSubstr("Nothing was measured."));
}

TEST(SparseReport, HoldsWithNumbersThatAreNone) {
  std::vector<SparseRow> rows = many_rows();
  for (SparseRow& row : rows) {
    if (row.policy != "quest") continue;
    row.perplexity = std::nan("");
    row.accuracy = INFINITY;
    row.tokens_per_s = -INFINITY;
    row.budget_tokens = 0;
    row.mass_by_layer = {std::nan("")};
    row.depth = std::nan("");
  }
  const std::string page = sparse_report_html({}, rows);
  EXPECT_EQ(tag_fault(page), "");
  EXPECT_THAT(page, Not(testing::ContainsRegex("=\"[^\"]*(nan|inf)[^\"a-z]*\"")));
}

}  // namespace
}  // namespace weft::eval
