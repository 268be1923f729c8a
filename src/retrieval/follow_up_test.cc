// Dialogues: which of a conversation's questions are searched for with those before them.
#include "retrieval/follow_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
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

TEST(Reference, WordsThatReferBack) {
  for (const char* question :
       {"When was it built?", "who is she?", "And the second one?", "Why is that?",
        "What does that mean?", "Which one is older?", "How do I get there?", "What are its rules?",
        "When did he meet Tolstoy?", "Wann wurde er gebaut?", "Und wie hoch ist dieser?",
        "Quelle est sa hauteur ?", "Quand a-t-il été construit ?", "¿Cuál es su altura?",
        "Quanto è alto questo?", "Qual é a altura dele?", "Hoe hoog is deze?", "它有多高？",
        "それはいつ建てられましたか"}) {
    EXPECT_TRUE(reference_of(question).refers_back) << question;
  }
  for (const char* question :
       {"When was the harbour built?", "Is there a library?", "Who owns one of the boats?",
        "The paper that won a prize?", "Who governs Bolivia, and is it rich?",
        "Gibt es einen Leuchtturm?", "Können Sie den Hafen beschreiben?",
        "Y a-t-il une bibliothèque ?", "¿Dónde está el puerto?", "港口几点开门？", "", "Why?"}) {
    EXPECT_FALSE(reference_of(question).refers_back) << question;
  }
}

TEST(Reference, ContinuationsAndNames) {
  for (const char* question : {"And the entrance?", "what about dogs", "Und der Eintritt?",
                               "Et les chiens ?", "how about Mondays"}) {
    EXPECT_TRUE(reference_of(question).goes_on) << question;
  }
  EXPECT_FALSE(reference_of("What opens about noon?").goes_on);
  EXPECT_TRUE(reference_of("who governs Bolivia").has_name);
  EXPECT_TRUE(reference_of("où est Élise").has_name);
  EXPECT_FALSE(reference_of("Bolivia").has_name);
  EXPECT_FALSE(reference_of("Yes. Who governs there?").has_name);
  EXPECT_FALSE(reference_of("Was kostet der Eintritt?").has_name);  // a noun like any other
}

TEST(Reference, LooksAtTheBeginningOnly) {
  const std::string filler(1 << 20, 'x');
  EXPECT_FALSE(reference_of(filler + " it").refers_back);
  EXPECT_TRUE(reference_of("it " + filler).refers_back);
  EXPECT_FALSE(reference_of(std::string(100, '\0')).refers_back);
  EXPECT_FALSE(reference_of("\xC3").has_name);
}

TEST(Subject, IsTheLastQuestionAndTheOneThatItFollows) {
  using Questions = std::vector<std::string>;
  EXPECT_EQ(subject_of(Questions{}), "");
  EXPECT_EQ(subject_of(Questions{"harbour hours"}), "harbour hours");
  EXPECT_EQ(subject_of(Questions{"orchard pears", "harbour hours"}), "harbour hours");
  EXPECT_EQ(subject_of(Questions{"harbour hours", "who built it?"}),
            "who built it?\nharbour hours");
  EXPECT_EQ(subject_of(Questions{"harbour hours", "who built it?", "why?", "is it paid?"}),
            "is it paid?\nharbour hours");
  EXPECT_EQ(subject_of(Questions{"harbour hours", "and the library?", "who built it?"}),
            "who built it?\nand the library?");
  EXPECT_EQ(subject_of(Questions{"harbour hours", "and the library?"}), "and the library?");
  EXPECT_EQ(subject_of(Questions{"why?"}), "why?");
  EXPECT_EQ(subject_of(Questions{std::string(10000, 'a')}).size(), 4096u);
}

class FollowUpTest : public ::testing::Test {
 protected:
  FollowUpTest() : index_(*Index::open(dir_ / "index.db", Index::Mode::kCreate)) {
    add("/harbour",
        {"The harbour opens at seven. The harbour has an entrance in the west.",
         "The harbour was completed in 1874 by Marta Lind."},
        "Harbour");
    add("/orchard", {"The orchard has pears and a stream.", "The orchard's entrance is closed."},
        "Orchard");
    add("/library", {"The library lends maps to members."}, "Library");
    add("/lighthouse", {"A lighthouse shows ships the way."}, "Lighthouses");
    add("/tariffs", {"Members pay nothing.", "A ticket costs two crowns."}, "Tariffs");
  }
  void add(const std::string& path, const std::vector<std::string>& texts,
           const std::string& title) {
    const auto id = put(*index_, path, texts, title);
    ASSERT_TRUE(id.is_ok()) << id.status().message();
  }
  FollowUp find(const std::vector<std::string>& before, std::string_view question,
                PassageOptions options = {}) {
    auto found = find_follow_up(*index_, before, question, options);
    EXPECT_TRUE(found.is_ok()) << found.status().message();
    return found.is_ok() ? std::move(*found) : FollowUp{};
  }

  TempDir dir_;
  std::unique_ptr<Index> index_;
};

struct Dialogue {
  std::vector<std::string> before;
  std::string question;
  std::string best;  // path of the best passage; "": not in the documents
  bool looked_back = false;
};

TEST_F(FollowUpTest, Dialogues) {
  const std::vector<std::string> harbour{"When does the harbour open?"};
  const std::vector<std::string> library{"What does the library lend?"};
  const Dialogue dialogues[] = {
      // By itself, or first.
      {{}, "When does the harbour open?", "/harbour"},
      {{}, "When was it built?", ""},
      {harbour, "What does the library lend?", "/library"},
      // It refers back.
      {harbour, "When was it built?", "/harbour", true},
      {harbour, "and who completed it?", "/harbour", true},
      {harbour, "Who is she?", "/harbour", true},
      {harbour, "and the second one?", "/harbour", true},
      {library, "Who may borrow them?", "/library", true},
      // It says nothing by itself.
      {harbour, "Why?", "/harbour", true},
      {harbour, "?!", "/harbour", true},
      // A single word: its own passages, the subject's among them first.
      {harbour, "And the entrance?", "/harbour", true},
      {{"Who walks in the orchard?"}, "And the entrance?", "/orchard", true},
      {harbour, "What is a lighthouse?", "/lighthouse", false},
      {library, "orchard?", "/orchard", false},
      // Its own words are found nowhere, and it goes on.
      {harbour, "and the price?", "/harbour", true},
      {harbour, "and the name and the date?", "/harbour", true},
      // What it names is nowhere: as when it is asked alone.
      {harbour, "What about zeppelins?", ""},
      {harbour, "what about dogs and children?", ""},
      {harbour, "and the price of zeppelins?", ""},
      // A new subject is not looked for under the one before.
      {harbour, "Who governs Bolivia?", ""},
      {harbour, "Who governs Bolivia, and is it rich?", ""},
      {harbour, "And Bolivia?", ""},
      {harbour, "And who governs Bolivia?", ""},
      {harbour, "What does a ticket cost?", "/tariffs"},
      // Over several questions.
      {{"When does the harbour open?", "Who built it?"}, "And is it paid?", "/harbour", true},
      {{"When does the harbour open?", "Who built it?", "What does the library lend?"},
       "To whom does it lend them?",
       "/library",
       true},
      {{"Who governs Bolivia?"}, "Is it rich?", ""},
  };
  for (const Dialogue& d : dialogues) {
    const FollowUp found = find(d.before, d.question);
    const bool is_found = found.passages.found == PassagesFound::kYes;
    const std::string best = is_found ? found.passages.hits.front().path : "";
    EXPECT_EQ(best, d.best) << d.question;
    if (!d.best.empty()) {
      EXPECT_EQ(found.looked_back, d.looked_back) << d.question;
    } else {
      EXPECT_THAT(found.passages.hits, IsEmpty()) << d.question;
    }
  }
}

TEST_F(FollowUpTest, TheLastSubjectComesFirst) {
  add("/hours", {"The harbour opens late in winter. Its crane is behind the library."}, "Harbour");
  const std::vector<std::string> then_library{"When does the harbour open?", "And the library?"};
  for (const char* question : {"Who built it?", "And when does it open?", "Why?"}) {
    const FollowUp found = find(then_library, question);
    ASSERT_FALSE(found.passages.hits.empty()) << question;
    EXPECT_EQ(found.passages.hits.front().path, "/library") << question;
    EXPECT_THAT(found.searched_with, ElementsAre("And the library?")) << question;
  }
  std::vector<std::string> longer = then_library;
  longer.emplace_back("Who built it?");
  const FollowUp again = find(longer, "And is it closed?");
  ASSERT_FALSE(again.passages.hits.empty());
  EXPECT_EQ(again.passages.hits.front().path, "/library");
  EXPECT_THAT(again.searched_with, ElementsAre("Who built it?", "And the library?"));
  // What several have is that of the subject before.
  for (const std::string subject : {"harbour", "orchard"}) {
    const FollowUp entrance =
        find({"When does the " + subject + " open?", "And the entrance?"}, "How wide is it?");
    ASSERT_FALSE(entrance.passages.hits.empty());
    EXPECT_EQ(entrance.passages.hits.front().path, "/" + subject);
  }
  // What was found by the subject before only.
  const FollowUp older = find({"When does the harbour open?", "And the ceremony?"}, "Was it long?");
  ASSERT_FALSE(older.passages.hits.empty());
  EXPECT_EQ(older.passages.hits.front().title, "Harbour");
  EXPECT_THAT(older.searched_with, ElementsAre("And the ceremony?", "When does the harbour open?"));
}

TEST_F(FollowUpTest, FirstIsAsWithoutAConversation) {
  const auto alone = find_passages(*index_, "harbour entrance", {});
  ASSERT_TRUE(alone.is_ok());
  const FollowUp first = find({}, "harbour entrance");
  ASSERT_EQ(first.passages.hits.size(), alone->hits.size());
  EXPECT_EQ(first.passages.hits.front().score, alone->hits.front().score);
  EXPECT_FALSE(first.looked_back);
}

TEST_F(FollowUpTest, SaysWhetherAPassageHasAWordOfItsOwn) {
  const std::vector<std::string> harbour{"When does the harbour open?"};
  const FollowUp paraphrased = find(harbour, "Who built it?");
  EXPECT_TRUE(paraphrased.looked_back);
  EXPECT_FALSE(paraphrased.has_own_terms);
  EXPECT_TRUE(find(harbour, "When was it completed?").has_own_terms);
  EXPECT_TRUE(find(harbour, "Is it in the west?").has_own_terms);
  EXPECT_TRUE(find(harbour, "Why?").has_own_terms);  // it has none
}

TEST_F(FollowUpTest, ACourtesyIsNoQuestionOfItsOwn) {
  add("/mail", {"Thanks were sent to the mayor, ok?"}, "Mail");
  const std::vector<std::string> harbour{"When does the harbour open?"};
  const FollowUp why = find(harbour, "Why?");
  for (const char* question : {"Thanks!", "ok thank you", "danke"}) {
    const FollowUp found = find(harbour, question);
    EXPECT_TRUE(found.looked_back) << question;
    EXPECT_EQ(found.passages.found, PassagesFound::kYes) << question;
    ASSERT_EQ(found.passages.hits.size(), why.passages.hits.size()) << question;
    EXPECT_EQ(found.passages.hits.front().path, why.passages.hits.front().path) << question;
    EXPECT_THAT(found.passages.absent, IsEmpty()) << question;
  }
  // Nor is it what the next question is about.
  const FollowUp after = find({harbour.front(), "Thanks!"}, "Who built it?");
  ASSERT_FALSE(after.passages.hits.empty());
  EXPECT_EQ(after.passages.hits.front().title, "Harbour");
  const FollowUp before_that = find({harbour.front(), "Thanks!"}, "And before that?");
  ASSERT_FALSE(before_that.passages.hits.empty());
  EXPECT_EQ(before_that.passages.hits.front().title, "Harbour");
  // With nothing before it is searched for where documents have it, and else nothing is.
  EXPECT_EQ(find({}, "Thanks!").passages.hits.front().path, "/mail");
  EXPECT_EQ(find({}, "danke").passages.found, PassagesFound::kNoTerms);
}

TEST_F(FollowUpTest, AnywayIsAsWithoutAConversation) {
  const FollowUp found = find({"harbour"}, "Who governs Bolivia?", {.anyway = true});
  EXPECT_EQ(found.passages.found, PassagesFound::kNone);
}

}  // namespace
}  // namespace weft::retrieval
