"""Plots cost against N for Lasthop and its peer as PNG. Without matplotlib (`make bench` installs it), it draws none."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from bench.rows import Row

PLOTTED = (
    ("control", "policy edit: controller CPU"),
    ("control", "policy edit: effective"),
    ("control", "CA edit: effective"),
    ("control", "restart: controller CPU"),
    ("control", "restart: effective"),
    ("control", "restart: controller RSS"),
)
"""Two rows of three."""
ACROSS = 3


def draw(rows: Sequence[Row], folder: Path) -> list[str]:
    """Draws a picture for each part that has figures at several sizes; returns their paths, from the folder above."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    parts = dict.fromkeys(part for part, _ in PLOTTED)
    return [path for part in parts if (path := _draw(part, [row for row in rows if row.part == part], folder))]


def _draw(part: str, rows: Sequence[Row], folder: Path) -> str:
    whats = [
        what for plotted_part, what in PLOTTED if plotted_part == part and len({row.n for row in rows if row.what == what}) > 1
    ]
    if not whats:
        return ""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    down = -(-len(whats) // ACROSS)
    figure, axes = pyplot.subplots(down, ACROSS, figsize=(4 * ACROSS, 3 * down), squeeze=False, layout="constrained")
    for axis in axes.flat[len(whats) :]:
        axis.remove()
    for what, axis in zip(whats, axes.flat, strict=False):
        own = sorted((row for row in rows if row.what == what), key=lambda row: row.n)
        axis.plot([row.n for row in own], [row.ours for row in own], "o-", label="Lasthop")
        beside = [row for row in own if row.other is not None]
        if beside:
            axis.plot([row.n for row in beside], [row.other for row in beside], "s--", label=beside[0].peer)
        scale = "linear" if own[0].unit == "MiB" else "log"  # memory is compared as it is paid for
        axis.set(title=what, xlabel="policies", ylabel=own[0].unit, xscale="log", yscale=scale)
        if scale == "linear":
            axis.set_ylim(bottom=0)
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_formatter("{x:g}")
            ticks.set_minor_formatter("")
        axis.grid(True, which="both", alpha=0.25)
        axis.legend(fontsize="small")
    folder.mkdir(exist_ok=True)
    path = folder / f"{part}.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return f"{folder.name}/{path.name}"
