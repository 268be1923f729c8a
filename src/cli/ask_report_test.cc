#include "cli/ask_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "retrieval/scan.h"
#include "support/files.h"

namespace weft::cli {
namespace {

library::Passage passage(int64_t document, int32_t ordinal, uint64_t line_begin, uint64_t line_end,
                         double score) {
  return {.hit = {.chunk = {.document_id = document,
                            .ordinal = ordinal,
                            .line_begin = line_begin,
                            .line_end = line_end},
                  .path = "/home/ann/notes/d" + std::to_string(document) + ".md",
                  .title = "T" + std::to_string(document),
                  .root = "/home/ann/notes",
                  .score = score},
          .sentence = "S" + std::to_string(ordinal) + "."};
}

TEST(AskReport, ChunksThatFollowEachOtherAreOneSource) {
  const std::vector<library::Passage> passages{
      passage(1, 4, 10, 19, 2.0), passage(1, 5, 21, 30, 7.256), passage(1, 7, 50, 50, 1.5),
      passage(2, 8, 0, 0, 1.0)};
  const std::vector<Source> sources = sources_of(passages);
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(source_line(sources[0], 1), "[1] notes/d1.md:10-30  T1  (7.26)");
  EXPECT_EQ(sources[0].sentence, "S5.");
  EXPECT_EQ(source_line(sources[1], 2), "[2] notes/d1.md:50  T1  (1.5)");
  EXPECT_EQ(source_line(sources[2], 3), "[3] notes/d2.md  T2  (1)");
  EXPECT_TRUE(sources_of({}).empty());
}

TEST(AskReport, ASourceWhoseFileIsNotWhatWasIngestedIsSaid) {
  const test::TempDir folder;
  const std::string path = folder / "source.txt";
  test::write_text(path, "Bees make honey.");
  const int64_t written_ns = posix_env().stat(path)->modified_ns;
  library::Passage one = passage(1, 0, 3, 3, 2);
  one.hit.path = path;
  one.hit.size_bytes = 16;
  one.hit.modified_ns = written_ns;
  const auto line = [&] {
    one.file = library::file_state(posix_env(), one.hit);
    return source_line(sources_of({&one, 1}).front(), 1);
  };
  EXPECT_TRUE(line().ends_with(":3  T1  (2)")) << line();
  EXPECT_EQ(passage_json(one)["file"], "same");
  one.hit.modified_ns = written_ns - 1;
  EXPECT_TRUE(line().ends_with("  (2)  changed since it was ingested")) << line();
  // Where the time tells nothing, the content does.
  one.hit.modified_ns = retrieval::kUnknownTime;
  one.hit.content_hash = retrieval::load_document(posix_env(), path, {})->info.content_hash;
  EXPECT_EQ(library::file_state(posix_env(), one.hit), library::FileState::kSame);
  test::write_text(path, "Wasp make honey.");
  EXPECT_EQ(library::file_state(posix_env(), one.hit), library::FileState::kChanged);
  // However it was read.
  test::write_text(path, "B\xE9\x65s make honey.");
  for (const auto encoding : {documents::Encoding::kAny, documents::Encoding::kLatin1}) {
    const auto read = retrieval::load_document(posix_env(), path, {.encoding = encoding});
    one.hit.content_hash = read->info.content_hash;
    EXPECT_EQ(library::file_state(posix_env(), one.hit), library::FileState::kSame);
  }
  one.hit.modified_ns = written_ns;
  one.hit.size_bytes = 17;
  EXPECT_TRUE(line().ends_with("  (2)  changed since it was ingested")) << line();
  EXPECT_EQ(passage_json(one)["file"], "changed");
  ASSERT_TRUE(posix_env().remove(path).is_ok());
  EXPECT_TRUE(line().ends_with("  (2)  gone since it was ingested")) << line();
  EXPECT_EQ(passage_json(one)["file"], "gone");
}

TEST(AskReport, DocumentsLeftOutForASourceAreNamed) {
  library::Passage one = passage(1, 0, 3, 3, 2);
  EXPECT_EQ(passage_json(one)["nearly_same"], Json::array());
  for (const int64_t document : {2, 3, 3, 4, 5}) {
    one.hit.nearly_same.push_back(passage(document, 0, 3, 3, 2).hit);
  }
  const auto line = [&] { return left_out_line(sources_of({&one, 1}).front()); };
  EXPECT_EQ(line(), "nearly the same: notes/d2.md, notes/d3.md, notes/d4.md and 1 more");
  one.hit.content_hash = one.hit.nearly_same[0].content_hash = "a";  // a copy of the whole document
  EXPECT_EQ(line(),
            "the same as notes/d2.md; nearly the same: notes/d3.md, notes/d4.md, notes/d5.md");
  for (retrieval::Hit& other : one.hit.nearly_same) other.content_hash = "a";
  EXPECT_EQ(line(), "the same as notes/d2.md, notes/d3.md, notes/d4.md and 1 more");
  EXPECT_EQ(passage_json(one)["nearly_same"][0], "/home/ann/notes/d2.md");
  one.hit.nearly_same = {passage(1, 4, 9, 9, 2).hit};  // rows of a table that are alike
  EXPECT_EQ(line(), "");
  EXPECT_EQ(passage_json(one)["nearly_same"], Json::array());
}

TEST(AskReport, AnOlderVersionNamesTheNewerSource) {
  std::vector<library::Passage> passages{passage(1, 0, 3, 3, 2), passage(2, 0, 5, 5, 3)};
  EXPECT_TRUE(passage_json(passages[0])["older_version_of"].is_null());
  passages[0].hit.older_version_of = passages[1].hit.path;
  EXPECT_EQ(source_line(sources_of(passages)[0], 1),
            "[1] notes/d1.md:3  T1  (2)  older version of [2]");
  EXPECT_EQ(source_line(sources_of(passages)[1], 2), "[2] notes/d2.md:5  T2  (3)");
  EXPECT_EQ(passage_json(passages[0])["older_version_of"], "/home/ann/notes/d2.md");
  // The newer one did not fit the prompt.
  EXPECT_EQ(source_line(sources_of(std::span(passages).first(1))[0], 1),
            "[1] notes/d1.md:3  T1  (2)");
}

TEST(AskReport, TimingLineSaysWhatWasPredictedAndReused) {
  Answer answer;
  answer.ttft_ms = 523.4;
  answer.report.reused_tokens = 3400;
  answer.report.prompt_tokens = 1203964;
  EXPECT_EQ(timing_line(answer, false),
            "0.52 s to the first token; 3,400 of 1,203,964 tokens reused (--stats)");
  answer.ttft_ms = 12345;
  answer.report.reused_tokens = 0;
  answer.report.mode = fusion::ReuseMode::kBlend;
  answer.report.predicted = {.full_prefill_ms = 4321, .ttft_ms = 401};
  EXPECT_EQ(timing_line(answer, true),
            "12.3 s to the first token (predicted for a quiet machine: 0.40 s, and 4.3 s for full "
            "prefill); 0 of 1,203,964 tokens reused");
  answer.report.mode = fusion::ReuseMode::kPrefix;  // auto took full prefill
  answer.report.predicted->ttft_ms = 4321;
  EXPECT_EQ(timing_line(answer, true),
            "12.3 s to the first token by full prefill: reuse would be hardly faster (predicted: "
            "4.3 s on a quiet machine)");
  answer.report.predicted->full_prefill_ms = 301;
  answer.report.reused_tokens = 512;
  EXPECT_EQ(timing_line(answer, false),
            "12.3 s to the first token by full prefill: the prompt is short (predicted: 0.30 s on "
            "a quiet machine); 512 of 1,203,964 tokens came from the prefix cache (--stats)");
  answer.report.notes = {"plain prefill: reuse would save less than 10 %"};
  answer.report.reused_tokens = 0;
  EXPECT_EQ(timing_line(answer, true),
            "12.3 s to the first token by full prefill: reuse would save less than 10 %");
}

TEST(AskReport, AFirstTokenFarEarlierThanPredictedIsNoted) {
  Answer answer;
  answer.ttft_ms = 100;
  EXPECT_EQ(note_on_rates(answer, "F"), "");
  answer.report.predicted = {.full_prefill_ms = 900, .ttft_ms = 290};
  EXPECT_EQ(note_on_rates(answer, "F"), "");
  answer.report.predicted->ttft_ms = 700;
  EXPECT_THAT(note_on_rates(answer, "F"), ::testing::HasSubstr("7 times as fast"));
  EXPECT_THAT(note_on_rates(answer, "F"), ::testing::HasSubstr("without F it is"));
  answer.asked = fusion::ReuseMode::kBlend;
  answer.report.mode = fusion::ReuseMode::kPrefix;
  EXPECT_NE(note_on_rates(answer, "F"), "");
  answer.report.reused_tokens =
      608;  // asked before: the prefix cache had it, which nobody predicts
  EXPECT_EQ(note_on_rates(answer, "F"), "");
  answer.report.reused_tokens = 0;
  answer.report.predicted->ttft_ms = 150;  // whatever it is, nobody waits for it
  answer.ttft_ms = 10;
  EXPECT_EQ(note_on_rates(answer, "F"), "");
}

TEST(AskReport, SavedLineComparesWithTheFirstMode) {
  std::vector<Answer> answers(3);
  answers[0].asked = fusion::ReuseMode::kNone;
  answers[0].ttft_ms = 2400;
  answers[1].asked = fusion::ReuseMode::kFull;
  answers[1].ttft_ms = 180;
  answers[2].asked = fusion::ReuseMode::kBlend;
  answers[2].ttft_ms = 558;
  for (Answer& one : answers) one.report.mode = one.asked;
  EXPECT_EQ(saved_line(answers),
            "the first token: full 13.3 times as soon as none, blend 4.3 times");
  answers[2].report.mode = fusion::ReuseMode::kPrefix;  // no reuse is credited with it
  EXPECT_EQ(saved_line(answers),
            "the first token: full 13.3 times as soon as none, blend (done as prefix) 4.3 times");
  EXPECT_EQ(predicted_line(answers[2]), "");
  answers[2].report.predicted = {.full_prefill_ms = 2300, .ttft_ms = 600};
  EXPECT_EQ(predicted_line(answers[2]),
            "blend (done as prefix): 0.56 s to the first token; predicted for a quiet machine: "
            "0.60 s, and 2.3 s for full prefill");
}

TEST(AskReport, JsonTimesHaveTwoDecimalsAndScoresThreeDigits) {
  Answer answer;
  answer.ttft_ms = 12.3456789;
  answer.report.timings.select_ms = 0.001;
  const Json json = answer_json(answer);
  EXPECT_EQ(json["ttft_ms"].dump(), "12.35");
  EXPECT_EQ(json["timings_ms"]["select"].dump(), "0.0");
  EXPECT_EQ(passage_json(passage(1, 0, 3, 9, 7.25649))["score"].dump(), "7.26");
  EXPECT_EQ(passage_json(passage(1, 0, 3, 9, 0.0123456))["score"].dump(), "0.0123");
  EXPECT_EQ(passage_json(passage(1, 0, 3, 9, 1234.5))["score"].dump(), "1230.0");
  EXPECT_EQ(passage_json(passage(1, 0, 3, 9, 0))["score"].dump(), "0.0");
  const Json one = passage_json(passage(1, 0, 3, 9, 1));
  EXPECT_EQ(one["relative_path"], "notes/d1.md");
  EXPECT_EQ(one["line_begin"], 3);
  EXPECT_EQ(one["line_end"], 9);
}

TEST(AskReport, AnEmptyOrCutAnswerIsNoted) {
  engine::Generation generation;
  generation.stop_reason = engine::StopReason::kEnd;
  EXPECT_EQ(note_on_empty(generation), "the model gave an empty answer");
  generation.text = " \n";
  EXPECT_EQ(note_on_empty(generation), "the model gave an empty answer");
  generation.stop_reason = engine::StopReason::kCancelled;
  EXPECT_EQ(note_on_empty(generation), "");
  generation.text = "Six.";
  generation.stop_reason = engine::StopReason::kEnd;
  EXPECT_EQ(note_on_empty(generation), "");
  EXPECT_EQ(note_on_cut(generation, 8, "-c"), "");
  generation.stop_reason = engine::StopReason::kMaxTokens;
  EXPECT_EQ(note_on_cut(generation, 8, "-c"),
            "the answer was cut at 8 tokens (-n; -n -1 goes on to the end)");
  generation.stop_reason = engine::StopReason::kContextFull;
  EXPECT_EQ(note_on_cut(generation, 8, "-c"), "the answer was cut at the end of the context (-c)");
}

}  // namespace
}  // namespace weft::cli
