#!/usr/bin/env python3
"""Draws docs/plots/self_extend.svg from docs/plots/self_extend.json (docs/measurements.md).

Needs matplotlib (Debian: python3-matplotlib). The JSON has the figures that the commands in the
measurements printed: by context, perplexity, and the share of pass keys found, of each series.
"""
import json
import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "plots"
STYLES = {
    "plain": {"color": "#444444", "marker": "o"},
    "without, beyond the context": {"color": "#c0392b", "marker": "x", "linestyle": "--"},
    "Self-Extend": {"color": "#1f6f8b", "marker": "s"},
    "grouped alone": {"color": "#b8860b", "marker": "^", "linestyle": ":"},
}


def draw(axes, series, ylabel):
    for name, points in series.items():
        lengths = sorted(int(n) for n in points)
        axes.plot(lengths, [points[str(n)] for n in lengths], label=name, **STYLES[name])
    axes.axvline(8192, color="#999999", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks([4096, 8192, 16384, 32768], ["4K", "8K", "16K", "32K"])
    axes.minorticks_off()
    axes.set_xlabel("context in tokens")
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    data = json.loads((FOLDER / "self_extend.json").read_text())
    # The same file for the same figures: no date, and names that do not change from run to run.
    plt.rcParams.update({"svg.hashsalt": "weft", "font.size": 9, "legend.frameon": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    draw(left, data["perplexity"], "perplexity (log)")
    left.set_yscale("log")
    left.set_yticks([20, 100, 500, 2500], ["20", "100", "500", "2,500"])
    left.minorticks_off()
    draw(right, data["passkey"], "pass keys found")
    right.set_ylim(-0.05, 1.05)
    right.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    names = {}
    for axes in (left, right):
        for line, name in zip(*axes.get_legend_handles_labels()):
            names.setdefault(name, line)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(names.values(), names.keys(), loc="lower center", ncols=len(names))
    figure.savefig(FOLDER / "self_extend.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
