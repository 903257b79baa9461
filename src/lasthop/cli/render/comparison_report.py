"""Renders the result of `lasthop check --against`."""

from __future__ import annotations

import json
from typing import Final

import click

from lasthop.cli.render import report
from lasthop.cli.render.terminal import wrapped
from lasthop.engine.outputs.comparison import Comparison, HopChange

INDENT: Final = " " * 11
FACT: Final = f"{INDENT[:-2]}- "


def text(comparison: Comparison) -> str:
    blocks = []
    for title, root_causes in (("Introduced", comparison.introduced), ("Fixed", comparison.fixed)):
        if root_causes:
            shown = report.text(report.Report(root_causes, comparison.where, 0)).rpartition("\n\n")[0]
            blocks.append(f"{click.style(title, bold=True)}\n{shown}")
    if comparison.hops:
        lines = [line for change in comparison.hops for line in _hop(change)]
        blocks.append("\n".join([click.style("Hops whose verification changes", bold=True), *lines]))
    if comparison.not_judged:
        title = click.style("Not judged, because it could not be compared", bold=True, fg="red")
        blocks.append("\n".join([title, *(f"  {line}" for line in comparison.not_judged)]))
    return "\n\n".join([*blocks, summary(comparison)])


def summary(comparison: Comparison) -> str:
    hops = report.count(len(comparison.hops), "hop")
    counts = f"{len(comparison.introduced)} introduced, {len(comparison.fixed)} fixed, {hops} changed"
    counts += f", {comparison.weaker} of them weaker" if comparison.weaker else ""
    counts += f", {comparison.other_trust} of them against other CAs, names or pins" if comparison.other_trust else ""
    counts += ", not everything judged" if comparison.not_judged else ""
    bad = comparison.errors or comparison.weaker or comparison.not_judged
    colour = "red" if bad else "yellow" if comparison.other_trust else "green"
    return click.style(f"{counts}: {comparison.where} against {comparison.against}", bold=True, fg=colour)


def _hop(change: HopChange) -> list[str]:
    head = f"  {change.gateway.path} -> {_backend(change)}"
    if change.weaker:
        head += click.style("  weaker", fg="red", bold=True)
    elif change.other_trust:
        head += click.style("  other trust", fg="yellow", bold=True)
    states = [f"      was  {change.before or '-'}", f"      now  {change.after or '-'}"]
    return [head, *states, *(line for fact in change.facts for line in wrapped(fact, FACT, INDENT))]


def _backend(change: HopChange) -> str:
    return f"{change.backend.path if change.backend.kind == 'Service' else change.backend}:{change.port}"


def as_json(comparison: Comparison) -> str:
    document = {
        "where": comparison.where,
        "against": comparison.against,
        "errors": comparison.errors,
        "weaker": comparison.weaker,
        "otherTrust": comparison.other_trust,
        "notJudged": comparison.not_judged,
        "introduced": [report.plain(root.finding) for root in comparison.introduced],
        "fixed": [report.plain(root.finding) for root in comparison.fixed],
        "hops": [
            {
                "gateway": change.gateway.path,
                "backend": str(change.backend),
                "port": change.port,
                "before": change.before,
                "after": change.after,
                "weaker": change.weaker,
                "change": change.change.kind,
                "facts": [
                    {"subject": fact.subject, "change": fact.kind, "added": fact.added, "removed": fact.removed}
                    for fact in change.change.facts
                ],
                "file": change.file,
                "line": change.line,
            }
            for change in comparison.hops
        ],
    }
    return json.dumps(document, indent=2)


def github(comparison: Comparison) -> str:
    """Annotates new findings, hops whose verification becomes weaker or has other anchors, and items that could not be
    compared."""
    lines = [report.annotation(root.finding) for root in comparison.introduced]
    for change in comparison.hops:
        if change.weaker or change.other_trust:
            level, title = (
                ("error", "weaker verification of a backend")
                if change.weaker
                else ("warning", "other verification of a backend")
            )
            states = f"was {change.before}, and is now {change.after}" if change.before != change.after else change.after
            message = "; ".join((f"{change.gateway.path} -> {_backend(change)} {states}", *change.facts))
            lines.append(report.command(level, title, message, change.file, change.line))
    lines += [report.command("error", "not judged", line, "", 0) for line in comparison.not_judged]
    return "\n".join([*lines, click.unstyle(summary(comparison))])
