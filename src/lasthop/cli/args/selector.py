"""Label selectors as kubectl has them: `app=web,tier!=db,env in (a,b),!old`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

Selects = Callable[[Mapping[str, str]], bool]
_KEY: Final = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = r"[-A-Za-z0-9_.]*"
_EQUAL: Final = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==?|!=)\s*(?P<value>{_VALUE})")
_AMONG: Final = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS: Final = re.compile(rf"(?P<not>!?)\s*(?P<key>{_KEY})")


class Selector(click.ParamType[Selects]):
    """Becomes a function that says whether labels fit."""

    name = "selector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Selects:
        # A comma within parentheses separates values.
        requirements = [part.strip() for part in re.split(r",(?![^()]*\))", str(value))]
        found = [_requirement(each) for each in requirements if each]
        wrong = [text for text, each in zip(filter(None, requirements), found, strict=True) if each is None]
        if wrong:
            self.fail(f"{wrong[0]} is not a label selector; write for example app=web,tier!=db", param, ctx)
        return lambda labels: all(each is not None and each(labels) for each in found)


def _requirement(text: str) -> Selects | None:
    if match := _EQUAL.fullmatch(text):
        key, value, wanted = match["key"], match["value"], match["operator"] != "!="
        return lambda labels: (labels.get(key) == value) is wanted
    if match := _AMONG.fullmatch(text):
        among, values, inside = match["key"], {each.strip() for each in match["values"].split(",")}, match["operator"] == "in"
        return lambda labels: (labels.get(among) in values) is inside
    if match := _EXISTS.fullmatch(text):
        name, there = match["key"], not match["not"]
        return lambda labels: (name in labels) is there
    return None
