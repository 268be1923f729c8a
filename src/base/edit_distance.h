// How far two words are apart, for finding what a misspelt one was to be.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

/// Letters to put in, leave out, replace or swap with a neighbour to make b of a (the optimal
/// string alignment distance). Takes time in the product of their lengths.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace weft
