// weft-random-model: writes a GGUF with random weights, to measure speed and to test with: of the
// llama architecture in any shape, or a case that the tests compare with other programs. See
// gguf/random_model.h and tests/support/architecture_cases.h.
#include "gguf/random_model.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "support/architecture_cases.h"

int main(int argc, char** argv) {
  weft::gguf::RandomModelOptions o;
  std::string path;
  bool untied = false;
  bool list_cases = false;
  CLI::App app("Writes a GGUF with random weights.");
  app.add_option("file", path, "file to write");
  app.add_option_function<std::string>(
         "--shape",
         [&](const std::string& name) {
           if (name == "1b") {
             o = {.n_layers = 16,
                  .n_embd = 2048,
                  .n_ff = 8192,
                  .n_heads = 32,
                  .n_kv_heads = 8,
                  .head_dim = 64,
                  .vocab = 128256,
                  .context_length = 131072,
                  .rope_base = 500000.0f};
           } else if (name == "7b-layers") {
             // Llama 2 7B's layers, eight of them, and a small vocabulary: what a layer costs,
             // without 13 GB of weights.
             o = {.n_layers = 8,
                  .n_embd = 4096,
                  .n_ff = 11008,
                  .n_heads = 32,
                  .n_kv_heads = 32,
                  .head_dim = 128,
                  .vocab = 4096,
                  .context_length = 131072,
                  .rope_base = 10000.0f};
           } else {
             o = {.n_layers = 30,
                  .n_embd = 576,
                  .n_ff = 1536,
                  .n_heads = 9,
                  .n_kv_heads = 3,
                  .head_dim = 64,
                  .vocab = 49152,
                  .context_length = 8192,
                  .rope_base = 100000.0f};
           }
         },
         "a known model's shape; the options below change parts of it")
      ->check(CLI::IsMember({"1b", "7b-layers", "smol"}))
      ->trigger_on_parse();
  app.add_option_function<std::string>(
         "--case",
         [&](const std::string& name) {
           for (const auto& c : weft::test::all_architecture_cases()) {
             if (c.name != name) continue;
             o = c.model;
             untied = !o.tied;
             return;
           }
           throw CLI::ValidationError("--case", "no case " + name);
         },
         "a case of the tests; the options below change parts of it")
      ->trigger_on_parse();
  app.add_flag("--list-cases", list_cases, "print the cases' names");
  app.add_option("--recipe", o.recipe,
                 "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K_M, Q5_K_M or Q6_K");
  app.add_option("--layers", o.n_layers, "layers");
  app.add_option("--embd", o.n_embd, "width");
  app.add_option("--ff", o.n_ff, "width of the feed-forward part");
  app.add_option("--heads", o.n_heads, "query heads");
  app.add_option("--kv-heads", o.n_kv_heads, "key and value heads");
  app.add_option("--head-dim", o.head_dim, "elements of a head");
  app.add_option("--vocab", o.vocab, "tokens");
  app.add_option("--spare-rows", o.spare_rows, "of the tokens' rows, that no token has");
  app.add_option("--context", o.context_length, "context length");
  app.add_option("--rope-base", o.rope_base, "RoPE's frequency base");
  app.add_option("--rope-linear", o.rope_linear_factor, "linear RoPE scaling factor");
  app.add_flag("--untied", untied, "a separate output matrix");
  app.add_option("--seed", o.seed, "seed of the weights");
  CLI11_PARSE(app, argc, argv);
  if (list_cases) {
    for (const auto& c : weft::test::all_architecture_cases()) std::printf("%s\n", c.name.c_str());
    return 0;
  }
  if (path.empty()) {
    std::fprintf(stderr, "weft-random-model: which file to write?\n");
    return 1;
  }
  o.tied = !untied;
  const weft::Status status = weft::gguf::write_random_model(weft::posix_env(), path, o);
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "weft-random-model: %s\n", status.message().c_str());
  return 1;
}
