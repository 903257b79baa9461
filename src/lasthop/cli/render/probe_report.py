"""Renders the result of `lasthop probe` for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from lasthop.base.text.printable import printable
from lasthop.cli.render.terminal import wrapped
from lasthop.edge.probe.result import STRENGTH, ProbeResult, State

MARKS: Final = {"pass": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("-", None)}
INDENT: Final = " " * 4
COLUMN: Final = " " * 26
"""Where the second column begins."""


def text(found: ProbeResult) -> Iterator[str]:
    yield click.style(found.object, bold=True)
    for result in found.targets:
        yield ""
        port = f" port {result.port}" if result.port else ""
        lead = f"Gateway {result.gateway} to " if result.gateway else ""
        by = f", as {result.policy} asks" if result.policy not in ("", found.object, result.service) else ""
        bare = not (result.gateway or result.refused or result.unused)
        yield f"{lead}{result.service}{port}{by}{' (no route leads there; as the policy by itself asks)' if bare else ''}"
        if result.unused:
            yield from wrapped(f"{_mark('skip')} not used: {printable(result.unused)}", INDENT, INDENT)
        if result.refused:
            yield from wrapped(f"{_mark('fail')} refused: {printable(result.refused)}", INDENT, INDENT)
        for tried in result.endpoints:
            yield f"  {tried.address}"
            for check in tried.checks:
                yield from wrapped(f"{_mark(check.state)} {check.name:18}  {printable(check.found)}", INDENT, COLUMN)
                if check.state in ("fail", "warn") and check.remedy:
                    yield from (click.style(line, fg="green") for line in wrapped(printable(check.remedy), COLUMN, COLUMN))
        if result.more:
            yield f"  and {result.more} more, which were not tried"
    yield from ("", *(f"Note: {note}" for note in found.notes)) if found.notes else ()
    yield ""
    yield click.style(_verdict(found), bold=True, fg="green" if found.passes else "red")


def _verdict(found: ProbeResult) -> str:
    tried = [each for result in found.targets for each in result.endpoints]
    fails = sorted({result.gateway for result in found.used if result.connects_nowhere})
    connects = sorted({result.gateway for result in found.used} - set(fails))
    if not found.used:
        words = "no gateway makes a TLS connection because of it" if found.targets else "it leads to no backend"
    elif fails and connects:
        words = f"Gateway {', '.join(connects)} would connect, Gateway {', '.join(fails)} would fail"
    else:
        words = "the gateway would fail" if fails else "the gateway would connect"
    bad = sum(not each.passes for each in tried)
    if 0 < bad < len(tried) and connects:
        words += f", but {bad} of {len(tried)} tried endpoints {'fails' if bad == 1 else 'fail'}"
    elif tried:
        words += f"; {len(tried) - bad} of {len(tried)} tried endpoints pass"
    warned = {check.name for each in tried for check in each.checks if check.state is State.WARN}
    if warned - {STRENGTH}:
        words += ", but may refuse requests (!)"
    return f"{words}, with a weak certificate (!)" if STRENGTH in warned else words


def _mark(state: str) -> str:
    mark, colour = MARKS[state]
    return click.style(mark, fg=colour, bold=True)
