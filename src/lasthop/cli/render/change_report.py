"""Renders the record of changes: `lasthop audit --since`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import msgspec

from lasthop.base.api.times import rfc3339
from lasthop.cli.render.report import count
from lasthop.cli.render.terminal import wrapped
from lasthop.engine.outputs.audit.changes import Change, Incident, Record, since
from lasthop.engine.plan.verification_change import ChangeKind

INDENT = " " * 6


class ChangeReport(msgspec.Struct, frozen=True):
    where: str
    start: float
    """Unix time from which changes were wanted."""
    covered: float | None
    """The time from which the record is complete; None: not known."""
    changes: tuple[Change, ...]
    incidents: tuple[Incident, ...] = ()


def change_report(record: Record, where: str, start: float, namespace: str = "") -> ChangeReport:
    incidents = tuple(each for each in record.incidents if each.at >= start)
    return ChangeReport(where, start, record.covered(namespace), since(record.changes, start, namespace), incidents)


def text(report: ChangeReport) -> str:
    changes, covered = report.changes, report.covered
    lines = [line for each in changes for line in _lines(each)]
    lines += [f"{_second(each.at)}  the record itself: {each.what}" for each in report.incidents]
    if covered is None:
        lines += ["It is not known since when changes are recorded, so there may have been others."]
    elif covered > report.start:
        lines += [f"The record is complete only from {_minute(covered)} on; what changed before that is not known."]
    if not changes:
        if covered is None:
            return "\n".join((*lines, f"no change of how a backend is verified is recorded in {report.where}"))
        since = _minute(max(report.start, covered))
        return "\n".join((*lines, f"no change of how a backend is verified since {since} in {report.where}"))
    weaker = sum(each.weaker for each in changes)
    unsaid = sum(each.weaker and not each.acknowledged for each in changes)
    told = f": {weaker} weaker, {unsaid} of them not acknowledged then" if weaker else ", none of them weaker"
    return "\n".join((*lines, "", f"{count(len(changes), 'change')} since {_minute(report.start)} in {report.where}{told}"))


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _second(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _lines(each: Change) -> Iterator[str]:
    mark = "weaker, not acknowledged" if each.weaker and not each.acknowledged else "weaker" if each.weaker else ""
    mark = "other trust" if each.effect == ChangeKind.OTHER_TRUST else mark
    shown = f"  {click.style(mark, fg='red' if each.weaker else 'yellow')}" if mark else ""
    yield f"{_second(each.at)}  {each.address}  {each.before} -> {each.after}{shown}"
    yield from wrapped(f"because {each.because}", INDENT, INDENT)
    for fact in each.facts:
        if fact not in each.because:
            yield from wrapped(fact, INDENT, INDENT)
    if each.acknowledged and not each.because.endswith(each.acknowledged):
        yield from wrapped(f"acknowledged by {each.acknowledged}", INDENT, INDENT)
    if each.gateways:
        yield from wrapped(f"from Gateway {', '.join(each.gateways)}", INDENT, INDENT)


def as_json(report: ChangeReport) -> str:
    absent = {"weaker": False, "acknowledged": "", "effect": "", "facts": []}
    found = [{"time": rfc3339(each.at), **absent, **msgspec.to_builtins(each)} for each in report.changes]
    document = {
        "where": report.where,
        "since": rfc3339(report.start),
        "completeSince": None if report.covered is None else rfc3339(report.covered),
        "incidents": [{"time": rfc3339(each.at), "what": each.what} for each in report.incidents],
        "changes": found,
    }
    return json.dumps(document, indent=2)
