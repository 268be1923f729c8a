// Words of commands that people are told to type: quoted where a shell would take them apart. Pure
// functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace weft {

/// A word as a POSIX shell takes it: as it is where it has only letters, digits and what means
/// nothing to a shell, else in single quotes; where a terminal would not show all of it as it is
/// (base/terminal_text.h) as $'…' with octal escapes, which bash, zsh and newer shells know.
std::string shell_word(std::string_view word);

/// The same for a path, which no program takes for a flag: "./-x" for "-x".
std::string shell_path(std::string_view path);

}  // namespace weft
