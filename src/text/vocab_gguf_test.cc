#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "support/vocabularies.h"
#include "text/tokenizer.h"

namespace weft::text {
namespace {

using test::bpe_test_vocab;
using test::spm_test_vocab;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// What the file below says; tests change a part of it.
struct Header {
  VocabData vocab;
  std::vector<std::pair<std::string, uint32_t>> ids;
  std::vector<std::pair<std::string, bool>> flags;
  bool has_scores = true;
  bool has_types = true;
};

Header llama() { return {.vocab = spm_test_vocab({"a", "\u2581"}), .ids = {}, .flags = {}}; }
Header gpt2() { return {.vocab = bpe_test_vocab({"a b"}), .ids = {}, .flags = {}}; }

Result<VocabData> read(const Header& header) {
  gguf::HeaderBuilder builder;
  const VocabData& vocab = header.vocab;
  builder.add_string("tokenizer.ggml.model", vocab.model);
  builder.add_string("tokenizer.ggml.pre", vocab.pre);
  builder.add_strings("tokenizer.ggml.tokens", vocab.tokens);
  if (vocab.model == "gpt2") builder.add_strings("tokenizer.ggml.merges", vocab.merges);
  if (header.has_types) {
    std::vector<int32_t> types;
    for (const TokenType type : vocab.types) types.push_back(static_cast<int32_t>(type));
    builder.add_array<int32_t>("tokenizer.ggml.token_type", types);
  }
  if (vocab.model == "llama" && header.has_scores) {
    builder.add_array<float>("tokenizer.ggml.scores", vocab.scores);
  }
  for (const auto& [name, id] : header.ids) {
    builder.add<uint32_t>("tokenizer.ggml." + name + "_token_id", id);
  }
  for (const auto& [name, value] : header.flags) {
    builder.add<bool>("tokenizer.ggml." + name, value);
  }
  const std::string bytes = builder.bytes();
  WEFT_ASSIGN_OR_RETURN(const auto file,
                        gguf::File::parse(std::as_bytes(std::span(bytes)), "m.gguf"));
  WEFT_RETURN_IF_ERROR(Tokenizer::open(*file).status());
  return read_vocab(*file);
}

TEST(ReadVocab, FillsInWhatTheKindOfModelImplies) {
  const Result<VocabData> spm = read(llama());
  ASSERT_TRUE(spm.is_ok()) << spm.status().message();
  EXPECT_TRUE(spm->add_bos && spm->add_space_prefix);
  EXPECT_FALSE(spm->add_eos);
  EXPECT_EQ(spm->bos_id, 1);
  EXPECT_EQ(spm->eos_id, 2);
  EXPECT_EQ(spm->unk_id, 0);
  const Result<VocabData> bpe = read(gpt2());
  ASSERT_TRUE(bpe.is_ok()) << bpe.status().message();
  EXPECT_FALSE(bpe->add_bos || bpe->add_space_prefix);
  EXPECT_EQ(bpe->bos_id, kNoToken);
  Header tekken = gpt2();
  tekken.vocab.pre = "tekken";
  EXPECT_TRUE(read(tekken)->add_bos);
}

TEST(ReadVocab, FlagsInTheFileCount) {
  Header header = llama();
  header.flags = {{"add_bos_token", false}, {"add_eos_token", true}, {"add_space_prefix", false}};
  header.ids = {{"bos", 0xFFFFFFFF}, {"eos", 5}};
  const Result<VocabData> vocab = read(header);
  ASSERT_TRUE(vocab.is_ok()) << vocab.status().message();
  EXPECT_FALSE(vocab->add_bos || vocab->add_space_prefix);
  EXPECT_TRUE(vocab->add_eos);
  EXPECT_EQ(vocab->bos_id, kNoToken);
  EXPECT_EQ(vocab->eos_id, 5);
}

struct BadHeader {
  const char* part;  // of the message
  std::function<void(Header&)> damage;
  Header header = llama();
};

std::vector<BadHeader> bad_headers() {
  return {
      {"token_type", [](Header& h) { h.vocab.types.pop_back(); }},
      {"token_type", [](Header& h) { h.vocab.types.push_back(TokenType::kNormal); }},
      {"token_type", [](Header& h) { h.vocab.types[7] = static_cast<TokenType>(7); }},
      {"token_type", [](Header& h) { h.vocab.types[7] = static_cast<TokenType>(-1); }},
      {"scores", [](Header& h) { h.vocab.scores.pop_back(); }},
      {"scores", [](Header& h) { h.vocab.scores.push_back(0); }},
      {"scores", [](Header& h) { h.has_scores = false; }},
      {"bos_token_id",
       [](Header& h) {
         h.ids = {{"bos", 261}};
       }},
      {"eos_token_id",
       [](Header& h) {
         h.ids = {{"eos", 0x80000000}};
       }},
      {"eot_token_id",
       [](Header& h) {
         h.ids = {{"eot", 261}};
       }},
      {"eom_token_id",
       [](Header& h) {
         h.ids = {{"eom", 261}};
       }},
      {"unknown_token_id",
       [](Header& h) {
         h.ids = {{"unknown", 261}};
       }},
      {"padding_token_id",
       [](Header& h) {
         h.ids = {{"padding", 261}};
       }},
      {"seperator_token_id",
       [](Header& h) {
         h.ids = {{"seperator", 261}};
       }},
      {"mask_token_id",
       [](Header& h) {
         h.ids = {{"mask", 261}};
       }},
      {"<0xNN>", [](Header& h) { h.vocab.tokens[13] = "<0x0a>"; }},
      {"<0xNN>", [](Header& h) { h.vocab.tokens[13] = "<0x0A"; }},
      {"<0xNN>", [](Header& h) { h.vocab.tokens[13] = "<0x00A>"; }},
      {"same text", [](Header& h) { h.vocab.tokens[259] = "<0x0A>"; }},
      {"byte token <0x0A>",
       [](Header& h) {
         h.vocab.types[13] = h.vocab.types[0] = TokenType::kNormal;
         h.ids = {{"unknown", 0xFFFFFFFF}};
       }},
      {"remove_extra_whitespaces",
       [](Header& h) {
         h.flags = {{"remove_extra_whitespaces", true}};
       }},
      {"'bert'", [](Header& h) { h.vocab.model = "bert"; }},
      {"tokens", [](Header& h) { h.vocab = VocabData{.model = "llama"}; }},
      {"merges[0]", [](Header& h) { h.vocab.merges[0] = "a b c"; }, gpt2()},
      {"merges[0]", [](Header& h) { h.vocab.merges[0] = " b"; }, gpt2()},
      {"merges[0]", [](Header& h) { h.vocab.merges[0] = ""; }, gpt2()},
      {"merges[1]", [](Header& h) { h.vocab.merges.push_back("a zz"); }, gpt2()},
      {"'klingon'", [](Header& h) { h.vocab.pre = "klingon"; }, gpt2()},
  };
}

TEST(ReadVocab, RefusesInOneLine) {
  const std::vector<BadHeader> cases = bad_headers();
  for (size_t i = 0; i < cases.size(); ++i) {
    Header header = cases[i].header;
    cases[i].damage(header);
    const Result<VocabData> vocab = read(header);
    ASSERT_FALSE(vocab.is_ok()) << "case " << i << ", " << cases[i].part;
    EXPECT_THAT(vocab.status().message(), HasSubstr(cases[i].part)) << "case " << i;
    EXPECT_THAT(vocab.status().message(), StartsWith("m.gguf: "));
    EXPECT_THAT(vocab.status().message(), Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace weft::text
