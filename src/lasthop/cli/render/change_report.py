"""Renders the record of changes: `lasthop audit --since`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from socket import gethostname
from typing import Final

import click
import msgspec

from lasthop.base.api.times import rfc3339
from lasthop.cli.render.report import count
from lasthop.cli.render.terminal import minute, wrapped
from lasthop.engine.memory.causes import EditKind
from lasthop.engine.memory.record import BEGAN, NEW, NEW_REDUCED, OPENED_REDUCED, REMOVED, Entry, Record
from lasthop.engine.plan.verification_change import ChangeKind

INDENT = " " * 6
UNKNOWN_AUTHOR: Final = "an unknown author"
NO_EDIT: Final = "no edit was seen: it was made while Lasthop was not running, or nothing was edited"
MARKS: Final = {
    ChangeKind.OTHER_TRUST: "other trust",
    NEW: "new",
    NEW_REDUCED: "new, not fully verified",
    OPENED_REDUCED: "opened, not fully verified",
    REMOVED: "removed",
}


class ChainReport(msgspec.Struct, frozen=True):
    """Integrity of the record of changes."""

    entries: int
    """The number of the last entry."""
    head: str
    faults: tuple[str, ...]


class ChangeReport(msgspec.Struct, frozen=True):
    made: float
    host: str
    """The machine that made the report."""
    where: str
    start: float
    """Unix time of `--since`."""
    covered: float | None
    """The time from which the record is complete; None: not known."""
    changes: tuple[Entry, ...]
    incidents: tuple[Entry, ...]
    """Events of the record itself, and its beginning."""
    chain: ChainReport


def change_report(record: Record, where: str, start: float, namespace: str = "") -> ChangeReport:
    """Returns the report of a record, made now on this machine."""
    entries = list(record.entries_since(start, namespace))
    changes, incidents = (tuple(entry for entry in entries if entry.is_change is is_change) for is_change in (True, False))
    chain = ChainReport(record.entries[-1].number if record.entries else 0, record.head, record.faults())
    return ChangeReport(time.time(), gethostname(), where, start, record.covered(namespace), changes, incidents, chain)


def text(report: ChangeReport) -> str:
    made = f"Made {rfc3339(report.made)} by lasthop {version('lasthop')} on {report.host}"
    return "\n".join((*_changes(report), *_chain(report.chain), made))


def _chain(chain: ChainReport) -> Iterator[str]:
    for fault in chain.faults:
        yield click.style(f"The record was edited: {fault}", fg="red")
    if chain.head:
        state = "broken" if chain.faults else "intact"
        entries = "1 entry" if chain.entries == 1 else f"{chain.entries:,} entries"
        yield f"The chain of {entries} is {state}; head {chain.head}"


def _changes(report: ChangeReport) -> Iterator[str]:
    for entry in report.changes:
        yield from _lines(entry)
    for entry in report.incidents:
        event = f"begins; {entry.because}" if entry.effect == BEGAN else entry.because
        yield f"{_second(entry.at)}  the record itself: {event}"
    if report.chain.faults:
        yield "The record was edited, so there may have been other changes."
    elif report.covered is None:
        yield "The beginning of the record is unknown, so there may have been other changes."
    elif report.covered > report.start:
        yield f"The record is complete only from {minute(report.covered)} on; earlier changes are unknown."
    yield from ("", _count(report)) if report.changes else (_none(report),)


def _none(report: ChangeReport) -> str:
    when = "is recorded" if report.covered is None else f"since {minute(max(report.start, report.covered))}"
    return f"no change of how a backend is verified {when} in {report.where}"


def _count(report: ChangeReport) -> str:
    weaker = [entry for entry in report.changes if entry.weaker]
    unacknowledged = sum(not entry.acknowledged for entry in weaker)
    reduced = sum(entry.begins_reduced for entry in report.changes)
    effects = [f"{len(weaker)} weaker, {unacknowledged} of them unacknowledged" if weaker else "none of them weaker"]
    effects += [f"{reduced} began to connect without full verification"] if reduced else []
    return f"{count(len(report.changes), 'change')} since {minute(report.start)} in {report.where}: {'; '.join(effects)}"


def _second(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _lines(entry: Entry) -> Iterator[str]:
    yield f"{_second(entry.at)}  {entry.address}  {entry.change}{_mark(entry)}"
    for line in _details(entry):
        yield from wrapped(line, INDENT, INDENT)


def _mark(entry: Entry) -> str:
    if entry.weaker:
        return f"  {click.style('weaker' if entry.acknowledged else 'weaker, not acknowledged', fg='red')}"
    mark = MARKS.get(entry.effect)
    return f"  {click.style(mark, fg='yellow')}" if mark else ""


def _details(entry: Entry) -> Iterator[str]:
    yield f"because {entry.because}"
    for cause in entry.causes:
        by = "" if cause.edit is EditKind.EXPIRED else f" by {cause.who or UNKNOWN_AUTHOR}"
        yield f"{cause.object} {cause.edit}{by}"
    if not entry.causes:
        yield NO_EDIT
    yield from (fact.text for fact in entry.facts)
    if entry.acknowledged:
        yield f"acknowledged by {entry.acknowledged}"
    if entry.gateways:
        yield f"from Gateway {', '.join(entry.gateways)}"


def as_json(report: ChangeReport) -> str:
    def shown(entries: tuple[Entry, ...]) -> list[dict[str, object]]:
        return [{"time": rfc3339(entry.at), **msgspec.to_builtins(entry)} for entry in entries]

    document = {
        "madeAt": rfc3339(report.made),
        "host": report.host,
        "lasthop": version("lasthop"),
        "where": report.where,
        "since": rfc3339(report.start),
        "completeSince": None if report.covered is None else rfc3339(report.covered),
        "chain": {**msgspec.to_builtins(report.chain), "intact": not report.chain.faults},
        "incidents": shown(report.incidents),
        "changes": shown(report.changes),
    }
    return json.dumps(document, indent=2)
