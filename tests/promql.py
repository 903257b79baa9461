"""Extracts the metrics and labels in PromQL expressions, for the rules and the dashboard of `deploy/`."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"\b((?:lasthop|process)_[a-z0-9_]+)\b(?:\s*{([^}]*)})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")


class Used(NamedTuple):
    metrics: dict[str, set[str]]
    """The labels that are matched, by metric."""
    grouped: set[str]
    """Labels that results are grouped by."""


def used(expression: str) -> Used:
    metrics: dict[str, set[str]] = {}
    grouped = {label for labels in _GROUPING.findall(expression) for label in re.findall(r"\w+", labels)}
    bare = _GROUPING.sub("", expression)
    for name, matchers in _NAME.findall(bare):
        metrics.setdefault(name, set()).update(_MATCHER.findall(re.sub(r'"[^"]*"', '""', matchers)))
    return Used(metrics, grouped)
