#include "sparse/channel_meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/kv_codec.h"

namespace weft::sparse {

ChannelMeter::ChannelMeter(int32_t n_layers, int32_t n_kv_heads, int32_t head_dim)
    : n_kv_heads_(n_kv_heads),
      head_dim_(head_dim),
      q_(int64_t{n_layers} * n_kv_heads * head_dim),
      k_(q_.size()) {}

std::span<const std::span<const kernels::HeadPages>> ChannelMeter::select(
    const kernels::Context& context, const kv::SelectingLayer& layer) {
  const int32_t group = layer.n_heads / n_kv_heads_;
  const kernels::PagedKv kv = layer.cache.layer(layer.layer);
  std::vector<float> k(head_dim_);
  for (const kv::SelectingRow& row : layer.rows) {
    for (int32_t head = 0; head < layer.n_heads; ++head) {
      const int64_t at = (int64_t{layer.layer} * n_kv_heads_ + head / group) * head_dim_;
      const float* const q = row.q + int64_t{head} * head_dim_;
      for (int32_t d = 0; d < head_dim_; ++d) q_[at + d] += std::abs(q[d]);
      if (head % group != 0) continue;
      const uint8_t* const from = kernels::k_at(kv, row.block_table.data(), row.slot, head / group);
      kernels::decode_kv(context.isa, kv.layout.k_type, reinterpret_cast<const std::byte*>(from),
                         k);
      for (int32_t d = 0; d < head_dim_; ++d) k_[at + d] += std::abs(k[d]);
    }
  }
  dense_.assign(layer.rows.size(), {});
  return dense_;
}

std::vector<uint8_t> ChannelMeter::channels() const {
  WEFT_CHECK(kernels::kLabelChannels <= head_dim_);
  std::vector<uint8_t> channels;
  std::vector<int32_t> heaviest(head_dim_);
  for (int64_t begin = 0; begin < std::ssize(q_); begin += head_dim_) {
    std::iota(heaviest.begin(), heaviest.end(), 0);
    std::ranges::stable_sort(heaviest, std::greater<>(), [&](int32_t d) {
      const double weight = q_[begin + d] * k_[begin + d];
      return std::isnan(weight) ? 0.0 : weight;
    });
    std::sort(heaviest.begin(), heaviest.begin() + kernels::kLabelChannels);
    for (int32_t i = 0; i < kernels::kLabelChannels; ++i) {
      channels.push_back(narrow<uint8_t>(heaviest[i]));
    }
  }
  return channels;
}

}  // namespace weft::sparse
