#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "../tests/support.h"
#include "gguf/gguf.h"
#include "text/test_vocab.h"

namespace weft::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<Tokenizer> open_tokenizer(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(posix_env(), path));
  WEFT_ASSIGN_OR_RETURN(VocabData vocab, read_vocab(*file));
  return Tokenizer::create(std::move(vocab));
}

Tokenizer make(VocabData vocab) {
  Result<Tokenizer> tokenizer = Tokenizer::create(std::move(vocab));
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options = {}) {
  Result<std::vector<int32_t>> ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return std::move(ids).value();
}

std::string random_bytes(std::mt19937& random, size_t n_bytes, int max_byte) {
  std::string bytes(n_bytes, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(std::uniform_int_distribution<int>(0, max_byte)(random));
  }
  return bytes;
}

TEST(ByteLevelBpe, MergesByRankNotByPosition) {
  const Tokenizer tokenizer = make(bpe_test_vocab({"b c", "a b", "bc d"}));
  EXPECT_THAT(encode(tokenizer, "abcd"), ElementsAre('a', 258));
  EXPECT_THAT(encode(tokenizer, "abd"), ElementsAre(257, 'd'));
}

TEST(ByteLevelBpe, EqualPairsMergeFromTheLeft) {
  const Tokenizer tokenizer = make(bpe_test_vocab({"a a", "aa aa"}));
  EXPECT_THAT(encode(tokenizer, "aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(encode(tokenizer, "aaaaaaa"), ElementsAre(257, 256, 'a'));
}

TEST(ByteLevelBpe, LongRunIsNotQuadratic) {
  const Tokenizer tokenizer = make(bpe_test_vocab({"a a", "aa aa"}));
  // Each pass over a quadratic merge of this length would take minutes.
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, 'a')).size(), size_t{1} << 18);
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, ' ') + "x").size(), (size_t{1} << 20) + 1);
}

TEST(ByteLevelBpe, PlainTextNeverBecomesAControlToken) {
  const Tokenizer tokenizer = make(bpe_test_vocab({}));
  const std::string text = "x<|im_end|>y";
  const std::vector<int32_t> plain = encode(tokenizer, text);
  EXPECT_EQ(plain.size(), text.size());
  EXPECT_THAT(encode(tokenizer, text, {.parse_special = true}), ElementsAre('x', 256, 'y'));
  EXPECT_TRUE(tokenizer.is_control(256));
  EXPECT_TRUE(tokenizer.is_end_of_generation(256));
  EXPECT_THAT(encode(tokenizer, "x<note>y"), ElementsAre('x', 257, 'y'));
  EXPECT_FALSE(tokenizer.is_control(257));
}

TEST(ByteLevelBpe, MergeIntoAControlTokenIsRefused) {
  VocabData vocab = bpe_test_vocab({"a b"});
  vocab.types[256] = TokenType::kControl;
  const Result<Tokenizer> tokenizer = Tokenizer::create(std::move(vocab));
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kCorrupt);
}

TEST(ByteLevelBpe, ControlTokensHaveNoBytesUnlessShown) {
  const Tokenizer tokenizer = make(bpe_test_vocab({}));
  const std::vector<int32_t> ids = {'h', 'i', 256, 257};
  EXPECT_EQ(tokenizer.decode(ids), "hi<note>");
  EXPECT_EQ(tokenizer.decode(ids, true), "hi<|im_end|><note>");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(1000), "");
}

TEST(ByteLevelBpe, AnyBytesSurviveARoundTrip) {
  std::mt19937 random(7);
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "default", "deepseek-llm"}) {
    const Tokenizer tokenizer = make(bpe_test_vocab({"a a", "\xC4\xA0 a", "0 0"}, pre));
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_bytes(random, round, round % 2 == 0 ? 255 : 0x21);
      EXPECT_TRUE(tokenizer.decode(encode(tokenizer, text)) == text) << pre << " round " << round;
    }
  }
}

TEST(ByteLevelBpe, InvalidByteWithoutATokenBecomesTheReplacementCharacter) {
  VocabData vocab = bpe_test_vocab({});
  vocab.tokens[0xFF] = "gone";
  const Tokenizer tokenizer = make(std::move(vocab));
  EXPECT_EQ(tokenizer.decode(encode(tokenizer,
                                    "a\xFF\xFE"
                                    "b")),
            "a\xEF\xBF\xBD\xFE"
            "b");
}

TEST(ByteLevelBpe, IgnoresMergesForWholeWords) {
  VocabData vocab = bpe_test_vocab({"b c"}, "llama-bpe");
  vocab.tokens.push_back("abc");  // no merge leads to it
  vocab.types.push_back(TokenType::kNormal);
  const Tokenizer tokenizer = make(vocab);
  EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre(259));
  vocab.pre = "gpt-2";
  EXPECT_THAT(encode(make(vocab), "abc"), ElementsAre('a', 256));
}

TEST(SentencePiece, MergesByScoreAndFallsBackToBytes) {
  const Tokenizer tokenizer = make(spm_test_vocab({"ab", "bc",
                                                   "\xE2\x96\x81"
                                                   "ab",
                                                   "a", "b", "c", "\xE2\x96\x81"}));
  EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre(261, 264));
  EXPECT_THAT(encode(tokenizer, "xc"), ElementsAre(265, 3 + 'x', 264));
  EXPECT_THAT(encode(tokenizer, "c", {.add_bos = true}), ElementsAre(1, 265, 264));
  EXPECT_THAT(encode(tokenizer, ""), IsEmpty());
}

TEST(SentencePiece, SpacePrefixBehindControlTokensOnly) {
  const Tokenizer tokenizer = make(spm_test_vocab({"a", "\xE2\x96\x81"}));
  EXPECT_THAT(encode(tokenizer, "a</s>a", {.parse_special = true}),
              ElementsAre(260, 259, 2, 260, 259));
  for (const int32_t id : encode(tokenizer, "a</s>a")) EXPECT_FALSE(tokenizer.is_control(id));
}

TEST(SentencePiece, AnyBytesSurviveARoundTrip) {
  std::mt19937 random(7);
  const Tokenizer tokenizer =
      make(spm_test_vocab({"a", "\xE2\x96\x81", "\xE2\x96\x81\xE2\x96\x81"}));
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_bytes(random, round, round % 2 == 0 ? 255 : 0x21);
    if (text.find(kSpaceMark) != std::string::npos) continue;  // the model cannot tell it from ' '
    EXPECT_TRUE(tokenizer.decode(encode(tokenizer, text)) == text) << "round " << round;
  }
}

TEST(SentencePiece, LongRunIsNotQuadratic) {
  const Tokenizer tokenizer = make(spm_test_vocab({"aa", "a", "\xE2\x96\x81"}));
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, 'a')).size(), (size_t{1} << 19) + 1);
}

TEST(PreTokenizer, UnknownNameIsRefusedWithTheKnownOnes) {
  const Result<Tokenizer> tokenizer = Tokenizer::create(bpe_test_vocab({}, "klingon"));
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("klingon"));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("smollm"));
}

TEST(Vocab, RefusesWhatTheFormatForbids) {
  const auto status_of = [](const std::function<void(VocabData&)>& damage, bool llama = false) {
    VocabData vocab = llama ? spm_test_vocab({"a"}) : bpe_test_vocab({"a b"});
    damage(vocab);
    const Result<Tokenizer> tokenizer = Tokenizer::create(std::move(vocab));
    EXPECT_FALSE(tokenizer.is_ok());
    return tokenizer.status();
  };
  const std::vector<std::pair<std::string, Status>> cases = {
      {"token_type", status_of([](VocabData& v) { v.types.pop_back(); })},
      {"scores", status_of([](VocabData& v) { v.scores.pop_back(); }, true)},
      {"finite", status_of([](VocabData& v) { v.scores[3] = NAN; }, true)},
      {"bos_token_id", status_of([](VocabData& v) { v.bos_id = 100000; })},
      {"eos_token_id", status_of([](VocabData& v) { v.eos_id = -2; })},
      {"merges[0]", status_of([](VocabData& v) { v.merges[0] = "ab"; })},
      {"merges[0]", status_of([](VocabData& v) { v.merges[0] = "a b c"; })},
      {"merges[0]", status_of([](VocabData& v) { v.merges[0] = "a c"; })},
      {"<0xNN>", status_of([](VocabData& v) { v.tokens[3] = "<0xzz>"; }, true)},
      {"<0xNN>", status_of([](VocabData& v) { v.tokens[13] = "<0x0a>"; }, true)},
      {"same text", status_of([](VocabData& v) { v.tokens[5] = v.tokens[6]; })},
      {"tokens", status_of([](VocabData& v) { v = VocabData{.model = "gpt2"}; })},
  };
  for (const auto& [part, status] : cases) {
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << part;
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  EXPECT_EQ(status_of([](VocabData& v) { v.model = "bert"; }).code(), StatusCode::kUnsupported);
}

// llama.cpp's own vectors: texts and the ids that the original tokenizer gives for them.
TEST(Tokenizer, AgreesWithTheVectors) {
  const std::string dir = test::shared_dir();
  if (dir.empty()) GTEST_SKIP() << "no ../shared";
  for (const std::string name : {"gpt-2", "starcoder", "deepseek-llm", "llama-spm", "phi-3"}) {
    const std::string path = dir + "/data/tokenizers/" + name + "/ggml-vocab-" + name + ".gguf";
    const Result<Tokenizer> tokenizer = open_tokenizer(path);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    const std::string inputs = test::slurp(path + ".inp");
    std::istringstream outputs(test::slurp(path + ".out"));
    const std::string separator = "\n__ggml_vocab_test__\n";
    size_t n_cases = 0;
    std::string line;
    for (size_t at = 0; std::getline(outputs, line); ++n_cases) {
      const size_t end = std::min(inputs.find(separator, at), inputs.size());
      std::istringstream ids(line);
      const std::vector<int32_t> want{std::istream_iterator<int32_t>(ids), {}};
      const std::string text = inputs.substr(at, end - at);
      EXPECT_EQ(encode(*tokenizer, text), want) << name << ": " << text;
      at = std::min(end + separator.size(), inputs.size());
    }
    EXPECT_GT(n_cases, 40u) << name;
  }
}

TEST(Tokenizer, ReadsSmolLm2) {
  const std::string path = test::model_file(test::kSmolLm2File);
  if (path.empty()) GTEST_SKIP() << "SmolLM2 has not been fetched";
  const Result<Tokenizer> tokenizer = open_tokenizer(path);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_FALSE(tokenizer->wants_bos());
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->is_end_of_generation(0));
  EXPECT_FALSE(tokenizer->is_end_of_generation(1));
  EXPECT_EQ(tokenizer->find_token("<|im_start|>"), 1);
  EXPECT_THAT(encode(*tokenizer, "<|im_start|>user\n", {.parse_special = true}),
              ElementsAre(1, 4093, 198));
}

}  // namespace
}  // namespace weft::text
