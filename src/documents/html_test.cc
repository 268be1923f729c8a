#include "documents/html.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace weft::documents {
namespace {

std::string text(const std::string& html) { return read_html(html).text; }

TEST(Html, KeepsTheLineStructureOfAPage) {
  EXPECT_EQ(text("<p>One\n  <b>two</b>,\tth<i>r</i>ee.</p><p>Four</p>"),
            "One two, three.\n\nFour\n");
  EXPECT_EQ(text("a<br>b<div>c</div>d<hr>e"), "a\nb\nc\nd\n\ne\n");
  EXPECT_EQ(text("<h1>Title</h1>text<h2>Part</h2>more"), "Title\n\ntext\n\nPart\n\nmore\n");
  EXPECT_EQ(text("<dl><dt>a<dd>b<dt>c<dd>d</dl>"), "a\nb\nc\nd\n");
  EXPECT_EQ(text("plain"), "plain\n");
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("<p> &nbsp;</p>"), "");
}

TEST(Html, TablesAreRowsOfTabs) {
  EXPECT_EQ(text("<table><caption>T</caption>\n<tr>\n <td>a b</td>\n <td>c</td>\n</tr>\n"
                 "<tr><th>d<th></th><td>e</table>x"),
            "T\na b\tc\nd\te\n\nx\n");
}

TEST(Html, ListsKeepTheirNumbers) {
  EXPECT_EQ(text("<p>All:</p><ol>\n<li>one\n two</li>\n<li><p>three</p></ol><p>end</p>"),
            "All:\n\n1. one two\n2. three\n\nend\n");
  EXPECT_EQ(text("<ul><li>a<ul><li>b</li></ul></li><li></li><li>c</li></ul>"), "- a\n  - b\n- c\n");
  EXPECT_EQ(text("</ul></ol></li><li>a"), "- a\n");
}

TEST(Html, PreKeepsItsWhiteSpace) {
  EXPECT_EQ(text("x<pre>\nif a:\r\n    b\n\n\n\tc  d\n</pre>y  z"),
            "x\n\nif a:\n    b\n\n\n\tc  d\n\ny z\n");
  EXPECT_EQ(text("<pre>a&#10; b&nbsp;c</pre>"), "a\n b c\n");
  EXPECT_EQ(text("</pre>a  b"), "a b\n");
}

TEST(Html, KeepsTheWholePageExceptElementsNobodyReads) {
  EXPECT_EQ(text("<body>menu<nav>x</nav><article>a<script>if (x</b) '</p>'</SCRIPT >b</article>"
                 "<button>c</button><footer>d</footer>"),
            "menu\nx\n\nab\n\nc\nd\n");
  EXPECT_EQ(text("a<style>p{}</style>b<!-- <p>x --> c<!doctype html><?xml x?>d<!-->e<!--->f"),
            "ab cdef\n");
  EXPECT_EQ(
      text("a<template>b</template><noscript>c</noscript><svg><title>d</title><path/></svg>e"),
      "ae\n");
  EXPECT_EQ(text("a<svg viewBox='0'/>b<svg><svg/>c</svg>d"), "abd\n");
  EXPECT_EQ(text("<a title='x > y' href=\"</p>\" b=it's>a</a>"), "a\n");
  EXPECT_EQ(text("<textarea>a <b>b</textarea><xmp>c</xmp>d"), "a <b>bcd\n");
  EXPECT_EQ(text("<script>a</scripty>b</script>c</script"), "c\n");
  EXPECT_EQ(text("a<!-- b --!>c<!----!>d<!--!>e--><!-- f -- !> -->g"), "acdg\n");
}

TEST(Html, AnUnclosedDroppedElementEndsWhereItCannotContinue) {
  EXPECT_EQ(text("a<svg><path>b<p>c</p>d"), "a\n\nc\n\nd\n");
  EXPECT_EQ(text("<div>a<svg><g>b</div>c"), "a\nc\n");
  EXPECT_EQ(text("a<svg><svg>b<span>c</span>"), "ac\n");
  // HTML within a drawing is of the drawing.
  EXPECT_EQ(text("a<svg><foreignObject><div>b</div></foreignObject><text>c</text></svg>d"), "ad\n");
  EXPECT_EQ(text("<head><noscript><style>x</style></head><body>a<noscript>b</noscript>c</body>"),
            "ac\n");
  EXPECT_EQ(text("<head><noscript><link><body>a<noscript>b</noscript>c"), "ac\n");
  EXPECT_EQ(text("<noscript>a<noscript>b</noscript>c"), "c\n");
  EXPECT_EQ(text("<body>a<noscript>b</noscript>c<NOSCRIPT>d<p>e</p></body>"), "acd\n\ne\n");
}

TEST(Html, OptionalEndTagsMayBeMissing) {
  EXPECT_EQ(text("<html><head><title>t</title><meta charset=utf-8><body><p>a<p>b<ul><li>c<li>d"),
            "a\n\nb\n\n- c\n- d\n");
}

TEST(Html, HiddenElementsAreLeftOut) {
  EXPECT_EQ(text("<p hidden>secret</p><p>shown</p>"), "shown\n");
  EXPECT_EQ(text("<div class='a' HIDDEN=\"\"><div>b</div> c</div>d"), "d\n");
  EXPECT_EQ(text("<span hidden=hidden>a</span><b data-x=' hidden '>b</b>"), "b\n");
  EXPECT_EQ(text("<p title=\"a hidden b\">c</p><p data-hidden hiddenx>d</p>"), "c\n\nd\n");
  EXPECT_EQ(text("<div hidden=until-found>a</div>"), "a\n");  // an accordion's part
  EXPECT_EQ(text("<input hidden><br hidden>a"), "a\n");
  EXPECT_EQ(text("<body hidden><p>a</body>"), "a\n");  // until its script has run
  // End tags that may be left out are not missed.
  EXPECT_EQ(text("<p hidden>a<p>b"), "b\n");
  EXPECT_EQ(text("<p hidden>a <b>b</b><br>c<div>d</div>"), "d\n");
  EXPECT_EQ(text("<div><p hidden>a</div>b"), "b\n");
  EXPECT_EQ(text("<ul><li hidden>a<ul><li>b</ul><li>c</ul>d"), "- c\n\nd\n");
  EXPECT_EQ(text("<ul><li hidden>a</ul>d"), "d\n");
  EXPECT_EQ(text("<table><tr hidden><td>a<td>b<tr><td hidden>c<td>d</table>e"), "d\n\ne\n");
  EXPECT_EQ(text("<dl><dt hidden>a<dd>b</dl>"), "b\n");
}

TEST(Html, TheTitleIsNotPartOfTheText) {
  EXPECT_EQ(read_html("<title>\n A &amp;\n B </title>x").title, "A & B");
  EXPECT_EQ(read_html("<title></title><title>B</title>x").title, "B");
  EXPECT_EQ(read_html("<svg><title>icon</title></svg>x").title, "");
  EXPECT_EQ(read_html("<title>never ends").title, "never ends");
  EXPECT_EQ(text("<title>A</title>x"), "x\n");
}

TEST(Html, XmlTagsMayEndThemselves) {
  EXPECT_EQ(text("<?xml version='1.0'?><html><head><script src='x'/><title>t</title></head>"
                 "<body><p>a</p><![CDATA[b <i> c]]></body></html>"),
            "a\n\nb <i> c\n");
  EXPECT_EQ(text("a<script src='x'/>b</script>c"), "ac\n");
}

TEST(Html, DecodesEntities) {
  EXPECT_EQ(text("&lt;p&gt; &quot;R&amp;D&quot; Google&#39;s &#x41;&nbsp;&copy;&mdash;&Auml;"),
            "<p> \"R&D\" Google's A \u00a9\u2014\u00c4\n");
  EXPECT_EQ(text("&thetasym;&AElig;&zwnj;&zeta;&apos;"), "\u03d1\u00c6\u200c\u03b6'\n");
  EXPECT_EQ(text("&#150; &#x80;"), "\u2013 \u20ac\n");  // Windows-1252, as browsers have it
  EXPECT_EQ(text("a & b &unknown; &amp &#; &#x; &#xZZ; &;"),
            "a & b &unknown; &amp &#; &#x; &#xZZ; &;\n");
  EXPECT_EQ(text("&#0;&#xD800;&#1114112;&#99999999999;"), "\uFFFD\uFFFD\uFFFD\uFFFD\n");
  EXPECT_EQ(text("Donau&shy;dampf"), "Donaudampf\n");
}

TEST(Html, MapsEachLineToThePagesLine) {
  const std::string page =
      "<html>\n<head><title>\nt</title>\n</head><body\n class=x>\n<p>one\ntwo &amp; three\n</p>\n"
      "<pre>\nfour\n\nfive</pre>\n<!--\n\n-->six</body>";
  const HtmlText html = read_html(page);
  EXPECT_EQ(html.text, "one two & three\n\nfour\n\nfive\n\nsix\n");
  const auto line_of = [&](const std::string& word) {
    return html.lines.line_of(html.text.find(word));
  };
  EXPECT_EQ(line_of("one"), 6u);
  EXPECT_EQ(line_of("two"), 7u);
  EXPECT_EQ(line_of("three"), 7u);
  EXPECT_EQ(line_of("four"), 10u);
  EXPECT_EQ(line_of("five"), 12u);
  EXPECT_EQ(line_of("six"), 15u);
}

TEST(Html, HtmlIsRecognisedByItsBeginning) {
  for (const char* page : {"<!DOCTYPE html>", "\xEF\xBB\xBF \n<html lang='de'>", "<HTML>",
                           "<?xml version='1.0'?>\n<!-- x -->\n<!DOCTYPE html PUBLIC 'x'>",
                           "<!-- saved from url -->\r\n<html>x"}) {
    EXPECT_TRUE(looks_like_html(page)) << page;
  }
  for (const char* other : {"", "text <html>", "<htmlx>", "<?xml version='1.0'?><svg>", "<!-- x",
                            "<!doctype htmlx>", "<p>a</p>"}) {
    EXPECT_FALSE(looks_like_html(other)) << other;
  }
  EXPECT_EQ(html_charset("<meta charset=\"UTF-8\">"), "utf-8");
  EXPECT_EQ(html_charset("<meta content='text/html; charset=ISO-8859-1'>"), "iso-8859-1");
  EXPECT_EQ(html_charset("<?xml version='1.0' encoding='windows-1252'?>"), "windows-1252");
  EXPECT_EQ(html_charset("<p>"), "");
}

TEST(Html, AnyBytesGiveTextOfBoundedSize) {
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
                                        "</pre>",
                                        "<ol>",
                                        "<li>",
                                        "</li>",
                                        "<pre>",
                                        "<table>",
                                        "<td>",
                                        "</script>",
                                        "<svg",
                                        "</svg>",
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
                                        "<title>",
                                        "</title>",
                                        "/>",
                                        "<ul><ul>",
                                        "\t",
                                        "a",
                                        std::string(1, '\0')};
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    std::string html;
    for (uint32_t n = random() % 60; n > 0; --n) html += pieces[random() % pieces.size()];
    const HtmlText result = read_html(html);
    ASSERT_TRUE(is_valid_utf8(result.text));
    ASSERT_LE(result.text.size(), kMaxHtmlGrowth * html.size() + 1) << html;
    const auto n_lines = static_cast<uint64_t>(std::count(html.begin(), html.end(), '\n')) + 1;
    ASSERT_LE(result.lines.line_of(result.text.size()), n_lines);
  }
}

TEST(Html, DeeplyNestedAndUnclosedPagesTerminate) {
  for (const char* piece :
       {"<", "<a", "<!--", "</", "&", "&#", "<script>", "<svg>", "<ol><li>", "<ul><li>a", "<p a='",
        "<!", "<h1>", "</script", "<title>x", "<pre>\n", "<td>", "<article>", "<![CDATA["}) {
    std::string html;
    for (int i = 0; i < 100'000; ++i) html += piece;
    EXPECT_LE(text(html + "end").size(), kMaxHtmlGrowth * html.size()) << piece;
    EXPECT_LE(text("<?xml?>" + html + "end").size(), kMaxHtmlGrowth * html.size()) << piece;
  }
}

}  // namespace
}  // namespace weft::documents
