#include "text/chunker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "gguf/gguf.h"
#include "support/files.h"
#include "support/skip.h"
#include "support/vocabularies.h"

namespace weft::text {
namespace {

using test::bpe_test_vocab;

// One token a byte: token counts are byte counts.
Tokenizer byte_tokenizer() {
  Result<Tokenizer> tokenizer = Tokenizer::create(bpe_test_vocab({}));
  EXPECT_TRUE(tokenizer.is_ok());
  return std::move(tokenizer).value();
}

std::vector<std::string> chunk_texts(const Tokenizer& tokenizer, std::string_view text,
                                     int32_t max_tokens) {
  const auto chunks = split_into_chunks(tokenizer, text, {.max_tokens = max_tokens});
  EXPECT_TRUE(chunks.is_ok()) << chunks.status().message();
  std::vector<std::string> texts;
  size_t end = 0;
  for (const Chunk& chunk : *chunks) {
    EXPECT_EQ(chunk.begin, end);
    EXPECT_GT(chunk.end, chunk.begin);
    end = chunk.end;
    texts.emplace_back(text.substr(chunk.begin, chunk.end - chunk.begin));
    EXPECT_LE(chunk.tokens.size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(chunk.tokens, *tokenizer.encode(texts.back()));
  }
  EXPECT_EQ(end, text.size());
  return texts;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Chunker, CutsAtTheBestPlace) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_THAT(chunk_texts(tokenizer, "", 16), IsEmpty());
  EXPECT_THAT(chunk_texts(tokenizer, "All of it fits.", 16), ElementsAre("All of it fits."));
  EXPECT_THAT(chunk_texts(tokenizer, "One two.\n\nThree. Four five.", 20),
              ElementsAre("One two.\n\n", "Three. Four five."));
  EXPECT_THAT(chunk_texts(tokenizer, "One two. Three four five six", 16),
              ElementsAre("One two. ", "Three four five ", "six"));
  EXPECT_THAT(chunk_texts(tokenizer, "a, b\nc, d\ne, f g", 12),
              ElementsAre("a, b\nc, d\n", "e, f g"));
  EXPECT_THAT(chunk_texts(tokenizer, "abcdefghijklm", 8), ElementsAre("abcdefgh", "ijklm"));
}

TEST(Chunker, HeadingStaysWithItsParagraph) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_THAT(chunk_texts(tokenizer, "Title\n\nFirst sentence. Second sentence.", 26),
              ElementsAre("Title\n\nFirst sentence. ", "Second sentence."));
}

TEST(Chunker, SentenceMarksOfOtherScripts) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_THAT(chunk_texts(tokenizer, "你好。世界很大很大", 15),
              ElementsAre("你好。", "世界很大很", "大"));
  // A full stop inside a number or a name ends nothing.
  EXPECT_THAT(chunk_texts(tokenizer, "v1.25 of a.b.c", 10), ElementsAre("v1.25 of ", "a.b.c"));
}

TEST(Chunker, NeverCutsInsideACharacter) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string emoji = "\xF0\x9F\x99\x82";
  std::string text;
  for (int i = 0; i < 50; ++i) text += emoji;
  for (const int32_t max_tokens : {8, 9, 10, 11, 13}) {
    for (const std::string& chunk : chunk_texts(tokenizer, text, max_tokens)) {
      EXPECT_EQ(chunk.size() % 4, 0u);
    }
  }
}

TEST(Chunker, AnyBytesAreCoveredOnce) {
  const Tokenizer tokenizer = byte_tokenizer();
  std::mt19937 random(3);
  const std::string_view alphabet = "ab .\n\t!\"\xC3\xA9\xF0\x9F\x99\x82\xFF\x80";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < round; ++i) text.push_back(alphabet[random() % alphabet.size()]);
    chunk_texts(tokenizer, text, 8 + round % 20);  // checks inside
  }
}

TEST(Chunker, LongRunsAreNotQuadratic) {
  const Tokenizer tokenizer = byte_tokenizer();
  // Quadratic time over a megabyte would take minutes.
  for (const char c : {'a', ' ', '\n', '.', '\xFF'}) {
    const std::string text(1 << 20, c);
    EXPECT_EQ(chunk_texts(tokenizer, text, 512).size(), (size_t{1} << 20) / 512) << int{c};
  }
}

TEST(Chunker, RefusesTinyChunks) {
  const auto chunks = split_into_chunks(byte_tokenizer(), "text", {.max_tokens = 7});
  EXPECT_EQ(chunks.status().code(), StatusCode::kInvalidArgument);
}

TEST(Chunker, RealTextWithARealVocabulary) {
  const std::string model = test::model_file(test::kSmolLm2File);
  const std::string data = test::shared_file("data/multi_news_100.json");
  WEFT_SKIP_UNLESS(!model.empty(), "smollm2-135m (weft model get)");
  WEFT_SKIP_UNLESS(!data.empty(), "../shared");
  const auto file = gguf::File::open(posix_env(), model);
  ASSERT_TRUE(file.is_ok());
  auto vocab = read_vocab(**file);
  ASSERT_TRUE(vocab.is_ok());
  const auto tokenizer = Tokenizer::create(std::move(*vocab));
  ASSERT_TRUE(tokenizer.is_ok());
  const std::string text = test::read_text(data).substr(0, 400000);
  const auto chunks = chunk_texts(*tokenizer, text, 512);
  // Well-filled chunks: half of them or more hold three quarters of what they may.
  EXPECT_LT(chunks.size(), tokenizer->encode(text)->size() / 256);
}

}  // namespace
}  // namespace weft::text
