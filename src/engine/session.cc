// What is kept is what decides the next token and cannot be computed again from the rest: how many
// random numbers were drawn, where the answer begins (the penalties count from there, and are
// filled again from the tokens), the settings. Logits are not: the last token's row is run once
// more, in the kernels of its kind, which gives the same bits.
//
// Stored KV is taken only where the same rows would give the same bits in this run. So the way to
// multiply and the instruction set are part of what must be equal, which chunk records leave out:
// an answer over records may differ from full prefill's, one with --session must not.
#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/compute_choice.h"
#include "kernels/arithmetic_revision.h"
#include "kv/byte_fields.h"

namespace weft::engine {
namespace {

using kv::SlotKind;
using text::Role;

constexpr const char* kAdvice = "take a smaller context (-c), or begin a new session";
// Not Role's own numbers, which are nobody's promise.
constexpr std::pair<uint32_t, Role> kRoles[] = {
    {0, Role::kSystem}, {1, Role::kUser}, {2, Role::kAssistant}};

std::vector<std::byte> ropes_of(const model::ModelConfig& config) {
  kv::ByteWriter out;
  out.number(narrow<uint32_t>(config.ropes.size()));
  for (const kernels::RopeParams& rope : config.ropes) {
    out.number(narrow<uint32_t>(to_underlying(rope.pairing)));
    out.number(rope.n_dims);
    out.number(rope.magnitude);
    out.number(narrow<uint32_t>(rope.inverse_frequencies.size()));
    out.bytes(std::as_bytes(std::span(rope.inverse_frequencies)));
  }
  return out.take();
}

SessionOrigin origin_of(const Engine& engine) {
  return {.arithmetic = kernels::kArithmeticRevision,
          .model_fingerprint = engine.model().fingerprint(),
          .ropes = ropes_of(engine.model().config()),
          .isa = kernels::isa_name(engine.context().isa),
          .compute = kMatmulPaths.name(engine.context().matmul_path),
          .model_name = engine.model().config().name};
}

std::vector<std::byte> encode(const SessionOrigin& origin) {
  kv::ByteWriter out;
  out.number(origin.arithmetic);
  out.number(origin.model_fingerprint.high);
  out.number(origin.model_fingerprint.low);
  out.number(narrow<uint32_t>(origin.ropes.size()));
  out.bytes(origin.ropes);
  out.text(origin.isa);
  out.text(origin.compute);
  out.text(origin.model_name);
  return out.take();
}

/// One list of the settings for both directions.
template <class Options, class Fn>
void for_each_setting(Options& s, const Fn& fn) {
  fn(s.temperature);
  fn(s.top_k);
  fn(s.top_p);
  fn(s.min_p);
  fn(s.seed);
  fn(s.penalties.repeat);
  fn(s.penalties.repeat_last_n);
  fn(s.penalties.frequency);
  fn(s.penalties.presence);
}

std::vector<std::byte> encode(const Session& session) {
  kv::ByteWriter out;
  out.number(to_underlying(session.kind));
  for_each_setting(session.sampling, [&](auto value) { out.number(value); });
  out.number(session.prompt_tokens);
  out.number(session.n_draws);
  out.number(session.first_turn);
  out.number(session.n_again);
  out.number(narrow<uint32_t>(session.turns.size()));
  for (const text::Turn& turn : session.turns) {
    for (const auto& [number, role] : kRoles) {
      if (role == turn.role) out.number(number);
    }
    out.text(turn.text);
  }
  return out.take();
}

/// How many of the slots of the start are prompt rows.
int32_t prompt_slots(std::span<const kv::SlotRun> kinds) {
  return kinds.empty() || kinds.front().kind != SlotKind::kPrompt ? 0 : kinds.front().end;
}

Result<kv::SessionStamp> stamp_at(Env& env, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path));
  return kv::read_session_stamp(*file);
}

}  // namespace

// What is said to a model is private: as the file that `chat --save` writes. One that is replaced
// keeps its mode, wide as it may be: a file is 0666 because somebody made it so (weft makes 0600),
// and to take that back at every answer would lock out whom they let in.
AtomicFileOptions session_file_options(bool was_there) {
  return {.replace = was_there, .mode = kPrivateFileMode};
}

Result<std::unique_ptr<SavedSession>> SavedSession::open(Env& env, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(auto file, env.open_read(path));
  return read(std::move(file), path);
}

Result<std::unique_ptr<SavedSession>> SavedSession::read(std::unique_ptr<ReadFile> file,
                                                         const std::string& path) {
  return or_out_of_memory(
      "reading " + path, kAdvice, [&]() -> Result<std::unique_ptr<SavedSession>> {
        WEFT_ASSIGN_OR_RETURN(kv::SessionReader reader,
                              kv::SessionReader::open(std::move(file), path));
        std::unique_ptr<SavedSession> saved(new SavedSession(std::move(reader)));
        WEFT_RETURN_IF_ERROR(saved->read_origin());
        WEFT_RETURN_IF_ERROR(saved->read_state());
        return saved;
      });
}

Status SavedSession::read_origin() {
  kv::ByteReader in(file_.head().identity);
  origin_.arithmetic = in.number<uint32_t>();
  origin_.model_fingerprint.high = in.number<uint64_t>();
  origin_.model_fingerprint.low = in.number<uint64_t>();
  const std::span<const std::byte> ropes = in.bytes(in.number<uint32_t>());
  origin_.ropes.assign(ropes.begin(), ropes.end());
  origin_.isa = in.text();
  origin_.compute = in.text();
  origin_.model_name = in.text();
  if (in.at_end()) return Status::ok();
  return corrupt(path() + ": what its KV was made with is not whole");
}

// The checksums say that some weft wrote these bytes; that their values can be used is asked here
// all the same, as anybody can compute a checksum.
Status SavedSession::read_state() {
  kv::ByteReader in(file_.state());
  const auto kind = in.number<uint32_t>();
  for_each_setting(session_.sampling,
                   [&](auto& value) { value = in.number<std::decay_t<decltype(value)>>(); });
  session_.prompt_tokens = in.number<uint32_t>();
  session_.n_draws = in.number<uint64_t>();
  session_.first_turn = in.number<uint32_t>();
  session_.n_again = in.number<uint64_t>();
  const auto n_turns = in.number<uint32_t>();
  for (uint32_t i = 0; i < n_turns && in.ok(); ++i) {
    const auto role =
        std::ranges::find(kRoles, in.number<uint32_t>(), &std::pair<uint32_t, Role>::first);
    if (role == std::end(kRoles)) return corrupt(fmt::format("{}: turn {} has no role", path(), i));
    session_.turns.push_back({role->second, in.text()});
  }
  if (!in.at_end()) return corrupt(path() + ": its state is not whole");
  if (kind > to_underlying(SessionKind::kChat)) {
    return corrupt(fmt::format("{}: neither a text nor a conversation (kind {})", path(), kind));
  }
  session_.kind = SessionKind{kind};
  if (const Status checked = sampling::check_options(session_.sampling); !checked.is_ok()) {
    return corrupt(fmt::format("{}: its settings: {}", path(), checked.message()));
  }
  const auto tokens = file_.tokens();
  session_.tokens.assign(tokens.begin(), tokens.end());
  const bool is_chat = session_.kind == SessionKind::kChat;
  const bool fits = is_chat ? std::cmp_equal(n_slots(), tokens.size())
                            : session_.prompt_tokens >= 1 && session_.turns.empty() &&
                                  session_.prompt_tokens <= tokens.size();
  if (!fits) {
    return corrupt(fmt::format("{}: {} tokens, {} of them a prompt, {} slots: damaged", path(),
                               tokens.size(), session_.prompt_tokens, n_slots()));
  }
  for (const kv::SlotRun& run : file_.kinds()) {
    if (run.kind == SlotKind::kFused) {
      return unsupported(path() +
                         ": a session whose KV depends on more than its tokens (over documents, or "
                         "shifted), which this weft does not go on with");
    }
  }
  return Status::ok();
}

Status SavedSession::check_engine(const Engine& engine) const {
  const SessionOrigin here = origin_of(engine);
  if (here.model_fingerprint != origin_.model_fingerprint) {
    return unsupported(fmt::format("{}: a session of another model ({}), not of {}", path(),
                                   origin_.model_name, engine.model().file().path()));
  }
  if (here.arithmetic != origin_.arithmetic) {
    return unsupported(fmt::format(
        "{}: its KV was computed by a weft whose arithmetic gives other bits (revision {}, this "
        "one has {}); begin a new session",
        path(), origin_.arithmetic, here.arithmetic));
  }
  if (here.ropes != origin_.ropes) {
    return unsupported(fmt::format(
        "{}: its positions were rotated for another context; the -c of its first run goes on with "
        "it",
        path()));
  }
  if (here.isa != origin_.isa || here.compute != origin_.compute) {
    return unsupported(fmt::format(
        "{}: its KV was computed with --compute {} --isa {}, this run has {} and {}: those flags "
        "go on with it",
        path(), origin_.compute, origin_.isa, here.compute, here.isa));
  }
  WEFT_RETURN_IF_ERROR(file_.check_cache(*engine.cache_));
  const int32_t n_vocab = engine.model().config().vocab_size;
  const auto beyond =
      std::ranges::find_if(session_.tokens, [&](int32_t id) { return id >= n_vocab; });
  if (beyond == session_.tokens.end()) return Status::ok();
  return corrupt(fmt::format("{}: token {}, the model has {}: damaged", path(), *beyond, n_vocab));
}

Result<kv::OwnedSequence> SavedSession::restore(Engine& engine, int32_t n_slots) const {
  return or_out_of_memory("reading " + path(), kAdvice, [&]() -> Result<kv::OwnedSequence> {
    WEFT_ASSIGN_OR_RETURN(const kv::SequenceId id, file_.restore(*engine.cache_, n_slots));
    if (logs_info()) {
      log_info(fmt::format("session {}: KV of {} of its {} tokens is reused", path(), n_slots,
                           session_.tokens.size()));
    }
    return kv::OwnedSequence(*engine.cache_, id);
  });
}

Result<Prefilled> SavedSession::resume(Engine& engine, const FunctionRef<bool()>& cancelled) const {
  const std::span<const int32_t> tokens = session_.tokens;
  if (std::ssize(tokens) > engine.context_tokens()) {
    return resource_exhausted(fmt::format("{}: its {} tokens fill the context of {}; {}", path(),
                                          tokens.size(), engine.context_tokens(),
                                          engine.way_to_hold(std::ssize(tokens))));
  }
  // A token that was sampled and not run is a decode row; of one that was run its slot says it.
  const bool is_prompt = prompt_slots(file_.kinds()) == std::ssize(tokens);
  const auto n_before = narrow<int32_t>(tokens.size()) - 1;
  WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence sequence, restore(engine, n_before));
  WEFT_ASSIGN_OR_RETURN(
      std::vector<float> logits,
      engine.append(sequence, tokens.last(1),
                    {.kind = is_prompt ? model::RowKind::kPrompt : model::RowKind::kDecode,
                     .cancelled = &cancelled}));
  return Prefilled{std::move(sequence), std::move(logits), n_before};
}

Result<Prefilled> SavedSession::prefill(Engine& engine, std::span<const int32_t> prompt,
                                        const FunctionRef<bool()>& cancelled) const {
  const auto reusable = std::span(session_.tokens).first(prompt_slots(file_.kinds()));
  const auto common = std::ranges::mismatch(reusable, prompt.first(prompt.size() - 1));
  const auto n_reused = narrow<int32_t>(common.in1 - reusable.begin());
  WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence sequence, restore(engine, n_reused));
  WEFT_ASSIGN_OR_RETURN(std::vector<float> logits, engine.append(sequence, prompt.subspan(n_reused),
                                                                 {.cancelled = &cancelled}));
  return Prefilled{std::move(sequence), std::move(logits), n_reused};
}

Status SavedSession::save(Engine& engine, const std::string& path, const Session& session,
                          const kv::OwnedSequence& sequence,
                          std::optional<kv::SessionStamp>& stamp) {
  return or_out_of_memory("writing " + path, kAdvice,
                          [&] { return write(engine, path, session, sequence, stamp); });
}

/// The file is looked at last of all, when the new one only lacks its name: what another process
/// writes in the moment between is lost, as with any file that two write.
Status SavedSession::write(Engine& engine, const std::string& path, const Session& session,
                           const kv::OwnedSequence& sequence,
                           std::optional<kv::SessionStamp>& stamp) {
  WEFT_CHECK(sequence.is_of(*engine.cache_));
  const Status changed = already_exists(
      path + ": another program wrote this file meanwhile; the session was not kept");
  Env& env = engine.env();
  auto created = AtomicFile::create(env, path, session_file_options(stamp.has_value()));
  if (created.status().code() == StatusCode::kAlreadyExists) return changed;
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, std::move(created));
  const std::vector<std::byte> identity = encode(origin_of(engine));
  const std::vector<std::byte> state = encode(session);
  const kv::SessionContent content{
      .tokens = session.tokens,
      .n_slots = std::min(sequence.length(), narrow<int32_t>(session.tokens.size())),
      .identity = identity,
      .state = state};
  WEFT_ASSIGN_OR_RETURN(
      const kv::SessionStamp written,
      kv::write_session(*engine.cache_, sequence.id(), content,
                        [&](std::span<const std::byte> bytes) { return file.append(bytes); }));
  const auto there = stamp_at(env, path);
  const bool is_gone = there.status().code() == StatusCode::kNotFound;
  if (stamp && !is_gone && (!there.is_ok() || *there != *stamp)) return changed;
  const Status named = file.commit();
  if (named.code() == StatusCode::kAlreadyExists) return changed;
  // When only the folder's sync failed, the file is there all the same.
  if (const auto now = stamp_at(env, path); now.is_ok() && *now == written) stamp = written;
  if (named.is_ok() && logs_info()) {
    log_info(fmt::format("session {}: kept, {} tokens", path, session.tokens.size()));
  }
  return named;
}

}  // namespace weft::engine
