// Joins the parts of a split GGUF: files beside each other whose names end with their number and
// how many there are, as llama.cpp's gguf-split writes them. Each part is a whole GGUF with a
// header of its own (parsed and checked alone, parser.cc), the tensors' offsets count in their own
// part, and the first part has the model's metadata. Numbers in names count from 1, split.no counts
// from 0.
//
// The other parts are found by the name alone, never by a path that a file contains: a part could
// otherwise name any file on the machine. Every part repeats its number, the number of parts and
// the number of tensors, so a part of another model, or one that was renamed, is noticed by its
// keys before a weight of it is used.
#include <fmt/format.h>

#include "gguf/gguf.h"

namespace weft::gguf {
namespace {

/// "-00002-of-00007.gguf"
std::string part_ending(uint64_t number, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

/// The last component.
std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

}  // namespace

/// What is wrong in the first part is said of the first part, before any other file is opened: a
/// part opened by itself (-00002-of-00003) names the one to open. A name that is nothing but the
/// ending has no model's name before it and is refused like a wrong ending.
Status File::add_parts(Env& env, uint64_t count) {
  if (count > kMaxParts) {
    return corrupt(
        fmt::format("{}: key 'split.count' is {}, over the limit of {}", path_, count, kMaxParts));
  }
  WEFT_ASSIGN_OR_RETURN(const uint64_t index, get_uint("split.no"));
  WEFT_ASSIGN_OR_RETURN(const uint64_t n_tensors, get_uint("split.tensors.count"));
  if (index >= count) {
    return corrupt(fmt::format("{}: key 'split.no' is {} of {} parts", path_, index, count));
  }
  const std::string ending = part_ending(index + 1, count);
  if (!path_.ends_with(ending) || file_name(path_).size() == ending.size()) {
    return corrupt(
        fmt::format("{}: is part {} of {}, but its name does not end with {}: the other "
                    "parts are found by their names",
                    path_, index + 1, count, ending));
  }
  const std::string prefix = path_.substr(0, path_.size() - ending.size());
  if (index != 0) {
    return invalid_argument(fmt::format("{}: is part {} of {}; open the first, {}", path_,
                                        index + 1, count, prefix + part_ending(1, count)));
  }
  for (uint64_t number = 2; number <= count; ++number) {
    auto part = map(env, prefix + part_ending(number, count));
    if (!part.is_ok()) {
      return {part.status().code(),
              fmt::format("{} (part {} of {})", part.status().message(), number, count)};
    }
    WEFT_RETURN_IF_ERROR(add_part(**part, number, count, n_tensors));
  }
  if (tensors_.size() != n_tensors) {
    return corrupt(fmt::format("{}: key 'split.tensors.count' is {}, but the {} parts hold {}",
                               path_, n_tensors, count, tensors_.size()));
  }
  return Status::ok();
}

/// Moves the part's mapping and tensors here. The tensors' names and data point into that mapping,
/// so they stay good while the part's own File goes.
Status File::add_part(File& part, uint64_t number, uint64_t count, uint64_t n_tensors) {
  const auto expect = [&part](std::string_view key, uint64_t wanted) -> Status {
    WEFT_ASSIGN_OR_RETURN(const uint64_t found, part.get_uint(key));
    if (found == wanted) return Status::ok();
    return corrupt(fmt::format("{}: key '{}' is {}, but by the first part and its name it is {}",
                               part.path_, key, found, wanted));
  };
  WEFT_RETURN_IF_ERROR(expect("split.no", number - 1));
  WEFT_RETURN_IF_ERROR(expect("split.count", count));
  WEFT_RETURN_IF_ERROR(expect("split.tensors.count", n_tensors));
  // The limit is the model's: kMaxParts files of kMaxTensors each would be 2^29 tensors.
  if (tensors_.size() + part.tensors_.size() > kMaxTensors) {
    return corrupt(
        fmt::format("{}: the parts hold more tensors than the limit of {}", path_, kMaxTensors));
  }
  for (TensorInfo& tensor : part.tensors_) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return corrupt(fmt::format("{}: tensor '{}': an earlier part has one of that name",
                                 part.path_, printable(tensor.name)));
    }
    tensor.part = parts_.size();
    tensors_.push_back(tensor);
  }
  parts_.push_back(std::move(part.parts_.front()));
  mappings_.push_back(std::move(part.mappings_.front()));
  return Status::ok();
}

}  // namespace weft::gguf
