#!/usr/bin/env python3
"""Writes golden vectors for src/gguf/quantise_test.cc with PyPI's gguf 0.19 and numpy.

    tools/make_quantise_vectors.py > src/gguf/testdata/quantise.txt

One vector is three lines: the type's name; the bits of f32 values; the bytes of the blocks.

The plain types' bytes are the gguf package's. It does not write the K types, and llama.cpp's search
is another in detail; so theirs come from the search below, which is weft's written once more, with
the same roundings to 32 bits and sums of eight lanes (src/gguf/quantise.cc): two grids may fit so
nearly alike that these decide.
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


F = np.float32


def half(x):
    """The half float nearest to x, and its two bytes."""
    nearest = np.float16(x)
    return F(nearest), nearest.tobytes()


def inverse(x):
    return F(1) / x if x else F(0)


def lane_sum(x):
    """Eight sums of every eighth element, then those in pairs."""
    lanes = np.zeros(8, F)
    for part in x.reshape(-1, 8):
        lanes = lanes + part
    a, b, c, d, e, f, g, h = lanes
    return float(((a + e) + (c + g)) + ((b + f) + (d + h)))


def fit_line(x, most, first, n_grids):
    """Scale and min of x = scale * q - min, q in 0..most, that fit best of all grids tried."""
    wide = x.astype(np.float64)
    weight = F(np.sqrt(sum(wide * wide) / 32)) + np.abs(x)
    sum_w = sum(weight.astype(np.float64))
    sum_x = sum(weight.astype(np.float64) * wide)
    low, high = min(F(0), x.min()), x.max()
    if not high > low:
        return F(0), -low
    best, best_gain = ((high - low) / F(most), -low), -1.0
    for i in range(n_grids):
        per_unit = (F(most) + F(first) + F(0.1) * F(i)) / (high - low)
        q = np.rint(np.minimum(per_unit * (x - low), F(most)))
        wq = weight * q
        q1, q2, qx = lane_sum(wq), lane_sum(wq * q), lane_sum(wq * x)
        determinant = sum_w * q2 - q1 * q1
        if not determinant > 0:
            continue
        scale = (sum_w * qx - sum_x * q1) / determinant
        offset = (q2 * sum_x - q1 * qx) / determinant
        if offset > 0:  # a min is never negative
            scale, offset = qx / q2, 0.0
        gain = scale * qx + offset * sum_x
        if gain > best_gain and scale > 0:
            best, best_gain = (F(scale), F(-offset)), gain
    return best


def super_block(x, most, first, n_grids):
    """Q4_K (most 15) and Q5_K (31): d, dmin, 12 bytes of scales and mins, fifth bits, nibbles."""
    lines = [fit_line(part, most, first, n_grids) for part in x.reshape(8, 32)]
    top_scale, top_min = (max(F(0), *column) for column in zip(*lines))
    d, d_bytes = half(top_scale / F(63))
    dmin, dmin_bytes = half(top_min / F(63))
    scales = [int(np.rint(F(63) * inverse(top_scale) * s)) for s, _ in lines]
    mins = [int(np.rint(F(63) * inverse(top_min) * m)) for _, m in lines]
    q = np.zeros((8, 32), np.uint8)
    for s, part in enumerate(x.reshape(8, 32)):
        q[s] = np.rint(np.clip((part + dmin * F(mins[s])) * inverse(d * F(scales[s])), 0, most))
    packed = ([scales[s] | scales[s + 4] >> 4 << 6 for s in range(4)] +
              [mins[s] | mins[s + 4] >> 4 << 6 for s in range(4)] +
              [scales[s + 4] & 15 | (mins[s + 4] & 15) << 4 for s in range(4)])
    fifth = sum((q[s] >> 4) << s for s in range(8)).astype(np.uint8).tobytes()
    nibbles = (q[0::2] & 15 | (q[1::2] & 15) << 4).tobytes()
    return d_bytes + dmin_bytes + bytes(packed) + (fifth if most == 31 else b"") + nibbles


def fit_scale(x):
    """The scale of 16 elements for integers from -32 to 31, the extreme one near -32."""
    peak = x[np.argmax(np.abs(x))]
    if peak == 0:
        return F(0)
    best, best_gain = peak / F(-32), -1.0
    for step in range(-9, 10):
        q = np.rint(np.clip(-(F(32) + F(0.1) * F(step)) / peak * x, F(-32), F(31)))
        wq = x * x * q
        q2, qx = lane_sum(wq * q), lane_sum(wq * x)
        if q2 > 0 and qx * qx / q2 > best_gain:
            best, best_gain = F(qx / q2), qx * qx / q2
    return best


def q6_k(x):
    steps = np.array([fit_scale(part) for part in x.reshape(16, 16)])
    extreme = steps[np.argmax(np.abs(steps))]
    d, d_bytes = half(extreme / F(-128))
    q = np.zeros((16, 16), np.uint8)
    scales = np.rint(np.clip(F(-128) * inverse(extreme) * steps, -128, 127)).astype(np.int8)
    for s, part in enumerate(x.reshape(16, 16)):
        q[s] = np.rint(np.clip(part * inverse(d * F(scales[s])), -32, 31)) + 32
    low, high = b"", b""
    for runs in q.reshape(2, 4, 32):  # 128 elements: four runs of 32
        low += (runs[0:2] & 15 | (runs[2:4] & 15) << 4).tobytes()
        high += sum((run >> 4) << 2 * i for i, run in enumerate(runs)).astype(np.uint8).tobytes()
    return low + high + scales.tobytes() + d_bytes


K_TYPES = {"Q4_K": lambda x: super_block(x, 15, -1.0, 21),
           "Q5_K": lambda x: super_block(x, 31, -0.5, 16),
           "Q6_K": q6_k}


def k_blocks():
    """Normal, with a mean, of one sign, an outlier, scales far apart, many peaks, zeros."""
    rng = np.random.default_rng(11)
    outlier = rng.normal(0, 0.01, 256)
    outlier[77] = -3.0
    scales = rng.normal(0, 1, 256) * np.repeat(2.0 ** -np.arange(8), 32)
    rows = [rng.normal(0, 0.05, 256), rng.normal(0.03, 0.02, 256), rng.uniform(0.2, 1.0, 256),
            -np.abs(rng.normal(0, 0.1, 256)), outlier, scales, rng.standard_cauchy(256) * 0.01,
            np.zeros(256)]
    return np.array(rows, np.float32)


def show(name, values, data):
    print(name)
    print(" ".join(f"{b:08x}" for b in values.reshape(-1).view(np.uint32)))
    print(data.hex())


def main():
    values = blocks()
    for name in TYPES:
        show(name, values, np.ascontiguousarray(quantize(values, T[name])).tobytes())
    values = k_blocks()
    for name, quantise in K_TYPES.items():
        show(name, values, b"".join(quantise(row) for row in values))


main()
