// Models in several files: found, joined, and refused with one line where the parts don't fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/env.h"
#include "base/narrow.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "support/files.h"

namespace weft::gguf {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// What a part says of itself; tensors are rows of 32 floats, all `value`.
struct PartSpec {
  int no = 0;
  int count = 3;
  int n_tensors = 4;
  std::vector<std::string> tensors;
  bool has_keys = true;
};

class SplitTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string part_path(int number, int count = 3) const {
    char name[64];
    std::snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number, count);
    return path(name);
  }

  static void write(const std::string& file, const PartSpec& spec, float value) {
    HeaderBuilder header;
    if (spec.no == 0) header.add_string("general.architecture", "llama");
    if (spec.has_keys) {
      header.add<uint16_t>("split.no", spec.no);
      header.add<uint16_t>("split.count", spec.count);
      header.add<int32_t>("split.tensors.count", spec.n_tensors);
    }
    for (const std::string& name : spec.tensors) {
      header.add_tensor(name, DType::kF32, std::array<int64_t, 1>{32});
    }
    auto writer = Writer::create(posix_env(), file, header);
    ASSERT_TRUE(writer.is_ok()) << writer.status().message();
    const std::vector<float> row(32, value);
    for (size_t i = 0; i < spec.tensors.size(); ++i) {
      ASSERT_TRUE(writer->append(std::as_bytes(std::span(row))).is_ok());
    }
    ASSERT_TRUE(writer->finish().is_ok());
  }

  /// Three parts with four tensors; the first has none, as gguf-split can write it.
  void write_all() {
    write(part_path(1), {.no = 0}, 1);
    write(part_path(2), {.no = 1, .tensors = {"a", "b"}}, 2);
    write(part_path(3), {.no = 2, .tensors = {"c", "d"}}, 3);
  }

  static std::string refusal(const std::string& file, StatusCode code = StatusCode::kCorrupt) {
    const auto opened = File::open(posix_env(), file);
    EXPECT_FALSE(opened.is_ok());
    EXPECT_EQ(opened.status().code(), code) << opened.status().message();
    EXPECT_THAT(opened.status().message(), Not(HasSubstr("\n")));
    return opened.status().message();
  }

  test::TempDir folder_;
};

TEST_F(SplitTest, OpensAllPartsAsOneFile) {
  write_all();
  const auto opened = File::open(posix_env(), part_path(1));
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const File& file = **opened;
  ASSERT_EQ(file.parts().size(), 3u);
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(*file.get_string("general.architecture"), "llama");
  uint64_t bytes = 0;
  for (size_t p = 0; p < 3; ++p) {
    EXPECT_EQ(file.parts()[p].path, part_path(narrow<int>(p) + 1));
    bytes += std::filesystem::file_size(file.parts()[p].path);
    EXPECT_GT(file.parts()[p].header.size(), 0u);
  }
  EXPECT_EQ(file.size_bytes(), bytes);
  for (const auto& [name, part] : {std::pair{"a", 1}, {"b", 1}, {"c", 2}, {"d", 2}}) {
    const TensorInfo* tensor = file.find_tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->part, part);
    EXPECT_EQ(*reinterpret_cast<const float*>(tensor->data), 1.0f * (part + 1));
  }
}

TEST_F(SplitTest, APathWithoutAFolderWorksToo) {
  write_all();
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  const auto opened = File::open(posix_env(), "m-00001-of-00003.gguf");
  std::filesystem::current_path(before);
  EXPECT_TRUE(opened.is_ok()) << opened.status().message();
}

TEST_F(SplitTest, AnotherPartThanTheFirstNamesTheFirst) {
  write_all();
  const std::string message = refusal(part_path(2), StatusCode::kInvalidArgument);
  EXPECT_THAT(message, HasSubstr("part 2 of 3"));
  EXPECT_THAT(message, HasSubstr(part_path(1)));
}

TEST_F(SplitTest, AMissingPartIsNamed) {
  write_all();
  ASSERT_TRUE(posix_env().remove(part_path(3)).is_ok());
  const std::string message = refusal(part_path(1), StatusCode::kNotFound);
  EXPECT_THAT(message, HasSubstr(part_path(3)));
  EXPECT_THAT(message, HasSubstr("part 3 of 3"));
}

TEST_F(SplitTest, ARenamedFirstPartSaysHowNamesMustBe) {
  write_all();
  ASSERT_TRUE(posix_env().rename(part_path(1), path("model.gguf")).is_ok());
  EXPECT_THAT(refusal(path("model.gguf")), HasSubstr("does not end with -00001-of-00003.gguf"));
  ASSERT_TRUE(posix_env().rename(path("model.gguf"), path("-00001-of-00003.gguf")).is_ok());
  EXPECT_THAT(refusal(path("-00001-of-00003.gguf")), HasSubstr("does not end with"));
}

TEST_F(SplitTest, PartsThatSayOtherwiseAreRefused) {
  const std::pair<PartSpec, const char*> wrong[] = {
      {{.no = 2, .tensors = {"a", "b"}}, "'split.no' is 2"},
      {{.no = 1, .count = 4, .tensors = {"a", "b"}}, "'split.count' is 4"},
      {{.no = 1, .n_tensors = 5, .tensors = {"a", "b"}}, "'split.tensors.count' is 5"},
      {{.no = 1, .tensors = {"a", "b"}, .has_keys = false}, "'split.no' is missing"},
      {{.no = 1, .tensors = {"a", "c"}}, "tensor 'c'"},
      {{.no = 1, .tensors = {"a"}}, "hold 3"},
  };
  for (const auto& [spec, what] : wrong) {
    SCOPED_TRACE(what);
    write_all();
    write(part_path(2), spec, 2);
    EXPECT_THAT(refusal(part_path(1), spec.has_keys ? StatusCode::kCorrupt : StatusCode::kNotFound),
                HasSubstr(what));
  }
}

TEST_F(SplitTest, AFirstPartThatIsWrongIsRefused) {
  write_all();
  write(part_path(1), {.no = 3}, 1);
  EXPECT_THAT(refusal(part_path(1)), HasSubstr("'split.no' is 3 of 3"));
  write(part_path(1), {.no = 0, .count = 60000}, 1);
  EXPECT_THAT(refusal(part_path(1)), HasSubstr("over the limit of 4096"));
  write(part_path(1), {.no = 0, .count = 2}, 1);
  EXPECT_THAT(refusal(part_path(1)), HasSubstr("-00001-of-00002.gguf"));
  write(path("one.gguf"), {.no = 0, .count = 1, .n_tensors = 0}, 1);
  EXPECT_TRUE(File::open(posix_env(), path("one.gguf")).is_ok());
}

TEST_F(SplitTest, APartThatIsNoGgufIsNamed) {
  write_all();
  auto file = posix_env().create(part_path(2));
  ASSERT_TRUE(file.is_ok());
  ASSERT_TRUE((*file)->append(std::as_bytes(std::span("rubbish", 7))).is_ok());
  const std::string message = refusal(part_path(1));
  EXPECT_THAT(message, HasSubstr(part_path(2)));
  EXPECT_THAT(message, HasSubstr("not a GGUF file"));
}

}  // namespace
}  // namespace weft::gguf
