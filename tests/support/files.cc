#include "support/files.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"

namespace weft::test {
namespace {

std::string memory_folder() {
  const char* in_memory = "/dev/shm";
  return ::access(in_memory, W_OK) == 0 ? in_memory
                                        : std::filesystem::temp_directory_path().string();
}

}  // namespace

TempDir::TempDir() : TempDir(std::filesystem::temp_directory_path().string()) {}

TempDir::TempDir(const std::string& parent) {
  std::string name = (std::filesystem::path(parent) / "weft-test-XXXXXX").string();
  WEFT_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = std::filesystem::canonical(name).string();
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TempDir::write(const std::string& name, std::string_view bytes) const {
  const std::filesystem::path path = *this / name;
  std::filesystem::create_directories(path.parent_path());
  write_text(path.string(), bytes);
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) - std::chrono::hours(1));
}

MemoryTempDir::MemoryTempDir() : TempDir(memory_folder()) {}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace weft::test
