#!/usr/bin/env python3
"""Writes a vocabulary-only GGUF from a model's own tokenizer file, to compare weft's tokens with.

    tools/vocab_from_tokenizer_json.py tokenizer.json OUT.gguf --pre llama-bpe   (byte-level BPE)
    tools/vocab_from_tokenizer_json.py tekken.json OUT.gguf --pre tekken
    tools/vocab_from_tokenizer_json.py qwen.tiktoken OUT.gguf --pre qwen2        (base64 and rank)
    tools/vocab_from_tokenizer_json.py tokenizer.model OUT.gguf                  (SentencePiece)

Needs the `gguf` package, and `sentencepiece` with `protobuf` for .model files.
"""
import argparse
import base64
import json

import gguf

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def byte_letters():
    """GPT-2's table: the printable character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        letters.setdefault(byte, chr(0x100 + len(letters) - len(printable)))
    return letters


def spelled(token, letters):
    return "".join(letters[byte] for byte in token)


def merge_of(token, ranks):
    """The two tokens that merge into this one when lower ranks merge first; None if none do."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1),
                   key=lambda i: ranks.get(parts[i] + parts[i + 1], len(ranks)))
        joined = parts[best] + parts[best + 1]
        if ranks.get(joined, len(ranks)) >= ranks[token]:
            return None
        parts[best:best + 2] = [joined]
    return parts if len(parts) == 2 else None


def from_ranks(ranks, first_id, specials):
    """Tokens, types and merges from byte strings with ranks; `specials` maps ids to texts."""
    letters = byte_letters()
    n_vocab = max([first_id + max(ranks.values()), *specials]) + 1
    tokens, types = [f"[PAD{i}]" for i in range(n_vocab)], [UNUSED] * n_vocab
    for token, rank in ranks.items():
        tokens[first_id + rank], types[first_id + rank] = spelled(token, letters), NORMAL
    for i, text in specials.items():
        tokens[i], types[i] = text, CONTROL
    merges = []
    for token in sorted((t for t in ranks if len(t) > 1), key=ranks.get):
        parts = merge_of(token, ranks)
        if parts:
            merges.append(" ".join(spelled(part, letters) for part in parts))
    return tokens, types, merges


def from_tokenizer_json(data):
    vocab = dict(data["model"]["vocab"])
    added = {t["id"]: t for t in data["added_tokens"]}
    n_vocab = max([*vocab.values(), *added]) + 1
    tokens, types = [f"[PAD{i}]" for i in range(n_vocab)], [UNUSED] * n_vocab
    for text, i in vocab.items():
        tokens[i], types[i] = text, NORMAL
    for i, token in added.items():
        tokens[i], types[i] = token["content"], CONTROL if token["special"] else USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    return tokens, types, merges


def from_tekken(data):
    config = data["config"]
    n_special = config["default_num_special_tokens"]
    n_ranks = config["default_vocab_size"] - n_special
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:n_ranks]}
    specials = {i: f"<SPECIAL_{i}>" for i in range(n_special)}
    specials |= {t["rank"]: t["token_str"] for t in data.get("special_tokens") or []}
    specials |= {} if data.get("special_tokens") else {0: "<unk>", 1: "<s>", 2: "</s>"}
    return from_ranks(ranks, n_special, specials)


def read_tiktoken(path):
    with open(path, "rb") as file:
        lines = (line.split() for line in file if line.strip())
        return {base64.b64decode(token): int(rank) for token, rank in lines}


def write_sentence_piece(writer, path):
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece.piece for piece in model.pieces])
    writer.add_token_scores([piece.score for piece in model.pieces])
    # Mistral's [INST] and the like: user-defined in the file, control tokens by its other files.
    writer.add_token_types([CONTROL if piece.type == USER_DEFINED and piece.piece.startswith("[")
                            else piece.type for piece in model.pieces])
    writer.add_add_space_prefix(model.normalizer_spec.add_dummy_prefix)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--pre", default="default", help="tokenizer.ggml.pre")
    args = parser.parse_args()
    writer = gguf.GGUFWriter(args.output, "llama")
    if args.input.endswith(".json"):
        with open(args.input, encoding="utf-8") as file:
            data = json.load(file)
        tokens, types, merges = (from_tokenizer_json if "model" in data else from_tekken)(data)
    elif args.input.endswith(".tiktoken"):
        ranks = read_tiktoken(args.input)
        end = max(ranks.values()) + 1
        names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        tokens, types, merges = from_ranks(ranks, 0, {end + i: n for i, n in enumerate(names)})
    else:
        write_sentence_piece(writer, args.input)
        tokens = None
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(args.pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


if __name__ == "__main__":
    main()
