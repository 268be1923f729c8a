#!/usr/bin/env python3
"""Gives a llama.cpp server the prompts that `weft eval --details` wrote, and compares the answers.

    weft eval -m gemma3-270m -f questions.json --modes none --details details.jsonl
    tools/f1_beside_server.py --server http://127.0.0.1:8080 details.jsonl

Start the server first, with the same GGUF. Both answer greedily, 16 tokens at most, up to the first
line's end. F1 is SQuAD's, as in weft eval.
"""
import argparse
import collections
import json
import re
import string
import urllib.request


def ask_server(url, tokens):
    body = {"prompt": tokens, "n_predict": 16, "cache_prompt": False, "temperature": 0}
    request = urllib.request.Request(url + "/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        text = json.load(reply)["content"].lstrip(" \n\t")
    return text.split("\n")[0]


def words_of(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(answer, golden):
    a, g = words_of(answer), words_of(golden)
    if not a or not g:
        return float(a == g)
    return 2 * sum((collections.Counter(a) & collections.Counter(g)).values()) / (len(a) + len(g))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--mode", default="none", help="weft's mode to compare with")
    parser.add_argument("details")
    arguments = parser.parse_args()
    ours, theirs, same, n = 0.0, 0.0, 0, 0
    with open(arguments.details, encoding="utf-8") as lines:
        for line in lines:
            example = json.loads(line)
            answer = ask_server(arguments.server, example["prompt_tokens"])
            weft = example["modes"][arguments.mode]["answer"]
            ours += max(f1(weft, g) for g in example["answers"])
            theirs += max(f1(answer, g) for g in example["answers"])
            same += answer.strip() == weft.strip()
            n += 1
    print(f"{n} questions: F1 weft {ours / n:.4f}, server {theirs / n:.4f}; "
          f"{same} answers are the same")


if __name__ == "__main__":
    main()
