#include "retrieval/passages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class PassagesTest : public ::testing::Test {
 protected:
  PassagesTest() : index_(*Index::open(dir_ / "index.db", Index::Mode::kCreate)) {}

  void add(const std::string& path, const std::vector<std::string>& texts,
           const std::string& title = "") {
    const auto id = put(*index_, path, texts, title);
    ASSERT_TRUE(id.is_ok()) << id.status().message();
  }
  Passages find(std::string_view question, PassageOptions options = {}) {
    auto passages = find_passages(*index_, question, options);
    EXPECT_TRUE(passages.is_ok()) << passages.status().message();
    return passages.is_ok() ? std::move(*passages) : Passages{};
  }
  /// "PATH ORDINAL" of each passage.
  std::vector<std::string> found(std::string_view question, PassageOptions options = {}) {
    std::vector<std::string> names;
    for (const Hit& hit : find(question, options).hits) {
      names.push_back(hit.path + " " + std::to_string(hit.chunk.ordinal));
    }
    return names;
  }

  TempDir dir_;
  std::unique_ptr<Index> index_;
};

TEST_F(PassagesTest, FunctionWordsFindNothing) {
  add("/a", {"What is it, and why is that what it is?"});
  add("/b", {"The harbour opens at six."});
  EXPECT_THAT(found("What is the harbour?"), ElementsAre("/b 0"));
  const Passages none = find("What is it?");
  EXPECT_EQ(none.found, PassagesFound::kNoTerms);
  EXPECT_THAT(none.hits, IsEmpty());
  EXPECT_EQ(find("?!").found, PassagesFound::kNoTerms);
  EXPECT_EQ(find("🙂🙂").found, PassagesFound::kNone);  // FTS5 takes these for letters
  EXPECT_EQ(find("What is a zebra?").found, PassagesFound::kNone);
}

TEST_F(PassagesTest, FormsOfAWordAreOneWord) {
  add("/a", {"The ferries were repaired."});
  EXPECT_THAT(found("Who repairs the ferry?"), ElementsAre("/a 0"));
}

TEST_F(PassagesTest, AQuestionThatSharesTooLittleIsRefused) {
  add("/a", {"The mill stands on the river, and the miller sells flour to the whole valley."});
  add("/b", {"The pier was built of oak by two carpenters from the north."});
  add("/c", {"Bees swarm in May, when the lime trees on the green are in bloom."});
  const std::string question = "Which parliament appointed the minister of finance on the pier?";
  const Passages weak = find(question);
  EXPECT_EQ(weak.found, PassagesFound::kWeak);
  EXPECT_THAT(weak.hits, IsEmpty());
  EXPECT_GT(weak.relevance, 0);
  const Passages anyway = find(question, {.anyway = true});
  EXPECT_EQ(anyway.found, PassagesFound::kWeak);
  ASSERT_EQ(anyway.hits.size(), 1u);
  EXPECT_EQ(anyway.hits[0].path, "/b");
  EXPECT_EQ(find("Who built the pier?").found, PassagesFound::kYes);
  EXPECT_EQ(find("The only pier").found, PassagesFound::kYes);
}

TEST_F(PassagesTest, AStoreOfOneDocumentCanBeAsked) {
  add("/a", {"The harbour opens at six."});
  EXPECT_THAT(found("When does the harbour open?"), ElementsAre("/a 0"));
  EXPECT_THAT(found("harbour"), ElementsAre("/a 0"));
}

TEST_F(PassagesTest, PassagesFarBelowTheBestAreLeftOut) {
  add("/a", {"quince jelly with lemon and sugar"});
  add("/b", {"lemon trees"});
  add("/c", {"sugar beets are lifted in autumn"});
  for (int i = 0; i < 20; ++i)
    add("/filler" + std::to_string(i), {"nothing of that, number " + std::to_string(i)});
  EXPECT_THAT(found("quince jelly lemon"), ElementsAre("/a 0"));
  EXPECT_THAT(found("quince jelly lemon", {.least_share_of_best = 0}), ElementsAre("/a 0", "/b 0"));
}

TEST_F(PassagesTest, NearDuplicatesAreShownOnce) {
  std::string text = "The ferry moved to the north pier";
  for (int i = 0; i < 60; ++i) text += " item" + std::to_string(i);
  add("/a", {text});
  add("/b", {text});
  add("/c", {text + " and back"});
  add("/d", {"The ferry moved to the south pier, where another boat lies, and stays there."});
  EXPECT_THAT(found("Where did the ferry move, which pier?"), ElementsAre("/d 0", "/a 0"));
}

TEST_F(PassagesTest, ChunksThatFollowEachOtherAreTogetherAndInOrder) {
  add("/a", {"walnut oil", "walnut wood, walnut veneer", "pears"});
  add("/b", {"walnut walnut walnut cake"});
  for (int i = 0; i < 9; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const auto names = found("walnut");
  ASSERT_EQ(names.size(), 3u);
  const auto first = std::ranges::find(names, "/a 0");
  ASSERT_NE(first, names.end());
  ASSERT_NE(first + 1, names.end());
  EXPECT_EQ(*(first + 1), "/a 1");
}

TEST_F(PassagesTest, TextWithoutSpacesIsFound) {
  add("/tokyo", {"東京の人口は約1400万人です。"});
  add("/kyoto", {"京都は古い都です。"});
  add("/wall", {"长城全长两万一千公里。"}, "中国");
  add("/seoul", {"서울은 대한민국의 수도이다."});
  add("/bangkok", {"กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย"});
  add("/sea", {"The sea (海) is blue."});
  EXPECT_THAT(found("東京の人口は何人ですか？"), ElementsAre("/tokyo 0"));
  EXPECT_THAT(found("长城有多长？"), ElementsAre("/wall 0"));
  EXPECT_THAT(found("中国"), ElementsAre("/wall 0"));
  EXPECT_THAT(found("서울의 수도"), ElementsAre("/seoul 0"));
  EXPECT_THAT(found("เมืองหลวงของประเทศไทยคืออะไร"), ElementsAre("/bangkok 0"));
  EXPECT_THAT(found("海"), ElementsAre("/sea 0"));
  EXPECT_THAT(found("1400"), ElementsAre("/tokyo 0"));
  EXPECT_EQ(find("火星の大気").found, PassagesFound::kNone);
}

TEST_F(PassagesTest, HostileQuestionsAreOnlyText) {
  add("/a", {"walnut near or and not title text"});
  for (const std::string& question :
       {std::string("\"walnut"), std::string("walnut\" OR \""), std::string("text:walnut*"),
        std::string("'; DROP TABLE chunks; -- walnut"), std::string("\xff\xfe walnut \xc3"),
        std::string("walnut\0\"", 8)}) {
    const auto passages = find_passages(*index_, question, {.anyway = true});
    ASSERT_TRUE(passages.is_ok()) << question;
    EXPECT_EQ(passages->hits.size(), 1u) << question;
  }
  std::string long_question;
  for (int i = 0; i < 40000; ++i) long_question += "東walnut" + std::to_string(i) + "京 ";
  EXPECT_TRUE(find_passages(*index_, long_question, {}).is_ok());
  EXPECT_EQ(find("walnut", {.n_passages = 0}).hits.size(), 0u);
}

TEST_F(PassagesTest, AQuestionOfMoreThanAMegabyteIsRefused) {
  add("/a", {"walnut"});
  std::string question(kMaxQuestionBytes, 'a');
  EXPECT_TRUE(find_passages(*index_, question, {}).is_ok());
  question += 'a';
  const Status refused = find_passages(*index_, question, {}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("1048576 bytes"));
}

TEST_F(PassagesTest, CopiesOfANoteDoNotMakeItsWordsCommon) {
  add("/a", {"The Thermotec engineer has phone 0171 555."});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const std::string question = "phone of the Thermotec engineer";
  const auto weights = [&] {
    std::vector<double> all;
    for (const WeightedTerm& term : find(question).terms) all.push_back(term.weight);
    return all;
  };
  const auto before = weights();
  for (int i = 1; i <= 3; ++i)
    add("/copy" + std::to_string(i), {"The Thermotec engineer has phone 0171 555."});
  EXPECT_EQ(weights(), before);
  EXPECT_EQ(found(question), std::vector<std::string>{"/a 0"});
}

TEST_F(PassagesTest, NearlyEqualCopiesCountOnce) {
  std::string note = "The Thermotec engineer has phone 0171 555.";
  for (int i = 0; i < 60; ++i) note += " item" + std::to_string(i);
  add("/a", {note});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const auto weight = [&] { return find("Thermotec").terms[0].weight; };
  const double before = weight();
  for (int i = 1; i <= 3; ++i)
    add("/copy" + std::to_string(i), {note + " saved" + std::to_string(i)});
  EXPECT_EQ(weight(), before);
}

TEST_F(PassagesTest, OfCopiesTheOneWithTheShortestPathIsShown) {
  add("/backup/2023/boiler.md", {"The boiler was serviced in May."});
  add("/backup/boiler.md", {"The boiler was serviced in May."});
  add("/boiler.md", {"The boiler was serviced in May."});
  add("/zzz/boiler.md", {"The boiler was serviced in May."});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  EXPECT_THAT(found("When was the boiler serviced?"), ElementsAre("/boiler.md 0"));
  EXPECT_THAT(found("When was the boiler serviced?", {.n_passages = 1}),
              ElementsAre("/boiler.md 0"));
}

TEST_F(PassagesTest, OfVersionsTheNewestIsShownAndTheOthersAreNamed) {
  std::string handbook;
  for (int i = 0; i < 150; ++i) handbook += "rule" + std::to_string(i) + " ";
  add("/o/handbook", {handbook + "The gate code is 4711."});
  add("/current/handbook", {handbook + "The gate code is 9922."});
  add("/current/copy/handbook", {handbook + "The gate\ncode is  9922."});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const auto set_modified = [&](const std::string& path, int64_t modified_s) {
    const auto document = index_->find_document(path);
    DocumentInfo info = (*document)->info;
    info.modified_ns = modified_s == kUnknownTime ? kUnknownTime : modified_s * 1'000'000'000;
    ASSERT_TRUE(index_->touch_document(info).is_ok());
  };
  const auto shown = [&] {
    const Passages passages = find("What is the gate code?");
    std::vector<std::string> paths;
    for (const Hit& hit : passages.hits) {
      paths.push_back(hit.path);
      for (const Hit& other : hit.nearly_same) paths.push_back("not " + other.path);
    }
    return paths;
  };
  set_modified("/o/handbook", 1000);
  set_modified("/current/handbook", 2000);
  set_modified("/current/copy/handbook", 2000);
  const auto copies =
      UnorderedElementsAre("/current/handbook", "not /o/handbook", "not /current/copy/handbook");
  EXPECT_THAT(shown(), copies);
  EXPECT_EQ(shown()[0], "/current/handbook");
  set_modified("/current/handbook", kUnknownTime);
  EXPECT_THAT(shown(), copies);
  EXPECT_EQ(shown()[0], "/current/handbook");
  set_modified("/current/handbook", 2000);
  set_modified("/o/handbook", 3000);
  EXPECT_EQ(shown()[0], "/o/handbook");
  EXPECT_THAT(shown(), UnorderedElementsAre("/o/handbook", "not /current/handbook",
                                            "not /current/copy/handbook"));
}

TEST_F(PassagesTest, OfShortNotesVersionsAndCopiesAreNamedAndOneIsShown) {
  const std::string shed = "The alarm of the shed is armed at night, and its code is ";
  add("/notes/shed.md", {shed + "4711."}, "Shed");
  add("/notes/2023/shed.md", {shed + "9922."}, "Shed");
  add("/notes/usb/shed.md", {shed + "4711."}, "Shed");
  add("/notes/boathouse.md", {"The alarm of the boathouse is broken since the storm in May."},
      "Boathouse");
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const Passages shown = find("What is the code of the shed's alarm?");
  ASSERT_EQ(shown.hits.size(), 1u);
  EXPECT_EQ(shown.hits[0].path, "/notes/shed.md");
  std::vector<std::string> others;
  for (const Hit& other : shown.hits[0].nearly_same) others.push_back(other.path);
  EXPECT_THAT(others, UnorderedElementsAre("/notes/2023/shed.md", "/notes/usb/shed.md"));
}

TEST_F(PassagesTest, SimilarShortNotesWithDifferentFactsAreNotVersions) {
  add("/anna.md", {"The phone of Anna in the office is 0171 5551 and she is there at ten."},
      "Anna");
  add("/bob.md", {"The phone of Bob in the office is 0171 9982 and he is there at ten."}, "Bob");
  add("/May.md", {"Electricity on 3 May: 1234 kWh at the old rate."}, "Electricity May");
  add("/June.md", {"Electricity on 3 June: 1299 kWh at the new rate."}, "Electricity June");
  add("/a/owes.md", {"Anna owes Bob five euros."}, "Debts");
  add("/b/owes.md", {"Bob owes Anna five euros."}, "Debts");
  PassageOptions all;
  all.least_share_of_best = 0;
  EXPECT_THAT(found("phones in the office", all), UnorderedElementsAre("/anna.md 0", "/bob.md 0"));
  EXPECT_THAT(found("electricity rate", all), UnorderedElementsAre("/May.md 0", "/June.md 0"));
  EXPECT_THAT(found("Who owes euros?", all), UnorderedElementsAre("/a/owes.md 0", "/b/owes.md 0"));
}

TEST_F(PassagesTest, AnArchivedNoteDoesNotBeatTheSameTextInACurrentOne) {
  const std::string text = "The boiler was serviced in May.";
  add("/old/boiler.md", {text});
  add("/cellar and heating/boiler.md", {text});
  add("/Archive/pump.md", {"The pump of the well was replaced in April by Weber."}, "pump");
  add("/garden/water/pump.md", {"The pump of the well was replaced in April by Maier."}, "pump");
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  EXPECT_THAT(found("When was the boiler serviced?"),
              ElementsAre("/cellar and heating/boiler.md 0"));
  // Of versions the newer one, and where nobody knows which one that is, the same.
  EXPECT_THAT(found("When was the pump replaced?"), ElementsAre("/garden/water/pump.md 0"));
  const auto document = index_->find_document("/Archive/pump.md");
  DocumentInfo info = (*document)->info;
  constexpr int64_t kSecond = 1'000'000'000;
  info.modified_ns += kSecond;  // unpacked a moment later
  ASSERT_TRUE(index_->touch_document(info).is_ok());
  EXPECT_THAT(found("When was the pump replaced?"), ElementsAre("/garden/water/pump.md 0"));
  info.modified_ns += 3600 * kSecond;
  ASSERT_TRUE(index_->touch_document(info).is_ok());
  EXPECT_THAT(found("When was the pump replaced?"), ElementsAre("/Archive/pump.md 0"));
}

TEST_F(PassagesTest, OfNotesOfOneNameTheNewerIsFirstWhereScoresAreNear) {
  // Other words throughout, so no versions of one text; the outdated one is a little shorter.
  add("/old/wifi.md", {"Wifi password: swan-12. Ask Bob at the desk for help with it."});
  add("/wifi.md", {"The wifi password was changed in May to goose-77; else ask Ann."});
  add("/tram.md", {"A tram goes to the lake at six, and then at seven and nine each day."});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const auto set_hour = [&](const std::string& path, int64_t hour) {
    DocumentInfo info = (*index_->find_document(path))->info;
    info.modified_ns = hour * 3600 * 1'000'000'000;
    ASSERT_TRUE(index_->touch_document(info).is_ok());
  };
  const std::string question = "What is the wifi password?";
  set_hour("/old/wifi.md", 5);
  set_hour("/wifi.md", 4);
  const Passages by_score = find(question);
  ASSERT_EQ(by_score.hits.size(), 2u);
  ASSERT_EQ(by_score.hits[0].path, "/old/wifi.md");  // the newer one is the best already
  ASSERT_GT(by_score.hits[0].score, by_score.hits[1].score);
  ASSERT_GT(by_score.hits[1].score, 0.9 * by_score.hits[0].score);
  set_hour("/wifi.md", 6);
  EXPECT_THAT(found(question), ElementsAre("/wifi.md 0", "/old/wifi.md 0"));
  set_hour("/wifi.md", 5);  // of one time: the one that is not put away
  EXPECT_THAT(found(question), ElementsAre("/wifi.md 0", "/old/wifi.md 0"));
  EXPECT_EQ(find(question).hits[0].older_version_of, "");
  EXPECT_EQ(find(question).hits[1].older_version_of, "/wifi.md");
  // A further word of the question, or a much better score, decides all the same.
  EXPECT_THAT(found("What is the wifi password, Bob?"),
              ElementsAre("/old/wifi.md 0", "/wifi.md 0"));
  // Another name, another thing.
  ASSERT_TRUE(index_->remove_document("/wifi.md").is_ok());
  add("/swans.md", {"The wifi password was changed in May to goose-77; else ask Ann."});
  set_hour("/swans.md", 9);
  EXPECT_THAT(found(question), ElementsAre("/old/wifi.md 0", "/swans.md 0"));
}

TEST_F(PassagesTest, AVersionWithAFurtherTermIsNotACopy) {
  std::string lease;
  for (int i = 0; i < 150; ++i) lease += "clause" + std::to_string(i) + " ";
  add("/a", {lease + "The tenant of flat seven pays 610 euros."});
  add("/bbbbbb", {lease + "The tenant of flat twelve pays 980 euros."});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  std::string question = "What does the tenant of flat twelve pay";
  for (int i = 0; i < 60; ++i) question += " clause" + std::to_string(i);
  EXPECT_THAT(found(question), ElementsAre("/bbbbbb 0"));
  EXPECT_THAT(found(question + " and seven?"), UnorderedElementsAre("/a 0", "/bbbbbb 0"));
}

TEST_F(PassagesTest, AFilesNameTellsVersionsApart) {
  std::string rules;
  for (int i = 0; i < 150; ++i) rules += "rule" + std::to_string(i) + " ";
  add("/rules v1.md", {rules + "The rent is 38 pounds."}, "Rules");
  add("/rules v2.md", {rules + "The rent is 44 pounds."}, "Rules");
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  EXPECT_EQ(found("What is the rent in rules v1?").at(0), "/rules v1.md 0");
  EXPECT_EQ(found("What is the rent in rules v2?").at(0), "/rules v2.md 0");
}

TEST_F(PassagesTest, BothEndsOfALongQuestionAreSearchedFor) {
  add("/a", {"The ibex climbs the north wall."});
  std::string mail;
  for (int i = 0; i < 600; ++i) mail += "word" + std::to_string(i) + " ";
  EXPECT_THAT(found(mail + "ibex climbs", {.anyway = true}), ElementsAre("/a 0"));
  EXPECT_THAT(found("ibex climbs " + mail, {.anyway = true}), ElementsAre("/a 0"));
}

TEST_F(PassagesTest, APassageWithANameDoesNotAnswerForAnAbsentSubject) {
  add("/ship", {"The name of the ship is Aurora. A ship's name is painted on its bow."});
  for (int i = 0; i < 12; ++i)
    add("/f" + std::to_string(i), {"The harbour, page " + std::to_string(i)});
  EXPECT_EQ(find("What is my dog's name?").found, PassagesFound::kWeak);
  EXPECT_EQ(find("What is the ship's name?").found, PassagesFound::kYes);
  EXPECT_EQ(find("What is its name?").found, PassagesFound::kYes);
  EXPECT_EQ(find("What is the name of the bow?").found, PassagesFound::kYes);
}

TEST_F(PassagesTest, AFewCommonWordsDoNotReplaceAbsentOnes) {
  for (int i = 0; i < 40; ++i) {
    add("/f" + std::to_string(i),
        {"The river, page " + std::to_string(i) +
         (i % 20 == 0 ? " with fish, fish, fish, fish, fish, fish, fish" : "")});
  }
  const Passages weak = find("Do fish of the river build submarines for transport?");
  EXPECT_EQ(weak.found, PassagesFound::kWeak);
  EXPECT_GT(weak.relevance, PassageOptions{}.least_relevance);
  EXPECT_EQ(find("Do fish of the river swim?").found, PassagesFound::kYes);
}

TEST_F(PassagesTest, OfTextsFarLongerThanAChunkNearDuplicatesAreEstimated) {
  const auto text = [](int n_words, int every, const std::string& other) {
    std::string words = "harbour";
    for (int i = 1; i < n_words; ++i) {
      words += " " + (every > 0 && i % every == 0 ? other : std::string("w")) + std::to_string(i);
    }
    return words;
  };
  add("/a", {text(20'000, 0, "")});
  add("/b", {text(20'000, 400, "x")});  // of the runs that both have 98 %
  add("/c", {text(20'000, 20, "y")});   // 67 %
  add("/d", {text(10'000, 0, "")});     // half of them, and no more
  PassageOptions options;
  options.least_share_of_best = 0;
  EXPECT_THAT(found("harbour", options), UnorderedElementsAre("/a 0", "/c 0", "/d 0"));
}

TEST_F(PassagesTest, NearDuplicatesOfAChunksLengthAreComparedExactly) {
  // Of 400 words 397 runs; a changed word in the middle changes 4: with n changed both have
  // 397 - 4 n of 397 + 4 n. Five are 0.904, six 0.885.
  const auto text = [](int n_changed) {
    std::string words = "harbour";
    for (int i = 1; i < 400; ++i) {
      const bool is_changed = i % 20 == 10 && i / 20 < n_changed;
      words += (is_changed ? " x" : " w") + std::to_string(i);
    }
    return words;
  };
  add("/a", {text(0)});
  add("/b", {text(5)});
  EXPECT_EQ(found("harbour").size(), 1u);
  add("/c", {text(6)});
  EXPECT_EQ(find("harbour").hits.size(), 2u);
}

TEST_F(PassagesTest, AStemThatIsAFunctionWordIsNotTheWord) {
  for (int i = 0; i < 40; ++i)
    add("/f" + std::to_string(i), {"In the house in the garden, in room " + std::to_string(i)});
  add("/ines",
      {"In the long run In\u00E9s, who lives in town, keeps the spare keys of the office."});
  add("/mine", {"Iron ores are dug here."});
  EXPECT_THAT(found("Ines"), ElementsAre("/ines 0"));
  EXPECT_THAT(found("Who is Ines?"), ElementsAre("/ines 0"));
  EXPECT_THAT(found("ore"), ElementsAre("/mine 0"));
  EXPECT_THAT(find("Who is Ines?").absent, IsEmpty());
  ASSERT_TRUE(index_->remove_document("/ines").is_ok());
  EXPECT_EQ(find("Who is Ines?").found, PassagesFound::kNone);
  EXPECT_THAT(find("Who is Ines?").absent, ElementsAre("Ines"));
}

TEST_F(PassagesTest, UmlautsMatchTheirTwoLetters) {
  add("/a", {"Die M\u00FChle in der Hauptstra\u00DFe mahlt Korn."});
  add("/b", {"Die Baeckerei in der Seestrasse ist zu."});
  add("/c", {"Mr Gust and a guest"});
  EXPECT_THAT(found("Wo steht die Muehle?"), ElementsAre("/a 0"));
  EXPECT_THAT(found("Muehle"), ElementsAre("/a 0"));
  EXPECT_THAT(found("Hauptstrasse"), ElementsAre("/a 0"));
  EXPECT_THAT(found("Seestra\u00DFe"), ElementsAre("/b 0"));
  EXPECT_THAT(found("B\u00C4CKEREI"), ElementsAre("/b 0"));
  EXPECT_THAT(found("Ba\u0308ckerei"), ElementsAre("/b 0"));  // a letter and its mark
  EXPECT_THAT(find("Hauptstrasse Muehle B\u00E4ckerei").absent, IsEmpty());
  // What is written so is not taken for the other.
  EXPECT_EQ(find("Who is the guest?").terms[0].term.spellings, std::vector<std::string>{});
}

TEST_F(PassagesTest, AWordThatIsNearAnAbsentOneIsFound) {
  add("/a", {"The alarm of the library, the boathouses and the harbour."});
  add("/b", {"Alarms ring. Pier 4711."});
  const auto near = [&](const std::string& word) {
    const auto found = index_->near_word(word);
    EXPECT_TRUE(found.is_ok()) << found.status().message();
    return found.is_ok() ? found->word : "error";
  };
  EXPECT_EQ(near("alram"), "alarm");
  EXPECT_EQ(near("Harbor"), "harbour");
  EXPECT_EQ(near("libary"), "library");
  EXPECT_EQ(near("bothouses"), "boathouses");
  EXPECT_EQ(near("boathoose"), "boathouses");  // a long word
  for (const char* word : {"zebra", "per", "peer", "4712", "xlarm", "", "\xff\xfe", "alarmingly"}) {
    EXPECT_EQ(near(word), "") << word;
  }
  const auto reader = Index::open(dir_ / "index.db", Index::Mode::kReadOnly);
  ASSERT_TRUE(reader.is_ok());
  EXPECT_EQ((*reader)->near_word("alram")->word, "alarm");
  EXPECT_FALSE((*reader)->remove_document("/a").is_ok());
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  EXPECT_EQ(near("harbor"), "");
}

TEST_F(PassagesTest, ADistantWordIsNotAMisspelling) {
  add("/a", {"Copies of that are kept by Paul; the password of the house is in the library.",
             "People come from there, and she is under the trees."});
  const auto near = [&](const std::string& word) { return index_->near_word(word)->word; };
  for (const char* word : {"capital", "population", "thanks", "passport", "hosues", "thear", "copy",
                           "libraryship", "liberty"}) {
    EXPECT_EQ(near(word), word == std::string("hosues") ? "house" : "") << word;
  }
  EXPECT_EQ(near("ocpies"), "copies");                 // the first two swapped
  EXPECT_EQ(near("horse"), "house");                   // a hint,
  EXPECT_FALSE(index_->near_word("horse")->is_clear);  // and no more
  EXPECT_TRUE(index_->near_word("huose")->is_clear);
  EXPECT_TRUE(index_->near_word("passwrod")->is_clear);
  EXPECT_TRUE(index_->near_word("libary")->is_clear);
  EXPECT_EQ(near("undre"), "");  // a function word is not what was meant
}

TEST_F(PassagesTest, AClearMisspellingIsSearchedForAsTheWord) {
  add("/trip", {"The school trip is to the castle at the lake, on the first Friday of May."},
      "Trip");
  add("/bus", {"The trip by bus takes an hour."}, "Bus");
  for (int i = 0; i < 10; ++i)
    add("/f" + std::to_string(i), {"The garden, page " + std::to_string(i)});
  const Passages passages = find("Where is the Shcool trip going, thanks?");
  ASSERT_EQ(passages.found, PassagesFound::kYes);
  EXPECT_EQ(passages.hits.front().path, "/trip");
  ASSERT_EQ(passages.taken.size(), 1u);
  EXPECT_EQ(passages.taken[0].word, "Shcool");
  EXPECT_EQ(passages.taken[0].as, "school");
  EXPECT_THAT(passages.absent, IsEmpty());
  EXPECT_THAT(found("Which castel?"), ElementsAre("/trip 0"));
  // What is in no document is not what is near to it.
  EXPECT_EQ(find("What about zeppelins?").found, PassagesFound::kNone);
  EXPECT_EQ(find("Who cut the lace?").found, PassagesFound::kNone);
  EXPECT_THAT(find("Who rides the school horse?").taken, IsEmpty());
}

TEST_F(PassagesTest, WordsThatOnlyCarryTheQuestionCountOnlyWhereDocumentsHaveThem) {
  add("/trip", {"The school trip is to the castle."});
  for (int i = 0; i < 10; ++i)
    add("/f" + std::to_string(i), {"The garden, page " + std::to_string(i)});
  EXPECT_THAT(find("Hello, what do my notes say about whats in the greenhouse? Thanks!").absent,
              ElementsAre("greenhouse"));
  EXPECT_THAT(find("Waht castle?").absent, IsEmpty());
  EXPECT_EQ(find("Thanks!").found, PassagesFound::kNoTerms);  // it asks nothing
  EXPECT_THAT(find("Thanks!").absent, IsEmpty());
  EXPECT_EQ(find("Help!").found, PassagesFound::kNone);
  EXPECT_THAT(find("Help!").absent, ElementsAre("Help"));
  add("/mail", {"Thanks were sent to the mayor."});
  EXPECT_THAT(found("Whom were thanks sent to?"), ElementsAre("/mail 0"));
}

TEST_F(PassagesTest, AnAbsentWordIsASubjectWhereItTellsTheReaderSomething) {
  add("/dentist", {"Dentist Lam, next on Tuesday at ten, bring the insurance card."});
  add("/school", {"School begins on Monday for Mia, in the class of Fontana."});
  for (int i = 0; i < 10; ++i)
    add("/f" + std::to_string(i), {"The garden, page " + std::to_string(i)});
  const auto subjects = [&](const char* question) {
    const Passages passages = find(question);
    EXPECT_EQ(passages.found, PassagesFound::kYes) << question;
    return passages.absent_subjects;
  };
  // Words that anything may be asked with.
  EXPECT_THAT(subjects("How long is the dentist appointment?"), IsEmpty());
  EXPECT_THAT(find("How long is the dentist appointment?").absent,
              ElementsAre("long", "appointment"));
  EXPECT_THAT(subjects("Dentist von Lam"), IsEmpty());  // too short to tell its language
  // Where the passage has most of the question, what else it says hardly matters, but for names.
  EXPECT_THAT(subjects("Should I bring an insurance card to the dentist downtown?"), IsEmpty());
  EXPECT_THAT(subjects("Should I bring an insurance card to the dentist for Sophie?"),
              ElementsAre("Sophie"));
  EXPECT_THAT(subjects("Should I bring my insurance card 77 to the dentist?"), ElementsAre("77"));
  EXPECT_THAT(subjects("INSURANCE CARD OF THE DENTIST FROM MARS"), IsEmpty());
  // Where it has half of it, the rest carries the question.
  EXPECT_THAT(subjects("Who is the dentist of rex?"), ElementsAre("rex"));
  EXPECT_THAT(subjects("Who is the school doctor?"), ElementsAre("doctor"));
}

TEST_F(PassagesTest, TheBeginningOfTheOneWordThatGoesOnIsThatWord) {
  add("/db", {"The PostgreSQL upgrade is on Sunday, PostgreSQL16 in May."});
  add("/cluster", {"Kubernetes nodes are drained."});
  add("/house", {"Hausratversicherung at the Mobiliar."});
  const Passages passages = find("When is the Postgres upgrade?");
  ASSERT_EQ(passages.taken.size(), 1u);
  EXPECT_EQ(passages.taken[0].word, "Postgres");
  EXPECT_EQ(passages.taken[0].as, "postgresql");
  EXPECT_THAT(passages.absent, IsEmpty());
  EXPECT_THAT(found("postgres"), ElementsAre("/db 0"));
  for (const char* word : {"kubern", "hausrat", "upgra"}) {  // too little of it, or of a word

    EXPECT_FALSE(index_->near_word(word)->is_clear) << word;
    EXPECT_THAT(find(word).taken, IsEmpty()) << word;
  }
  add("/other", {"Postgresqueue is another program."});
  EXPECT_THAT(find("When is the Postgres upgrade?").taken, IsEmpty());  // which one?
  add("/own", {"Postgres."});
  EXPECT_THAT(find("When is the Postgres upgrade?").taken, IsEmpty());
}

TEST_F(PassagesTest, ANotesOwnDateCountsBeforeItsFilesTime) {
  const std::string text = "Priya: the database upgrade is planned for the weekend, disk at ";
  add("/n/2024-05-01-standup.md", {text + "91 percent."}, "Standup");
  add("/n/2024-06-12-standup.md", {text + "78 percent."}, "Standup");
  add("/n/rules.md", {"# Rules\ndate: 2024-02-01\n", "Quiet hours begin at nine, laundry Monday."});
  add("/m/rules.md", {"# Rules\ndate: 2023-02-01\n", "Quiet hours begin at ten, laundry Tuesday."});
  for (int i = 0; i < 6; ++i)
    add("/f" + std::to_string(i), {"filler of no use " + std::to_string(i)});
  const auto set_hour = [&](const std::string& path, int64_t hour) {
    DocumentInfo info = (*index_->find_document(path))->info;
    info.modified_ns = hour * 3600 * 1'000'000'000;
    ASSERT_TRUE(index_->touch_document(info).is_ok());
  };
  set_hour("/n/2024-05-01-standup.md", 9);  // synced later
  set_hour("/n/2024-06-12-standup.md", 5);
  set_hour("/m/rules.md", 9);
  set_hour("/n/rules.md", 5);
  const Passages standup = find("When is the database upgrade planned?");
  ASSERT_EQ(standup.hits.size(), 1u);
  EXPECT_EQ(standup.hits[0].path, "/n/2024-06-12-standup.md");
  EXPECT_THAT(standup.hits[0].nearly_same,
              ElementsAre(testing::Field(&Hit::path, "/n/2024-05-01-standup.md")));
  // The front matter is in the document's first chunk, what was found in another.
  EXPECT_EQ(find("When do quiet hours begin?").hits.front().path, "/n/rules.md");
  // The older is shown, too, for a further word, and marked.
  const Passages both = find("When is the database upgrade planned with disk at 91 or 78?");
  ASSERT_EQ(both.hits.size(), 2u);
  for (const Hit& hit : both.hits) {
    const bool is_older = hit.path == "/n/2024-05-01-standup.md";
    EXPECT_EQ(hit.older_version_of, is_older ? "/n/2024-06-12-standup.md" : "") << hit.path;
  }
}

TEST_F(PassagesTest, JoinedAndHyphenatedSpellingsMatch) {
  add("/router", {"The Wi-Fi of the guest room is called swan."});
  add("/cafe", {"The wifi of the caf\u00E9 is called goose."});
  add("/error", {"E-119 is a blocked pump."});
  add("/part", {"Order part F220 in Leeds."});
  add("/car", {"The car was 12,400 pounds when new."});
  add("/roof", {"The roof was 23.800 euros."});
  add("/boat", {"The boat was 45600 crowns."});
  add("/mail", {"Each letter by e-mail is kept."});
  add("/works", {"Les \u0153uvres de Marie, and an \u00E6on."});
  for (const char* wifi :
       {"Wi-Fi guest", "WiFi guest", "wifi guest", "WIFI guest", "wi\u2011fi guest"}) {
    EXPECT_EQ(found(wifi).at(0), "/router 0") << wifi;
    EXPECT_EQ(found(std::string(wifi) + " goose").at(0), "/cafe 0") << wifi;
    EXPECT_THAT(find(wifi).absent, IsEmpty()) << wifi;
  }
  for (const char* error : {"E-119", "E119", "e119", "E 119"})
    EXPECT_THAT(found(error), ElementsAre("/error 0")) << error;
  for (const char* part : {"F-220", "F220"})
    EXPECT_THAT(found(part), ElementsAre("/part 0")) << part;
  const auto written = [](const std::string& first, const std::string& last) {
    std::vector<std::string> out;
    for (const char* sign : {"", ",", ".", "'", " ", "\u00A0", "\u202F"})
      out.push_back(first + sign + last);
    return out;
  };
  for (const std::string& n : written("12", "400"))
    EXPECT_THAT(found(n), ElementsAre("/car 0")) << n;
  for (const std::string& n : written("23", "800"))
    EXPECT_THAT(found(n), ElementsAre("/roof 0")) << n;
  for (const std::string& n : written("45", "600"))
    EXPECT_THAT(found(n), ElementsAre("/boat 0")) << n;
  EXPECT_THAT(found("45,600.50"), ElementsAre("/boat 0"));
  EXPECT_THAT(found("email"), ElementsAre("/mail 0"));
  EXPECT_THAT(found("oeuvres"), ElementsAre("/works 0"));
  EXPECT_THAT(found("\u0152uvre"), ElementsAre("/works 0"));
  EXPECT_THAT(found("aeon"), ElementsAre("/works 0"));
}

TEST_F(PassagesTest, UncertainSpellingsDoNotMatch) {
  add("/boat", {"The boat was 45600 crowns."});
  add("/land", {"What is land is not sea. A man age nine."});
  EXPECT_EQ(find("45 600 33").found, PassagesFound::kNone);  // a telephone's
  EXPECT_EQ(find("045 600").found, PassagesFound::kNone);
  EXPECT_EQ(find("45 60").found, PassagesFound::kNone);
  EXPECT_EQ(find("456-00").found, PassagesFound::kYes);
  EXPECT_EQ(find("island").found, PassagesFound::kNone);
  EXPECT_THAT(find("Where is E-118?").absent, ElementsAre("E-118"));
  EXPECT_THAT(find("More than 12,400?").absent, ElementsAre("12,400"));
}

TEST_F(PassagesTest, WordsThatNoDocumentHasAreNamed) {
  add("/a", {"The harbour opens at six."});
  add("/bortsch.txt", {"Beetroot soup is red."}, "soup");
  EXPECT_THAT(find("Where is my Pas\u00f3port, in the HARBOUR?").absent,
              ElementsAre("Pas\u00f3port"));
  EXPECT_THAT(find("harbour harbours opening").absent, IsEmpty());
  EXPECT_THAT(find("Is the bortsch soup red?").absent, IsEmpty());  // a file has the name
  EXPECT_THAT(find("zebra quagga okapi gnu tapir ibex").absent,
              ElementsAre("zebra", "quagga", "okapi", "gnu", "tapir"));
  EXPECT_THAT(find("What is it?").absent, IsEmpty());
}

}  // namespace
}  // namespace weft::retrieval
