// What weft does to the terminal that it runs on: nothing that a model, a document, a GGUF's
// strings or a file's name says may drive it, while a pipe gets every byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/utf8.h"
#include "gguf/random_model.h"
#include "gguf/writer.h"
#include "support/terminal.h"
#include "support/test_model.h"

namespace weft {
namespace {

using Outcome = test::ProgramRun;
using test::Terminal;
using ::testing::HasSubstr;
using ::testing::Not;

/// What attacks a terminal or its reader, each of another kind: clear the screen, write the
/// clipboard, C1 as a character and as a byte, overwrite the line, delete, turn the direction,
/// hide.
const std::vector<std::string> kAttacks = {"\x1b[2J",
                                           "\x1b]52;c;QQ==\x07",
                                           "\xc2\x9b"
                                           "31m",
                                           "\x9d"
                                           "0;x\x9c",
                                           "good\rbad",
                                           "\x7f\x08\x05",
                                           "\u202egnp.exe",
                                           "\u2066\u2069",
                                           "\u200e\u200f",
                                           "\u061c",
                                           "\u200b",
                                           "\u2028",
                                           "\ufff9\ufffb",
                                           "\U000E0041",
                                           "pay\u200dpal"};

std::string all_attacks() {
  std::string text;
  for (const std::string& attack : kAttacks) text += attack + " ";
  return text;
}

/// The first part of a terminal's bytes that is no harmless text; "" when there is none. Knows
/// nothing of how weft makes text harmless.
std::string harm_in(std::string screen) {
  for (size_t at = 0; (at = screen.find("\r\n", at)) != std::string::npos;) screen.erase(at, 1);
  for (size_t at = 0; at < screen.size();) {
    const size_t n = utf8_char_bytes(screen, at);
    const char32_t c = n == 0 ? 0 : decode_utf8_char(screen, at, n);
    const bool control = c != '\n' && c != '\t' && (c < 0x20 || (c >= 0x7f && c < 0xa0));
    const bool hidden = c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
                        (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
                        (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
    if (control || hidden) return screen.substr(at, 20);
    at += n;
  }
  return "";
}

/// The model at `from`, with the attacks as tokens of its vocabulary and a string of its metadata.
Status write_hostile_model(const std::string& from, const std::string& to) {
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(posix_env(), from));
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;
  std::vector<std::string> tokens;
  gguf::HeaderBuilder header;
  for (const auto& [key, value] : file->metadata()) {
    if (key != kTokens && key != kTypes) header.add_value(key, value);
    if (key != kTokens) continue;
    const auto& array = std::get<gguf::Array>(value.data);
    gguf::for_each_element(array, array.size, [&](const gguf::Value& token) {
      tokens.emplace_back(std::get<std::string_view>(token.data));
    });
  }
  std::vector<int32_t> types(tokens.size(), kNormal);
  std::fill_n(types.begin(), 3, kControl);
  for (size_t i = tokens.size() / 2; i < tokens.size(); ++i) {
    types[i] = kUserDefined;
    tokens[i] = kAttacks[i % kAttacks.size()] + std::to_string(i);
  }
  header.add_strings(kTokens, tokens);
  header.add_array<int32_t>(kTypes, types);
  header.add_string("general.description", all_attacks());
  header.add_string("key" + all_attacks(), "x");
  for (const gguf::TensorInfo& tensor : file->tensors()) {
    header.add_tensor(tensor.name, tensor.dtype,
                      std::span(tensor.dims).first(static_cast<size_t>(tensor.n_dims)));
  }
  WEFT_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::create(posix_env(), to, header));
  for (const gguf::TensorInfo& tensor : file->tensors()) {
    WEFT_RETURN_IF_ERROR(writer.append({tensor.data, static_cast<size_t>(tensor.size_bytes)}));
  }
  return writer.finish();
}

class OnATerminal : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    gguf::RandomModelOptions options{.vocab = 600};
    options.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}\u202e\x1b[2J\r";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("plain.gguf"), options).is_ok());
    const Status written = write_hostile_model(path("plain.gguf"), model());
    ASSERT_TRUE(written.is_ok()) << written.message();
    std::filesystem::create_directory(path("docs"));
    std::string shelves;
    for (int i = 0; i < 100; ++i) shelves += "Item " + std::to_string(i) + " is on its shelf. ";
    std::ofstream(path("docs/harbour\x1b[2J\u202e\x9b.txt"))
        << "The harbour opens at seven. \u202e\u2028\u200b" << shelves;
    std::ofstream(path("docs/notes.txt")) << "The harbour has nine boats. " << shelves;
    const Outcome ingested =
        weft({"ingest", "-m", model(), "--store", path("store"), path("docs")});
    ASSERT_EQ(ingested.status, 0) << ingested.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& name) { return folder_->path() + "/" + name; }
  /// Its own name attacks too.
  static std::string model() { return path("m\x1b[2J\u202e\x9b\r\n.gguf"); }
  static Outcome weft(std::vector<std::string> arguments, const std::string& input = "") {
    return test::run_weft(folder_->path(), std::move(arguments), input);
  }

  static std::vector<std::string> generate() {
    return {"generate", "-m", model(),   "--raw", "-p",        "x",  "-n",      "120",
            "--temp",   "2",  "-t",      "1",     "--seed",    "3",  "--top-k", "0",
            "--top-p",  "1",  "--min-p", "0",     "--compute", "f32"};
  }
  static std::vector<std::string> ask(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{
        "ask",    "-m", model(),  "--store", path("store"),  "-n",        "60",  "-t",         "1",
        "--temp", "2",  "--seed", "3",       "--paragraphs", "--compute", "f32", "the harbour"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// Runs it on a terminal, where it does no harm, and with its output in files, where the attacks
  /// are: so they were there to be made harmless.
  static void expect_harmless(const std::vector<std::string>& arguments, int status = 0,
                              const std::string& attack = "\x1b[2J") {
    // First, so that the rates are kept: progress that is drawn over drives the terminal.
    const Outcome raw = weft(arguments);
    Terminal terminal(folder_->path(), arguments);
    EXPECT_EQ(terminal.exit_status(), status) << terminal.screen();
    EXPECT_EQ(harm_in(terminal.screen()), "");
    EXPECT_THAT(terminal.screen(), HasSubstr("\ufffd"));
    EXPECT_EQ(raw.status, status) << raw.err;
    EXPECT_THAT(raw.out + raw.err, HasSubstr(attack));
  }

  static inline std::unique_ptr<test::TempDir> folder_;
};

TEST_F(OnATerminal, GenerateShowsHarmlessText) {
  expect_harmless(generate());
  const std::string raw = weft(generate()).out;
  for (const std::string& attack : kAttacks) EXPECT_THAT(raw, HasSubstr(attack));
}

TEST_F(OnATerminal, AskShowsHarmlessText) { expect_harmless(ask()); }

TEST_F(OnATerminal, AskCompareShowsHarmlessText) { expect_harmless(ask({"--compare"})); }

TEST_F(OnATerminal, ChatShowsHarmlessText) {
  Terminal terminal(folder_->path(), {"chat", "-m", model(), "-n", "60", "--temp", "2", "--top-k",
                                      "0", "--top-p", "1", "--min-p", "0", "--seed", "3"});
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("x\r");
  ASSERT_TRUE(terminal.shows("x\r\n\x1b[?2004l"));
  const size_t begin = terminal.screen().size();
  ASSERT_TRUE(terminal.shows("\x1b[?2004h"));  // the next prompt
  const size_t end = terminal.screen().rfind('\n') + 1;
  EXPECT_EQ(harm_in(terminal.screen().substr(begin, end - begin)), "");
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_status(), 0);
}

TEST_F(OnATerminal, StringsOfAGgufAreHarmless) {
  expect_harmless({"inspect", model()});
  expect_harmless({"inspect", model(), "--json"}, 0, "\u202e");
  expect_harmless({"model", "ls"});
  expect_harmless({"model", "path", model()});
}

TEST_F(OnATerminal, TextFromStandardInputIsHarmless) {
  Terminal terminal(folder_->path(), {"tokenize", "-m", model()});
  terminal.type("\xc2\x9b\u202e\x7f\n\x04\x04");  // DEL erases what is before it
  EXPECT_EQ(terminal.exit_status(), 0);
  Terminal rendered(folder_->path(), {"template", "-m", model()});
  rendered.type("[{\"role\":\"user\",\"content\":\"\\u001b[2J\\u202e\"}]\n\x04\x04");
  EXPECT_EQ(rendered.exit_status(), 0);
  for (const Terminal* t : {&terminal, &rendered}) {
    // What comes after the echo of what was typed.
    EXPECT_EQ(harm_in(t->screen().substr(t->screen().find('\n') + 1)), "");
  }
}

TEST_F(OnATerminal, ErrorsAndWarningsAreHarmless) {
  expect_harmless({"inspect", path("no\x1b[2J\u202e")}, 1);
  expect_harmless({"model", "rm", "no\x1b[2J"}, 1);
  expect_harmless({"frob\x1b[2J"}, 2);
  expect_harmless({"generate", "-m", "x", "--no\x1b[2J"}, 2);
  // A warning: a tensor that weft does not use, in a file whose name attacks.
  const Outcome warned = weft({"generate", "-m", path("none\x1b[2J.gguf"), "-p", "x"});
  EXPECT_THAT(warned.err, HasSubstr("\x1b[2J"));
}

TEST_F(OnATerminal, AWarningIsHarmlessAndOneLine) {
  std::vector<std::string> damaged;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("store"))) {
    if (entry.path().extension() == ".chunk") damaged.push_back(entry.path().string());
  }
  ASSERT_FALSE(damaged.empty());
  const std::string store = path("s\x1b[2J\n\u202e");
  std::filesystem::copy(path("store"), store, std::filesystem::copy_options::recursive);
  for (const std::string& file : damaged) {
    const std::string copy = store + file.substr(path("store").size());
    std::string bytes = test::read_text(copy);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(copy, std::ios::binary) << bytes;
  }
  const auto ask = [](const std::string& of) {
    return std::vector<std::string>{"ask",  "-m", model(), "--store", of,  "--reuse",
                                    "full", "-n", "1",     "-t",      "1", "the harbour"};
  };
  ASSERT_EQ(weft(ask(path("store"))).status, 0);  // so that the rates are kept
  Terminal terminal(folder_->path(), ask(store));
  EXPECT_EQ(terminal.exit_status(), 0);
  EXPECT_EQ(harm_in(terminal.screen()), "");
  EXPECT_THAT(terminal.screen(), HasSubstr("weft: warning: "));
  EXPECT_THAT(terminal.screen(), HasSubstr("s\ufffd[2J\ufffd\ufffd/"));
}

TEST_F(OnATerminal, EachStreamIsDecidedForItself) {
  const std::string bytes = weft(generate()).out;
  Terminal out(folder_->path(), generate(), path("out"));
  EXPECT_EQ(out.exit_status(), 0);
  EXPECT_EQ(test::read_text(path("out")), bytes);
  const std::vector<std::string> wrong = {"inspect", path("no\x1b[2J")};
  Terminal err(folder_->path(), wrong, "", path("err"));
  EXPECT_EQ(err.exit_status(), 1);
  EXPECT_THAT(test::read_text(path("err")), HasSubstr("no\x1b[2J"));
  Terminal both(folder_->path(), wrong, path("out"));
  EXPECT_EQ(both.exit_status(), 1);
  EXPECT_EQ(harm_in(both.screen()), "");
  EXPECT_THAT(both.screen(), HasSubstr("no\ufffd[2J"));
}

TEST_F(OnATerminal, AMessageThatNobodyCanReadEndsNothing) {
  Terminal terminal(folder_->path(), {"inspect", path("none")}, "", "/dev/full");
  EXPECT_EQ(terminal.exit_status(), 1);
}

TEST_F(OnATerminal, WhatWeftDrawsItselfIsDrawn) {
  std::filesystem::remove_all(path("fresh"));
  Terminal terminal(folder_->path(),
                    {"ingest", "-m", model(), "--store", path("fresh"), path("docs")});
  EXPECT_EQ(terminal.exit_status(), 0);
  EXPECT_THAT(terminal.screen(), HasSubstr("\ringest 100 %  "));
  EXPECT_THAT(terminal.screen(), HasSubstr("\r\x1b[K"));
}

}  // namespace
}  // namespace weft
