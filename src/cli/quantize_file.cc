// A model may be larger than memory, so it goes through in batches of rows: read from the mapping,
// widened to floats, quantised, appended. A batch is what keeps every worker busy, some megabytes;
// rows are independent of each other, as a block of every type lies within one row. The bytes are
// the same for any number of threads. Where a matrix keeps its type, its bytes are copied.
#include "cli/quantize_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/narrow.h"
#include "cli/output_file.h"
#include "gguf/quantise.h"
#include "gguf/writer.h"
#include "kernels/dequantize.h"

namespace weft::cli {
namespace {

constexpr uint32_t kQuantizationVersion = 2;  // GGML's, since Q4_0's blocks changed in 2023
// A task's floats, or one row where that is longer; a batch is kTasksPerWorker tasks a worker.
constexpr int64_t kTaskElements = 64 << 10;
constexpr int64_t kTasksPerWorker = 8;
// Between two looks at Ctrl-C.
constexpr size_t kCopyBytes = 4u << 20;

/// Of a split file every part is read.
Status check_target(const gguf::File& in, const std::string& out) {
  std::vector<std::string> inputs;
  for (const gguf::FilePart& part : in.parts()) inputs.push_back(part.path);
  return refuse_inputs(out, inputs);
}

/// The metadata, updated, and the tensor table.
/// The order of tensors and metadata stays, so a diff of `weft inspect` shows what changed. A split
/// file becomes one, so the keys that number its parts go, and the alignment is the builder's to
/// write.
gguf::HeaderBuilder new_header(const gguf::File& in, const gguf::Recipe& recipe,
                               std::span<const gguf::TensorPlan> plans) {
  constexpr std::string_view kFileType = "general.file_type";
  constexpr std::string_view kVersion = "general.quantization_version";
  gguf::HeaderBuilder header(narrow<uint32_t>(in.alignment()));
  for (const auto& [key, value] : in.metadata()) {
    if (key == "general.alignment" || key.starts_with("split.")) continue;
    if (key == kFileType || key == kVersion) continue;
    header.add_value(key, value);
  }
  header.add<uint32_t>(kVersion, kQuantizationVersion);
  header.add<uint32_t>(kFileType, recipe.file_type);
  for (size_t i = 0; i < plans.size(); ++i) {
    const gguf::TensorInfo& tensor = in.tensors()[i];
    // A scalar has no dimension in the table of some files; it is written as one of size 1.
    const int n_dims = std::max(tensor.n_dims, 1);
    header.add_tensor(tensor.name, plans[i].dtype, std::span(tensor.dims).first(n_dims));
  }
  return header;
}

/// Converts tensors one after another.
/// `floats_` and `out_` grow to the largest batch once and stay.
class Converter {
 public:
  Converter(const gguf::File& in, ThreadPool& pool, kernels::Isa isa, gguf::Writer& writer,
            FunctionRef<bool(int64_t, int64_t)> progress)
      : in_(in),
        pool_(pool),
        isa_(isa),
        writer_(writer),
        progress_(progress),
        floats_(pool.size()) {
    for (const gguf::TensorInfo& tensor : in.tensors()) total_ += tensor.size_bytes;
  }

  Status copy(const gguf::TensorInfo& tensor) {
    std::span<const std::byte> left(tensor.data, tensor.size_bytes);
    while (!left.empty()) {
      const size_t n = std::min(left.size(), kCopyBytes);
      WEFT_RETURN_IF_ERROR(writer_.append(left.first(n)));
      WEFT_RETURN_IF_ERROR(advance(n));
      left = left.subspan(n);
    }
    return Status::ok();
  }

  /// Whole rows of `tensor`, as a block may not span two. A task is about kTaskElements floats, or
  /// one row where that is longer; each worker widens into floats of its own, and writes to its
  /// rows' place in `out_`, so the order of the tasks does not matter.
  Status convert(const gguf::TensorInfo& tensor, DType to) {
    const int64_t row = tensor.dims[0];
    const int64_t rows_per_task = std::max<int64_t>(1, kTaskElements / row);
    const int64_t rows_per_batch = rows_per_task * kTasksPerWorker * pool_.size();
    const int64_t in_bytes = row_bytes(tensor.dtype, row), out_bytes = row_bytes(to, row);
    for (int64_t begin = 0; begin < tensor.n_rows(); begin += rows_per_batch) {
      const int64_t rows = std::min(rows_per_batch, tensor.n_rows() - begin);
      out_.resize(std::max(std::ssize(out_), rows * out_bytes));
      std::atomic<bool> good = true;
      pool_.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int worker) {
        const int64_t first = task * rows_per_task;
        const int64_t n = std::min(rows_per_task, rows - first) * row;
        std::vector<float>& floats = floats_[worker];
        floats.resize(std::max(std::ssize(floats), n));
        kernels::dequantize(isa_, tensor.dtype, tensor.data + (begin + first) * in_bytes,
                            floats.data(), n);
        const auto values = std::span<const float>(floats).first(n);
        if (!are_quantisable(values, to)) {
          good = false;
          return;
        }
        gguf::quantise(to, values, out_.data() + first * out_bytes);
      });
      if (!good) return bad_weights(tensor, to);
      WEFT_RETURN_IF_ERROR(writer_.append(std::span(out_).first(rows * out_bytes)));
      WEFT_RETURN_IF_ERROR(advance(rows * in_bytes));
    }
    return Status::ok();
  }

 private:
  /// Types of blocks have half floats as scales, F16 is one: what is larger would become infinite.
  static float limit(DType to) {
    return to == DType::kF32 || to == DType::kBF16 ? std::numeric_limits<float>::max()
                                                   : gguf::kLargestQuantisable;
  }

  /// Looked at as floats, which is where a NaN of any source type shows.
  static bool are_quantisable(std::span<const float> values, DType to) {
    const float most = limit(to);
    bool good = true;
    for (const float value : values) good = good && std::abs(value) <= most;  // false for NaN
    return good;
  }

  /// Names the part of a split file that the tensor is in.
  Status bad_weights(const gguf::TensorInfo& tensor, DType to) const {
    return corrupt(
        fmt::format("{}: tensor '{}' holds a weight that is not finite or over {}, the "
                    "limit of {}",
                    in_.parts()[tensor.part].path, gguf::printable(tensor.name), limit(to),
                    dtype_info(to).name));
  }

  /// Counts bytes read: what is written differs by tensor and would make the bar go by fits.
  Status advance(int64_t bytes) {
    done_ += bytes;
    return progress_(done_, total_) ? Status::ok() : cancelled("interrupted; nothing was written");
  }

  const gguf::File& in_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  gguf::Writer& writer_;
  FunctionRef<bool(int64_t, int64_t)> progress_;
  std::vector<std::vector<float>> floats_;  // a worker's
  std::vector<std::byte> out_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

Result<QuantizeReport> quantize_file(Env& env, const gguf::File& in, const std::string& out,
                                     const gguf::Recipe& recipe, ThreadPool& pool, kernels::Isa isa,
                                     FunctionRef<bool(int64_t done, int64_t total)> progress) {
  WEFT_RETURN_IF_ERROR(check_target(in, out));
  WEFT_ASSIGN_OR_RETURN(const std::vector<gguf::TensorPlan> plans, plan_tensors(in, recipe));
  const gguf::HeaderBuilder header = new_header(in, recipe, plans);
  WEFT_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::create(env, out, header));
  Converter converter(in, pool, isa, writer, progress);
  QuantizeReport report;
  for (size_t i = 0; i < plans.size(); ++i) {
    const gguf::TensorInfo& tensor = in.tensors()[i];
    report.tensors += 1;
    report.fell_back += plans[i].fell_back ? 1 : 0;
    if (plans[i].dtype == tensor.dtype) {
      WEFT_RETURN_IF_ERROR(converter.copy(tensor));
      continue;
    }
    report.quantised += 1;
    report.requantised += is_quantised(tensor.dtype) ? 1 : 0;
    WEFT_RETURN_IF_ERROR(converter.convert(tensor, plans[i].dtype));
  }
  WEFT_RETURN_IF_ERROR(writer.finish());
  report.bytes_in = in.size_bytes();
  WEFT_ASSIGN_OR_RETURN(const DirEntry written, env.stat(out));
  report.bytes_out = written.size_bytes;
  return report;
}

}  // namespace weft::cli
