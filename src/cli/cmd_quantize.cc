// weft quantize: a GGUF with its matrices in another type.
// Says what a user should know of the result beside its size: that it grew (Q8_0 of a Q4_0 file),
// that tensors got another type than the one named (their rows are no whole blocks), and that a
// file was quantised before, so that its rounding adds to an earlier one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/counts_text.h"
#include "cli/app.h"
#include "cli/local_models.h"
#include "cli/quantize_file.h"
#include "gguf/recipe.h"

namespace weft::cli {
namespace {

struct QuantizeFlags {
  std::string in;
  std::string out;
  std::string type;
  int threads = 0;
  bool json = false;
};

Status run_quantize(App& app, const QuantizeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const gguf::Recipe recipe, gguf::find_recipe(flags.type));
  WEFT_ASSIGN_OR_RETURN(const std::string path, resolve_model(app.env, flags.in, app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const auto in, gguf::File::open(app.env, path));
  // tokenize takes such a file, so somebody has one.
  if (in->tensors().empty()) {
    return unsupported(path + ": a vocabulary without weights; there is nothing to quantise");
  }
  WEFT_ASSIGN_OR_RETURN(const auto pool,
                        ThreadPool::create(flags.threads == 0 ? usable_cores() : flags.threads));
  const int64_t begin_ns = app.env.monotonic_ns();
  auto progress = std::make_unique<Progress>("quantize");
  constexpr int64_t kMB = 1'000'000;
  WEFT_ASSIGN_OR_RETURN(const QuantizeReport report,
                        quantize_file(app.env, *in, flags.out, recipe, *pool, kernels::best_isa(),
                                      [&](int64_t done, int64_t total) {
                                        progress->show(done / kMB, total / kMB, "MB");
                                        return !interrupted();
                                      }));
  progress.reset();
  const double seconds = (app.env.monotonic_ns() - begin_ns) * 1e-9;
  if (flags.json) {
    print_json({{"type", std::string(recipe.name)},
                {"tensors", report.tensors},
                {"quantised", report.quantised},
                {"fell_back", report.fell_back},
                {"requantised", report.requantised},
                {"bytes_in", report.bytes_in},
                {"bytes_out", report.bytes_out},
                {"seconds", seconds}});
    return Status::ok();
  }
  fmt::print("{}: {}, {} of {} tensors converted, {:.1f} MB from {:.1f} MB in {:.1f} s\n",
             flags.out, recipe.name, report.quantised, report.tensors, 1.0 * report.bytes_out / kMB,
             1.0 * report.bytes_in / kMB, seconds);
  if (report.bytes_out > report.bytes_in) {
    fmt::print("the result is larger than its source: {} takes more bits than most of it had\n",
               recipe.name);
  }
  if (report.fell_back > 0) {
    fmt::print("{} got a larger type, as {} rows are not whole blocks of the one named\n",
               counted(report.fell_back, "tensor"), report.fell_back == 1 ? "its" : "their");
  }
  if (report.requantised > 0) {
    fmt::print("{} {} quantised before: the result would be better from the F16 or F32 model\n",
               counted(report.requantised, "tensor"), report.requantised == 1 ? "was" : "were");
  }
  return Status::ok();
}

}  // namespace

void add_quantize_command(Command root, App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  Command command = root.add_command("quantize", "Write a GGUF in another type");
  command
      .add_option(
          "in", flags->in,
          "the GGUF to read, or the name of a fetched model; of a split one, the first part")
      .value_name("MODEL")
      .required();
  command.add_option("out", flags->out, "the GGUF to write").required();
  command.add_option("type", flags->type, "the matrices' type")
      .value_name(fmt::format("{}", fmt::join(gguf::recipe_names(), "|")))
      .required();
  command.add_option("-t,--threads", flags->threads, "worker threads (default: all cores)")
      .in_range(1, engine::kMaxThreads);
  command.add_flag("--json", flags->json, "print a summary as JSON");
  add_verbose_flag(command);
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_quantize(app, *flags); }; });
}

}  // namespace weft::cli
