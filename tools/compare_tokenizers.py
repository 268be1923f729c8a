#!/usr/bin/env python3
"""Compares `weft tokenize --json` with the original tokenizers on generated strings.

Byte-level BPE models are rebuilt from the GGUF's tokens and merges with the `tokenizers` package;
SentencePiece models are compared with the `sentencepiece` package and the given .model file:

    pip install gguf tokenizers sentencepiece protobuf
    tools/compare_tokenizers.py --weft build/release/weft -m MODEL.gguf
    tools/compare_tokenizers.py --weft build/release/weft -m MODEL.gguf --sentencepiece TOK.model

The strings hold code, emoji, CJK, combining marks, runs of white space, digits and random code
points, from a fixed seed. The exit status is 1 when any string has other tokens.
"""
import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import unicodedata

import gguf

LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

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


def make_strings(count, seed):
    rng = random.Random(seed)
    parts = [lambda: rng.choice(WORDS), lambda: rng.choice(WORDS), lambda: rng.choice(EMOJI),
             lambda: rng.choice(MARKS), lambda: rng.choice(BLANKS), lambda: rng.choice(BLANKS),
             lambda: rng.choice(PUNCTUATION), lambda: rng.choice(CODE), lambda: random_number(rng),
             lambda: random_code_points(rng), lambda: rng.choice(BLANKS) * rng.randint(1, 20),
             lambda: rng.choice("abcxyz.-=*#") * rng.randint(1, 40)]
    strings = ["", " ", "\n", "a"]
    while len(strings) < count:
        pieces = [rng.choice(parts)() for _ in range(rng.randint(1, 12))]
        strings.append(rng.choice(["", " "]).join(pieces))
    return strings


def byte_level_reference(fields):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"].contents()]
    pre = fields["tokenizer.ggml.pre"].contents()
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = {
        "gpt-2": words,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words]),
        "starcoder": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words]),
        "llama-bpe": pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated"), letters]),
        "qwen2": pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"), letters]),
    }.get(pre)
    if split is None:
        sys.exit(f"compare_tokenizers: no reference for tokenizer.ggml.pre '{pre}'")
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                                     ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = split
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentence_piece_reference(path):
    """The model without its normaliser, which GGUFs of the `llama` kind do not carry."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.precompiled_charsmap = b""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return processor.encode


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the weft binary")
    parser.add_argument("-m", "--model", required=True, help="a GGUF; its vocabulary is enough")
    parser.add_argument("--sentencepiece", metavar="FILE", help="the original .model file")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strings", metavar="FILE", help="write the strings there as JSON and stop")
    args = parser.parse_args()
    strings = make_strings(args.count, args.seed)
    if args.strings:
        with open(args.strings, "w", encoding="utf-8") as out:
            json.dump(strings, out)
        return 0
    if args.sentencepiece:
        reference = sentence_piece_reference(args.sentencepiece)
    else:
        reference = byte_level_reference(gguf.GGUFReader(args.model).fields)

    def weft(text):
        run = subprocess.run([args.weft, "tokenize", "-m", args.model, "--json"],
                             input=text.encode(), capture_output=True, check=True)
        return json.loads(run.stdout)["tokens"]

    mismatches = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text, got in zip(strings, pool.map(weft, strings)):
            want = reference(text)
            if got != want:
                mismatches += 1
                if mismatches <= 10:
                    print(f"{text!r}\n  weft      {got}\n  reference {want}")
    print(f"{args.model}: {len(strings)} strings, {mismatches} mismatches")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
