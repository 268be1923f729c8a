// A text or a conversation with its KV, kept in a file between two runs of the program
// (docs/formats/session.md): what is sampled next is what would have been, had the first run gone
// on. A file that this run cannot go on with to the bit is refused: another model, other RoPE
// settings, other types of K and V, another way to multiply, another revision of the arithmetic,
// damage, another version. Which model it is, its fingerprint says, which samples the weights: one
// that differs from another only between the samples (model/model.h) would be taken for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/env.h"
#include "base/function_ref.h"
#include "base/hash.h"
#include "base/names.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "kv/session_file.h"
#include "sampling/sampler.h"
#include "text/chat_template.h"

namespace weft::engine {

enum class SessionKind : uint32_t { kText = 0, kChat = 1 };
inline constexpr Names kSessionKinds({
    Named{SessionKind::kText, "text"},
    Named{SessionKind::kChat, "chat"},
});

/// All of a session but its KV.
struct Session {
  SessionKind kind = SessionKind::kText;
  std::vector<int32_t> tokens;  // of the KV's slots; of a text perhaps one more, not run yet
  sampling::SamplingOptions sampling;

  // Of a text: the prompt is the first of the tokens, 1 at least, the answer all others.
  uint32_t prompt_tokens = 0;
  uint64_t n_draws = 0;  // Generation::n_draws

  // Of a chat.
  std::vector<text::Turn> turns;  // all of them, the system turn first
  uint32_t first_turn = 0;        // after the system turn, that is part of the prompt
  uint64_t n_again = 0;           // how often the last turn was answered again
};

/// What a session's KV depends on beside its tokens, and by what name.
struct SessionOrigin {
  uint32_t arithmetic = 0;  // kernels::kArithmeticRevision
  Hash128 model_fingerprint;
  std::vector<std::byte> ropes;  // all of the model's, as they are in the file
  std::string isa;               // isa_name
  std::string compute;           // of kMatmulPaths
  std::string model_name;        // for people
};

/// A prompt in a sequence of its own, and the logits of its last row.
struct Prefilled {
  kv::OwnedSequence sequence;
  std::vector<float> logits;
  int32_t reused_tokens = 0;
};

/// A session's file, read and checked. Not thread-safe.
class SavedSession {
 public:
  /// Checks all of it that needs no model. kNotFound where there is no such file; kCorrupt and
  /// kUnsupported as kv::SessionReader::open; kResourceExhausted when memory runs out.
  static Result<std::unique_ptr<SavedSession>> open(Env& env, const std::string& path);
  /// The same of an open file.
  static Result<std::unique_ptr<SavedSession>> read(std::unique_ptr<ReadFile> file,
                                                    const std::string& path);

  const std::string& path() const { return file_.name(); }
  const Session& session() const { return session_; }
  const SessionOrigin& origin() const { return origin_; }
  const kv::SessionReader& file() const { return file_; }
  int32_t n_slots() const { return file_.head().n_slots; }

  /// Whether the engine can go on with it; kUnsupported with a line that says what differs, and
  /// with which flags it would.
  Status check_engine(const Engine& engine) const;
  /// Its first n_slots slots, at most n_slots(), in a sequence of the engine; check_engine is ok.
  /// kResourceExhausted where they do not fit; kCorrupt where the file's layers are not those that
  /// open() read. Nothing is left of it after an error.
  Result<kv::OwnedSequence> restore(Engine& engine, int32_t n_slots) const;

  /// Of a text: where it ended. kResourceExhausted where the context is full.
  Result<Prefilled> resume(Engine& engine, const FunctionRef<bool()>& cancelled) const;
  /// `prompt` (not empty), of which what it has in common with the session's tokens is restored, as
  /// far as prompts' rows made it, so that the logits are those of Engine::append from nothing.
  Result<Prefilled> prefill(Engine& engine, std::span<const int32_t> prompt,
                            const FunctionRef<bool()>& cancelled) const;

  /// Writes `session` and the KV of its tokens in `sequence`, which begins with them: whole or not
  /// at all, durably, a new file for its owner alone. `stamp`: what the file held when this session
  /// was read from it or written to it, nullopt where it was absent; then what it holds now.
  /// kAlreadyExists where it holds anything else. An error leaves the file as it was, but that of
  /// the folder's sync.
  static Status save(Engine& engine, const std::string& path, const Session& session,
                     const kv::OwnedSequence& sequence, std::optional<kv::SessionStamp>& stamp);

 private:
  explicit SavedSession(kv::SessionReader file) : file_(std::move(file)) {}
  static Status write(Engine& engine, const std::string& path, const Session& session,
                      const kv::OwnedSequence& sequence, std::optional<kv::SessionStamp>& stamp);
  Status read_origin();
  Status read_state();

  kv::SessionReader file_;
  Session session_;
  SessionOrigin origin_;
};

/// How such a file is written: it replaces one that `was_there`.
AtomicFileOptions session_file_options(bool was_there);

}  // namespace weft::engine
