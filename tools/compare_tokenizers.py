#!/usr/bin/env python3
"""Compares `weft tokenize --batch` with other tokenizers on generated strings.

The reference is the model's own tokenizer file where there is one, else another program that
speaks --batch's protocol, else byte-level BPE rebuilt from the GGUF with the `tokenizers` package:

    compare_tokenizers.py --weft build/release/weft -m MODEL.gguf [--special]
        [--tokenizer-json tokenizer.json | --sentencepiece tokenizer.model | --tekken tekken.json |
         --tiktoken ranks.tiktoken | --command "PROGRAM ARGUMENTS"]

needs the packages gguf, tokenizers, and of sentencepiece (with protobuf), mistral-common and
tiktoken the one that reads the file. tools/vocab_from_tokenizer_json.py makes a GGUF of such a
file. The strings hold code, emoji, CJK, combining marks, runs of white space, digits,
contractions, the vocabulary's own control tokens and random code points of every plane, from a
fixed seed. The exit status is 1 when any string has other tokens.
"""
import argparse
import base64
import json
import random
import shlex
import subprocess
import sys
import unicodedata

import gguf

LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K_SPLIT = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
               r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
               r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
               r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

WORDS = ("the of and cache layer token's don't we'll they've I'm you'd it's WE'RE HTTPServer "
         "naïve Straße Żółć Ünïcödé façade résumé Привет мир данные Ελλάδα λόγος שלום עולם مرحبا "
         "العالم नमस्ते दुनिया สวัสดี ชาวโลก 你好 世界 文档 缓存 こんにちは 世界 カタカナ 한국어 문장 "
         "ትግርኛ ქართული հայերեն").split()
EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "❤️", "🏳️‍🌈", "✨", "🚀🚀🚀", "⚠", "1️⃣", "🤷🏻‍♀️"]
MARKS = ["e\u0301", "n\u0303", "o\u0308\u0304", "a\u0323\u0302", "\u0301", "क्षि", "ก็", "Z͑ͫ̓ͪ̂ͫ̽"]
BLANKS = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2003", "\u3000",
          "\u200b", "\t\t ", "    ", "\n\n\n\n", "\x0b", "\x0c", "\u2028", "\ufeff", "\u0085"]
PUNCTUATION = list("!?.,;:-_/\\|@#$%^&*()[]{}<>=+~`\"'") + ["...", "—", "“”", "。", "、", "！？", "«»",
                                                          "->", "::", "!=", "</", "```", "'s", "'S"]
CODE = ["int main(int argc, char** argv) {\n\treturn 0;\n}\n", "def f(x):\n    return x**2  # ok\n",
        "for (auto& [k, v] : map) std::cout << k << '\\n';", "SELECT * FROM t WHERE a<>'b';\n",
        "if x == 0x1F and y != -1e-9:\n        pass\n", "<div class=\"a\">&nbsp;</div>\n",
        "git commit -m 'fix: don''t' && make -j8", "{\"a\": [1, 2.5, null], \"b\": \"\\u00e9\"}",
        "a+=b<<2;c=d?e:f;//x", "\\frac{1}{2}\\sum_{i=0}^{n} x_i", "$HOME/.cache/*.so.1.2.3"]


def random_number(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 9)))
    return rng.choice([digits, digits + ".5", "1," + digits, "٣٤٥", "½", "Ⅷ", "²³", "１２", digits + "%"])


def random_code_points(rng):
    """Characters of any script; unassigned ones are left out, as Unicode versions differ there."""
    out = []
    while len(out) < rng.randint(1, 8):
        c = chr(rng.choice([rng.randint(0x20, 0x24F), rng.randint(0x250, 0x1FFF),
                            rng.randint(0x2000, 0x2FFF), rng.randint(0x3000, 0xFFFF),
                            rng.randint(0x1F300, 0x1FAFF), rng.randint(0x20000, 0x2A6DF)]))
        if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
            out.append(c)
    return "".join(out)


def random_ascii(rng):
    return "".join(chr(rng.randint(1, 126)) for _ in range(rng.randint(1, 30)))


def any_plane(rng):
    """Assigned characters of every plane, one by one (private use and tags included)."""
    out = []
    while len(out) < rng.randint(1, 5):
        c = chr(rng.choice([rng.randint(0x80, 0xFFFF), rng.randint(0x10000, 0x1FFFF),
                            rng.randint(0x20000, 0x3134A), rng.randint(0xE0001, 0xE01EF),
                            rng.randint(0xF0000, 0x10FFFD)]))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            out.append(c)
    return "".join(out)


def make_strings(count, seed, control_names):
    rng = random.Random(seed)
    lookalikes = control_names + ["<|im_start|>", "<|user|>", "</s>", "<s>", "[INST]", "<bos>",
                                  "<0x0A>", "<start_of_turn>", "<|", "|>", "\u2581"]
    contractions = ["'s", "'T", "'Re", "'VE", "'m", "'lL", "'d", "'\u017f", "\u2019s", "''s", "'x"]
    parts = [lambda: rng.choice(WORDS), lambda: rng.choice(WORDS), lambda: rng.choice(EMOJI),
             lambda: rng.choice(MARKS), lambda: rng.choice(BLANKS), lambda: rng.choice(BLANKS),
             lambda: rng.choice(PUNCTUATION), lambda: rng.choice(CODE), lambda: random_number(rng),
             lambda: random_code_points(rng), lambda: rng.choice(BLANKS) * rng.randint(1, 40),
             lambda: rng.choice("abcxyz.-=*#\n\t 0") * rng.randint(1, 70),
             lambda: random_ascii(rng), lambda: any_plane(rng),
             lambda: rng.choice(WORDS).capitalize() + rng.choice(contractions),
             lambda: rng.choice(WORDS).upper() + rng.choice(WORDS) + rng.choice(contractions),
             lambda: rng.choice(lookalikes), lambda: rng.choice(lookalikes) + rng.choice(BLANKS)]
    strings = ["", " ", "\n", "a"]
    while len(strings) < count:
        pieces = [rng.choice(parts)() for _ in range(rng.randint(1, 12))]
        strings.append(rng.choice(["", " "]).join(pieces))
    return strings


# DeepSeek's pre-tokenizers are sequences, as in the models' own tokenizer.json.
DEEPSEEK_LETTERS = "".join("-".join(chr(int(c, 16)) for c in r.split("-")) for r in (
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f "
    "386 388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd "
    "1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 "
    "1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 "
    "1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 "
    "2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 "
    "2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 "
    "a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 "
    "104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943 ").split())
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_LLM = ["[\r\n]", f"\\s?[{DEEPSEEK_LETTERS}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$",
                DEEPSEEK_CJK, "\\p{N}+"]
DEEPSEEK_CODER = ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"]


def byte_level_reference(fields):
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"].contents()]
    pre = fields["tokenizer.ggml.pre"].contents()
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    def regex(*patterns):
        return pre_tokenizers.Sequence(
            [*(pre_tokenizers.Split(Regex(p), "isolated") for p in patterns), letters])

    split = {
        "gpt-2": words,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words]),
        "starcoder": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words]),
        "llama-bpe": regex(LLAMA3_SPLIT),
        "smaug-bpe": regex(LLAMA3_SPLIT),
        "qwen2": regex(QWEN2_SPLIT),
        "qwen35": regex(QWEN35_SPLIT),
        "gpt-4o": regex(O200K_SPLIT),
        "deepseek-llm": regex(*DEEPSEEK_LLM),
        "deepseek-coder": regex(*DEEPSEEK_CODER),
    }.get(pre)
    if split is None:
        sys.exit(f"compare_tokenizers: no reference for tokenizer.ggml.pre '{pre}'")
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                                     ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = split
    types = fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types)
                          if kind == gguf.TokenType.USER_DEFINED and not looks_like_control(t)])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentence_piece_reference(path, types):
    """The model without its normaliser, which GGUFs of the `llama` kind do not carry, and with the
    GGUF's control tokens."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    for piece, kind in zip(model.pieces, types):
        if kind == gguf.TokenType.CONTROL:
            piece.type = kind
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.precompiled_charsmap = b""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return processor.encode


def tokenizer_json_reference(path, special):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = not special
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def tekken_reference(path):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    tokenizer = Tekkenizer.from_file(path)
    return lambda text: tokenizer.encode(text, bos=False, eos=False)


def tiktoken_reference(path, pre):
    import tiktoken
    with open(path, "rb") as file:
        lines = (line.split() for line in file if line.strip())
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    pattern = {"qwen2": QWEN2_SPLIT, "qwen35": QWEN35_SPLIT, "gpt-4o": O200K_SPLIT,
               "llama-bpe": LLAMA3_SPLIT}[pre]
    return tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={}).encode_ordinary


def run_batch(command, strings):
    lines = "".join(json.dumps(text) + "\n" for text in strings)
    run = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def reference_ids(args, fields, strings):
    if args.command:
        return run_batch(shlex.split(args.command), strings)
    if args.tokenizer_json:
        encode = tokenizer_json_reference(args.tokenizer_json, args.special)
    elif args.sentencepiece:
        encode = sentence_piece_reference(args.sentencepiece,
                                          fields["tokenizer.ggml.token_type"].contents())
    elif args.tekken:
        encode = tekken_reference(args.tekken)
    elif args.tiktoken:
        encode = tiktoken_reference(args.tiktoken, fields["tokenizer.ggml.pre"].contents())
    else:
        encode = byte_level_reference(fields)
    return [list(encode(text)) for text in strings]


def looks_like_control(token):
    return token.startswith(("<|", "<\uff5c", "<pad")) and token.endswith(">")


def control_names(fields):
    """Some of the vocabulary's control and user-defined tokens: the first, the last and between."""
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    control = [t for t, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL]
    added = [t for t, kind in zip(tokens, types) if kind == gguf.TokenType.USER_DEFINED]
    added = [t for t in added if not looks_like_control(t)]
    return control[:40] + control[-10:] + added[:120] + added[-40:]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the weft binary")
    parser.add_argument("-m", "--model", required=True, help="a GGUF; its vocabulary is enough")
    reference = parser.add_mutually_exclusive_group()
    for name in ("tokenizer-json", "sentencepiece", "tekken", "tiktoken"):
        reference.add_argument("--" + name, metavar="FILE", help="the model's own tokenizer")
    reference.add_argument("--command", help="a program with --batch's input and output")
    parser.add_argument("--special", action="store_true", help="control tokens are parsed")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    fields = gguf.GGUFReader(args.model).fields
    strings = make_strings(args.count, args.seed, control_names(fields))
    weft = [args.weft, "tokenize", "-m", args.model, "--batch"] + ["--special"] * args.special
    mismatches = 0
    for text, got, want in zip(strings, run_batch(weft, strings),
                               reference_ids(args, fields, strings), strict=True):
        if got != want:
            mismatches += 1
            if mismatches <= 10:
                print(f"{text!r}\n  weft      {got}\n  reference {want}")
    print(f"{args.model}: {len(strings)} strings, {mismatches} mismatches")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
