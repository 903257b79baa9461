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


def text(probe: ProbeResult) -> Iterator[str]:
    yield click.style(probe.object, bold=True)
    for result in probe.targets:
        yield ""
        yield _headline(result, probe.object)
        if result.unused:
            yield from wrapped(f"{_mark('skip')} not used: {printable(result.unused)}", INDENT, INDENT)
        if result.refused:
            yield from wrapped(f"{_mark('fail')} refused: {printable(result.refused)}", INDENT, INDENT)
        for endpoint in result.endpoints:
            yield f"  {endpoint.address}"
            for check in endpoint.checks:
                yield from _check(check)
        if result.more:
            yield f"  and {result.more} more, not tried"
    yield from ("", *(f"Note: {note}" for note in probe.notes)) if probe.notes else ()
    yield ""
    yield click.style(_verdict(probe), bold=True, fg="green" if probe.passes else "red")


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


def _verdict(probe: ProbeResult) -> str:
    endpoints = [endpoint for result in probe.targets for endpoint in result.endpoints]
    warned = {check.name for endpoint in endpoints for check in endpoint.checks if check.state is CheckOutcome.WARN}
    refuses = ", but may refuse requests (!)" if warned - {STRENGTH} else ""
    weak = ", with a weak certificate (!)" if STRENGTH in warned else ""
    return f"{_outcome(probe)}{_counted(probe, endpoints)}{refuses}{weak}"


def _outcome(probe: ProbeResult) -> str:
    fails = sorted({result.gateway for result in probe.used if result.connects_nowhere})
    connects = sorted({result.gateway for result in probe.used} - set(fails))
    if not probe.used:
        return "no gateway uses it for a TLS connection" if probe.targets else "it has no backend"
    if fails and connects:
        return f"Gateway {', '.join(connects)} would connect, Gateway {', '.join(fails)} would fail"
    return "the gateway would fail" if fails else "the gateway would connect"


def _counted(probe: ProbeResult, endpoints: list[EndpointResult]) -> str:
    """Counts the endpoints that pass; if a gateway would connect to some, those that fail."""
    bad = sum(not endpoint.passes for endpoint in endpoints)
    if bad and probe.used and not any(result.connects_nowhere for result in probe.used):
        return f", but {bad} of {len(endpoints)} tried endpoints {'fails' if bad == 1 else 'fail'}"
    return f"; {len(endpoints) - bad} of {len(endpoints)} tried endpoints pass" if endpoints else ""


def _mark(state: str) -> str:
    mark, colour = MARKS[state]
    return click.style(mark, fg=colour, bold=True)
