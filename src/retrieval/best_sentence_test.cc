#include "retrieval/best_sentence.h"

#include <gtest/gtest.h>

#include <string>

#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::TempDir;

class BestSentenceTest : public ::testing::Test {
 protected:
  BestSentenceTest() : index_(*Index::open(dir_ / "index.db", Index::Mode::kCreate)) {
    EXPECT_TRUE(put(*index_, "/filler", {"nothing of that"}).is_ok());
  }

  /// `question` is what would be asked; all its content words weigh the same.
  std::string best(std::string_view question, std::string_view text, size_t max_bytes = 200,
                   std::string_view title = "") {
    const auto passages = find_passages(*index_, question, {});
    EXPECT_TRUE(passages.is_ok());
    const auto sentence = best_sentence(*index_, passages->terms, title, text, max_bytes);
    EXPECT_TRUE(sentence.is_ok());
    return sentence.is_ok() ? *sentence : "";
  }

  TempDir dir_;
  std::unique_ptr<Index> index_;
};

constexpr const char* kHarbour = "When does the harbour open?";

TEST_F(BestSentenceTest, HasMostOfTheQuestion) {
  EXPECT_EQ(best(kHarbour,
                 "The pier is old. The harbour opens\n at six, says the keeper! Dr. Who "
                 "opens nothing.\nNo."),
            "The harbour opens at six, says the keeper!");
  EXPECT_EQ(best(kHarbour, "Harbours open,   they say. X"), "Harbours open, they say.");
  EXPECT_EQ(best(kHarbour, "First one. Second one."), "First one.");
  EXPECT_EQ(best(kHarbour, " \n "), "");
}

TEST_F(BestSentenceTest, DoesNotEndAtAnAbbreviation) {
  for (const std::string& sentence : {std::string("The boiler was repaired by Mr. Wexler."),
                                      std::string("The boiler is of J. Smith, see No. 7."),
                                      std::string("The boiler, e.g. Thermotec, is old."),
                                      std::string("Der boiler wird am 3. Mai abgebaut."),
                                      std::string("The boiler has approx. two valves.")}) {
    EXPECT_EQ(best("boiler", "It was. " + sentence + " No."), sentence);
  }
}

TEST_F(BestSentenceTest, AbbreviationsAndOrdinalsAreWithin) {
  for (const std::string& sentence :
       {std::string("The boiler is of dr. Weber, tel. Marburg 555, since May."),
        std::string("La boiler de M. Weber, t\u00E9l. Marburg 555, marche."),
        std::string("The boiler, e.g. Thermotec No. 7, is St. Mary's."),
        std::string("Der boiler steht im 2. Stock links."),
        std::string("Der 1. Vorsitzende hat den boiler, z. B. Nr. A, geholt."),
        std::string("The boiler of J. Smith and J.R.R. Tolkien is in the U.S. Army."),
        std::string("The boiler is in Baker St. Station, opp. the mill."),
        std::string("Der boiler von Lindenstr. 5 leckt."),
        std::string("The boiler of \u00C9. Zola leaks.")}) {
    EXPECT_EQ(best("boiler", "It was. " + sentence + " No. That was it."), sentence);
  }
  const auto first = [&](const std::string& text) { return best("boiler", text); };
  EXPECT_EQ(first("The boiler is in Main St. The house is old."), "The boiler is in Main St.");
  EXPECT_EQ(first("The boiler was set to 5. Then it broke."), "The boiler was set to 5.");
  EXPECT_EQ(first("So had I. The boiler broke. It did."), "The boiler broke.");
  EXPECT_EQ(first("Is the boiler new? No. The old one is."), "Is the boiler new?");
  EXPECT_EQ(first("Pipes, valves, boiler etc. The end."), "Pipes, valves, boiler etc.");
}

TEST_F(BestSentenceTest, AmongEqualSentencesRarerTermsThenNearnessDecide) {
  // "school" is in every sentence, "bus" in one.
  EXPECT_EQ(best("school bus", "The school is old.\n\nThe bus is late.\n\nThe school is far."),
            "The bus is late.");
  // Both words are in two sentences: the one between the others.
  EXPECT_EQ(best("When does the ferry sail?",
                 "The ferry is white. It is new. It is long. The ferry was full. We sailed at "
                 "six. We sailed on."),
            "We sailed at six.");
}

TEST_F(BestSentenceTest, LinesOfAListAreNotJoined) {
  EXPECT_EQ(best("bread", "milk\neggs\nbread\nbutter"), "bread");
  EXPECT_EQ(best("eggs", "Milk\neggs\nbread"), "eggs");
  EXPECT_EQ(best("gym", "Mon: dentist\ntue: gym\nwed: piano"), "tue: gym");
  EXPECT_EQ(best("gym",
                 "Mon: dentist at nine o'clock, bring the card of the insurance\n"
                 "tue: gym\nwed: piano"),
            "tue: gym");
  EXPECT_EQ(best("plumber",
                 "Shopping and so on:\n- a new battery for the smoke alarm upstairs\n"
                 "- call the plumber about the tap\n  that drips at night\n- milk"),
            "- call the plumber about the tap that drips at night");
  EXPECT_EQ(best("plumber",
                 "buy a new battery for the smoke alarm\n"
                 "call the plumber about the dripping tap\nmilk"),
            "call the plumber about the dripping tap");
  EXPECT_EQ(best("anna", "1. Buy a battery\n2. call anna\n3. rest"), "2. call anna");
}

TEST_F(BestSentenceTest, WrappedProseIsJoined) {
  EXPECT_EQ(best("plumber",
                 "We met on Friday and talked about the dripping tap upstairs, which\n"
                 "the plumber from Marburg looked at in May and could not mend, so\n"
                 "Weber comes on Monday."),
            "We met on Friday and talked about the dripping tap upstairs, which the plumber from "
            "Marburg looked at in May and could not mend, so Weber comes on Monday.");
  EXPECT_EQ(best("plumber", "It drips. The plumber came\nin May. He left."),
            "The plumber came in May.");
  EXPECT_EQ(best("plumber", "The plumber has the\nkey."), "The plumber has the key.");
}

TEST_F(BestSentenceTest, PrefersASentenceToAHeading) {
  const std::string question = "When was the boiler serviced?";
  EXPECT_EQ(best(question, "# Boiler serviced\n\nIt is old.\nIt was serviced on 3 May.\n"),
            "It was serviced on 3 May.");
  EXPECT_EQ(best(question, "Boiler serviced\n===============\nIt was serviced on 3 May.\n"),
            "It was serviced on 3 May.");
  // Text below a heading is about it.
  EXPECT_EQ(best(question,
                 "The car was serviced in June.\n## Car\nWe serviced it in July.\n"
                 "## Boiler\nWe serviced it in May."),
            "We serviced it in May.");
  EXPECT_EQ(best("dentist phone", "# Shop\nOpen.\n# Dentist, phone\n0171 555\n# Bank\nShut."),
            "0171 555");
  EXPECT_EQ(best(question, "No.\n# Boiler serviced"), "# Boiler serviced");
  EXPECT_EQ(best(question, "#hashtag boiler\nNo."), "#hashtag boiler");
}

TEST_F(BestSentenceTest, IsNotABareWordOfTheQuestion) {
  const std::string dish = "What is the most popular dish at the caf\u00E9?";
  EXPECT_EQ(best(dish, "Caf\u00E9. It serves trout from the lake. The caf\u00E9 is open."),
            "The caf\u00E9 is open.");
  EXPECT_EQ(best(dish, "Opening hours. Caf\u00E9. It serves trout. Parking."), "It serves trout.");
  EXPECT_EQ(best("When was the boiler serviced?", "Boiler serviced\nWeber serviced it in May."),
            "Weber serviced it in May.");
  EXPECT_EQ(best(dish, "Parking. Caf\u00E9."), "Caf\u00E9.");  // nothing else has a word
}

TEST_F(BestSentenceTest, IsOneRowOfATable) {
  const std::string question = "What did the ladder cost?";
  EXPECT_EQ(best(question, "item,price,shop\nrope,9.50,harbour\nladder,42.00,mill\npaint,7.20,x"),
            "item,price,shop … ladder,42.00,mill");
  EXPECT_EQ(best(question, "rope,9.50,harbour\nladder,42.00,mill\npaint,7.20,x"),
            "ladder,42.00,mill");  // no names above
  EXPECT_EQ(best(question, "rope\tnine\nladder\tforty\npaint\tseven"), "ladder forty");
  EXPECT_EQ(best(question, "| rope | nine |\n| ladder | forty |\n| paint | x |"),
            "| ladder | forty |");
  EXPECT_EQ(best(question,
                 "level=info msg=rope. At=x\nlevel=warn msg=ladder at=y. z=1\n"
                 "level=info msg=paint at=z"),
            "level=warn msg=ladder at=y. z=1");
  // Numbers and links are in sentences, too.
  EXPECT_EQ(best(question, "It was 1,000,000 then. The ladder cost 1,000,000\nof them. Yes."),
            "The ladder cost 1,000,000 of them.");
  EXPECT_EQ(best(question, "See x.org/?a=1&b=2 now. The ladder. No."), "The ladder.");
}

TEST_F(BestSentenceTest, ShowsTheTermsOfALongOne) {
  EXPECT_EQ(best(kHarbour, "The harbour opens at six o'clock", 20), "The harbour opens at …");
  EXPECT_EQ(best(kHarbour, std::string(30, 'a') + "é", 31), std::string(30, 'a') + " …");
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word ";
  const std::string middle = best(kHarbour, words + "the harbour opens " + words, 60);
  EXPECT_NE(middle.find("the harbour opens"), std::string::npos) << middle;
  EXPECT_TRUE(middle.starts_with("… word ")) << middle;
  EXPECT_TRUE(middle.ends_with("word …")) << middle;
  EXPECT_LE(middle.size(), 60 + 2 * std::string(" …").size());
  const std::string end = best(kHarbour, words + "the harbour opens", 60);
  EXPECT_TRUE(end.ends_with("word the harbour opens")) << end;
  EXPECT_TRUE(end.starts_with("… word word ")) << end;
  const std::string long_word(500, 'x');
  EXPECT_EQ(best(kHarbour, long_word + " the harbour opens", 60), "… the harbour opens");
}

TEST_F(BestSentenceTest, ShowsTheTermsOfDataWithoutSpaces) {
  std::string data;
  for (int i = 0; i < 300; ++i) data += "\"key" + std::to_string(i) + "\":\"value\",";
  const std::string shown = best("thermostat", data + "\"thermostat\":\"21 degrees\"," + data, 160);
  EXPECT_NE(shown.find("\"thermostat\":\"21 degrees\""), std::string::npos) << shown;
  EXPECT_TRUE(shown.starts_with("… ")) << shown;
}

TEST_F(BestSentenceTest, ARowIsShownWithItsTablesHeader) {
  const std::string table =
      "| Team | Budget | Owner |\n|------|-----:|:---:|\n| Marketing | 12000 | Ann |\n"
      "| Support | 8000 | Tom |\n\nThe owner of a team is asked first.\n";
  EXPECT_EQ(best("Who is the owner of the support budget?", table),
            "| Team | Budget | Owner | … | Support | 8000 | Tom |");
  EXPECT_EQ(best("Who is the owner of the support budget?", table, 40), "| Support | 8000 | Tom |");
  // The names of the columns say what a row is of, and are no answer.
  EXPECT_EQ(best("What is the budget?", table),
            "| Team | Budget | Owner | … | Marketing | 12000 | Ann |");
  EXPECT_EQ(best("Which owner is asked first?", table), "The owner of a team is asked first.");
  EXPECT_EQ(best("When was Leo vaccinated: measles?",
                 "Name,Vaccine,Date\nMia,Measles,2021-05-03\nLeo,Tetanus,2022-08-30\n"
                 "Leo,Measles,2020-12-17"),
            "Name,Vaccine,Date … Leo,Measles,2020-12-17");
}

TEST_F(BestSentenceTest, HeadingsCountForSentencesBelowThem) {
  const std::string car =
      "# Car\n## Winter tyres\n### Where\nIn the cellar.\n## Summer\nThey are in the garage.\n## "
      "Oil\n";
  EXPECT_EQ(best("Where are the winter tyres?", car), "In the cellar.");
  EXPECT_EQ(best("Where in the garage are tyres?", car), "They are in the garage.");
  EXPECT_EQ(best("What oil?", car), "## Oil");  // nothing else has a word
  EXPECT_EQ(best("Who governs Bolivia?", car), "In the cellar.");
  // A short line before a list is one, too; before prose it may be a sentence like any other.
  EXPECT_EQ(best("When is the dentist's appointment?",
                 "dentist dr. lam\nnext: tue 14 may 10:30\nlast: november"),
            "dentist dr. lam … next: tue 14 may 10:30");
  EXPECT_EQ(best("What comes next?", "dentist dr. lam\nnext: tue 14 may 10:30\nlast: november"),
            "next: tue 14 may 10:30");
  EXPECT_EQ(best("What to pack for the trip to Rome?", "For the trip to Rome\n\n- a charger"),
            "For the trip to Rome … - a charger");
  EXPECT_EQ(best("Where are the winter tyres?",
                 "Winter tyres at Keller\nSummer tyres in the garage at home"),
            "Winter tyres at Keller");
}

TEST_F(BestSentenceTest, TermsOfTheTitleCountLess) {
  const std::string text = "The falcon service replaces the project. Budget: 57,500 euros.";
  EXPECT_EQ(best("What is the budget of project falcon?", text, 200, "Project Falcon"),
            "Budget: 57,500 euros.");
  EXPECT_EQ(best("What is the budget of project falcon?", text, 200),
            "The falcon service replaces the project.");
}

TEST_F(BestSentenceTest, OnlyTheFirst64KiBAreSearched) {
  const std::string harbour = "The harbour opens.";
  const std::string rows(60 << 10, '\n');
  EXPECT_EQ(best(kHarbour, "Row one.\n" + rows + harbour), harbour);
  EXPECT_EQ(best(kHarbour, "Row one.\n" + rows + rows + harbour), "Row one.");
}

TEST_F(BestSentenceTest, AnyBytesAreText) {
  for (const std::string& text :
       {std::string("\xff\xfe harbour\0 \xc3", 13), std::string("#\n##\n###### \n---\n===\n"),
        std::string("|,;=|,;=\n\t\n="), std::string(70 << 10, ' '), std::string(70 << 10, '.'),
        std::string(70 << 10, ',')}) {
    best(kHarbour, text, 0);
    best(kHarbour, text, 40);
  }
}

}  // namespace
}  // namespace weft::retrieval
