// A model opened straight from its file, with cache and kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fusion/fusor.h"
#include "gguf/random_model.h"
#include "model/forward.h"
#include "support/files.h"
#include "support/numbers.h"
#include "support/skip.h"
#include "support/test_pool.h"

namespace weft::test {

struct ModelSetup {
  int n_threads = 2;
  kernels::Isa isa = kernels::best_isa();
  kernels::MatmulPath matmul_path = kernels::MatmulPath::kF32;
  int page_tokens = 16;
  int32_t capacity_tokens = 4096;
  int32_t context_tokens = 0;  // 0: the default for the model
  kernels::KvTypes kv_types;
  int32_t rolling_tokens = 0;  // that layers with a window have pages for; 0: no window rolls
};

class TestModel {
 public:
  explicit TestModel(const std::string& path, ModelSetup setup = {})
      : pool_(setup.n_threads), context_{pool_, setup.isa, setup.matmul_path} {
    auto file = gguf::File::open(posix_env(), path);
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    auto opened = model::Model::open(*file, setup.context_tokens);
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    model_ = *opened;
    const model::ModelConfig& config = model_->config();
    std::vector<kv::RollingWindow> windows;
    for (const int32_t window : config.group_windows()) {
      windows.push_back({.window_tokens = window, .capacity_tokens = setup.rolling_tokens});
    }
    if (setup.rolling_tokens == 0) windows.clear();
    auto cache = kv::Cache::create({.n_layers = config.n_layers,
                                    .layer_groups = config.layer_groups(),
                                    .layout = config.kv_layout(setup.kv_types, setup.page_tokens),
                                    .capacity_tokens = setup.capacity_tokens,
                                    .windows = windows});
    EXPECT_TRUE(cache.is_ok()) << cache.status().message();
    cache_ = std::move(*cache);
    forward_ = std::make_unique<model::ForwardPass>(*model_, context_);
  }

  const model::Model& model() const { return *model_; }
  kv::Cache& cache() { return *cache_; }
  model::ForwardPass& forward() { return *forward_; }
  const kernels::Context& context() const { return context_; }
  int32_t n_vocab() const { return model_->config().vocab_size; }

  /// Runs tokens after what the sequence holds; logits of every row, one after another.
  std::vector<float> run(kv::SequenceId sequence, std::span<const int32_t> tokens,
                         model::RowKind kind = model::RowKind::kPrompt) {
    const int32_t begin = cache_->length(sequence);
    auto reservation = cache_->reserve(sequence, static_cast<int32_t>(tokens.size()));
    EXPECT_TRUE(reservation.is_ok()) << reservation.status().message();
    std::vector<float> logits = run_rows(model::Rows::of(sequence, tokens, begin, kind));
    reservation->commit();
    return logits;
  }

  /// All layers over rows whose positions are reserved; logits of every row.
  std::vector<float> run_rows(model::Rows rows) {
    std::vector<int64_t> all(static_cast<size_t>(rows.size()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    return run_rows(std::move(rows), all);
  }

  /// The same; logits of the listed rows.
  std::vector<float> run_rows(model::Rows rows, std::span<const int64_t> wanted) {
    auto batch = forward_->start(*cache_, std::move(rows));
    EXPECT_TRUE(batch.is_ok()) << batch.status().message();
    for (int32_t l = 0; l < model_->config().n_layers; ++l) forward_->run_layer(*batch, l);
    std::vector<float> logits(wanted.size() * n_vocab());
    forward_->logits(*batch, wanted, {logits, n_vocab()});
    return logits;
  }

  std::vector<float> prefill_logits(std::span<const int32_t> tokens) {
    const kv::SequenceId sequence = cache_->create_sequence();
    std::vector<float> logits = run(sequence, tokens);
    cache_->free_sequence(sequence);
    return logits;
  }

  /// The next n greedy tokens of a sequence whose last row gave `logits`.
  std::vector<int32_t> greedy(kv::SequenceId sequence, std::vector<float> logits, int n) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < n; ++i) {
      const auto best = std::max_element(logits.end() - n_vocab(), logits.end());
      tokens.push_back(static_cast<int32_t>(best - (logits.end() - n_vocab())));
      logits = run(sequence, std::span(tokens).last(1), model::RowKind::kDecode);
    }
    return tokens;
  }

  std::unique_ptr<fusion::Fusor> fusor(store::ChunkStore* store, std::vector<int32_t> anchor,
                                       DType record_type = fusion::kUsualRecordType) {
    fusion::KeyScope scope;
    scope.model_fingerprint = model_->fingerprint();
    scope.ropes = model_->config().ropes;
    scope.anchor = std::move(anchor);
    scope.record_type = record_type;
    return std::make_unique<fusion::Fusor>(*forward_, *cache_, context_, posix_env(), store,
                                           std::move(scope));
  }

 private:
  TestPool pool_;
  kernels::Context context_;
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<kv::Cache> cache_;
  std::unique_ptr<model::ForwardPass> forward_;
};

}  // namespace weft::test
