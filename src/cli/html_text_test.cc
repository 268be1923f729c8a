#include "cli/html_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "cli/wrapped_text.h"
#include "text/utf8.h"

namespace weft::cli {
namespace {

std::string text(const std::string& html, int width = 80) { return html_to_text(html, width); }

TEST(HtmlText, KeepsParagraphsAndJoinsWordsAcrossInlineTags) {
  EXPECT_EQ(text("<p>One\n  <b>two</b>,\tth<i>r</i>ee.</p><p>Four</p>"),
            "One two, three.\n\nFour\n");
  EXPECT_EQ(text("a<br>b<div>c</div>d<hr>e"), "a\nb\nc\nd\n\ne\n");
  EXPECT_EQ(text("<h1>Title</h1>text<h2>Part</h2>more"), "Title\n\ntext\n\nPart\n\nmore\n");
  EXPECT_EQ(text("<table><tr><td>a</td><td>b</td></tr><tr><th>c</th></tr></table>"), "a b\nc\n");
  EXPECT_EQ(text("plain"), "plain\n");
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("<p> </p>"), "");
}

TEST(HtmlText, NumbersAndIndentsLists) {
  EXPECT_EQ(
      text("<p>All:</p><ol>\n<li>one two three four</li>\n<li><p>five</p></ol><p>end</p>", 20),
      "All:\n\n 1. one two three\n    four\n\n 2. five\n\nend\n");
  EXPECT_EQ(text("<ul><li>a<ul><li>b</li></ul></li><li></li><li>c</li></ul>"),
            "  - a\n      - b\n  - c\n");
  EXPECT_EQ(text("</ul></ol></li><li>a"), "  - a\n");
}

TEST(HtmlText, LeavesOutWhatIsNoText) {
  EXPECT_EQ(text("a<script>if (x</b) '</p>'</SCRIPT >b<style>p{}</style>c"), "abc\n");
  EXPECT_EQ(text("a<!-- <p>x --> b<!doctype html><?xml x?>c"), "a bc\n");
  EXPECT_EQ(text("<nav>x<nav>y</nav>z</nav>a<button>b</button><footer>c</footer>"), "a\n");
  EXPECT_EQ(text("<head><title>x</title></head><body>a</body>"), "a\n");
  EXPECT_EQ(text("<a title='x > y' href=\"</p>\" b=it's>a</a>"), "a\n");
}

TEST(HtmlText, TakesTheArticleFromItsHeadingOn) {
  EXPECT_EQ(
      text("<body>menu<main>crumbs<article>path<h1>Title</h1>own</article>rate</main></body>"),
      "Title\n\nown\n");
  EXPECT_EQ(text("<body>menu<main><h1>T</h1>own</main>rate"), "T\n\nown\n");
  EXPECT_EQ(text("<template><article>x</article></template><body>own"), "own\n");
  EXPECT_EQ(text("<article>a<article>b</article>c</article>d"), "a\n\nb\n\nc\n");
}

TEST(HtmlText, DecodesEntities) {
  EXPECT_EQ(text("&lt;p&gt; &quot;R&amp;D&quot; Google&#39;s &#x41;&nbsp;&copy;&mdash;"),
            "<p> \"R&D\" Google's A ©—\n");
  EXPECT_EQ(text("a & b &unknown; &amp &#; &#x; &#xZZ; &;"),
            "a & b &unknown; &amp &#; &#x; &#xZZ; &;\n");
  EXPECT_EQ(text("&#0;&#xD800;&#1114112;&#99999999999;"), "\uFFFD\uFFFD\uFFFD\uFFFD\n");
}

TEST(HtmlText, ControlCharactersAreLeftOut) {
  EXPECT_EQ(text("a\x1b[2J&#27;[31m\u009b&#x81;\u202Eb\u200Fc\u0007"), "a[2J[31mbc\n");
  EXPECT_EQ(text("\xff\xc3(\xe2\x82"), "\uFFFD\uFFFD(\uFFFD\uFFFD\n");
}

TEST(HtmlText, LinesKeepToTheWidth) {
  std::string html = "<ol>";
  for (int i = 0; i < 50; ++i) html += "<li>Grüße an alle, die länger lesen.<p>Und mehr</p></li>";
  for (const int width : {20, 37, 80}) {
    std::istringstream lines(text(html, width));
    for (std::string line; std::getline(lines, line);) {
      const auto columns =
          std::ranges::count_if(line, [](char c) { return !text::is_utf8_continuation(c); });
      EXPECT_LE(columns, width) << line;
    }
  }
}

TEST(HtmlText, AnyBytesGiveCleanTextOfBoundedSize) {
  const std::vector<std::string> pieces{"<",
                                        ">",
                                        "</",
                                        "<!--",
                                        "-->",
                                        "&",
                                        "&#",
                                        ";",
                                        "\"",
                                        "'",
                                        "=",
                                        "<script",
                                        "</script>",
                                        "<ol>",
                                        "<li>",
                                        "</li>",
                                        "<article>",
                                        "</article>",
                                        "<nav",
                                        "</nav>",
                                        "<h1>",
                                        "<p>",
                                        " ",
                                        "\n",
                                        "\xff",
                                        "\xe2\x80\xae",
                                        "\x1b",
                                        "text",
                                        "<!",
                                        "<?",
                                        "/",
                                        "&#x1b;",
                                        std::string(1, '\0'),
                                        "<ul><ul>"};
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string html;
    for (uint32_t n = random() % 60; n > 0; --n) html += pieces[random() % pieces.size()];
    const std::string result = text(html, static_cast<int>(random() % 100));
    EXPECT_TRUE(text::is_valid_utf8(result));
    EXPECT_TRUE(std::ranges::none_of(result, [](char c) { return c > 0 && c < 32 && c != '\n'; }));
    EXPECT_LE(result.size(), 60 * html.size());
  }
}

TEST(HtmlText, DeepOrUnendedPagesEnd) {
  constexpr size_t kMany = 100'000;
  const auto repeat = [](const std::string& piece) {
    std::string html;
    for (size_t i = 0; i < kMany; ++i) html += piece;
    return html;
  };
  for (const char* piece : {"<", "<a", "<!--", "</", "&", "&#", "<script>", "<nav>", "<ol><li>",
                            "<article>", "<p a='", "<!", "<h1>", "</script", "<title>x"}) {
    const std::string result = text(repeat(piece) + "end");
    EXPECT_LE(result.size(), 10 * kMany) << piece;
  }
}

TEST(WrapText, KeepsLinesAndEmptyLines) {
  EXPECT_EQ(wrap_text("# A\n\n\n- one two three four five\n- six\r\n", 20),
            "# A\n\n- one two three four\nfive\n- six\n");
  EXPECT_EQ(wrap_text("", 20), "");
  EXPECT_EQ(wrap_text("&amp; <b>", 20), "&amp; <b>\n");
}

}  // namespace
}  // namespace weft::cli
