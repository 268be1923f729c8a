// scratch: paired least times of two decode paths
#include <fmt/format.h>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>
#include "base/test_pool_internal.h"
#include "kernels/matmul_decode.h"
#include "kernels/test_weights_internal.h"
namespace weft::kernels { extern int g_decode_path; }
using namespace weft::kernels;
using namespace weft;
int main(int argc, char** argv) {
  const char* types = argc > 1 ? argv[1] : "Q4_0,Q4_1,Q8_0,Q6_K,Q4_K";
  const char* only = argc > 2 ? argv[2] : "";
  const int reps = argc > 3 ? std::atoi(argv[3]) : 12;
  struct S { const char* name; int64_t out, in, copies; };
  // copies: matrices streamed one after another, so that every pass reads memory
  const S shapes[] = {{"cached 256x2048", 256, 2048, 1}, {"8192x2048", 8192, 2048, 4}, {"2048x8192", 2048, 8192, 4},
                      {"576x576", 576, 576, 1}, {"1536x576x60", 1536, 576, 60}, {"576x1536x60", 576, 1536, 60}, {"head 49152x576", 49152, 576, 1}, {"head 128256x2048", 128256, 2048, 1}};
  const Isa set = std::getenv("WEFT_BENCH_ISA") ? *parse_isa(std::getenv("WEFT_BENCH_ISA")) : best_isa();
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(16 * 8192);
  for (float& v : x) v = normal(random);
  if (!std::getenv("NOOUT")) for (size_t i = 0; i < x.size(); i += 1) if (i % 397 == 5) x[i] *= 8;  // outlier channels differ by row
  for (auto dtype : kAllTypes) {
    const std::string name(dtype_info(dtype).name);
    if (("," + std::string(types) + ",").find("," + name + ",") == std::string::npos) continue;
    for (const S& s : shapes) {
      if (std::string(s.name).find(only) == std::string::npos) continue;
      if (s.in % dtype_info(dtype).block_elements) continue;
      const int64_t bytes = s.out * row_bytes(dtype, s.in);
      std::vector<uint8_t> chunk = random_weights(random, dtype, 1, 1 << 16);
      std::vector<uint8_t> w(static_cast<size_t>(bytes * s.copies));
      for (size_t at = 0; at < w.size(); at += chunk.size()) std::copy_n(chunk.data(), std::min(chunk.size(), w.size() - at), w.data() + at);
      std::vector<float> y(static_cast<size_t>(16 * s.out));
      TestPool pool(1);
      const Context context{pool, set, MatmulPath::kInt8};
      for (int64_t rows : {1, 2, 4, 8, 16}) { if (std::getenv("ROWS") && std::atoi(std::getenv("ROWS")) != rows) continue;
        double best[2] = {1e9, 1e9};
        if (s.copies == 1 && bytes < (1 << 20)) {  // do one row's and many rows' bits agree?
          std::vector<float> a(y.size()), b(y.size());
          g_decode_path = 1;
          const WeightMatrix m{w.data(), dtype, s.out - 1, s.in};
          const MatmulOutput o{&m, a.data(), s.out};
          matmul_decode(context, x.data(), 8192, rows, {&o, 1});
          size_t bad = 0; double diff = 0;
          for (int64_t r = 0; r < rows; ++r) {
            const MatmulOutput q{&m, b.data(), s.out};
            matmul_decode(context, x.data() + r * 8192, 8192, 1, {&q, 1});
            for (int64_t i = 0; i < s.out - 1; ++i) bad += a[r * s.out + i] != b[i];
            g_decode_path = 0;
            std::vector<float> c(y.size());
            const MatmulOutput q2{&m, c.data(), s.out};
            matmul_decode(context, x.data() + r * 8192, 8192, 1, {&q2, 1});
            for (int64_t i = 0; i < s.out - 1; ++i) diff = std::max(diff, double(std::abs(c[i] - b[i]) / (1e-3 + std::abs(c[i]))));
            g_decode_path = 1;
          }
          if (bad || diff > 1e-2) fmt::print("{} rows {}: {} BAD, diff {}\n", name, rows, bad, diff);
        }
        const int inner = s.copies == 1 && bytes < (4 << 20) ? 20 : 1;
        for (int rep = 0; rep < reps; ++rep) {
          for (int p = std::getenv("NEW") ? 1 : 0; p < 2; ++p) {
            g_decode_path = p;
            auto t0 = std::chrono::steady_clock::now();
            for (int k = 0; k < inner; ++k)
            for (int64_t c = 0; c < s.copies; ++c) {
              const WeightMatrix m{w.data() + c * bytes, dtype, s.out, s.in};
              const MatmulOutput o{&m, y.data(), s.out};
              matmul_decode(context, x.data(), 8192, rows, {&o, 1});
            }
            const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count() / inner / s.copies;
            best[p] = std::min(best[p], t);
          }
        }
        fmt::print("{:5} {:18} rows {:2}: old {:9.1f} us ({:5.1f} GB/s)  new {:9.1f} us ({:5.1f} GB/s)  old/new {:.2f}\n", name, s.name, rows, best[0] * 1e6,
                   bytes / best[0] * 1e-9, best[1] * 1e6, bytes / best[1] * 1e-9, best[0] / best[1]);
      }
    }
  }
}
