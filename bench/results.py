"""`python -m bench.results`: writes bench/RESULTS.md and the plots from the rows in bench/out. Lists the missed goals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from bench import plots
from bench.rows import OUT, Row, Run, growth, missed, read
from bench.table import judgement, number, ratio

RESULTS = Path(__file__).parent / "RESULTS.md"

HEAD = """\
# Results

Written by `python -m bench.results` from the last run of each part; [README.md](README.md) says what runs. `ours : other` is
what Lasthop takes divided by what the other takes, so below 1 is less. A missed goal says so, and makes `make bench` fail.
"""

TITLES = {
    "control": "Control plane, on a Kubernetes API server",
    "data": "Data plane",
    "storm": "Control plane, endpoints changing all the time",
    "commands": "Commands: CPU of the process",
    "files": "Control plane, on a folder of files",
    "whole": "Installing and testing",
    "folder": "Start on a folder of files: CPU of the control plane alone",
}


def markdown(runs: Sequence[Run], rows: Sequence[Row], drawn: Iterable[str]) -> str:
    """Returns the whole report."""
    everything = [*rows, *growth(rows)]
    lost = missed(everything)
    summary = f"{sum(row.met is True for row in everything)} goals met, {len(lost)} missed."
    parts = [HEAD, summary + "\n", *(f"- **missed**: {_sentence(row)}" for row in lost), ""]
    plots_by_part: dict[str, list[str]] = {}
    for path in drawn:
        plots_by_part.setdefault(Path(path).stem.split("-")[0], []).append(path)
    for part in dict.fromkeys(row.part for row in everything):
        own = [row for row in everything if row.part == part]
        parts += [f"## {TITLES.get(part, part)}\n", *_how(run for run in runs if run.part == part), *_table(own), ""]
        parts += [f"![{Path(path).stem}]({path})" for path in plots_by_part.get(part, ())]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _sentence(row: Row) -> str:
    other = f" ({row.peer}: {number(row.other)}; ratio {ratio(row.ratio)})" if row.other is not None else ""
    return f"{row.what}, N={row.n:,}: {number(row.ours)} {row.unit}{other}; goal {row.goal}"


def _how(runs: Iterable[Run]) -> Iterable[str]:
    for run in runs:
        yield f"`{run.command}`, {run.date}, commit {run.commit}; {run.machine}.\n"
        yield f"Other processes took {run.others:.2f} cores meanwhile.\n"


def _table(rows: Sequence[Row]) -> Iterable[str]:
    yield "| | N | ours | other | ours : other | goal | |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        other = f"{number(row.other)} ({row.peer})" if row.other is not None else ""
        verdict = "**missed**" if row.met is False else judgement(row.met)
        size = f"{row.n:,}" if row.n else ""
        cells = (row.what, size, f"{number(row.ours)} {row.unit}", other, ratio(row.ratio), row.goal, verdict)
        yield f"| {' | '.join(cells)} |"


@click.command("bench.results")
@click.option("--from", "folder", default=OUT, type=click.Path(path_type=Path), help="The rows of the parts.")
def command(folder: Path) -> None:
    """Writes bench/RESULTS.md and its plots. The exit status is 1 if a goal was missed."""
    runs, rows = read(folder)
    if not rows:
        raise click.ClickException(f"there are no rows in {folder}; `make bench` writes them")
    drawn = plots.draw(rows, RESULTS.parent / "plots")
    RESULTS.write_text(markdown(runs, rows, drawn))
    click.echo(f"{RESULTS}: {len(rows)} rows, {len(drawn)} plots")
    lost = missed([*rows, *growth(rows)])
    for row in lost:
        click.echo(f"missed: {_sentence(row)}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    command()
