#include "eval/svg_plot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

namespace weft::eval {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The first group of each match, as numbers.
std::vector<double> numbers(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<double> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.push_back(std::stod((*at)[1]));
  }
  return found;
}

std::vector<std::string> texts(const std::string& svg) {
  static const std::regex kText("<text[^>]*>([^<]*)</text>");
  std::vector<std::string> found;
  for (std::sregex_iterator at(svg.begin(), svg.end(), kText), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

/// The corners' x or y of the lines, one after the other.
std::vector<double> line_x(const std::string& svg) {
  const std::string path =
      std::regex_replace(svg, std::regex("[^]*class=\"line\" d=\"([^\"]*)\"[^]*"), "$1");
  return numbers(path, "[ML]([-0-9.]+) ");
}
std::vector<double> line_y(const std::string& svg) {
  const std::string path =
      std::regex_replace(svg, std::regex("[^]*class=\"line\" d=\"([^\"]*)\"[^]*"), "$1");
  return numbers(path, "[ML][-0-9.]+ ([-0-9.]+)");
}

LinePlot plot_of(std::vector<PlotPoint> points) {
  LinePlot plot{.title = "t", .x = {.title = "x"}, .y = {.title = "y"}};
  plot.series.push_back({.name = "a", .points = std::move(points)});
  return plot;
}

TEST(SvgPlot, EscapesMarkupAndWhatIsNoText) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_html("naïve 日本 \n"), "naïve 日本 \n");
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1b\x7f", 5)), "a\ufffdb\ufffd\ufffd");
  EXPECT_EQ(escape_html("\xff\xc3"), "\ufffd\ufffd");
}

TEST(SvgPlot, NumbersHaveTheDigitsThatMatter) {
  EXPECT_EQ(number_text(16384, NumberFormat::kCount), "16384");
  EXPECT_EQ(number_text(0.9375, NumberFormat::kPercent), "93.8");
  EXPECT_EQ(number_text(12.3456, NumberFormat::kThreeDecimals), "12.346");
  EXPECT_EQ(number_text(1234.5, NumberFormat::kThreeDigits), "1234");
  EXPECT_EQ(number_text(99.96, NumberFormat::kThreeDigits), "100");
  EXPECT_EQ(number_text(9.996, NumberFormat::kThreeDigits), "10.0");
  EXPECT_EQ(number_text(1.5, NumberFormat::kThreeDigits), "1.50");
  EXPECT_EQ(number_text(0.0123, NumberFormat::kThreeDigits), "0.012");
  EXPECT_EQ(number_text(0, NumberFormat::kThreeDigits), "0");
}

TEST(SvgPlot, LargerValuesAreFurtherUpAndRight) {
  const std::string svg = figure_of(plot_of({{1, 10}, {2, 30}, {4, 20}}));
  const std::vector<double> x = line_x(svg);
  const std::vector<double> y = line_y(svg);
  ASSERT_EQ(x.size(), 3u);
  EXPECT_NEAR(x[2] - x[1], 2 * (x[1] - x[0]), 0.15);  // of one decimal each
  EXPECT_NEAR(y[0] - y[2], y[2] - y[1], 0.15);
  EXPECT_GT(y[0], y[2]);
}

TEST(SvgPlot, ALogAxisHasEqualStepsForEqualRatios) {
  LinePlot plot = plot_of({{256, 1}, {512, 2}, {1024, 3}});
  plot.x = {.title = "tokens", .format = NumberFormat::kCount};
  plot.x.is_log = plot.x.ticks_at_values = true;
  const std::string svg = figure_of(plot);
  const std::vector<double> x = line_x(svg);
  ASSERT_EQ(x.size(), 3u);
  EXPECT_NEAR(x[2] - x[1], x[1] - x[0], 0.15);
  for (const char* tick : {"256", "512", "1024", "tokens", "y"}) {
    EXPECT_THAT(texts(svg), testing::Contains(tick));
  }
}

TEST(SvgPlot, NumbersOfTheAxisThatHaveNoRoomAreLeftOut) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({10000.0 + i, 1});
  LinePlot plot = plot_of(points);
  plot.x = {.title = "tokens", .format = NumberFormat::kCount};
  plot.x.ticks_at_values = true;
  const std::string svg = figure_of(plot);
  // x of the texts below the axis, 5 digits of more than 6 px each
  const std::vector<double> x = numbers(svg, "<text x=\"([0-9.]+)\"[^>]*>10\\d\\d\\d<");
  ASSERT_GT(x.size(), 3u);
  for (size_t i = 1; i < x.size(); ++i) EXPECT_GE(x[i] - x[i - 1], 30);
}

TEST(SvgPlot, NamesOfLinesThatEndTogetherDoNotOverlap) {
  LinePlot plot = plot_of({{1, 1}, {2, 1}});
  for (int i = 1; i < 20; ++i) {
    plot.series.push_back({.name = "a", .style = {.index = i}, .points = {{1, 1}, {2, 1}}});
  }
  const std::string svg = figure_of(plot);
  std::vector<double> y = numbers(svg, "<text [^>]*y=\"([0-9.]+)\"[^>]*class=\"name\">a<");
  std::ranges::sort(y);
  ASSERT_EQ(y.size(), 20u);
  for (size_t i = 1; i < y.size(); ++i) EXPECT_GE(y[i] - y[i - 1], 12);
  EXPECT_GE(y.front(), 0);
  EXPECT_LE(y.back(), numbers(svg, "height=\"([0-9]+)\"").front());
}

TEST(SvgPlot, WhatIsBeyondTheCapIsAtTheEdgeWithAnArrow) {
  LinePlot plot = plot_of({{1, 10}, {2, 11}});
  plot.series.push_back({.name = "far", .style = {.index = 1}, .points = {{1, 500}, {2, 900}}});
  EXPECT_THAT(figure_of(plot), Not(HasSubstr("far ↑")));
  EXPECT_THAT(figure_of(plot), Not(HasSubstr("mark beyond")));
  plot.y.cap = 12;
  const std::string svg = figure_of(plot);
  EXPECT_THAT(texts(svg), testing::Contains("far ↑"));
  EXPECT_EQ(numbers(svg, "class=\"mark beyond\" d=\"M([0-9.]+)").size(), 2u);
  EXPECT_THAT(texts(svg), testing::Contains("a"));
  EXPECT_THAT(texts(svg), Not(testing::Contains("900")));
}

TEST(SvgPlot, ALevelCrossesThePlotWithoutAMark) {
  LinePlot plot = plot_of({{1, 10}, {2, 11}});
  plot.series.push_back({.name = "dense",
                         .style = {.kind = SeriesKind::kReference},
                         .points = {{0, 10.5}},
                         .is_level = true});
  const std::string svg = figure_of(plot);
  EXPECT_EQ(numbers(svg, "class=\"line level\" x1=\"([0-9.]+)\"").size(), 1u);
  EXPECT_EQ(numbers(svg, "class=\"mark\" d=\"M([0-9.]+)").size(), 2u);
  plot.series.erase(plot.series.begin());  // a level by itself is no plot
  EXPECT_EQ(figure_of(plot), "");
}

TEST(SvgPlot, WhatIsNoNumberIsNotDrawn) {
  const double inf = std::numeric_limits<double>::infinity();
  LinePlot plot = plot_of({{1, std::nan("")}, {2, inf}, {3, -inf}});
  EXPECT_EQ(figure_of(plot), "");
  plot.series[0].points.push_back({4, 5});
  const std::string svg = figure_of(plot);
  EXPECT_EQ(numbers(svg, "class=\"mark\" d=\"M([0-9.]+)").size(), 1u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(SvgPlot, BarsAreAsLongAsTheirParts) {
  const StackedBars plot{.title = "t",
                         .group_title = "policy",
                         .name_title = "length",
                         .value_title = "ms",
                         .part_names = {"one", "two"},
                         .bars = {{"g", "4096", {1, 3}}, {"g", "8192", {2, 0}}}};
  const std::string svg = figure_of(plot);
  const std::vector<double> widths =
      numbers(svg, "<rect class=\"p\\d\" [^>]*width=\"([0-9.]+)\" height=\"12\"");
  ASSERT_EQ(widths.size(), 3u);  // a part of nothing has no bar
  EXPECT_NEAR(widths[1], 3 * widths[0], 0.05);
  EXPECT_NEAR(widths[2], 2 * widths[0], 0.05);
  for (const char* text : {"g", "4096", "8192", "one", "two", "policy", "length", "ms", "4.00"}) {
    EXPECT_THAT(texts(svg), testing::Contains(text));
  }
}

// A decoded token's time has five parts.
TEST(SvgPlot, EachPartOfABarHasAColour) {
  StackedBars plot{.title = "t", .bars = {{"g", "4096", {}}}};
  for (const char* name : {"one", "two", "three", "four", "five"}) {
    plot.part_names.push_back(name);
    plot.bars[0].parts.push_back(1);
  }
  const std::string svg = figure_of(plot);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(svg, HasSubstr(fmt::format("<rect class=\"p{}\"", i)));
    EXPECT_THAT(std::string(plot_style_sheet()), HasSubstr(fmt::format(".p{} {{ fill", i)));
  }
}

TEST(SvgPlot, AHeatMapHasAShadeAndANumberForEachCell) {
  const HeatMap map{.title = "t",
                    .column_title = "budget",
                    .row_title = "depth",
                    .columns = {"256", "512"},
                    .rows = {"0", "50"},
                    .shares = {0.25, 1.0, std::nullopt, 0.5}};
  const std::string svg = figure_of(map);
  EXPECT_THAT(numbers(svg, "fill-opacity=\"([0-9.]+)\""), testing::ElementsAre(0.25, 1, 0.5));
  EXPECT_THAT(numbers(svg, "class=\"cell[ on]*\">([0-9]+)<"), testing::ElementsAre(25, 100, 50));
}

TEST(SvgPlot, LongNamesAreCutBetweenCharacters) {
  LinePlot plot = plot_of({{1, 10}, {2, 11}});
  plot.series[0].name = std::string(10, 'x') + "日本語日本語日本語日本語日本語";
  EXPECT_THAT(texts(figure_of(plot)), testing::Contains("xxxxxxxxxx日本語日本語日本語…"));
}

}  // namespace
}  // namespace weft::eval
