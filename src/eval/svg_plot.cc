#include "eval/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>
#include <span>
#include <utility>

#include "base/narrow.h"
#include "base/utf8.h"

namespace weft::eval {
namespace {

constexpr int32_t kColours = 7;
constexpr double kCharPx = 6.2;  // of the style sheet's 11 px font, an estimate
constexpr double kLineOfTextPx = 14;
constexpr size_t kLongestName = 20;

// Okabe and Ito's seven colours were the beginning; their yellow and light blue are too pale for
// lines on white. A program searched for these from there. The least distance of two of them
// (OKLab, times 100; colour blindness simulated as by Machado et al. 2009) is 12 on white and 11 on
// dark under protanopia and deuteranopia, 10 under tritanopia; at the beginning 5 to 7. Their
// contrast to the page is 2.6 or more (4 on dark), and the marks tell the series apart without
// colour.
constexpr std::string_view kStyleSheet = R"css(
:root { --page: #fff; --ink: #1c2024; --muted: #5a626b; --grid: #e3e6ea; --heat: #0b5cad;
  --on-heat: #fff; --c0: #043fcc; --c1: #e0393c; --c2: #01b397; --c3: #995190; --c4: #e48c06;
  --c5: #567be8; --c6: #912c01; --p0: #332288; --p1: #44aa99; --p2: #ddaa33; --p3: #b9bfc6;
  --p4: #cc6677; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #14171c; --ink: #e8eaed; --muted: #a4acb5; --grid: #2c323a; --heat: #6db3f2;
    --on-heat: #0c0f13; --c0: #4a8fbd; --c1: #ff7d0a; --c2: #00bf91; --c3: #d099fa; --c4: #f3d42b;
    --c5: #a8e5ed; --c6: #9d4af3; --p0: #8f7ff0; --p1: #44aa99; --p2: #e8c35a; --p3: #6b737d;
    --p4: #d98594; }
}
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); }
.p0 { fill: var(--p0); } .p1 { fill: var(--p1); } .p2 { fill: var(--p2); } .p3 { fill: var(--p3); }
.p4 { fill: var(--p4); }
.reference { --c: var(--ink); } .yardstick { --c: var(--muted); }
figure { margin: 0; break-inside: avoid; max-width: 100%; }
figcaption { font-size: 13px; font-weight: 600; margin: 0 0 4px; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font: 11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--muted); }
svg text.name { fill: var(--ink); }
svg text.cell { fill: var(--ink); } svg text.on { fill: var(--on-heat); }
svg .grid { stroke: var(--grid); } svg .frame { stroke: var(--muted); }
svg .line { fill: none; stroke: var(--c); stroke-width: 1.8; }
svg .reference .line { stroke-dasharray: 7 4; } svg .yardstick .line { stroke-dasharray: 1.5 3; }
svg .mark { fill: var(--c); stroke: var(--page); stroke-width: 1; }
svg .hollow .mark, svg .hollow .key, svg .beyond { fill: var(--page); stroke: var(--c);
  stroke-width: 1.6; }
svg .key { fill: var(--c); } svg .leader { stroke: var(--c); stroke-width: 0.8; opacity: 0.55; }
svg rect.cell { fill: var(--heat); stroke: var(--grid); }
@media print { figure { display: inline-block; max-width: 48%; margin: 0 1% 12px 0; }
  svg, svg * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)css";

// ---- Text ----

template <class... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

/// At most so many characters, the last an ellipsis where some were cut off.
std::string shortened(std::string_view name, size_t most) {
  std::vector<size_t> begins;
  for (size_t at = 0; at < name.size(); at += std::max<size_t>(1, utf8_char_bytes(name, at))) {
    begins.push_back(at);
  }
  if (begins.size() <= most) return std::string(name);
  return std::string(name.substr(0, begins[most - 1])) + "…";
}

double width_px(std::string_view text) {
  const auto n = std::ranges::count_if(text, [](char c) { return !is_utf8_continuation(c); });
  return kCharPx * n;
}

double widest_px(std::span<const std::string> names) {
  double widest = 0;
  for (const std::string& name : names) {
    widest = std::max(widest, width_px(shortened(name, kLongestName)));
  }
  return widest;
}

enum class Anchor { kStart, kMiddle, kEnd };

/// css_class may be empty. y is the text's middle.
void add_text(std::string& out, double x, double y, Anchor anchor, std::string_view css_class,
              std::string_view text) {
  constexpr std::array<std::string_view, 3> kAnchors{"start", "middle", "end"};
  add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>", x, y + 4,
      kAnchors[to_underlying(anchor)],
      css_class.empty() ? "" : fmt::format(" class=\"{}\"", css_class), escape_html(text));
}

void add_name(std::string& out, double x, double y, Anchor anchor, std::string_view name) {
  add_text(out, x, y, anchor, "name", shortened(name, kLongestName));
}

void add_upright_text(std::string& out, double x, double y, std::string_view text) {
  add(out, "<text text-anchor=\"middle\" transform=\"translate({:.1f} {:.1f}) rotate(-90)\">",
      x + 4, y);
  out += escape_html(text) + "</text>";
}

void add_line(std::string& out, std::string_view css_class, double x1, double y1, double x2,
              double y2) {
  add(out, R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", css_class, x1,
      y1, x2, y2);
}

std::string figure_html(std::string_view title, double width, double height,
                        std::string_view drawing) {
  const std::string caption = escape_html(title);
  return fmt::format(
      "<figure><figcaption>{}</figcaption>\n<svg role=\"img\" aria-label=\"{}\" "
      "viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">\n{}</svg></figure>\n",
      caption, caption, width, height, width, height, drawing);
}

// ---- Scales ----

double factor_of(NumberFormat format) { return format == NumberFormat::kPercent ? 100 : 1; }

bool is_shown(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.is_log || value > 0);
}

/// 1, 2 or 5 times a power of ten: the least that is not below `wanted`, which is above 0.
double round_step(double wanted) {
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= wanted * (1 - 1e-9)) return digit * power;
  }
  return 10 * power;
}

/// Where values are on one axis of a plot.
class Scale {
 public:
  /// values: those that are shown, at least one.
  Scale(const Axis& axis, std::vector<double> values, double begin_px, double end_px)
      : axis_(axis), values_(std::move(values)), begin_px_(begin_px), end_px_(end_px) {
    for (double& value : values_) value = std::min(value, axis.cap.value_or(value));
    std::ranges::sort(values_);
    values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
    least_ = std::min(values_.front(), axis.least.value_or(values_.front()));
    most_ = std::max(values_.back(), axis.most.value_or(values_.back()));
    if (axis.is_log) {
      pad_log();
    } else {
      round_outwards();
    }
  }

  double most() const { return most_; }
  /// At the edge for what is beyond it.
  double at(double value) const {
    value = std::clamp(value, least_, most_);
    const double share = (on_axis(value) - on_axis(least_)) / (on_axis(most_) - on_axis(least_));
    return begin_px_ + share * (end_px_ - begin_px_);
  }

  struct Tick {
    double px = 0;
    std::string text;
  };
  std::vector<Tick> ticks() const {
    std::vector<Tick> ticks;
    for (const double value : tick_values()) ticks.push_back({at(value), text_of(value)});
    return ticks;
  }

 private:
  double on_axis(double value) const { return axis_.is_log ? std::log2(value) : value; }

  void pad_log() {
    const double pad = std::max(0.05 * std::log2(most_ / least_), 0.15);
    least_ *= std::exp2(-pad);
    most_ *= std::exp2(pad);
  }

  /// An axis does not go below zero, nor above 100 %, where no value does.
  void round_outwards() {
    const bool has_negative = least_ < 0;
    const bool is_share = axis_.format == NumberFormat::kPercent && most_ <= 1;
    if (least_ == most_) {
      const double pad = least_ == 0 ? 1 : 0.1 * std::abs(least_);
      least_ -= pad;
      most_ += pad;
    }
    step_ = round_step((most_ - least_) / 5);
    if (axis_.format == NumberFormat::kCount) step_ = std::max(step_, 1.0);
    least_ = step_ * std::floor(least_ / step_ + 1e-9);
    most_ = step_ * std::ceil(most_ / step_ - 1e-9);
    if (!has_negative) least_ = std::max(least_, 0.0);
    if (is_share) most_ = std::min(most_, 1.0);
  }

  std::vector<double> tick_values() const {
    if (axis_.ticks_at_values) return values_;
    std::vector<double> ticks;
    if (!axis_.is_log) {
      const auto n = std::lround((most_ - least_) / step_);
      for (int64_t i = 0; i <= n; ++i) ticks.push_back(least_ + i * step_);
      return ticks;
    }
    const double last = std::log10(most_);
    for (double exponent = std::floor(std::log10(least_)); exponent <= last; ++exponent) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = digit * std::pow(10, exponent);
        if (value >= least_ && value <= most_) ticks.push_back(value);
      }
    }
    return ticks;
  }

  std::string text_of(double value) const {
    const double factor = factor_of(axis_.format);
    if (axis_.is_log || axis_.ticks_at_values) {
      return axis_.format == NumberFormat::kCount ? number_text(value, axis_.format)
                                                  : fmt::format("{:g}", factor * value);
    }
    const double decimals = std::max(0.0, std::ceil(-std::log10(factor * step_) - 1e-9));
    return fmt::format("{:.{}f}", factor * value, static_cast<int>(decimals));
  }

  Axis axis_;
  std::vector<double> values_;
  double begin_px_, end_px_;
  double least_ = 0;
  double most_ = 0;
  double step_ = 0;  // of a linear axis
};

/// The grid's lines up from the axis and their numbers below it, where these have room.
void add_x_ticks(std::string& out, const Scale& scale, double top, double bottom) {
  double free_from = -1e9;
  for (const Scale::Tick& tick : scale.ticks()) {
    add_line(out, "grid", tick.px, top, tick.px, bottom);
    const double half = width_px(tick.text) / 2;
    if (tick.px - half < free_from) continue;
    add_text(out, tick.px, bottom + 12, Anchor::kMiddle, "", tick.text);
    free_from = tick.px + half + 5;
  }
}

// ---- Marks ----

struct MarkShape {
  int corners;   // 0: round
  double inner;  // radius between two corners of a star; 0: no star
  double turn;   // degrees
  double size;   // so that all look equally large
};
constexpr std::array<MarkShape, kColours> kMarks{{
    {0, 0, 0, 1},         // disc
    {4, 0, 45, 1.15},     // square
    {3, 0, -90, 1.25},    // triangle up
    {4, 0, 0, 1.25},      // diamond
    {3, 0, 90, 1.25},     // triangle down
    {4, 0.38, 45, 1.5},   // cross
    {5, 0.45, -90, 1.4},  // star
}};

const MarkShape& shape_of(const SeriesStyle& style) {
  const bool is_measured = style.kind == SeriesKind::kMeasured;
  return kMarks[is_measured ? style.index % kColours : 0];
}

std::string outline(const MarkShape& shape, double x, double y, double size) {
  const double outer = 3.8 * size * shape.size;
  if (shape.corners == 0) {
    // Two half circles. The diameter is twice the radius as it is written, else they are more.
    const double radius = std::round(10 * outer) / 10;
    return fmt::format(
        "M{0:.1f} {1:.1f}a{2:.1f} {2:.1f} 0 1 0 {3:.1f} 0a{2:.1f} {2:.1f} 0 1 0 -{3:.1f} 0z",
        x - radius, y, radius, 2 * radius);
  }
  const int n = shape.inner > 0 ? 2 * shape.corners : shape.corners;
  std::string path;
  for (int i = 0; i < n; ++i) {
    const double angle = shape.turn * std::numbers::pi / 180 + 2 * std::numbers::pi * i / n;
    const double radius = outer * (n > shape.corners && i % 2 == 1 ? shape.inner : 1);
    add(path, "{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', x + radius * std::cos(angle),
        y + radius * std::sin(angle));
  }
  return path + "z";
}

/// Classes of a series' group, for the style sheet.
std::string classes_of(const SeriesStyle& style) {
  if (style.kind == SeriesKind::kReference) return "series reference";
  if (style.kind == SeriesKind::kYardstick) return "series yardstick hollow";
  return fmt::format("series s{}{}", style.index % kColours,
                     style.index >= kColours ? " hollow" : "");
}

// ---- Lines ----

constexpr double kPlotWidth = 280;
constexpr double kPlotHeight = 200;

/// Moves labels that are too near to each other apart, within top and bottom as far as there is
/// room: down in one pass, and back up from the bottom.
void spread_labels(std::vector<double>& sorted_px, double top, double bottom) {
  double least = top;
  for (double& px : sorted_px) {
    px = std::max(px, least);
    least = px + kLineOfTextPx;
  }
  double most = bottom;
  for (size_t i = sorted_px.size(); i-- > 0;) {
    sorted_px[i] = std::min(sorted_px[i], most);
    most = sorted_px[i] - kLineOfTextPx;
  }
}

class LineDrawing {
 public:
  explicit LineDrawing(const LinePlot& plot) : plot_(plot), series_(shown_series(plot)) {}

  std::string figure() {
    if (series_.empty()) return {};
    set_layout();
    const Scale x(plot_.x, values(&PlotPoint::x), left_, right_);
    const Scale y(plot_.y, values(&PlotPoint::y), bottom_, kTop);
    add_axes(x, y);
    for (const Series& series : series_) add_series(series, x, y);
    add_names(x, y);
    return figure_html(plot_.title, width_, bottom_ + 38, out_);
  }

 private:
  static constexpr std::string_view kArrow = " ↑";
  static constexpr double kTop = 8;
  static constexpr double kNameGap = 26;  // from the plot to the marks before the names

  /// References first: what is measured is drawn over them.
  static std::vector<Series> shown_series(const LinePlot& plot) {
    std::vector<Series> shown;
    for (Series series : plot.series) {
      std::erase_if(series.points, [&](const PlotPoint& p) {
        return !is_shown(plot.y, p.y) || (!series.is_level && !is_shown(plot.x, p.x));
      });
      if (!series.points.empty()) shown.push_back(std::move(series));
    }
    std::ranges::stable_partition(
        shown, [](const Series& s) { return s.style.kind != SeriesKind::kMeasured; });
    const bool only_levels = std::ranges::all_of(shown, &Series::is_level);
    return only_levels ? std::vector<Series>{} : shown;
  }

  std::vector<double> values(double PlotPoint::*coordinate) const {
    std::vector<double> values;
    for (const Series& series : series_) {
      if (series.is_level && coordinate == &PlotPoint::x) continue;
      for (const PlotPoint& point : series.points) values.push_back(point.*coordinate);
    }
    return values;
  }

  void set_layout() {
    // The numbers of the y axis do not depend on where they are.
    std::vector<std::string> numbers, names;
    for (const auto& tick : Scale(plot_.y, values(&PlotPoint::y), 0, 1).ticks()) {
      numbers.push_back(tick.text);
    }
    for (const Series& series : series_) names.push_back(series.name);
    left_ = 26 + widest_px(numbers);
    right_ = left_ + kPlotWidth;
    bottom_ = kTop + std::max(kPlotHeight, kLineOfTextPx * std::ssize(series_));
    width_ = right_ + kNameGap + 10 + widest_px(names) + (plot_.y.cap ? width_px(kArrow) : 0);
  }

  void add_axes(const Scale& x, const Scale& y) {
    add_x_ticks(out_, x, kTop, bottom_);
    for (const Scale::Tick& tick : y.ticks()) {
      add_line(out_, "grid", left_, tick.px, right_, tick.px);
      add_text(out_, left_ - 6, tick.px, Anchor::kEnd, "", tick.text);
    }
    add_line(out_, "frame", left_, kTop, left_, bottom_);
    add_line(out_, "frame", left_, bottom_, right_, bottom_);
    add_text(out_, (left_ + right_) / 2, bottom_ + 29, Anchor::kMiddle, "", plot_.x.title);
    add_upright_text(out_, 7, (kTop + bottom_) / 2, plot_.y.title);
    out_ += "\n";
  }

  void add_series(const Series& series, const Scale& x, const Scale& y) {
    add(out_, "<g class=\"{}\">", classes_of(series.style));
    if (series.is_level) {
      const PlotPoint& level = series.points.front();
      add(out_, "<g><title>{}</title>", escape_html(level.hint));
      add_line(out_, "line level", left_, y.at(level.y), right_, y.at(level.y));
      out_ += "</g></g>\n";
      return;
    }
    std::string path;
    for (const PlotPoint& point : series.points) {
      add(path, "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x.at(point.x), y.at(point.y));
    }
    if (series.points.size() > 1) add(out_, "<path class=\"line\" d=\"{}\"/>", path);
    for (const PlotPoint& point : series.points) {
      add(out_, "<path class=\"mark{}\" d=\"{}\"><title>{}</title></path>",
          point.y > y.most() ? " beyond" : "",
          outline(shape_of(series.style), x.at(point.x), y.at(point.y), point.size),
          escape_html(point.hint));
    }
    out_ += "</g>\n";
  }

  /// Of each series the point that its name belongs to: the last one.
  void add_names(const Scale& x, const Scale& y) {
    struct End {
      const Series* series;
      double x, y;
    };
    std::vector<End> ends;
    for (const Series& series : series_) {
      const PlotPoint& last = series.points.back();
      ends.push_back({&series, series.is_level ? right_ : x.at(last.x), y.at(last.y)});
    }
    std::vector<double> label_px(ends.size(), kTop);
    if (plot_.names_at_line_ends) {
      std::ranges::stable_sort(ends, {}, &End::y);
      std::ranges::transform(ends, label_px.begin(), &End::y);
    }
    spread_labels(label_px, kTop, bottom_);
    for (size_t i = 0; i < ends.size(); ++i) {
      const SeriesStyle& style = ends[i].series->style;
      const double key = right_ + kNameGap;
      add(out_, "<g class=\"{}\">", classes_of(style));
      if (plot_.names_at_line_ends) {
        add_line(out_, "leader", ends[i].x + 5, ends[i].y, key - 6, label_px[i]);
      }
      if (ends[i].series->is_level) {
        add_line(out_, "line", key - 5, label_px[i], key + 5, label_px[i]);
      } else {
        add(out_, "<path class=\"key\" d=\"{}\"/>",
            outline(shape_of(style), key, label_px[i], 0.95));
      }
      const bool is_beyond = ends[i].series->points.back().y > y.most();
      add_text(out_, key + 9, label_px[i], Anchor::kStart, "name",
               fmt::format("{}{}", shortened(ends[i].series->name, kLongestName),
                           is_beyond ? kArrow : ""));
      out_ += "</g>\n";
    }
  }

  const LinePlot& plot_;
  std::vector<Series> series_;
  double left_ = 0, right_ = 0, bottom_ = 0, width_ = 0;
  std::string out_;
};

// ---- Bars ----

class BarDrawing {
 public:
  explicit BarDrawing(const StackedBars& plot) : plot_(plot) {
    std::vector<std::string> groups{plot.group_title}, names{plot.name_title};
    for (const StackedBars::Bar& bar : plot.bars) {
      groups.push_back(bar.group);
      names.push_back(bar.name);
      totals_.push_back(total(bar));
    }
    names_end_ = widest_px(groups) + 14 + widest_px(names);
    left_ = names_end_ + 8;
  }

  std::string figure() {
    if (plot_.bars.empty()) return {};
    const Axis axis{.title = plot_.value_title, .least = 0};
    const Scale x(axis, totals_, left_, left_ + kPlotWidth);
    std::string bars;
    double y = kTop;
    for (size_t i = 0; i < plot_.bars.size(); ++i) {
      const bool is_first = i == 0 || plot_.bars[i - 1].group != plot_.bars[i].group;
      if (is_first && i > 0) y += 7;
      if (is_first) add_name(bars, 0, y + kBar / 2, Anchor::kStart, plot_.bars[i].group);
      add_bar(bars, plot_.bars[i], x, y);
      y += kBar + 3;
    }
    const double bottom = y + 3;
    std::string drawing = legend();
    add_text(drawing, 0, kTop - 12, Anchor::kStart, "", plot_.group_title);
    add_text(drawing, names_end_, kTop - 12, Anchor::kEnd, "", plot_.name_title);
    add_x_ticks(drawing, x, kTop - 4, bottom);
    drawing += bars;
    add_line(drawing, "frame", left_, kTop - 4, left_, bottom);
    add_text(drawing, left_ + kPlotWidth / 2, bottom + 29, Anchor::kMiddle, "", plot_.value_title);
    return figure_html(plot_.title, left_ + kPlotWidth + 44, bottom + 38, drawing);
  }

 private:
  static constexpr double kTop = 44;
  static constexpr double kBar = 12;

  static double total(const StackedBars::Bar& bar) {
    double sum = 0;
    for (const double part : bar.parts) sum += std::isfinite(part) ? std::max(0.0, part) : 0;
    return sum;
  }

  std::string legend() const {
    std::string out;
    double x = left_;
    for (size_t i = 0; i < plot_.part_names.size(); ++i) {
      add(out, R"(<rect class="p{}" x="{:.1f}" y="6" width="10" height="10"/>)", i, x);
      add_name(out, x + 14, 11, Anchor::kStart, plot_.part_names[i]);
      x += 30 + width_px(plot_.part_names[i]);
    }
    return out;
  }

  void add_bar(std::string& out, const StackedBars::Bar& bar, const Scale& x, double y) const {
    add_name(out, names_end_, y + kBar / 2, Anchor::kEnd, bar.name);
    double sum = 0;
    out += "<g class=\"bar\">";
    for (size_t i = 0; i < bar.parts.size(); ++i) {
      const double part = bar.parts[i];
      if (!std::isfinite(part) || part <= 0) continue;
      add(out, R"(<rect class="p{}" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.0f}">)", i,
          x.at(sum), y, x.at(sum + part) - x.at(sum), kBar);
      add(out, "<title>{}: {}</title></rect>", escape_html(plot_.part_names[i]),
          number_text(part, NumberFormat::kThreeDigits));
      sum += part;
    }
    out += "</g>";
    add_text(out, x.at(sum) + 5, y + kBar / 2, Anchor::kStart, "",
             number_text(sum, NumberFormat::kThreeDigits));
    out += "\n";
  }

  const StackedBars& plot_;
  std::vector<double> totals_;
  double names_end_ = 0, left_ = 0;
};

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  size_t bytes = 0;
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(1, bytes)) {
    bytes = utf8_char_bytes(text, at);
    const char c = text[at];
    const bool is_control = bytes == 1 && ((c >= 0 && c < ' ') || c == 0x7f);
    if (bytes == 0 || (is_control && c != '\n' && c != '\t')) {
      out += "\ufffd";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(at, bytes);
    }
  }
  return out;
}

std::string number_text(double value, NumberFormat format) {
  switch (format) {
    case NumberFormat::kCount:
      return fmt::format("{:.0f}", value);
    case NumberFormat::kPercent:
      return fmt::format("{:.1f}", 100 * value);
    case NumberFormat::kThreeDecimals:
      return fmt::format("{:.3f}", value);
    case NumberFormat::kThreeDigits:
      if (std::abs(value) >= 99.95) return fmt::format("{:.0f}", value);
      if (std::abs(value) >= 9.995) return fmt::format("{:.1f}", value);
      if (std::abs(value) >= 0.9995) return fmt::format("{:.2f}", value);
      return value == 0 ? "0" : fmt::format("{:.3f}", value);
  }
  return {};
}

std::string_view plot_style_sheet() { return kStyleSheet; }

std::string figure_of(const LinePlot& plot) { return LineDrawing(plot).figure(); }

std::string figure_of(const StackedBars& plot) { return BarDrawing(plot).figure(); }

std::string figure_of(const HeatMap& map) {
  constexpr double kWidth = 46, kHeight = 22, kTop = 4;
  const double left = 24 + widest_px(map.rows);
  const double bottom = kTop + kHeight * std::ssize(map.rows);
  std::string out;
  for (int64_t r = 0; r < std::ssize(map.rows); ++r) {
    const double y = kTop + kHeight * r;
    add_name(out, left - 6, y + kHeight / 2, Anchor::kEnd, map.rows[r]);
    for (int64_t c = 0; c < std::ssize(map.columns); ++c) {
      const std::optional<double> share = map.shares[r * std::ssize(map.columns) + c];
      if (!share || !std::isfinite(*share)) continue;
      const double shade = std::clamp(*share, 0.0, 1.0);
      add(out, R"(<rect class="cell" x="{:.1f}" y="{:.1f}" width="{}" height="{}" )",
          left + kWidth * c, y, kWidth, kHeight);
      add(out, "fill-opacity=\"{:.2f}\"/>", shade);
      add_text(out, left + kWidth * (c + 0.5), y + kHeight / 2, Anchor::kMiddle,
               shade > 0.55 ? "cell on" : "cell", number_text(100 * *share, NumberFormat::kCount));
    }
    out += "\n";
  }
  for (int64_t c = 0; c < std::ssize(map.columns); ++c) {
    add_name(out, left + kWidth * (c + 0.5), bottom + 11, Anchor::kMiddle, map.columns[c]);
  }
  const double width = kWidth * std::ssize(map.columns);
  // A narrow map's title may be wider than the map.
  const double title_px = width_px(map.column_title);
  add_text(out, left + std::max(width, title_px) / 2, bottom + 28, Anchor::kMiddle, "",
           map.column_title);
  add_upright_text(out, 7, (kTop + bottom) / 2, map.row_title);
  return figure_html(map.title, left + std::max(width, title_px) + 6, bottom + 38, out);
}

}  // namespace weft::eval
