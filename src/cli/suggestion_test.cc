#include "cli/suggestion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weft::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(Suggestion, FindsWhatWasMeant) {
  const std::vector<std::string> commands{"generate", "chat", "ask", "ingest", "inspect", "cache"};
  EXPECT_THAT(closest("genrate", commands), Optional(std::string("generate")));
  EXPECT_THAT(closest("gen", commands), Optional(std::string("generate")));
  EXPECT_THAT(closest("aks", commands), Optional(std::string("ask")));
  EXPECT_THAT(closest("CHAT", commands), Optional(std::string("chat")));
  EXPECT_EQ(closest("in", commands), std::nullopt);  // two begin with it
  EXPECT_EQ(closest("frobnicate", commands), std::nullopt);
  EXPECT_EQ(closest("", commands), std::nullopt);
  EXPECT_EQ(closest(std::string(100'000, 'a'), commands), std::nullopt);
  const std::vector<std::string> flags{"-t", "--temp", "--threads", "--top-k"};
  EXPECT_THAT(closest("--tempp", flags), Optional(std::string("--temp")));
  EXPECT_THAT(closest("-topk", flags), Optional(std::string("--top-k")));
  EXPECT_EQ(closest("-x", flags), std::nullopt);
  EXPECT_EQ(did_you_mean("--thread", flags), ": did you mean --threads?");
  EXPECT_EQ(did_you_mean("--colour", flags), "");
}

TEST(Suggestion, KnowsTheWordsOfOtherPrograms) {
  EXPECT_THAT(foreign_command("", "pull"), Optional(HasSubstr("weft model get")));
  EXPECT_THAT(foreign_command("model", "list"), Optional(HasSubstr("weft model ls")));
  EXPECT_EQ(foreign_command("model", "serve"), std::nullopt);
  EXPECT_THAT(foreign_command("docs", "add"), Optional(HasSubstr("weft ingest")));
}

TEST(Suggestion, UsualWordMeansACommandThatTheGroupHas) {
  const std::vector<std::string> docs{"ls", "rm"};
  EXPECT_THAT(usual_command("list", docs), Optional(std::string("ls")));
  EXPECT_THAT(usual_command("Delete", docs), Optional(std::string("rm")));
  EXPECT_THAT(usual_command("remove", docs), Optional(std::string("rm")));
  EXPECT_EQ(usual_command("prune", docs), std::nullopt);
  EXPECT_THAT(usual_command("prune", {"gc"}), Optional(std::string("gc")));
  EXPECT_EQ(usual_command("ls", docs), std::nullopt);
  EXPECT_EQ(usual_command(std::string(100'000, 'a'), docs), std::nullopt);
  EXPECT_THAT(foreign_flag("ask", "-ngl"), Optional(HasSubstr("no GPU layers")));
  EXPECT_THAT(foreign_flag("ask", "-ngl99"), Optional(HasSubstr("no GPU layers")));
  EXPECT_THAT(foreign_flag("generate", "--json-schema"), Optional(HasSubstr("schema")));
  EXPECT_THAT(foreign_flag("ask", "-md"), Optional(HasSubstr("--draft MODEL")));
  EXPECT_THAT(foreign_flag("chat", "--draft-max"), Optional(HasSubstr("--draft-tokens N")));
  EXPECT_EQ(foreign_flag("ask", "-n"), std::nullopt);
  EXPECT_EQ(foreign_flag("ask", "99"), std::nullopt);
  EXPECT_EQ(foreign_flag("chat", "-s4"), std::nullopt);
  EXPECT_THAT(foreign_flag("ask", "-k"), Optional(HasSubstr("--chunks")));
  EXPECT_EQ(foreign_flag("generate", "-k"), std::nullopt);
  EXPECT_EQ(long_form("-ctk"), "--cache-type-k");
  EXPECT_EQ(long_form("-gan"), "--grp-attn-n");
  EXPECT_EQ(long_form("-gaw"), "--grp-attn-w");
  EXPECT_EQ(long_form("-c"), "");
}

}  // namespace
}  // namespace weft::cli
