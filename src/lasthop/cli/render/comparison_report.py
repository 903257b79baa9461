"""Renders what `lasthop check --against` found."""

from __future__ import annotations

import json

import click

from lasthop.cli.render import report
from lasthop.outputs.comparison import Comparison, HopChange


def text(found: Comparison) -> str:
    blocks = []
    for title, mistakes in (("Introduced", found.introduced), ("Fixed", found.fixed)):
        if mistakes:
            shown = report.text(report.Report(mistakes, found.where, 0)).rpartition("\n\n")[0]
            blocks.append(f"{click.style(title, bold=True)}\n{shown}")
    if found.hops:
        lines = [line for change in found.hops for line in _hop(change)]
        blocks.append("\n".join([click.style("Hops that change how they are verified", bold=True), *lines]))
    return "\n\n".join([*blocks, summary(found)])


def summary(found: Comparison) -> str:
    counts = f"{len(found.introduced)} introduced, {len(found.fixed)} fixed, {report.count(len(found.hops), 'hop')} changed"
    weaker = f", {found.weaker} of them weaker" if found.weaker else ""
    colour = "red" if found.errors or found.weaker else "green"
    return click.style(f"{counts}{weaker}: {found.where} against {found.against}", bold=True, fg=colour)


def _hop(change: HopChange) -> list[str]:
    head = f"  {change.gateway.path} -> {_backend(change)}"
    if change.weaker:
        head += click.style("  weaker", fg="red", bold=True)
    return [head, f"      was  {change.before or '-'}", f"      now  {change.after or '-'}"]


def _backend(change: HopChange) -> str:
    return f"{change.backend.path if change.backend.kind == 'Service' else change.backend}:{change.port}"


def as_json(found: Comparison) -> str:
    document = {
        "where": found.where,
        "against": found.against,
        "errors": found.errors,
        "weaker": found.weaker,
        "introduced": [report.plain(each.finding) for each in found.introduced],
        "fixed": [report.plain(each.finding) for each in found.fixed],
        "hops": [
            {
                "gateway": change.gateway.path,
                "backend": str(change.backend),
                "port": change.port,
                "before": change.before,
                "after": change.after,
                "weaker": change.weaker,
                "file": change.file,
                "line": change.line,
            }
            for change in found.hops
        ],
    }
    return json.dumps(document, indent=2)


def github(found: Comparison) -> str:
    """Annotates what is new, and every hop that is verified less."""
    lines = [report.annotation(each.finding) for each in found.introduced]
    for change in found.hops:
        if change.weaker:
            message = f"{change.gateway.path} -> {_backend(change)} was {change.before}, and is now {change.after}"
            lines.append(report.command("error", "a backend is verified less", message, change.file, change.line))
    return "\n".join([*lines, click.unstyle(summary(found))])
