#include "retrieval/function_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

namespace weft::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}
std::vector<std::string> content_of(const std::string& question) {
  return content_words(words_of(question));
}

TEST(FunctionWords, EachLanguagesOwnAreDropped) {
  EXPECT_THAT(content_of("when does the harbour open"), ElementsAre("harbour", "open"));
  EXPECT_THAT(content_of("wann offnet der hafen fur die fischer"),
              ElementsAre("offnet", "hafen", "fischer"));
  EXPECT_THAT(content_of("quelle est la hauteur de la tour"), ElementsAre("hauteur", "tour"));
  EXPECT_THAT(content_of("cuando se construyo el puente de la ciudad"),
              ElementsAre("construyo", "puente", "ciudad"));
  EXPECT_THAT(content_of("quando fu costruito il ponte della citta"),
              ElementsAre("costruito", "ponte", "citta"));
  EXPECT_THAT(content_of("quando foi construida a ponte da cidade"),
              ElementsAre("construida", "ponte", "cidade"));
  EXPECT_THAT(content_of("wanneer werd de brug van het dorp gebouwd"),
              ElementsAre("brug", "dorp", "gebouwd"));
}

TEST(FunctionWords, AFunctionWordOfAnotherLanguageIsAContentWord) {
  EXPECT_THAT(content_of("did many men die in the war"), ElementsAre("many", "men", "die", "war"));
  EXPECT_THAT(content_of("how many potatoes did we harvest"), ElementsAre("potatoes", "harvest"));
  EXPECT_THAT(content_of("who was the son of the king"), ElementsAre("son", "king"));
  EXPECT_THAT(content_of("what is the on in on-off"), ElementsAre("on-off"));
  EXPECT_THAT(content_of("wer war was im team"), ElementsAre("team"));
  EXPECT_THAT(content_of("die hard"), ElementsAre("die", "hard"));
  EXPECT_THAT(content_of("dal recipe"), ElementsAre("dal", "recipe"));
  EXPECT_THAT(content_of("van"), ElementsAre("van"));
}

TEST(FunctionWords, NothingIsLeftOfAQuestionWithoutASubject) {
  EXPECT_THAT(content_of("what is it and why"), IsEmpty());
  EXPECT_THAT(content_of(""), IsEmpty());
}

TEST(FunctionWords, AspectWordsOnlySayWhatIsAsked) {
  for (const char* word : {"address", "name", "datum", "numero", "year"}) {
    EXPECT_TRUE(is_aspect_word(word)) << word;
    EXPECT_FALSE(is_function_word(Language::kEnglish, word)) << word;
  }
  for (const char* word : {"harbour", "dog", ""}) EXPECT_FALSE(is_aspect_word(word)) << word;
}

TEST(FunctionWords, FillersCarryAQuestion) {
  for (const char* word : {"actually", "bonjour", "going", "notes", "thanks", "zeige"}) {
    EXPECT_TRUE(is_filler_word(word)) << word;
    EXPECT_FALSE(is_function_word(Language::kEnglish, word)) << word;
  }
  for (const char* word : {"harbour", "name", ""}) EXPECT_FALSE(is_filler_word(word)) << word;
  EXPECT_TRUE(is_function_word("zwischen"));  // in some language
  EXPECT_FALSE(is_function_word("harbour"));
}

TEST(FunctionWords, QuestionsAboutAnythingAreAskedWithCommonWords) {
  for (const char* word : {"according", "appointment", "hoch", "keep", "pay", "zustandig", "faire"})
    EXPECT_TRUE(is_common_word(word)) << word;
  for (const char* word : {"harbour", "rex", ""}) EXPECT_FALSE(is_common_word(word)) << word;
  EXPECT_THAT(content_of("combien de farine faut il pour la pate"), ElementsAre("farine", "pate"));
}

TEST(FunctionWords, CourtesiesAskNothing) {
  for (const char* text : {"thanks", "ok thank you", "danke", "vielen dank", "merci beaucoup"}) {
    EXPECT_TRUE(is_courtesy(content_of(text))) << text;
  }
  for (const char* text : {"", "why", "thanks and the harbour", "dank harbour"}) {
    EXPECT_FALSE(is_courtesy(content_of(text))) << text;
  }
}

TEST(FunctionWords, TheListsAreSortedAndFolded) {
  // Binary search finds each only in a sorted list: the first, some in the middle, the last.
  for (const char* word : {"a", "in", "of", "we", "yourselves"}) {
    EXPECT_TRUE(is_function_word(Language::kEnglish, word)) << word;
  }
  for (int i = 0; i < kLanguages; ++i) {
    EXPECT_FALSE(is_function_word(static_cast<Language>(i), "harbour"));
    EXPECT_FALSE(is_function_word(static_cast<Language>(i), ""));
  }
  EXPECT_TRUE(is_function_word(Language::kGerman, "fur"));
  EXPECT_TRUE(is_function_word(Language::kGerman, "zwischen"));
  EXPECT_TRUE(is_function_word(Language::kFrench, "ou"));
  EXPECT_TRUE(is_function_word(Language::kPortuguese, "nao"));
}

}  // namespace
}  // namespace weft::retrieval
