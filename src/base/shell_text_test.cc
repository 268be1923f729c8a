#include "base/shell_text.h"

#include <gtest/gtest.h>

#include "base/terminal_text.h"

namespace weft {
namespace {

TEST(ShellText, OnlyWhatAShellWouldTakeApartIsQuoted) {
  EXPECT_EQ(shell_word("/home/a/notes_2.md"), "/home/a/notes_2.md");
  EXPECT_EQ(shell_word("*.log"), "'*.log'");
  EXPECT_EQ(shell_word("my notes"), "'my notes'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ShellText, WhatATerminalWouldChangeIsEscaped) {
  EXPECT_EQ(shell_word("a\x1b[2Jb"), "$'a\\033[2Jb'");
  EXPECT_EQ(shell_word("a\nb\tc"), "$'a\\012b\\011c'");
  EXPECT_EQ(shell_word("\xff"
                       "9"),
            "$'\\3779'");
  EXPECT_EQ(shell_word("it's\u200b\\!"), "$'it\\047s\\342\\200\\213\\134\\041'");
  EXPECT_EQ(shell_word("\u202etxt.exe"), "$'\\342\\200\\256txt.exe'");
  EXPECT_EQ(shell_word("M\u00e4rz 2024"), "'M\u00e4rz 2024'");
  EXPECT_EQ(shell_path("-\r"), "$'./-\\015'");
}

TEST(ShellText, ATerminalShowsAllOfAnyWordAsItIs) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(terminal_text(one_line(shell_word(all))), shell_word(all));
}

TEST(ShellText, APathIsNoFlag) {
  EXPECT_EQ(shell_path("-x"), "./-x");
  EXPECT_EQ(shell_path("-x y"), "'./-x y'");
  EXPECT_EQ(shell_path("a-x"), "a-x");
}

}  // namespace
}  // namespace weft
