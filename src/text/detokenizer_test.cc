#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "support/vocabularies.h"
#include "text/utf8.h"

namespace weft::text {
namespace {

using test::bpe_test_vocab;

// Ids 0-255 are the bytes, 256 is a control token.
Tokenizer byte_tokenizer() {
  Result<Tokenizer> tokenizer = Tokenizer::create(bpe_test_vocab({}));
  EXPECT_TRUE(tokenizer.is_ok());
  return std::move(tokenizer).value();
}

std::vector<std::string> pushes(StreamingDetokenizer& stream, std::string_view bytes) {
  std::vector<std::string> out;
  for (const char byte : bytes) out.push_back(stream.push(static_cast<unsigned char>(byte)));
  return out;
}

TEST(StreamingDetokenizer, HoldsBackUnfinishedCharacters) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamingDetokenizer stream(tokenizer);
  EXPECT_EQ(pushes(stream, "a\xC3\xA9\xF0\x9F\x99\x82"),
            (std::vector<std::string>{"a", "", "\xC3\xA9", "", "", "", "\xF0\x9F\x99\x82"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamingDetokenizer, GivesInvalidBytesAsTheyAre) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamingDetokenizer stream(tokenizer);
  // A lone continuation byte, an overlong form, a lead byte without its rest.
  EXPECT_EQ(pushes(stream, "\x80\xC0\xAF\xE4z"),
            (std::vector<std::string>{"\x80", "\xC0", "\xAF", "", "\xE4z"}));
  EXPECT_EQ(pushes(stream, "\xE4\xBD"), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(stream.finish(), "\xE4\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamingDetokenizer, ControlTokensAddNoTextUnlessShown) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamingDetokenizer silent(tokenizer);
  EXPECT_EQ(silent.push(256), "");
  StreamingDetokenizer shown(tokenizer, true);
  EXPECT_EQ(shown.push(256), "<|im_end|>");
}

TEST(StreamingDetokenizer, LosesNothingAndHoldsBackLittle) {
  const Tokenizer tokenizer = byte_tokenizer();
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    StreamingDetokenizer stream(tokenizer);
    std::string text;
    std::string out;
    for (int i = 0; i < 200; ++i) {
      // In every other round no ASCII: sequences begin, break and complete more often.
      const int byte = static_cast<int>(random() % 256) | (round % 2 == 0 ? 0 : 0x80);
      text.push_back(static_cast<char>(byte));
      out += stream.push(byte);
      EXPECT_LE(text.size() - out.size(), 3u);
    }
    EXPECT_TRUE(out + stream.finish() == text);
  }
}

TEST(StreamingDetokenizer, EveryPieceOfValidTextIsValid) {
  const Tokenizer tokenizer = byte_tokenizer();
  std::mt19937 random(12);
  StreamingDetokenizer stream(tokenizer);
  for (int i = 0; i < 20000; ++i) {
    const char32_t limit = i % 4 == 0 ? 0x80 : i % 4 == 1 ? 0x800 : i % 4 == 2 ? 0xD800 : 0x110000;
    const char32_t floor = i % 4 == 3 ? 0xE000 : 0;
    std::string character;
    append_utf8(floor + random() % (limit - floor), character);
    std::string out;
    for (const std::string& piece : pushes(stream, character)) {
      EXPECT_TRUE(is_valid_utf8(piece));
      out += piece;
    }
    EXPECT_EQ(out, character);
  }
}

}  // namespace
}  // namespace weft::text
