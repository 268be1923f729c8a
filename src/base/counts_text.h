// Numbers of things in the words of a message: "5,210 documents".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// 5210 as "5,210".
std::string grouped_digits(int64_t n);
/// "1 document", "5,210 documents".
std::string counted(int64_t n, std::string_view noun);

}  // namespace weft
