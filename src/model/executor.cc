// Layer by layer through advance(), so that the scheduler may run one layer of a long prompt's
// pass, then a whole decode step of others, then the next layer: nobody waits for a whole prefill.
// Nothing is committed before the last layer has run. A pass that is dropped on its way drops its
// reservations with it, and the cache is as it was.
#include "model/executor.h"

#include <numeric>

namespace weft::model {

Result<int64_t> Executor::advance(Pass& pass) {
  WEFT_ASSIGN_OR_RETURN(const std::optional<LayerRun> run, pass.next());
  if (!run) {
    pass.finish();
    if (pass.leaves_open_) return 0;
    for (kv::Reservation& reservation : pass.reservations_) reservation.commit();
    pass.reservations_.clear();
    if (forward_.on_commit()) forward_.on_commit()();
    return 0;
  }
  const int64_t n_rows = run->batch->n_rows();
  switch (run->part) {
    case LayerRun::Part::kWhole:
      forward_.run_layer(*run->batch, run->layer, run->hooks);
      break;
    case LayerRun::Part::kLast:
      forward_.run_last_layer(*run->batch, run->wanted, run->hooks);
      break;
    // The last layer that query-attention looks at: nothing follows, so the feed-forward
    // network is left out.
    case LayerRun::Part::kLook:
      forward_.look(*run->batch, run->layer, run->hooks.received);
      break;
  }
  return n_rows;
}

Status Executor::run(Pass& pass, const Cancelled* cancelled) {
  for (;;) {
    if (cancelled != nullptr && (*cancelled)()) return weft::cancelled("stopped");
    WEFT_ASSIGN_OR_RETURN(const int64_t n_rows, advance(pass));
    if (n_rows == 0) return Status::ok();
  }
}

// The batch is made at the first call, not by the constructor: it can fail.
Result<std::optional<LayerRun>> RowsPass::next() {
  if (!batch_) {
    WEFT_ASSIGN_OR_RETURN(batch_, forward_.start(cache_, std::move(rows_)));
  }
  const int32_t n_layers = forward_.model().config().n_layers;
  const bool all = options_.layers.empty();
  if (next_ == (all ? n_layers : std::ssize(options_.layers))) return std::optional<LayerRun>();
  const int32_t layer = all ? next_ : options_.layers[next_];
  ++next_;
  LayerRun run{.batch = &*batch_, .layer = layer, .hooks = {.kv_sink = options_.kv_sink}};
  if (layer + 1 == n_layers && !options_.keep_all_rows) {
    run.part = LayerRun::Part::kLast;
    run.wanted = options_.wanted;
  }
  return std::optional(run);
}

void RowsPass::finish() {
  if (options_.wanted.empty()) return;
  std::vector<int64_t> rows = options_.wanted;
  // Only the wanted rows are left in the batch then, in order.
  if (!options_.keep_all_rows) std::iota(rows.begin(), rows.end(), 0);
  const int64_t n_vocab = forward_.model().config().vocab_size;
  logits_.resize(rows.size() * n_vocab);
  forward_.logits(*batch_, rows, {logits_, n_vocab});
}

}  // namespace weft::model
