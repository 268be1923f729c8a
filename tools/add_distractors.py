#!/usr/bin/env python3
"""Turns questions with one passage each into questions over that passage and N others.

    tools/add_distractors.py IN.json OUT.json [--distractors 5] [--limit 40] [--seed 7]

IN.json is a list of {"question", "answers", "ctxs": [{"title", "text"}]}, as `weft eval` reads it. The
distractors are other questions' passages; the same seed gives the same file.
"""
import argparse
import json
import random


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--distractors", type=int, default=5)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    with open(arguments.source, encoding="utf-8") as file:
        examples = json.load(file)
    rng.shuffle(examples)
    passages = list({e["ctxs"][0]["text"]: e["ctxs"][0] for e in examples}.values())
    if len(passages) <= arguments.distractors:
        parser.error(f"{arguments.source} has only {len(passages)} different passages")
    joined = []
    for example in examples[: arguments.limit]:
        gold = example["ctxs"][0]
        others = rng.sample([p for p in passages if p["text"] != gold["text"]], arguments.distractors)
        chosen = [gold, *others]
        rng.shuffle(chosen)
        joined.append({"question": example["question"], "answers": example["answers"], "ctxs": chosen})
    with open(arguments.target, "w", encoding="utf-8") as file:
        json.dump(joined, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
