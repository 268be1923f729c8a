#!/usr/bin/env python3
"""Times weft and llama.cpp from the start of a process to the end of its first token, in turns.

    tools/load_beside_llama.py --llama build/bin/llama-completion --model FILE.gguf
                               [--weft build/release/weft] [--repeat 5] [--threads 2] [--cold]

Both get the same prompt, greedy, one token; peak memory is the resident set, mapped pages included.
With --cold the file is dropped from the page cache before each run.
"""
import argparse
import os
import statistics
import subprocess
import time


def drop_page_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(command):
    """(seconds to the exit, CPU seconds, peak bytes) of one process."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{command[0]}: exit status {child.returncode}")
    return (time.perf_counter() - begin, usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()

    shared = ["-m", arguments.model, "-p", "The harbour opens at seven, and the", "-n", "1",
              "-t", str(arguments.threads), "-c", str(arguments.context), "--temp", "0"]
    commands = {"weft": [arguments.weft, "generate", "--raw", *shared],
                "llama.cpp": [arguments.llama, "-no-cnv", "--no-warmup", *shared]}
    runs = {name: [] for name in commands}
    for command in commands.values():
        run(command)  # what either measures and keeps on first use
    for _ in range(arguments.repeat):
        for name, command in commands.items():
            if arguments.cold:
                drop_page_cache(arguments.model)
            runs[name].append(run(command))
    size = os.path.getsize(arguments.model)
    print(f"file {size / 2**20:.1f} MiB, page cache {'dropped' if arguments.cold else 'warm'}")
    for name, results in runs.items():
        seconds, cpu, peak = zip(*results)
        print(f"{name:9} {statistics.median(seconds) * 1e3:8.0f} ms (least {min(seconds) * 1e3:.0f}), "
              f"CPU {min(cpu) * 1e3:.0f} ms, peak {max(peak) / 2**20:.1f} MiB "
              f"(over the file: {(max(peak) - size) / 2**20:.1f})")


if __name__ == "__main__":
    main()
