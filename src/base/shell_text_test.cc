#include "base/shell_text.h"

#include <gtest/gtest.h>

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

TEST(ShellText, APathIsNoFlag) {
  EXPECT_EQ(shell_path("-x"), "./-x");
  EXPECT_EQ(shell_path("-x y"), "'./-x y'");
  EXPECT_EQ(shell_path("a-x"), "a-x");
}

}  // namespace
}  // namespace weft
