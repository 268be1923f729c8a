#!/usr/bin/env python3
"""Makes a development set of short notes: questions over passages of one to three sentences.

    tools/make_short_notes.py OUT.json SOURCE.json... [--limit 300] [--seed 12]

A SOURCE.json is a list of {"question", "answers", "ctxs": [{"title", "text"}]}, each with the gold
passage first, as `weft eval` reads it. Of the gold passage stay the one to three sentences around
the answer; three to five other questions' passages, cut as short, stand beside it in a shuffled
order. Questions are taken from the sources in turn; the same seed gives the same file.
"""
import argparse
import json
import random
import re


def sentences(text):
    return [s for s in re.split(r"(?<=[.!?])\s+", text.strip()) if s]


def note_around(text, answers, rng):
    """One to three neighbouring sentences of which one has an answer; None where none has."""
    parts = sentences(text)
    holders = [i for i, s in enumerate(parts) if any(a and a.lower() in s.lower() for a in answers)]
    if not holders:
        return None
    length = rng.randint(1, 3)
    begin = max(0, min(holders[0] - rng.randrange(length), len(parts) - length))
    return " ".join(parts[begin : begin + length])


def note_anywhere(text, rng):
    parts = sentences(text)
    length = rng.randint(1, 3)
    begin = rng.randint(0, max(0, len(parts) - length))
    return " ".join(parts[begin : begin + length])


def questions_of(path, rng):
    with open(path, encoding="utf-8") as file:
        examples = json.load(file)
    rng.shuffle(examples)
    return examples


def in_turn(lists):
    for i in range(max(len(examples) for examples in lists)):
        for examples in lists:
            if i < len(examples):
                yield examples[i], examples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--seed", type=int, default=12)
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    made = []
    for example, source in in_turn([questions_of(path, rng) for path in arguments.sources]):
        if len(made) == arguments.limit:
            break
        gold = example["ctxs"][0]
        note = note_around(gold["text"], example["answers"], rng)
        if note is None or len(note) > 1500:
            continue
        chosen = [{"title": gold["title"], "text": note}]
        others = rng.sample(source, 12)
        n_others = rng.randint(3, 5)
        for other in others:
            if len(chosen) > n_others:
                break
            passage = other["ctxs"][0]
            text = note_anywhere(passage["text"], rng)
            answered = any(a.lower() in text.lower() for a in example["answers"])
            if not answered and passage["text"] != gold["text"] and len(text) <= 1500:
                chosen.append({"title": passage["title"], "text": text})
        rng.shuffle(chosen)
        made.append({"question": example["question"], "answers": example["answers"], "ctxs": chosen})
    if len(made) < arguments.limit:
        parser.error(f"only {len(made)} questions have a short passage with an answer")
    with open(arguments.target, "w", encoding="utf-8") as file:
        json.dump(made, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
