"""Parses values of options: HOST:PORT, points in time, and label selectors in kubectl's syntax."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from lasthop.base.api.addresses import is_ip, split_port

Selects = Callable[[Mapping[str, str]], bool]
_KEY: Final = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = r"[-A-Za-z0-9_.]*"
_EQUAL: Final = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==?|!=)\s*(?P<value>{_VALUE})")
_AMONG: Final = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS: Final = re.compile(rf"(?P<not>!?)\s*(?P<key>{_KEY})")
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
AGO: Final = re.compile(r"(\d{1,6})([smhdw])")


def host_port(address: str, hint: str) -> tuple[str, int]:
    """Parses HOST:PORT. `hint` names the argument or option in the error."""
    host, port = split_port(address)
    if not (is_name(host) or is_ip(host)) or not port.isdecimal() or not 0 < int(port) < 65536:
        example = f"127.0.0.1{address}" if not host and port.isdecimal() else "api.example.com:443 or 127.0.0.1:8443"
        message = f"{address} is not HOST:PORT; write for example {example}"
        raise click.BadParameter(message, param_hint=hint)
    return host.lower(), int(port)


def program() -> str:
    """Returns the command by which this program was started, for commands to copy: it may not be on the PATH."""
    called, installed = sys.argv[0], shutil.which("lasthop")
    on_path = Path(called).name != "lasthop" or (installed and os.path.realpath(installed) == os.path.realpath(called))
    return "lasthop" if on_path else shlex.quote(called)


def is_name(name: str) -> bool:
    from lasthop.base.api.names import is_dns_subdomain

    return is_dns_subdomain(name.lower())


def ip_address(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if not is_ip(value):
        raise click.BadParameter(f"{value} is not an IP address")
    return value


class Since(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if ago := AGO.fullmatch(value):
            return time.time() - timedelta(seconds=int(ago[1]) * UNITS[ago[2]]).total_seconds()
        try:
            moment = datetime.fromisoformat(value.upper())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            forms = "how long ago (30m, 24h, 7d) or a date (2026-11-16, 2026-11-16T08:00:00Z)"
            self.fail(f"{value} is not a time; give {forms}", param, ctx)


class Selector(click.ParamType[Selects]):
    """Converts a label selector into a function that matches labels."""

    name = "selector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Selects:
        # A comma within parentheses separates values.
        requirements = [part.strip() for part in re.split(r",(?![^()]*\))", str(value))]
        matchers = [_requirement(requirement) for requirement in requirements if requirement]
        wrong = [
            requirement for requirement, matcher in zip(filter(None, requirements), matchers, strict=True) if matcher is None
        ]
        if wrong:
            self.fail(f"{wrong[0]} is not a label selector; write for example app=web,tier!=db", param, ctx)
        return lambda labels: all(matcher is not None and matcher(labels) for matcher in matchers)


def _requirement(text: str) -> Selects | None:
    if match := _EQUAL.fullmatch(text):
        key, value, equal = match["key"], match["value"], match["operator"] != "!="
        return lambda labels: (labels.get(key) == value) is equal
    if match := _AMONG.fullmatch(text):
        among, values, inside = (
            match["key"],
            {value.strip() for value in match["values"].split(",")},
            match["operator"] == "in",
        )
        return lambda labels: (labels.get(among) in values) is inside
    if match := _EXISTS.fullmatch(text):
        name, present = match["key"], not match["not"]
        return lambda labels: (name in labels) is present
    return None
