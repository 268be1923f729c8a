// The regular expressions by which each model's text is cut into words, before BPE merges within
// them. They are those of the models' own tokenizers, under the names that convert_hf_to_gguf
// writes into `tokenizer.ggml.pre`; a word cut elsewhere gives other tokens than the model was
// trained on, so an unknown name is refused and not guessed. How they compare with the models' own
// tokenizers is in docs/measurements.md ("Tokens are right").
//
// They are run by PCRE2, which has Unicode's classes (std::regex knows no \p{L}) and a JIT. Where a
// class differs from the engines that made the vocabularies, the pattern says it outright: \s of
// llama.cpp's expressions is not Unicode's, for which its tokens of DeepSeek LLM differ in 33 of
// 10,000 generated strings.
//
// Time must be linear for any text, since documents are anyone's. Each pattern steps back at most
// once per character of a run; PCRE2's limit of matches is set above what that can take, and what
// reached it would be an error rather than a wait.
#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <string>

#include "base/narrow.h"
#include "text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace weft::text {
namespace {

// \s here is Unicode's White_Space, as in the engines that made the vocabularies; PCRE2's own \s
// has U+180E in addition.
#define WEFT_S "\\p{White_Space}"
#define WEFT_NOT_S "\\P{White_Space}"

#define WEFT_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
// Ends of the alternatives that begin with llama-3's: runs of signs, line breaks, white space.
#define WEFT_BLANKS WEFT_S "*[\\r\\n]+|" WEFT_S "+(?!" WEFT_NOT_S ")|" WEFT_S "+"
#define WEFT_SIGNS " ?[^" WEFT_S "\\p{L}\\p{N}]+[\\r\\n]*|"
#define WEFT_SIGNS_AND_SLASHES " ?[^" WEFT_S "\\p{L}\\p{N}]+[\\r\\n/]*|"
// A word of letters and marks: capitals, then small letters (one at least), or capitals (one at
// least), then small letters; letters without case are both. `end` follows each.
#define WEFT_CASED_WORD(end)                                     \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"  \
  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" end                           \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+" \
  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" end "|"

constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WEFT_S
                              "\\p{L}\\p{N}]+|" WEFT_S "+(?!" WEFT_NOT_S ")|" WEFT_S "+";
constexpr const char* kLlama3 =
    WEFT_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" WEFT_SIGNS WEFT_BLANKS;
constexpr const char* kQwen2 =
    WEFT_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" WEFT_SIGNS WEFT_BLANKS;
constexpr const char* kQwen35 =
    WEFT_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WEFT_S
                     "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WEFT_BLANKS;
constexpr const char* kGpt4o =
    WEFT_CASED_WORD(WEFT_CONTRACTION "?") "\\p{N}{1,3}|" WEFT_SIGNS_AND_SLASHES WEFT_BLANKS;
constexpr const char* kTekken = WEFT_CASED_WORD("") "\\p{N}|" WEFT_SIGNS_AND_SLASHES WEFT_BLANKS;
constexpr const char* kDigit = "\\p{N}";
constexpr const char* kNumber = "\\p{N}+";
constexpr const char* kUpToThreeDigits = "\\p{N}{1,3}";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";
constexpr const char* kPunctuation = "[\\p{P}$+<=>^~|]+";
constexpr const char* kLineBreak = "[\\r\\n]";
// deepseek-llm: cased letters of the scripts that have case, at most one white space before them.
constexpr const char* kCasedLetters = WEFT_S
    "?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{"
    "fb17}"
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"
    "\\x{1e900}-\\x{1e943}]+";
constexpr const char* kPunctuationOfBothWidths =
    WEFT_S "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+";
// White space at the end. Looked for only where a run begins: the match is the same, and a long
// run of blanks elsewhere is not scanned once for each of its characters.
constexpr const char* kTrailingSpace = "(?<!" WEFT_S ")" WEFT_S "++\\z";
constexpr const char* kLetters = WEFT_S "?\\p{L}+";  // deepseek-coder
constexpr const char* kPunctuationRun = WEFT_S "?\\p{P}+";
constexpr const char* kHanAndKana = "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
constexpr const char* kDeepSeekV3 =
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" WEFT_BLANKS;
constexpr const char* kCjk = "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";

struct Row {
  const char* name;
  std::array<const char*, 6> patterns;  // applied in turn, each within the words so far
  bool ignores_merges;
  bool adds_bos;
};

// Names that convert_hf_to_gguf writes; those of one group differ in nothing that matters here.
constexpr Row kRows[] = {
    {"default", {kPunctuation, kGpt2, kNumber, kThreeDigits}, false, false},
    {"gpt-2", {kGpt2}, false, false},
    {"phi-2", {kGpt2}, false, false},
    {"exaone4", {kGpt2}, false, false},
    {"granite-docling", {kGpt2}, false, false},
    {"smollm", {kDigit, kGpt2}, false, false},
    {"starcoder", {kDigit, kGpt2}, false, false},
    {"refact", {kDigit, kGpt2}, false, false},
    {"codeshell", {kDigit, kGpt2}, false, false},
    {"minerva-7b", {kDigit, kGpt2}, false, false},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"falcon-h1", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},
    {"midm-2.0", {kLlama3}, true, true},
    {"lfm2", {kLlama3}, true, true},
    {"smaug-bpe", {kLlama3}, false, false},  // SmolLM3 as well
    {"dbrx", {kLlama3}, false, false},
    {"qwen2", {kQwen2}, false, false},
    {"deepseek-r1-qwen", {kQwen2}, false, false},
    {"megrez", {kQwen2}, false, false},
    {"hunyuan", {kQwen2}, false, false},
    {"qwen35", {kQwen35}, false, false},
    {"tekken", {kTekken}, true, true},
    {"gpt-4o", {kGpt4o}, false, false},  // gpt-oss as well
    {"llama4", {kGpt4o}, false, false},
    {"kanana2", {kGpt4o}, false, false},
    {"minimax-m2", {kGpt4o}, false, false},
    {"deepseek-llm",
     {kLineBreak, kCasedLetters, kPunctuationOfBothWidths, kTrailingSpace, kCjk, kNumber},
     false,
     false},
    {"deepseek-coder", {kLineBreak, kLetters, kPunctuationRun, kCjk, kDigit}, false, false},
    {"deepseek-v3", {kUpToThreeDigits, kHanAndKana, kDeepSeekV3}, false, false},
    {"hunyuan-dense", {kUpToThreeDigits, kHanAndKana, kDeepSeekV3}, false, false},
};

// The interpreter counts one for every step back. Our patterns step back at most once per
// character of a run, so a multiple of the text's length cannot be reached by them.
constexpr uint64_t kMatchLimitBase = 1 << 20;
constexpr uint64_t kMatchLimitPerByte = 16;

// Owners of PCRE2's objects.
struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeFree>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataFree>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextFree>;

std::string pcre2_message(int error) {
  std::array<unsigned char, 160> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// The patterns are constants, so a failure means a PCRE2 that is too old for them.
Result<Code> compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          nullptr));
  if (!code && error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
  if (!code) {
    return unsupported(
        fmt::format("PCRE2 refuses a pre-tokenizer's pattern at offset {}: {} "
                    "(weft needs PCRE2 10.40 or later)",
                    offset, pcre2_message(error)));
  }
  // Where the system forbids executable pages the interpreter does the same more slowly.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Appends to `ends` (offset by `base`) the pieces of `word`: every match and every gap.
Status split_word(const pcre2_code* code, std::string_view word, size_t base,
                  pcre2_match_data* data, pcre2_match_context* context,
                  std::vector<uint32_t>& ends) {
  const auto push = [&](size_t end) { ends.push_back(narrow<uint32_t>(base + end)); };
  size_t done = 0;
  while (done < word.size()) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(word.data()), word.size(), done,
                               PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (rc < 0) {
      return resource_exhausted(
          fmt::format("pre-tokenizer at byte {} of the text: {}", base + done, pcre2_message(rc)));
    }
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data);
    if (match[0] > done) push(match[0]);
    push(match[1]);
    done = match[1];
  }
  if (done < word.size()) push(word.size());
  return Status::ok();
}

}  // namespace

struct PreTokenizer::Impl {
  const Row* row;
  std::vector<Code> codes;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& r) { return name == r.name; });
  if (row == std::end(kRows)) {
    std::string known;
    for (const Row& r : kRows) known += (known.empty() ? "" : ", ") + std::string(r.name);
    return unsupported(fmt::format("tokenizer.ggml.pre '{}' is not known; known are: {}",
                                   name.substr(0, 64), known));
  }
  auto impl = std::make_unique<Impl>();
  impl->row = row;
  for (const char* pattern : row->patterns) {
    if (pattern == nullptr) break;
    WEFT_ASSIGN_OR_RETURN(Code code, compile(pattern));
    impl->codes.push_back(std::move(code));
  }
  return PreTokenizer(std::move(impl));
}

// Patterns are applied in turn, each within the words that the ones before have left: SmolLM cuts
// every digit off first, and then GPT-2's words out of what is between.
Status PreTokenizer::split(std::string_view text, std::vector<uint32_t>& ends) const {
  WEFT_DCHECK(is_valid_utf8(text) && text.size() < UINT32_MAX);
  ends.clear();
  if (text.empty()) return Status::ok();
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(
                            UINT32_MAX, kMatchLimitBase + kMatchLimitPerByte * text.size())));
  ends.push_back(narrow<uint32_t>(text.size()));
  std::vector<uint32_t> words;
  for (const Code& code : impl_->codes) {
    words.swap(ends);
    ends.clear();
    size_t begin = 0;
    for (const uint32_t end : words) {
      WEFT_RETURN_IF_ERROR(split_word(code.get(), text.substr(begin, end - begin), begin,
                                      data.get(), context.get(), ends));
      begin = end;
    }
  }
  return Status::ok();
}

bool PreTokenizer::ignores_merges() const { return impl_->row->ignores_merges; }
bool PreTokenizer::adds_bos() const { return impl_->row->adds_bos; }

}  // namespace weft::text
