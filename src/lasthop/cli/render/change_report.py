"""Renders the record of changes: `lasthop audit --since`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
import msgspec

from lasthop.api.times import rfc3339
from lasthop.cli.render.report import count
from lasthop.cli.render.terminal import wrapped
from lasthop.outputs.audit.changes import Change

INDENT = " " * 6


def text(changes: Sequence[Change], where: str, start: float) -> str:
    since = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if not changes:
        return f"no change of how a backend is verified since {since} in {where}"
    lines = [line for each in changes for line in _lines(each)]
    weaker = sum(each.weaker for each in changes)
    unsaid = sum(each.weaker and not each.acknowledged for each in changes)
    told = f": {weaker} weaker, {unsaid} of them not acknowledged then" if weaker else ", none of them weaker"
    return "\n".join((*lines, "", f"{count(len(changes), 'change')} since {since} in {where}{told}"))


def _lines(each: Change) -> Iterator[str]:
    at = datetime.fromtimestamp(each.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    mark = "weaker, not acknowledged" if each.weaker and not each.acknowledged else "weaker" if each.weaker else ""
    shown = f"  {click.style(mark, fg='red')}" if mark else ""
    yield f"{at}  {each.address}  {each.before} -> {each.after}{shown}"
    yield from wrapped(f"because {each.because}", INDENT, INDENT)
    if each.acknowledged and not each.because.endswith(each.acknowledged):
        yield from wrapped(f"acknowledged by {each.acknowledged}", INDENT, INDENT)
    if each.gateways:
        yield from wrapped(f"from Gateway {', '.join(each.gateways)}", INDENT, INDENT)


def as_json(changes: Sequence[Change], where: str, start: float) -> str:
    found = [{"time": rfc3339(each.at), "weaker": False, "acknowledged": "", **msgspec.to_builtins(each)} for each in changes]
    return json.dumps({"where": where, "since": rfc3339(start), "changes": found}, indent=2)
