"""Lets the teams that share a folder take turns.

A team is whoever has a subfolder at the top; the files beside these are another's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from itertools import islice


class Turns:
    """Returns paths in the order in which they came, of each team in turn: one with thousands delays nobody else's."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}

    def add(self, path: str, team: str) -> None:
        self._waiting.setdefault(team, deque()).append(path)

    def next(self) -> str:
        """Returns an empty string if there is nothing left."""
        if not self._waiting:
            return ""
        team = next(iter(self._waiting))
        paths = self._waiting.pop(team)
        path = paths.popleft()
        if paths:
            self._waiting[team] = paths
        return path


def team_of(file: str) -> str:
    top, separator, _ = file.partition(os.sep)
    return top if separator else ""


def first_in_turn(files: Iterable[str], count: int) -> set[str]:
    """Returns so many of the files, or all if there are fewer, of each team in turn."""
    turns = Turns()
    for file in files:
        turns.add(file, team_of(file))
    return set(islice(iter(turns.next, ""), count))
