// Small vocabularies for tests and fuzzers.
#pragma once

#include <string>
#include <vector>

#include "text/vocab.h"

namespace weft::test {

/// A byte-level vocabulary: the 256 bytes (ids 0-255), the merges' results, then the control token
/// <|im_end|> and the user-defined token <note>.
text::VocabData bpe_test_vocab(const std::vector<std::string>& merges,
                               const std::string& pre = "gpt-2");

/// A SentencePiece vocabulary: <unk> <s> </s>, the 256 byte tokens (ids 3-258), then `pieces`, best
/// score first.
text::VocabData spm_test_vocab(const std::vector<std::string>& pieces);

}  // namespace weft::test
