// weft-random-model: writes a llama-architecture GGUF with random weights, to measure speed and to
// test with. See gguf/random_model.h.
#include "gguf/random_model.h"

#include <CLI/CLI.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  weft::gguf::RandomLlamaOptions o;
  std::string path;
  bool untied = false;
  CLI::App app("Writes a GGUF of the llama architecture with random weights.");
  app.add_option("file", path, "file to write")->required();
  app.add_option_function<std::string>(
         "--shape",
         [&](const std::string& name) {
           if (name == "1b") {
             o = {16, 2048, 8192, 32, 8, 64, 128256, true, 131072, 500000.0f};
           } else {
             o = {30, 576, 1536, 9, 3, 64, 49152, true, 8192, 100000.0f};
           }
         },
         "a known model's shape; the options below change parts of it")
      ->check(CLI::IsMember({"1b", "smol"}))
      ->trigger_on_parse();
  app.add_option("--recipe", o.recipe,
                 "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K_M, Q5_K_M or Q6_K");
  app.add_option("--layers", o.n_layers, "layers");
  app.add_option("--embd", o.n_embd, "width");
  app.add_option("--ff", o.n_ff, "width of the feed-forward part");
  app.add_option("--heads", o.n_heads, "query heads");
  app.add_option("--kv-heads", o.n_kv_heads, "key and value heads");
  app.add_option("--head-dim", o.head_dim, "elements of a head");
  app.add_option("--vocab", o.vocab, "tokens");
  app.add_option("--context", o.context_length, "context length");
  app.add_option("--rope-base", o.rope_base, "RoPE's frequency base");
  app.add_option("--rope-linear", o.rope_linear_factor, "linear RoPE scaling factor");
  app.add_flag("--untied", untied, "a separate output matrix");
  app.add_option("--seed", o.seed, "seed of the weights");
  CLI11_PARSE(app, argc, argv);
  o.tied = !untied;
  const weft::Status status = weft::gguf::write_random_llama(weft::posix_env(), path, o);
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "weft-random-model: %s\n", status.message().c_str());
  return 1;
}
