// The flags of sparse decoding, and what commands say of it.
#pragma once

#include <string>

#include "cli/app.h"

namespace weft::cli {

/// With --json one read of so many is measured, by which mass_kept is known.
inline constexpr int32_t kMeasuredEvery = 211;
/// --sparse, its amounts (--budget, --sparse-ratio, --retain), locks (--lock-interval and the next
/// two), --sparse-config in place of these, --dense-layers, --digest-type and --page-tokens;
/// returns the first. Of what decodes no row they are no part.
Flag add_sparse_flags(Command command, ModelFlags& flags);
/// The last three of them alone.
void add_page_flags(Command command, ModelFlags& flags);
/// Whether the flags ask for a policy that is not dense.
bool asks_for_sparse(const ModelFlags& flags);
/// With --sparse what decode read, as "sparse" of the answer.
void add_sparse_json(const engine::Engine& engine, Json& json);
/// With --sparse what decode read so far, or "".
std::string sparse_read_text(const engine::Engine& engine);
/// With locks what they are and became so far, or "".
std::string locks_text(const engine::Engine& engine);
/// Both, as lines for people.
void print_sparse(const engine::Engine& engine);
/// What an evaluation read in all, as a line.
void print_sparse_total(const engine::Engine& engine);
/// With -v.
void log_sparse(const engine::Engine& engine);
/// What the flags ask for; kInvalidArgument for what does not go together, and errors of the file.
Result<sparse::SparseOptions> sparse_options(Env& env, const ModelFlags& flags);
/// "--sparse labels --budget 2048": flags that ask for it.
std::string sparse_text(const sparse::SparseOptions& options);

}  // namespace weft::cli
