"""Lets the teams that share a folder take turns.

A team is whoever has a subfolder at the top; the files beside these are another's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator


class TeamQueue:
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


def in_turn(files: Iterable[str], last: str) -> Iterator[str]:
    """Yields the files, one of each team in turn, beginning after the team that was the last one before."""
    turns = TeamQueue()
    for team, file in sorted(((team_of(file), file) for file in files), key=lambda each: (each[0] <= last, each)):
        turns.add(file, team)
    return iter(turns.next, "")
