// base/utf8.h under this room's name, which its files and those of higher rooms use.
#pragma once

#include "base/utf8.h"

namespace weft::text {

using weft::append_utf8;
using weft::decode_utf8_char;
using weft::is_utf8_continuation;
using weft::is_valid_utf8;
using weft::utf8_char_bytes;
using weft::utf8_unfinished_bytes;

}  // namespace weft::text
