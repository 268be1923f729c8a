#!/usr/bin/env python3
"""Times weft's modes and a llama.cpp server on the same prompt tokens, in one run.

    tools/ttft_beside_server.py --server http://127.0.0.1:8080 [--weft build/release/weft]
                                [--model smollm2-135m] [--repeat 3] [--threads 2]

Start the server first, with the same GGUF, as many threads and flash attention on. Its time is that
of a request for one token with its prompt cache off, as a client sees it.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
import time
import urllib.request


def ask_server(url, tokens):
    body = {"prompt": tokens, "n_predict": 1, "cache_prompt": False, "temperature": 0}
    request = urllib.request.Request(url + "/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    begin = time.perf_counter()
    with urllib.request.urlopen(request) as reply:
        reply.read()
    return (time.perf_counter() - begin) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        run = subprocess.run(
            [arguments.weft, "bench", "ttft", "-m", arguments.model, "-t", str(arguments.threads),
             "--repeat", str(arguments.repeat), "--write-tokens", file.name, "--json"],
            check=True, capture_output=True, text=True)
        tokens = json.load(file)
    report = json.loads(run.stdout)
    ask_server(arguments.server, tokens)  # warms up
    server_ms = statistics.median(ask_server(arguments.server, tokens)
                                  for _ in range(arguments.repeat))
    print(f"{report['prompt_tokens']} tokens, medians of {arguments.repeat}")
    print(f"server  {server_ms:9.1f} ms")
    for mode, figures in report["modes"].items():
        ms = figures["ttft_ms"]["median"]
        print(f"{mode:7} {ms:9.1f} ms  {server_ms / ms:6.1f}x sooner than the server")


if __name__ == "__main__":
    main()
