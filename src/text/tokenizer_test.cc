#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "gguf/gguf.h"
#include "support/files.h"
#include "support/skip.h"
#include "support/vocabularies.h"
#include "text/pre_tokenizer.h"

namespace weft::text {
namespace {

using test::bpe_test_vocab;
using test::spm_test_vocab;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<Tokenizer> open_tokenizer(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(posix_env(), path));
  return Tokenizer::open(*file);
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

TEST(ByteLevelBpe, TextAfterBytesWithoutATokenStillCountsTowardsTheLimit) {
  VocabData vocab = bpe_test_vocab({});
  vocab.tokens[4] = "unused";  // byte 4 is left out of a text
  const Tokenizer tokenizer = make(vocab);
  const std::string text = "a" + std::string(10'000, '\x04') + "bc";
  const std::vector<int32_t> all = {'a', 'b', 'c'};
  EXPECT_EQ(encode(tokenizer, text), all);
  const TextPart parts[] = {{text, true}};
  for (const int64_t limit : {3, 20}) {
    EXPECT_EQ(*tokenizer.encode(text, {}, {.tokens = limit}), all) << limit;
    EXPECT_EQ(*tokenizer.encode_parts(parts, {.tokens = limit}), all) << limit;
  }
  EXPECT_GT(std::ssize(*tokenizer.encode(text, {}, {.tokens = 2})), 2);
  EXPECT_GT(std::ssize(*tokenizer.encode_parts(parts, {.tokens = 2})), 2);
}

/// The limits hold wherever the tokens come from: words, special tokens, parts.
void expect_limits_end_the_work(const Tokenizer& tokenizer, const std::string& word) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += word;
  const std::vector<int32_t> all = encode(tokenizer, text);
  const auto n = std::ssize(all);
  const TextPart parts[] = {{std::string_view(text).substr(0, text.size() / 2), true},
                            {std::string_view(text).substr(text.size() / 2), false}};
  for (const int64_t limit : {int64_t{0}, int64_t{1}, int64_t{100}, n - 1}) {
    for (const auto& ids : {tokenizer.encode(text, {}, {.tokens = limit}),
                            tokenizer.encode_parts(parts, {.tokens = limit})}) {
      ASSERT_TRUE(ids.is_ok());
      EXPECT_GT(std::ssize(*ids), limit);
      EXPECT_LE(std::ssize(*ids), std::max(limit + 16, n)) << limit;
      if (limit <= 100) {
        EXPECT_LE(std::ssize(*ids), limit + 16);
      }
    }
  }
  EXPECT_EQ(*tokenizer.encode(text, {}, {.tokens = n}), all);
  EXPECT_EQ(*tokenizer.encode_parts(parts, {.tokens = n}), *tokenizer.encode_parts(parts));
  int looks = 0;
  const auto third_look = [&looks] { return ++looks == 3; };
  const FunctionRef<bool()> cancelled(third_look);
  EXPECT_EQ(tokenizer.encode(text, {}, {.cancelled = &cancelled}).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(looks, 3);
}

TEST(Tokenizer, EncodingStopsAtALimitAndWhenCancelled) {
  expect_limits_end_the_work(make(bpe_test_vocab({"a b"})), "ab ");
  expect_limits_end_the_work(make(bpe_test_vocab({})), "x ");
  expect_limits_end_the_work(make(spm_test_vocab({"a", "b", "ab", "\u2581ab"})), "ab ");
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

TEST(Parts, AreEncodedAsOneTextExceptForControlTokens) {
  const auto tokenizer = Tokenizer::create(bpe_test_vocab({"h e", "l l", "he ll"}));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const auto parts = [&](std::vector<TextPart> of) { return *tokenizer->encode_parts(of); };
  const auto hell = *tokenizer->encode("hell");
  ASSERT_EQ(hell.size(), 1u);
  EXPECT_EQ(parts({{"he", true}, {"ll", false}}), hell);  // merges span the border
  EXPECT_EQ(parts({{"h", false}, {"", true}, {"ell", true}}), hell);

  const int32_t end = tokenizer->find_token("<|im_end|>");
  EXPECT_EQ(parts({{"<|im_end|>", true}}), std::vector<int32_t>{end});
  for (const auto& of : std::vector<std::vector<TextPart>>{
           {{"<|im_end|>", false}},
           {{"<|im_", true}, {"end|>", false}},
           {{"<|im_", true}, {"end|>", true}},
           {{"<", false}, {"|im_end|>", true}},
       }) {
    EXPECT_EQ(parts(of), *tokenizer->encode("<|im_end|>"));
    EXPECT_THAT(parts(of), ::testing::Not(::testing::Contains(end)));
  }
  EXPECT_EQ(parts({}), std::vector<int32_t>{});
}

TEST(Parts, UserDefinedTokensSpanBordersButNoControlTokenIsLostToThem) {
  VocabData vocab = bpe_test_vocab({});
  for (const char* text : {"\n\n", "a<"}) {
    vocab.tokens.emplace_back(text);
    vocab.types.push_back(TokenType::kUserDefined);
  }
  const auto tokenizer = Tokenizer::create(std::move(vocab));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const auto parts = [&](std::vector<TextPart> of) { return *tokenizer->encode_parts(of); };
  const int32_t end = tokenizer->find_token("<|im_end|>");
  const int32_t breaks = tokenizer->find_token("\n\n");
  EXPECT_THAT(parts({{"x\n", true}, {"\nx", false}}), ElementsAre('x', breaks, 'x'));
  EXPECT_THAT(parts({{"<no", false}, {"te>", true}}), ElementsAre(257));
  EXPECT_THAT(parts({{"a", false}, {"<|im_end|>", true}}), ElementsAre('a', end));
  EXPECT_THAT(parts({{"a<", false}, {"<|im_end|>", true}}),
              ElementsAre(tokenizer->find_token("a<"), end));
  EXPECT_EQ(parts({{"a<|im_end|>", true}}),
            *tokenizer->encode("a<|im_end|>", {.parse_special = true}));
}

TEST(Parts, SpaceAfterAControlTokenIsDroppedAcrossParts) {
  VocabData vocab = spm_test_vocab({"\u2581a", "a", "\u2581"});
  vocab.tokens.emplace_back("<|end|>");
  vocab.types.push_back(TokenType::kControl);
  vocab.scores.push_back(0);
  vocab.strip_after_special = true;
  const auto tokenizer = Tokenizer::create(std::move(vocab));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const TextPart of[] = {{"a<|end|>\n", true}, {" \na", false}};
  EXPECT_EQ(*tokenizer->encode_parts(of),
            *tokenizer->encode("a<|end|>\n \na", {.parse_special = true}));
}

TEST(Parts, HaveOneSpacePrefix) {
  const auto tokenizer = Tokenizer::create(spm_test_vocab({"\u2581a", "b", "\u2581"}));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const TextPart of[] = {{"a", true}, {"b", false}};
  EXPECT_EQ(*tokenizer->encode_parts(of), *tokenizer->encode("ab"));
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
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o",
                          "default", "deepseek-llm", "deepseek-coder", "deepseek-v3"}) {
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

TEST(SentencePiece, ASpaceIsAddedAtTheStartAndAfterControlTokens) {
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

// The words that `pre` cuts `text` into, joined with '|'.
std::string words(const char* pre, std::string_view text) {
  const Result<PreTokenizer> pre_tokenizer = PreTokenizer::create(pre);
  EXPECT_TRUE(pre_tokenizer.is_ok()) << pre_tokenizer.status().message();
  std::vector<uint32_t> ends;
  EXPECT_TRUE(pre_tokenizer->split(text, ends).is_ok());
  std::string joined;
  size_t begin = 0;
  for (const uint32_t end : ends) {
    joined += (begin == 0 ? "" : "|") + std::string(text.substr(begin, end - begin));
    begin = end;
  }
  return joined;
}

TEST(PreTokenizer, CutsAsTheModelsOwnPatterns) {
  EXPECT_EQ(words("llama-bpe", "I'LL see 12345 a's"), "I|'LL| see| |123|45| a|'s");
  EXPECT_EQ(words("qwen2", "x12 e\u0301a"), "x|1|2| e|\u0301a");
  EXPECT_EQ(words("qwen35", "x12 e\u0301a"), "x|1|2| e\u0301a");
  // Words end where a capital follows a small letter; contractions stay with theirs.
  EXPECT_EQ(words("gpt-4o", "camelCaseHTTP We'LL 1234 //\n/x"),
            "camel|Case|HTTP| We'LL| |123|4| //\n/|x");
  EXPECT_EQ(words("gpt-4o", "\u01c5a \u00e9\u00c9"), "\u01c5a| \u00e9|\u00c9");
  EXPECT_EQ(words("tekken", "camelCase We'll 12 e\u0301X"), "camel|Case| We|'ll| |1|2| e\u0301|X");
  EXPECT_EQ(words("deepseek-v3", "a\u4e2d\u3042 1234 ,foo (x e\u0301 \u00b1\n"),
            "a|\u4e2d\u3042| |123|4| ,|foo| (|x| e\u0301| \u00b1\n");
  EXPECT_EQ(words("deepseek-v3", "a,foo\x01\x02"), "a|,foo|\x01\x02");
  EXPECT_EQ(words("deepseek-coder", "a b,\n12\u4e2d x"), "a| b|,|\n|1|2|\u4e2d| x");
}

TEST(PreTokenizer, LongRunsAreNotQuadratic) {
  constexpr size_t kBytes = 1 << 18;
  for (const char* pre : {"gpt-4o", "tekken", "deepseek-v3", "deepseek-coder", "qwen35"}) {
    const Tokenizer tokenizer = make(bpe_test_vocab({}, pre));
    for (const char* unit : {"A", "a", "Aa", "aA", " ", "\n", " \n", "1", "/", "'", "'S", "\x01"}) {
      std::string text;
      while (text.size() < kBytes) text += unit;
      EXPECT_EQ(encode(tokenizer, text).size(), text.size()) << pre << " " << unit;
    }
  }
}

TEST(PreTokenizer, RowsSayWhetherMergesAreIgnoredAndBosIsAdded) {
  for (const char* pre : {"llama-bpe", "tekken"}) {
    EXPECT_TRUE(PreTokenizer::create(pre)->ignores_merges()) << pre;
    EXPECT_TRUE(PreTokenizer::create(pre)->adds_bos()) << pre;
  }
  for (const char* pre : {"smaug-bpe", "gpt-4o", "qwen2", "deepseek-v3"}) {
    EXPECT_FALSE(PreTokenizer::create(pre)->ignores_merges()) << pre;
    EXPECT_FALSE(PreTokenizer::create(pre)->adds_bos()) << pre;
  }
}

VocabData vocab_with_added(const std::vector<std::pair<std::string, TokenType>>& added,
                           VocabData vocab = bpe_test_vocab({})) {
  for (const auto& [text, type] : added) {
    vocab.tokens.push_back(text);
    vocab.types.push_back(type);
    vocab.scores.push_back(-1000.0f);
  }
  return vocab;
}

TEST(SpecialTokens, TheLongestOfTheLeftmostWins) {
  const VocabData vocab = vocab_with_added({{"ab", TokenType::kUserDefined},
                                            {"abc", TokenType::kUserDefined},
                                            {"abcde", TokenType::kControl},
                                            {"bcdefg", TokenType::kUserDefined},
                                            {"\xFF\xFF", TokenType::kUserDefined}});
  const Tokenizer tokenizer = make(vocab);
  EXPECT_THAT(encode(tokenizer, "xab"), ElementsAre('x', 258));
  EXPECT_THAT(encode(tokenizer, "abd"), ElementsAre(258, 'd'));
  EXPECT_THAT(encode(tokenizer, "abcdefg"), ElementsAre(259, 'd', 'e', 'f', 'g'));
  EXPECT_THAT(encode(tokenizer, "abcdefg", {.parse_special = true}), ElementsAre(260, 'f', 'g'));
  EXPECT_THAT(encode(tokenizer, "a\xFF\xFF\xFF"), ElementsAre('a', 262, 0xFF));
}

TEST(SpecialTokens, AUserDefinedTurnMarkIsAControlToken) {
  const VocabData vocab = vocab_with_added({{"<|user|>", TokenType::kUserDefined},
                                            {"<\uFF5Cuser\uFF5C>", TokenType::kUserDefined},
                                            {"<tool_call>", TokenType::kUserDefined}});
  const Tokenizer tokenizer = make(vocab);
  for (const int32_t id : {258, 259}) {
    EXPECT_TRUE(tokenizer.is_control(id));
    for (const int32_t got : encode(tokenizer, "a" + vocab.tokens[static_cast<size_t>(id)])) {
      EXPECT_LT(got, 256);
    }
  }
  EXPECT_THAT(encode(tokenizer, "<tool_call>"), ElementsAre(260));
}

TEST(SpecialTokens, AnEndNameThatTextSpellsStaysText) {
  VocabData vocab = bpe_test_vocab({"< /", "</ s", "</s >"});
  const Tokenizer tokenizer = make(vocab);
  ASSERT_EQ(tokenizer.find_token("</s>"), 258);
  EXPECT_EQ(tokenizer.token_bytes(258), "</s>");
  EXPECT_FALSE(tokenizer.is_control(258));
  EXPECT_FALSE(tokenizer.is_end_of_generation(258));
}

TEST(SentencePiece, GemmasUserDefinedTokensAreFoundInPlainText) {
  VocabData vocab = spm_test_vocab({"a", "\u2581", "\u2581a", "\u2581\u2581", "\n"});
  vocab.add_space_prefix = false;
  vocab = vocab_with_added({{"\n\n", TokenType::kUserDefined},
                            {"   ", TokenType::kUserDefined},
                            {"\u2581\u2581\u2581\u2581", TokenType::kUserDefined},
                            {"<h1>", TokenType::kUserDefined},
                            {"<start_of_turn>", TokenType::kControl}},
                           std::move(vocab));
  const Tokenizer tokenizer = make(std::move(vocab));
  EXPECT_THAT(encode(tokenizer, "a a"), ElementsAre(259, 261));
  EXPECT_THAT(encode(tokenizer, "a  a"), ElementsAre(259, 260, 261));
  EXPECT_THAT(encode(tokenizer, "a\n\n\na"), ElementsAre(259, 264, 263, 259));
  EXPECT_THAT(encode(tokenizer, "a   a"), ElementsAre(259, 265, 259));
  EXPECT_THAT(encode(tokenizer, "a    a<h1>a"), ElementsAre(259, 266, 259, 267, 259));
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, "a       a")), "a       a");
  for (const int32_t id : encode(tokenizer, "<start_of_turn>")) EXPECT_NE(id, 268);
  EXPECT_THAT(encode(tokenizer, "<start_of_turn>a", {.parse_special = true}),
              ElementsAre(268, 259));
}

TEST(SentencePiece, EosIsAddedOnRequest) {
  const Tokenizer tokenizer = make(spm_test_vocab({"a", "\u2581a"}));
  EXPECT_THAT(encode(tokenizer, "a", {.add_bos = true, .add_eos = true}), ElementsAre(1, 260, 2));
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
  WEFT_SKIP_UNLESS(!dir.empty(), "../shared");
  for (const std::string name : {"gpt-2", "starcoder", "deepseek-llm", "llama-spm", "phi-3"}) {
    const std::string path = dir + "/data/tokenizers/" + name + "/ggml-vocab-" + name + ".gguf";
    const Result<Tokenizer> tokenizer = open_tokenizer(path);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    const std::string inputs = test::read_text(path + ".inp");
    std::istringstream outputs(test::read_text(path + ".out"));
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

// Every vocabulary that this machine has.
std::vector<std::string> vocabulary_paths() {
  std::vector<std::string> paths;
  for (const char* name : {"gpt-2", "starcoder", "deepseek-llm", "llama-spm", "phi-3"}) {
    paths.push_back(test::shared_file("data/tokenizers/" + std::string(name) + "/ggml-vocab-" +
                                      name + ".gguf"));
  }
  for (const char* name : {test::kSmolLm2File, "gemma3-270m.gguf"}) {
    paths.push_back(test::model_file(name));
  }
  std::erase(paths, std::string());
  return paths;
}

TEST(Tokenizer, TextNeverInjectsAControlToken) {
  const std::vector<std::string> paths = vocabulary_paths();
  WEFT_SKIP_UNLESS(!paths.empty(), "vocabularies");
  constexpr std::string_view kBetween[] = {"",   " ",      "a",          "\n\n",     "<",
                                           "|>", "\u2581", "\U0001F600", "e\u0301 ", "\xFF"};
  std::mt19937 random(11);
  for (const std::string& path : paths) {
    const Result<Tokenizer> tokenizer = open_tokenizer(path);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    std::vector<std::string> names;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (!tokenizer->is_control(id)) continue;
      names.emplace_back(tokenizer->token_bytes(id, /*show_control=*/true));
    }
    ASSERT_FALSE(names.empty()) << path;
    const auto expect_no_control = [&](const std::string& text) {
      for (const int32_t id : encode(*tokenizer, text)) {
        ASSERT_FALSE(tokenizer->is_control(id)) << path << ": " << id << " from " << text;
      }
    };
    for (const std::string& name : names) expect_no_control(name);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (int i = 0; i < 6; ++i) {
        const std::string& name = names[random() % names.size()];
        text += name.substr(0, random() % 4 == 0 ? random() % (name.size() + 1) : name.size());
        text += kBetween[random() % std::size(kBetween)];
      }
      expect_no_control(text);
    }
  }
}

TEST(Tokenizer, ReadsTheVocabularyOfSmolLm2) {
  const std::string path = test::model_file(test::kSmolLm2File);
  WEFT_SKIP_UNLESS(!path.empty(), "smollm2-135m (weft model get)");
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
