#!/usr/bin/env python3
"""Asks weft the questions about one of the examples' folders and counts the right answers.

    tools/check_examples.py [--weft build/release/weft] [--model smollm2-135m] [--modes none,blend]
                            [--folder docs|notes] [--ratio R]

docs: a small company's papers, examples/questions.json; notes: somebody's short notes,
examples/notes-questions.json. Ingests the folder into a temporary store first. Exit status 1 when a
mode gets one wrong.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--modes", default="none,blend")
    parser.add_argument("--folder", choices=["docs", "notes"], default="docs")
    parser.add_argument("--ratio", default="auto")
    arguments = parser.parse_args()

    file = "questions.json" if arguments.folder == "docs" else "notes-questions.json"
    questions = json.loads((EXAMPLES / file).read_text(encoding="utf-8"))
    asked = "".join(q["question"] + "\n" for q in questions)
    wrong = {}
    with tempfile.TemporaryDirectory() as store:
        common = ["-m", arguments.model, "--store", store]
        subprocess.run([arguments.weft, "ingest", *common, str(EXAMPLES / arguments.folder)], check=True)
        for mode in arguments.modes.split(","):
            run = subprocess.run(
                [arguments.weft, "ask", *common, "--reuse", mode, "--ratio", arguments.ratio, "-n", "32",
                 "--json"],
                input=asked, capture_output=True, text=True, check=False)
            sys.stderr.write(run.stderr)
            answers = run.stdout.splitlines()
            if run.returncode != 0 or len(answers) != len(questions):
                sys.exit(f"weft ask --reuse {mode}: exit status {run.returncode}, "
                         f"{len(answers)} of {len(questions)} answers")
            for question, line in zip(questions, answers):
                answer = json.loads(line)["answer"] or ""  # null: not in the documents
                right = any(a.lower() in answer.lower() for a in question["answers"])
                wrong[mode] = wrong.get(mode, 0) + (not right)
                print(f"{mode:6} {'right' if right else 'WRONG'}  {question['question']}  {answer}")
    for mode, n in wrong.items():
        print(f"{mode:6} {len(questions) - n} of {len(questions)} right")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
