#!/usr/bin/env python3
"""Writes golden vectors for src/kernels/dequantize_test.cc with PyPI's gguf 0.19 and numpy.

    tools/make_dequantize_vectors.py > src/kernels/testdata/dequantize.txt

One vector is three lines: the type's name; the blocks' bytes; the bits of the expanded f32 values.
Bytes are random, scales are finite halves, among them zero, subnormal and negative ones.
"""
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

# name, elements a block, bytes a block, offsets of the half floats in a block, blocks
TYPES = [
    ("F32", 1, 4, [], 8), ("F16", 1, 2, [0], 16), ("BF16", 1, 2, [], 16),
    ("Q8_0", 32, 34, [0], 3), ("Q4_0", 32, 18, [0], 3), ("Q4_1", 32, 20, [0, 2], 3),
    ("Q5_0", 32, 22, [0], 3), ("Q5_1", 32, 24, [0, 2], 3),
    ("Q4_K", 256, 144, [0, 2], 2), ("Q5_K", 256, 176, [0, 2], 2), ("Q6_K", 256, 210, [208], 2),
    ("Q2_K", 256, 84, [80, 82], 2), ("Q3_K", 256, 110, [108], 2), ("IQ4_NL", 32, 18, [0], 3),
    ("IQ4_XS", 256, 136, [0], 2), ("MXFP4", 32, 17, [], 5),
]
HALVES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x2e66]


def main():
    rng = np.random.default_rng(3)
    for name, _, size, half_offsets, blocks in TYPES:
        data = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
        if name == "F32":
            data[:, 3] &= 0xbf  # finite
        if name == "BF16":
            data[:, 1] &= 0xbf
        if name == "MXFP4":
            data[:, 0] = [0, 1, 2, 121, 250]  # subnormal scales and large ones
        for block in range(blocks):
            for offset in half_offsets:
                half = rng.choice(HALVES) if rng.random() < 0.5 else rng.integers(0x1c00, 0x3000)
                data[block, offset:offset + 2] = np.array([half], np.uint16).view(np.uint8)
        values = dequantize(data.reshape(-1).view(np.float32) if name == "F32" else
                            data.reshape(-1).view(np.float16) if name == "F16" else
                            data.reshape(-1), T[name])
        bits = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32)
        print(name)
        print(data.tobytes().hex())
        print(" ".join(f"{b:08x}" for b in bits))


main()
