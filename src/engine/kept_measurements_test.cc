// The file of measurements: anyone may have written to it, and losing it costs a measurement.
#include "engine/kept_measurements.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "engine/compute_choice.h"
#include "kernels/matmul_prefill.h"
#include "support/fault_env.h"
#include "support/files.h"
#include "support/instruction_sets.h"
#include "support/test_pool.h"

namespace weft::engine {
namespace {

using test::read_text;
using test::write_text;

class KeptMeasurements : public ::testing::Test {
 protected:
  test::TempDir dir_;
  std::string file_ = dir_ / "cache/kept";
};

TEST_F(KeptMeasurements, TheLastLineOfAKeyCounts) {
  EXPECT_EQ(find_kept(posix_env(), file_, "a"), std::nullopt);
  keep(posix_env(), file_, "a", "1");
  keep(posix_env(), file_, "ab", "2");
  keep(posix_env(), file_, "a", "3");
  EXPECT_EQ(read_text(file_), "a\t1\nab\t2\na\t3\n");
  EXPECT_EQ(find_kept(posix_env(), file_, "a"), "3");
  EXPECT_EQ(find_kept(posix_env(), file_, "ab"), "2");
  EXPECT_EQ(find_kept(posix_env(), file_, "b"), std::nullopt);
}

TEST_F(KeptMeasurements, ALineThatWasCutShortStaysByItself) {
  keep(posix_env(), file_, "a", "1");
  write_text(file_, "a\t1\nhalf a li");
  keep(posix_env(), file_, "b", "2");
  EXPECT_EQ(read_text(file_), "a\t1\nhalf a li\nb\t2\n");
}

TEST_F(KeptMeasurements, AFullFileIsBegunAnew) {
  keep(posix_env(), file_, "a", "1");
  std::string full = "a\t1\n";
  full += std::string(64 * 1024 - full.size(), 'x');
  write_text(file_, full);
  EXPECT_EQ(find_kept(posix_env(), file_, "a"), "1") << "64 KiB are still read";
  keep(posix_env(), file_, "b", "2");
  EXPECT_EQ(read_text(file_), "b\t2\n");
  write_text(file_, "a\t1\n" + std::string(64 * 1024, 'x'));
  EXPECT_EQ(find_kept(posix_env(), file_, "a"), std::nullopt);
}

TEST_F(KeptMeasurements, AFileThatCannotBeWrittenCostsNothingElse) {
  keep(posix_env(), file_, "a", "1");
  test::FaultEnv env(posix_env());
  env.limit_disk(0);
  keep(env, file_, "b", "2");
  EXPECT_EQ(read_text(file_), "a\t1\n");
}

TEST_F(KeptMeasurements, AForcedComputePathIsNotMeasured) {
  test::TestPool pool(1);
  for (const kernels::MatmulPath wanted : test::machine_matmul_paths()) {
    const char* const name = kMatmulPaths.name(wanted);
    const auto path =
        choose_matmul_path(posix_env(), pool, kernels::best_isa(), DType::kQ8_0, name, file_);
    ASSERT_TRUE(path.is_ok());
    EXPECT_STREQ(kMatmulPaths.name(*path), name);
  }
  EXPECT_FALSE(posix_env().exists(file_));
  const auto unknown =
      choose_matmul_path(posix_env(), pool, kernels::best_isa(), DType::kQ8_0, "fp8", file_);
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.status().message(), "--compute fp8: must be auto, f32, bf16 or int8");
  if (kernels::onednn_takes_bf16()) return;
  const auto absent =
      choose_matmul_path(posix_env(), pool, kernels::best_isa(), DType::kQ8_0, "bf16", file_);
  EXPECT_EQ(absent.status().code(), StatusCode::kUnsupported);
}

TEST_F(KeptMeasurements, AMeasuredComputePathIsTakenOverUnlessItIsNoPath) {
  test::TestPool pool(1);
  const auto choose = [&] {
    const auto path =
        choose_matmul_path(posix_env(), pool, kernels::Isa::kBaseline, DType::kQ8_0, "auto", file_);
    EXPECT_TRUE(path.is_ok());
    return std::string(kMatmulPaths.name(*path));
  };
  const std::string measured = choose();
  const std::string line = read_text(file_);
  ASSERT_TRUE(line.ends_with("\t" + measured + "\n")) << line;
  const std::string key = line.substr(0, line.find('\t'));
  for (const kernels::MatmulPath path : test::machine_matmul_paths()) {
    const std::string other = kMatmulPaths.name(path);
    write_text(file_, key + "\t" + other + "\n");
    EXPECT_EQ(choose(), other) << "whatever is kept is not measured again";
  }
  write_text(file_, key + "\tfp8\n");
  const std::string again = choose();
  EXPECT_EQ(read_text(file_), key + "\tfp8\n" + key + "\t" + again + "\n");
}

}  // namespace
}  // namespace weft::engine
