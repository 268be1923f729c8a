#include "documents/document.h"

#include <gtest/gtest.h>

#include <string>

#include "documents/front_matter.h"

namespace weft::documents {
namespace {

Document read(const std::string& name, const std::string& bytes,
              Encoding encoding = Encoding::kAny) {
  auto document = read_document(bytes, {.name = name, .encoding = encoding});
  if (auto* refusal = std::get_if<Refusal>(&document)) {
    ADD_FAILURE() << refusal->reason;
    return {};
  }
  return std::get<Document>(std::move(document));
}

/// "kind: reason", or "" where it is a document.
std::string refused(const std::string& bytes, const std::string& name = "file",
                    uint64_t max_text_bytes = 1 << 20) {
  const auto document = read_document(bytes, {.name = name, .max_text_bytes = max_text_bytes});
  const auto* refusal = std::get_if<Refusal>(&document);
  return refusal == nullptr ? "" : refusal->kind + ": " + refusal->reason;
}

TEST(Document, PlainTextIsAsItIs) {
  for (const char* name : {"a.txt", "a.csv", "a.log", "a.cc", "a", "html"}) {
    const std::string bytes = "---\ntitle: x\n---\n<p>a</p>\r\n&amp;\r\n";
    const Document document = read(name, bytes);
    EXPECT_EQ(document.text, bytes) << name;
    EXPECT_EQ(document.title, "");
    EXPECT_EQ(document.reading, "");
    EXPECT_EQ(document.guess, "");
    EXPECT_EQ(document.lines.line_of(bytes.find("&amp")), 5u);
  }
}

TEST(Document, HtmlIsKnownByItsEndingOrItsBeginning) {
  for (const char* name : {"a.html", "A.HTM", "a.b.xhtml"}) {
    const Document document = read(name, "<title>T</title>\n<p>a &amp; b</p>");
    EXPECT_EQ(document.text, "a & b\n") << name;
    EXPECT_EQ(document.title, "T");
    EXPECT_EQ(document.format, Format::kHtml);
    EXPECT_EQ(document.lines.line_of(0), 2u);
    EXPECT_NE(document.reading, "");
  }
  EXPECT_EQ(read("saved", "<!DOCTYPE html><p>a").text, "a\n");
  EXPECT_EQ(read("page.html", "---\ntitle: F\n---\n<title>T</title>\n<p>a").title, "F");
  EXPECT_EQ(read("page.html", "---\ntitle: F\n---\n<p>a").lines.line_of(0), 4u);
  const std::u16string wide = u"\xFEFF<html><p>a";
  EXPECT_EQ(
      read("x", std::string(reinterpret_cast<const char*>(wide.data()), 2 * wide.size())).text,
      "a\n");
}

TEST(Document, APagesDeclaredEncodingIsUsed) {
  const Document said = read("a.html", "<meta charset=iso-8859-1><p>caf\xE9");
  EXPECT_EQ(said.text, "caf\u00e9\n");
  EXPECT_EQ(said.guess, "");
  EXPECT_EQ(read("a.html", "<p>caf\xE9").guess, "read as Windows-1252");
  EXPECT_EQ(read("a.html", "<meta charset=shift_jis><p>caf\xE9", Encoding::kLatin1).text,
            "caf\u00e9\n");
  EXPECT_EQ(refused("<meta charset=shift_jis><p>\x83\x65", "a.html"),
            "in another encoding: its encoding is shift_jis: iconv makes UTF-8 of it");
  EXPECT_EQ(read("a.html", "<meta charset=shift_jis><p>plain").text, "plain\n");
}

TEST(Document, FrontMatterGivesTheTitleAndItsPropertiesBecomeText) {
  const Document document = read("a.md", "---\ntitle: \"A: b\"\ntags: [x]\n---\n\n\n# H\n\ntext");
  EXPECT_EQ(document.text, "# H\ntags: [x]\n\ntext");
  EXPECT_EQ(document.title, "A: b");
  EXPECT_EQ(document.lines.line_of(0), 7u);
  EXPECT_EQ(document.lines.line_of(document.text.find("tags")), 7u);
  EXPECT_EQ(document.lines.line_of(document.text.find("text")), 9u);
  EXPECT_NE(document.reading, "");
  EXPECT_EQ(read("a.markdown", "\xEF\xBB\xBF+++\ntitle = 'T'\n+++\ntext").title, "T");
  EXPECT_EQ(read("a.md", "---\r\ntitle: T\r\n---\r\ntext\r\n").text, "text\r\n");
}

TEST(Document, PropertiesComeBeforeTheTextAndAfterItsHeading) {
  const Document plain = read("a.md", "---\nlayout: post\ndate: 2024-05-01\n---\nOne.\n\nTwo.");
  EXPECT_EQ(plain.text, "layout: post\ndate: 2024-05-01\n\nOne.\n\nTwo.");
  EXPECT_EQ(plain.lines.line_of(0), 2u);
  EXPECT_EQ(plain.lines.line_of(plain.text.find("date")), 3u);
  EXPECT_EQ(plain.lines.line_of(plain.text.find("One")), 5u);
  EXPECT_EQ(plain.lines.line_of(plain.text.find("Two")), 7u);
  EXPECT_EQ(read("a.md", "---\ntags: a\n---\n# H").text, "# H\ntags: a\n\n");
  EXPECT_EQ(read("a.md", "---\ntags: a\n---\n").text, "tags: a\n\n");
  EXPECT_EQ(read("a.md", "---\ntags: a\n---\n#tag\n").text, "tags: a\n\n#tag\n");
  EXPECT_EQ(read("a.md", "---\r\ntags: a\r\n---\r\n# H\r\n\r\nx\r\n").text,
            "# H\r\ntags: a\n\r\nx\r\n");
  EXPECT_EQ(read("a.html", "---\ntags: a\n---\n<p>x").text, "x\n");  // a page's is no text
}

TEST(Document, AConvertedTextSaysHowItWasRead) {
  EXPECT_NE(read("a", "caf\xE9").reading, "");
  EXPECT_NE(read("a", "caf\xE9 \x80", Encoding::kLatin1).reading,
            read("a", "caf\xE9 \x80").reading);
  EXPECT_EQ(read("a", "caf\xE9", Encoding::kWindows1252).reading, read("a", "caf\xE9").reading);
  EXPECT_EQ(read("a", "\xEF\xBB\xBFtext").reading, "");
}

TEST(Document, BinaryFilesAreRefusedByKind) {
  EXPECT_EQ(refused("%PDF-1.4\n1 0 obj\n"),
            "PDF: a PDF: weft reads text; pdftotext makes text of it");
  EXPECT_TRUE(
      refused("Content-Type: application/pdf\r\n\r\n%PDF-1.7\nx\n%%EOF\n").starts_with("PDF"));
  EXPECT_EQ(refused("A PDF begins with %PDF-1.4, and that is all.\n"), "");
  EXPECT_TRUE(refused(std::string("PK\x03\x04\x14\0\x06\0[Content_Types].xml word/document", 40))
                  .starts_with("office document: a Word document"));
  EXPECT_TRUE(refused("PK\x03\x04mimetypeapplication/vnd.oasis.opendocument.text")
                  .starts_with("office document: an OpenDocument"));
  EXPECT_TRUE(refused("PK\x03\x04mimetypeapplication/epub+zip").starts_with("e-book"));
  EXPECT_EQ(refused("PK\x03\x04x"), "archive: a ZIP archive: unpack it");
  EXPECT_TRUE(refused("\x1f\x8b\x08").starts_with("compressed: compressed by gzip"));
  EXPECT_EQ(refused(std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16)), "image: an image (PNG)");
  EXPECT_EQ(refused(std::string("\xff\xd8\xff\xe0\0\x10JFIF", 10)), "image: an image (JPEG)");
  EXPECT_EQ(refused(std::string("SQLite format 3\0", 16)), "database: an SQLite database");
  EXPECT_TRUE(refused("{\\rtf1\\ansi text}").starts_with("RTF document"));
  EXPECT_TRUE(refused("%!PS-Adobe-3.0\n").starts_with("PostScript"));
  EXPECT_EQ(refused(std::string("ab\0cd", 5)), "binary: a binary file");
  EXPECT_EQ(refused("BZhang wrote this. ID3 tags."), "");
  EXPECT_EQ(refused("GGUF files are explained here."), "");
  EXPECT_EQ(refused("RIFF is a format of files"), "");
}

TEST(Document, ATextPastTheLimitIsRefused) {
  EXPECT_EQ(refused("12345678", "a", 8), "");
  EXPECT_EQ(refused("123456789", "a", 8), "too large: its text is larger than 8 bytes");
  EXPECT_EQ(refused("<p>" + std::string(20, ' ') + "a</p>", "a.html", 8), "");
}

TEST(Document, TitlesAreOneShortLine) {
  EXPECT_EQ(short_title("a\nb\x1b"
                        "c\xFF"),
            "a b c\uFFFD");
  EXPECT_EQ(short_title(std::string(1000, 'x')).size(), kMaxTitleBytes);
  std::string umlauts = "x";
  for (int i = 0; i < 1000; ++i) umlauts += "\u00fc";
  EXPECT_EQ(short_title(umlauts).size(), kMaxTitleBytes - 1);
  EXPECT_EQ(read("a.html", "<title>" + std::string(9000, 'x') + "</title>a").title.size(),
            kMaxTitleBytes);
}

// "TITLE|REST of the text"
std::string taken(const std::string& text) {
  const FrontMatter front = front_matter_of(text);
  return front.title + "|" + text.substr(front.end);
}

TEST(FrontMatter, TitlesAreSimpleScalars) {
  EXPECT_EQ(taken("---\ntitle: A title # said\n---\nx"), "A title|x");
  EXPECT_EQ(taken("---\ntitle: 'it''s'\n---\nx"), "it's|x");
  EXPECT_EQ(taken("---\ntitle: \"a \\\"b\\\"\"\n...\nx"), "a \"b\"|x");
  EXPECT_EQ(taken("---\nTitle: C# is fine\n---\nx"), "C# is fine|x");
  EXPECT_EQ(taken("---\nother: x\n  title: nested\n---\nx"), "|x");
  EXPECT_EQ(taken("---\ntitle: >\n  folded\n---\nx"), "|x");
  EXPECT_EQ(taken("---\ntitle: [a, b]\n---\nx"), "|x");
  EXPECT_EQ(taken("---\ntitle: \"open\n---\nx"), "|x");
  EXPECT_EQ(taken("---\ntitle:\n---\nx"), "|x");
  EXPECT_EQ(taken("+++\ntitle = \"T\" # c\n[extra]\ntitle = 'no'\n+++\n\n x"), "T| x");
  EXPECT_EQ(taken("+++\n[extra]\ntitle = 'no'\n+++\nx"), "|x");
}

// Its properties, each with its line.
std::string properties(const std::string& text) {
  std::string out;
  for (const Property& one : front_matter_of(text).properties) {
    out += std::to_string(one.line) + "|" + std::string(one.text) + "\n";
  }
  return out;
}

TEST(FrontMatter, PropertiesAreShortScalarsAndLists) {
  EXPECT_EQ(properties("---\ntitle: T\ntags: [a, b]\ndate: 2024-05-01\nurl: https://x.org\n---\n"),
            "3|tags: [a, b]\n4|date: 2024-05-01\n5|url: https://x.org\n");
  EXPECT_EQ(properties("---\naliases:\n  - One\n  - 'Two: b'\ntags:\n- a\n\n- b\n---\n"),
            "2|aliases:\n3|  - One\n5|tags:\n6|- a\n8|- b\n");
  EXPECT_EQ(properties("---\ndraft: true\ntoc: no\nempty:\nmap: {a: b}\ntext: |\n  words\n"
                       "author:\n  name: Ann\n  - no\nlist: [\n  a\n]\nx: y # said\n---\n"),
            "14|x: y # said\n");
  EXPECT_EQ(properties("---\nby:\n- name: Ann\n- Bob\n---\n"), "2|by:\n4|- Bob\n");
  EXPECT_EQ(properties("+++\ntags = ['a']\ntitle = 'T'\n[extra]\nx = 'y'\n+++\n"),
            "2|tags = ['a']\n");
  EXPECT_EQ(properties("---\ntitle: [a, b]\n---\n"), "2|title: [a, b]\n");  // no title, so text
  EXPECT_EQ(properties("---\nkey:\n---\nx: y\n"), "");
  const std::string longest = "k: " + std::string(197, 'x');
  EXPECT_EQ(properties("---\n" + longest + "\n---\n"), "2|" + longest + "\n");
  EXPECT_EQ(properties("---\n" + longest + "x\n---\n"), "");
  std::string many = "---\n";
  for (int i = 0; i < 20; ++i) many += longest + "\n";
  EXPECT_EQ(front_matter_of(many + "---\n").properties.size(), 10u);  // 2 KB
}

TEST(FrontMatter, OnlyKeysItemsAndBracketsMayBeAtTheMargin) {
  EXPECT_EQ(taken("---\ntitle: T\ntags:\n- a b\n-\tc\n-\n# said\n\nmap: {\n  x: 1\n}\nlist: [\n"
                  "  a\n] # done\ntext: |\n  Some words.\n---\nx"),
            "T|x");
  EXPECT_EQ(taken("---\nog:title: a\n\"x:y\": b\ntitle: T\n---\nx"), "T|x");
  EXPECT_EQ(taken("+++\ntitle = 'T'\ntags = [\n'a'\n]\n+++\nx"), "T|x");
  for (const std::string text :
       {"---\nNote: by hand\nSome words.\n---\nx", "---\nTo: Ann\n\nDear Ann,\n\n---\nx",
        "---\ntitle: T\n-no item\n---\nx", "---\ntitle: T\n**bold**\n...\nx"}) {
    EXPECT_EQ(taken(text), "|" + text);
  }
}

TEST(FrontMatter, ARuleAcrossThePageIsNotFrontMatter) {
  for (const std::string text :
       {"---\nSome words.\n---\nx", "---\nNote:this\n---\nx", "---\ntitle: T\nand no end",
        "----\ntitle: T\n----\n", "x\n---\ntitle: T\n---\n", " ---\ntitle: T\n---\n", "---", "",
        "- --\n---\n"}) {
    EXPECT_EQ(front_matter_of(text).end, 0u) << text;
  }
  EXPECT_EQ(taken("---\n---\nx"), "|x");
  EXPECT_EQ(taken("---\ntitle: T\n---"), "T|");
  const std::string long_block = "---\na: b\n" + std::string(70'000, '\n') + "---\nx";
  EXPECT_EQ(front_matter_of(long_block).end, 0u);
}

}  // namespace
}  // namespace weft::documents
