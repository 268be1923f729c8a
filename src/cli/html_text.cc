// The terms of Gemma are a web page in a wheel, and a user must be able to read them where they are
// asked to accept them. What reads the page is documents/html.h, the same that ingest has, so that
// hostile pages are met by one parser, which has its own fuzzer.
#include "cli/html_text.h"

#include "cli/wrapped_text.h"
#include "documents/html.h"

namespace weft::cli {
namespace {

/// White space in <pre> is joined like any other: the lines are the terminal's.
/// Passes what the parser says on to the wrapped lines. Offsets in the page are of no use here.
class WrappingSink : public documents::HtmlSink {
 public:
  explicit WrappingSink(int width) : lines_(width) {}

  void add(std::string_view bytes, uint64_t) override { lines_.add(bytes); }
  void add(char32_t c, uint64_t) override { lines_.add(c); }
  void end_cell() override { lines_.end_word(); }
  void end_line() override { lines_.end_line(); }
  void end_paragraph() override { lines_.end_line(/*empty_line=*/true); }
  void begin_list(bool numbered) override { lines_.begin_list(numbered); }
  void end_list() override { lines_.end_list(); }
  void begin_item() override { lines_.begin_item(); }
  void end_item() override { lines_.end_item(); }
  void begin_preformatted() override { end_paragraph(); }
  void end_preformatted() override { end_paragraph(); }

  std::string finish() { return lines_.finish(); }

 private:
  WrappedText lines_;
};

}  // namespace

std::string html_to_text(std::string_view html, int width) {
  WrappingSink sink(width);
  documents::walk_html(html, documents::HtmlPart::kArticle, sink);
  return sink.finish();
}

}  // namespace weft::cli
