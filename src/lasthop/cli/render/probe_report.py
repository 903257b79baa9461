"""Renders the result of `lasthop probe` for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from lasthop.base.text.printable import printable
from lasthop.cli.render.terminal import wrapped
from lasthop.edge.probe.result import STRENGTH, Check, CheckOutcome, EndpointResult, ProbeResult, TargetResult

MARKS: Final = {"pass": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("-", None)}
INDENT: Final = " " * 4
COLUMN: Final = " " * 26
"""Start of the second column."""


def text(found: ProbeResult) -> Iterator[str]:
    yield click.style(found.object, bold=True)
    for result in found.targets:
        yield ""
        yield _headline(result, found.object)
        if result.unused:
            yield from wrapped(f"{_mark('skip')} not used: {printable(result.unused)}", INDENT, INDENT)
        if result.refused:
            yield from wrapped(f"{_mark('fail')} refused: {printable(result.refused)}", INDENT, INDENT)
        for tried in result.endpoints:
            yield f"  {tried.address}"
            for check in tried.checks:
                yield from _check(check)
        if result.more:
            yield f"  and {result.more} more, not tried"
    yield from ("", *(f"Note: {note}" for note in found.notes)) if found.notes else ()
    yield ""
    yield click.style(_verdict(found), bold=True, fg="green" if found.passes else "red")


def _headline(result: TargetResult, object: str) -> str:
    port = f" port {result.port}" if result.port else ""
    lead = f"Gateway {result.gateway} to " if result.gateway else ""
    by = f", as {result.policy} requires" if result.policy not in ("", object, result.service) else ""
    bare = not (result.gateway or result.refused or result.unused)
    return f"{lead}{result.service}{port}{by}{' (as the policy alone requires: no route leads there)' if bare else ''}"


def _check(check: Check) -> Iterator[str]:
    yield from wrapped(f"{_mark(check.state)} {check.name:18}  {printable(check.found)}", INDENT, COLUMN)
    if check.state in ("fail", "warn") and check.remedy:
        yield from (click.style(line, fg="green") for line in wrapped(printable(check.remedy), COLUMN, COLUMN))


def _verdict(found: ProbeResult) -> str:
    tried = [each for result in found.targets for each in result.endpoints]
    warned = {check.name for each in tried for check in each.checks if check.state is CheckOutcome.WARN}
    refuses = ", but may refuse requests (!)" if warned - {STRENGTH} else ""
    weak = ", with a weak certificate (!)" if STRENGTH in warned else ""
    return f"{_outcome(found)}{_counted(found, tried)}{refuses}{weak}"


def _outcome(found: ProbeResult) -> str:
    fails = sorted({result.gateway for result in found.used if result.connects_nowhere})
    connects = sorted({result.gateway for result in found.used} - set(fails))
    if not found.used:
        return "no gateway uses it for a TLS connection" if found.targets else "it has no backend"
    if fails and connects:
        return f"Gateway {', '.join(connects)} would connect, Gateway {', '.join(fails)} would fail"
    return "the gateway would fail" if fails else "the gateway would connect"


def _counted(found: ProbeResult, tried: list[EndpointResult]) -> str:
    """Counts the endpoints that pass; if a gateway would connect to some, those that fail."""
    bad = sum(not each.passes for each in tried)
    if bad and found.used and not any(result.connects_nowhere for result in found.used):
        return f", but {bad} of {len(tried)} tried endpoints {'fails' if bad == 1 else 'fail'}"
    return f"; {len(tried) - bad} of {len(tried)} tried endpoints pass" if tried else ""


def _mark(state: str) -> str:
    mark, colour = MARKS[state]
    return click.style(mark, fg=colour, bold=True)
