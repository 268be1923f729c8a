#include "base/mapped_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "support/files.h"

namespace weft {
namespace {

/// A file of three pages that is gone when the test is.
class MappedGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    auto file = posix_env().create(path_);
    ASSERT_TRUE(file.is_ok());
    const std::vector<std::byte> bytes(3 * static_cast<size_t>(::getpagesize()), std::byte{7});
    ASSERT_TRUE((*file)->append(bytes).is_ok());
    ASSERT_TRUE((*file)->close().is_ok());
  }

  /// Reads the last byte of a mapping whose file became empty.
  void read_after_truncation() {
    // Others come and go, so that a range which was released is taken again.
    { const auto other = posix_env().map(path_); }
    const auto kept = posix_env().map(path_);
    const auto file = posix_env().map(path_);
    if (::truncate(path_.c_str(), 0) != 0) std::abort();
    const volatile std::byte last = (*file)->bytes().back();
    static_cast<void>(last);
  }

  test::TempDir folder_;
  std::string path_ = folder_ / "mapped";
};

TEST_F(MappedGuardTest, AFileThatShrinksEndsTheProcessWithOneLineNamingIt) {
  EXPECT_EXIT(read_after_truncation(), ::testing::ExitedWithCode(1),
              "^weft: [^\n]*/mapped: cannot be read any more[^\n]*\n$");
}

TEST_F(MappedGuardTest, AnotherSigbusIsLeftToThePreviousHandler) {
  const auto read_unguarded = [&] {
    { const auto guarded_once = posix_env().map(path_); }
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    void* address = ::mmap(nullptr, 100, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (::truncate(path_.c_str(), 0) != 0) std::abort();
    const volatile char first = *static_cast<char*>(address);
    static_cast<void>(first);
    std::_Exit(0);
  };
  // Killed by the signal, or ended by a sanitizer's handler; never with our line.
  EXPECT_DEATH(read_unguarded(), "^$|Sanitizer");
}

}  // namespace
}  // namespace weft
