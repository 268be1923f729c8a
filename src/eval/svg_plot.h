// Plots as inline SVG for an HTML page: lines with marks, stacked bars and tables of shades. What
// they show comes in as plain names and numbers; names may hold anything, they are escaped. All
// colours are classes of plot_style_sheet(), so that the page can be light or dark. It knows
// nothing of policies or tasks, and reads and writes no files. Thread-safe; no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::eval {

/// The text for between tags and in quoted attributes. What is no UTF-8 and control characters
/// become U+FFFD, so that the page is well-formed whatever a file's metadata hold.
std::string escape_html(std::string_view text);

enum class NumberFormat {
  kCount,          // 16384
  kPercent,        // of a share: 0.938 is 93.8
  kThreeDecimals,  // 0.873
  kThreeDigits,    // 123, 12.3, 1.23, 0.123, 0.012
};
std::string number_text(double value, NumberFormat format);

/// The style sheet's rules for the plots: colours for light, dark and print, told apart by the
/// colour-blind too.
std::string_view plot_style_sheet();

/// How a series looks: each index has its colour and its mark; after seven the marks are hollow.
/// A reference (dashed) and a yardstick (dotted) are drawn in the text's own colour.
enum class SeriesKind { kMeasured, kReference, kYardstick };
struct SeriesStyle {
  SeriesKind kind = SeriesKind::kMeasured;
  int32_t index = 0;  // of the measured ones
};

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string hint;  // shown where the pointer rests
  double size = 1;   // of the mark
};

struct Series {
  std::string name;
  SeriesStyle style;
  std::vector<PlotPoint> points;  // in the order of the line
  bool is_level = false;          // a line across the plot at the first point's y, without mark
};

struct Axis {
  std::string title;  // with the unit
  NumberFormat format = NumberFormat::kThreeDigits;
  bool is_log = false;
  bool ticks_at_values = false;       // of the points, where they have room
  std::optional<double> least, most;  // that it reaches to at least
  /// Points above it do not widen the y axis: they are at its upper edge, hollow, and the name of
  /// a line that ends there has an arrow.
  std::optional<double> cap;
};

/// Names are at the right of the lines that they belong to, or in a column where lines do not end
/// at the right. Points that are not finite, and on a log axis those not above zero, are not shown.
struct LinePlot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  bool names_at_line_ends = true;
};
std::string figure_of(const LinePlot& plot);

/// Bars from left to right, one below the other, in groups.
struct StackedBars {
  struct Bar {
    std::string group, name;
    std::vector<double> parts;  // [part_names]
  };
  std::string title;
  std::string group_title, name_title, value_title;
  std::vector<std::string> part_names;  // at most five
  std::vector<Bar> bars;
};
std::string figure_of(const StackedBars& plot);

/// A shade and a number for each cell.
struct HeatMap {
  std::string title, column_title, row_title;
  std::vector<std::string> columns, rows;
  std::vector<std::optional<double>> shares;  // [rows, columns], 0 to 1
};
std::string figure_of(const HeatMap& plot);

}  // namespace weft::eval
