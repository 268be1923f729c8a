// Work that rests between its layers while other work runs: neither notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fusion/prefill.h"
#include "support/identity_cases.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"

namespace weft {
namespace {

using fusion::FusionOptions;
using fusion::ReuseMode;
using fusion::SelectorKind;
using model::RowKind;
using test::random_ids;
using test::same_bits;
using test::TestModel;

class Passes : public test::IdentityTest {
 protected:
  fusion::Prompt prompt(int32_t n_vocab) const {
    return {.prefix = random_ids(21, n_vocab, 1),
            .chunks = {random_ids(37, n_vocab, 2), random_ids(64, n_vocab, 3)},
            .suffix = random_ids(19, n_vocab, 5)};
  }

  /// The logits of a fused prompt; `between` is called after each of its layers.
  std::vector<float> fuse(TestModel& m, const FusionOptions& options, FunctionRef<void()> between) {
    const fusion::Prompt p = prompt(m.n_vocab());
    const auto fusor = m.fusor(nullptr, random_ids(9, m.n_vocab(), 6));
    const auto prefill = fusor->start(p, options);
    EXPECT_TRUE(prefill.is_ok()) << prefill.status().message();
    for (;;) {
      const Result<int64_t> n_rows = (*prefill)->advance();
      EXPECT_TRUE(n_rows.is_ok()) << n_rows.status().message();
      if (!n_rows.is_ok() || *n_rows == 0) break;
      between();
    }
    fusion::Prefilled done = (*prefill)->take();
    EXPECT_EQ(done.report.mode, options.mode);
    EXPECT_EQ(done.sequence.length(), p.n_tokens());
    return std::move(done.logits);
  }
};

TEST_P(Passes, AFusionRestsBetweenLayersWhileOthersDecode) {
  for (const SelectorKind selector : fusion::kSelectors.values()) {
    TestModel m(path_);
    FusionOptions options{
        .mode = ReuseMode::kBlend, .ratio = 0.3, .selector = selector, .allow_plain = false};
    if (selector == SelectorKind::kVDeviation) options.checks = {{.layer = 1, .ratio = 0.3}};
    const std::vector<float> alone = fuse(m, options, [] {});

    const std::vector<int32_t> ids = random_ids(200, m.n_vocab(), 7);
    const auto start = [&] {
      const kv::SequenceId sequence = m.cache().create_sequence();
      m.run(sequence, std::span(ids).first(30));
      return sequence;
    };
    const kv::SequenceId beside = start();
    const kv::SequenceId by_itself = start();
    size_t n = 30;
    const std::vector<float> interrupted = fuse(m, options, [&] {
      const auto token = std::span(ids).subspan(n++, 1);
      const std::vector<float> decoded = m.run(beside, token, RowKind::kDecode);
      EXPECT_TRUE(same_bits(decoded, m.run(by_itself, token, RowKind::kDecode)));
    });
    EXPECT_GE(n, 30U + 3 * static_cast<size_t>(m.model().config().n_layers));  // anchor, chunks, it
    EXPECT_TRUE(same_bits(interrupted, alone)) << fusion::kSelectors.name(selector);
  }
}

TEST_P(Passes, OneThatIsDroppedBetweenLayersLeavesTheCacheAsItWas) {
  TestModel m(path_);
  const kv::SequenceId sequence = m.cache().create_sequence();
  m.run(sequence, random_ids(20, m.n_vocab(), 8));
  const int32_t pages = m.cache().used_page_count();
  {
    auto reservation = m.cache().reserve(sequence, 40);
    ASSERT_TRUE(reservation.is_ok());
    model::RowsPass pass(m.forward(), m.cache(),
                         model::Rows::of(sequence, random_ids(40, m.n_vocab(), 9), 20), {});
    pass.hold(std::move(*reservation));
    model::Executor executor(m.forward());
    ASSERT_TRUE(*executor.advance(pass));
    ASSERT_TRUE(*executor.advance(pass));
  }
  EXPECT_EQ(m.cache().length(sequence), 20);
  EXPECT_EQ(m.cache().used_page_count(), pages);
}

INSTANTIATE_TEST_SUITE_P(Models, Passes, ::testing::ValuesIn(test::identity_cases()),
                         [](const auto& test_case) { return test_case.param.name; });

}  // namespace
}  // namespace weft
