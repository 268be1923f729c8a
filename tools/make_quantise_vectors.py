#!/usr/bin/env python3
"""Writes golden vectors for src/gguf/quantise_test.cc with PyPI's gguf 0.19 and numpy.

    tools/make_quantise_vectors.py > src/gguf/testdata/quantise.txt

One vector is three lines: the type's name; the bits of f32 values; the bytes of the blocks.
"""
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import quantize

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def blocks():
    """Of every kind: normal, small, one sign, ties, an outlier, equal extremes, zeros."""
    rng = np.random.default_rng(5)
    normal = rng.normal(0, 0.05, (3, 32))
    outlier = rng.normal(0, 0.01, 32)
    outlier[7] = -3.0
    ties = np.arange(-16, 16) / 4
    extremes = rng.uniform(-1, 1, 32)
    extremes[[3, 20]] = [1.5, -1.5]
    rows = [*normal, np.abs(normal[0]), normal[1] * 1e-6, outlier, ties, extremes,
            np.full(32, 0.25), np.zeros(32)]
    return np.array(rows, np.float32).reshape(-1)


def main():
    values = blocks()
    for name in TYPES:
        data = quantize(values, T[name])
        print(name)
        print(" ".join(f"{b:08x}" for b in values.view(np.uint32)))
        print(np.ascontiguousarray(data).tobytes().hex())


main()
