// The file is read before the model is opened, which takes longest; what can be refused without a
// model is refused then. A file that cannot be written is said before the answer, not after it: an
// answer that is shown and not kept would be asked for again.
#include "cli/session_flag.h"

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "engine/compute_choice.h"

namespace weft::cli {

Status of_session(const Status& status, const std::string& path) {
  if (status.is_ok() || status.code() == StatusCode::kCancelled) return status;
  const bool is_usage = status.code() == StatusCode::kInvalidArgument;  // which a file is not
  const std::string_view message = status.message();
  return {is_usage ? StatusCode::kUnsupported : status.code(),
          message.starts_with(path) ? "--session " + status.message()
                                    : fmt::format("--session {}: {}", path, message)};
}

void take_compute(const engine::SavedSession& saved, ModelFlags& flags) {
  const std::string& stored = saved.origin().compute;
  const bool is_auto = flags.compute == engine::kAutoPath;
  if (is_auto && engine::kMatmulPaths.find(stored)) flags.compute = stored;
}

Flag add_session_flag(Command command, std::string& path, const std::string& help) {
  return command.add_option("--session", path, help).value_name("FILE");
}

Result<std::unique_ptr<engine::SavedSession>> open_session(App& app, const std::string& path,
                                                           engine::SessionKind kind) {
  auto saved = engine::SavedSession::open(app.env, path);
  const bool is_absent = saved.status().code() == StatusCode::kNotFound;
  if (!saved.is_ok() && !is_absent) return of_session(saved.status(), path);
  if (!is_absent && (*saved)->session().kind != kind) {
    const bool is_chat = kind == engine::SessionKind::kChat;
    return of_session(
        unsupported(fmt::format("{}: {}", path,
                                is_chat ? "a text's session; weft generate goes on with it"
                                        : "a conversation's session; weft chat goes on "
                                          "with it")),
        path);
  }
  // It goes without a commit, and leaves nothing.
  const auto written = AtomicFile::create(app.env, path, engine::session_file_options(!is_absent));
  if (!written.is_ok()) return of_session(written.status(), path);
  remove_leftovers(app.env, path);
  if (is_absent) return std::unique_ptr<engine::SavedSession>();
  return saved;
}

sampling::SamplingOptions with_given_flags(Command command, const sampling::SamplingOptions& flags,
                                           sampling::SamplingOptions stored) {
  const auto take = [&](const char* flag, const auto& given, auto& value) {
    if (command.get_option(flag).was_given()) value = given;
  };
  take("--temp", flags.temperature, stored.temperature);
  take("--top-k", flags.top_k, stored.top_k);
  take("--top-p", flags.top_p, stored.top_p);
  take("--min-p", flags.min_p, stored.min_p);
  take("--seed", flags.seed, stored.seed);
  take("--repeat-penalty", flags.penalties.repeat, stored.penalties.repeat);
  take("--repeat-last-n", flags.penalties.repeat_last_n, stored.penalties.repeat_last_n);
  take("--presence-penalty", flags.penalties.presence, stored.penalties.presence);
  take("--frequency-penalty", flags.penalties.frequency, stored.penalties.frequency);
  return stored;
}

}  // namespace weft::cli
