#include "simulation/engines.h"

#include "gguf/random_model.h"

namespace weft::sim {
namespace {

constexpr size_t kMaxKnown = 4000;

constexpr const char* kChatTemplate =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

gguf::RandomModelOptions tiny_model(int number) {
  gguf::RandomModelOptions options;
  options.n_layers = 2;
  options.n_embd = 16;
  options.n_ff = 16;
  options.n_heads = 2;
  options.n_kv_heads = 1;
  options.head_dim = 8;
  options.vocab = 270;
  options.context_length = 2048;
  options.chat_template = kChatTemplate;
  options.seed = static_cast<uint64_t>(number) + 1;
  return options;
}

}  // namespace

Result<std::unique_ptr<Engines>> Engines::create(const std::string& dir) {
  std::unique_ptr<Engines> made(new Engines);
  for (int model = 0; model < kModels; ++model) {
    engine::EngineOptions options;
    options.model_path = join_path(dir, "tiny-" + std::to_string(model) + ".gguf");
    options.n_threads = 1;
    options.compute = "f32";
    WEFT_RETURN_IF_ERROR(
        gguf::write_random_model(posix_env(), options.model_path, tiny_model(model)));
    for (auto* engine :
         {&made->engines_[model][0], &made->engines_[model][1], &made->references_[model]}) {
      WEFT_ASSIGN_OR_RETURN(*engine, engine::Engine::open(posix_env(), options));
    }
  }
  return made;
}

Result<std::vector<float>> Engines::reference(int model, const fusion::Prompt& prompt,
                                              const std::vector<int32_t>& anchor,
                                              const fusion::FusionOptions& options) {
  std::vector<int64_t> key{model, static_cast<int64_t>(options.mode),
                           static_cast<int64_t>(options.selector),
                           static_cast<int64_t>(options.ratio * 1000), std::ssize(anchor)};
  for (const auto* part : {&prompt.prefix, &prompt.suffix}) {
    key.push_back(-1);
    key.insert(key.end(), part->begin(), part->end());
  }
  for (const std::vector<int32_t>& chunk : prompt.chunks) {
    key.push_back(-1);
    key.insert(key.end(), chunk.begin(), chunk.end());
  }
  const std::lock_guard lock(mutex_);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  engine::Engine& engine = *references_[model];
  const auto fusor = engine.make_fusor(nullptr, anchor);
  WEFT_ASSIGN_OR_RETURN(fusion::Prefilled done, fusor->prefill(prompt, options));
  if (known_.size() >= kMaxKnown) known_.clear();
  return known_[std::move(key)] = std::move(done.logits);
}

}  // namespace weft::sim
