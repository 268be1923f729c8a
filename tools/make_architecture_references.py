#!/usr/bin/env python3
"""Writes tests/data/architectures/CASE.json: another program's logits for weft's random models.

    tools/make_architecture_references.py --weft-random-model build/dev/weft-random-model \
        --reference CMD [CASE ...]

Without a CASE, all that `weft-random-model --list-cases` names. CMD is a shell command that is run
once a case, as `CMD MODEL.gguf`. It reads one JSON object on standard input,

    {"prompt": [ids], "rows": [places in the prompt], "greedy": n, "context": positions}

runs the prompt from position 0 (no token added in front) with room for `context` positions, and
prints one JSON object:

    {"logits": [[a number for each of the vocabulary, per row]], "greedy": [n ids],
     "margins": [how far each greedy choice's logit was above the next]}

It must compute in 32-bit floats all through: quantised weights are to be expanded to F32 first,
activations, keys and values left alone.

A case whose closest greedy choice is closer than --least-margin is refused: rounding could decide
it otherwise; give its row in tests/support/architecture_cases.cc another seed (--seed tries one
without writing anything).
"""
import argparse
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

N_PROMPT = 48
N_GREEDY = 64
CONTEXT = 256
ROWS = [0, 22, 31, 47]  # the first; one inside a window of 24; one beyond it; the last
N_VOCAB = 288
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/architectures"


def prompt_ids():
    """Ordinary tokens, no control token: Knuth's MMIX generator, so that every run has the same."""
    ids, state = [], 4
    for _ in range(N_PROMPT):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(3 + (state >> 33) % (N_VOCAB - 3))
    return ids


def make(case, arguments, folder):
    model = folder / f"{case}.gguf"
    write = [arguments.weft_random_model, "--case", case, str(model)]
    if arguments.seed is not None:
        write += ["--seed", str(arguments.seed)]
    subprocess.run(write, check=True)
    request = {"prompt": prompt_ids(), "rows": ROWS, "greedy": N_GREEDY, "context": CONTEXT}
    done = subprocess.run(
        shlex.split(arguments.reference) + [str(model)],
        input=json.dumps(request), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{case}: the reference failed: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    margin = min(answer["margins"])
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    model.unlink()
    if any(len(row) != N_VOCAB for row in answer["logits"]) or len(answer["logits"]) != len(ROWS):
        sys.exit(f"{case}: the reference's logits are not {len(ROWS)} x {N_VOCAB}")
    return {"sha256": sha256, "prompt": request["prompt"], "rows": ROWS,
            "greedy": answer["greedy"], "least_margin": round(margin, 4),
            "logits": answer["logits"]}


def text_of(data):
    """JSON with one line a list, logits in seven significant digits."""
    lines = []
    for key, value in data.items():
        if key == "logits":
            rows = ["[" + ",".join(f"{x:.7g}" for x in row) + "]" for row in value]
            lines.append('"logits": [\n' + ",\n".join(rows) + "]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft-random-model", required=True, metavar="PROGRAM")
    parser.add_argument("--reference", required=True, metavar="CMD")
    parser.add_argument("--least-margin", type=float, default=0.02)
    parser.add_argument("--seed", type=int, help="try this seed; write nothing")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    cases = arguments.cases or subprocess.run(
        [arguments.weft_random_model, "--list-cases"],
        check=True, capture_output=True, text=True).stdout.split()
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            data = make(case, arguments, pathlib.Path(folder))
            quantised = "_q" in case  # only F32 models' greedy tokens are compared
            close = not quantised and data["least_margin"] < arguments.least_margin
            failed |= close
            print(f"{case}: closest greedy choice {data['least_margin']}, "
                  f"{len(set(data['greedy']))} different tokens"
                  + (", too close: not written, take another seed" if close else ""))
            if not close and arguments.seed is None:
                (FOLDER / f"{case}.json").write_text(text_of(data))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
