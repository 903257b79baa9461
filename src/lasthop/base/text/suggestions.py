"""Suggests the closest existing name: a similar word for messages, or a typo in one place for decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEAR: Final = 2
"""Letters that may differ, all in one place."""


def closest(text: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns the known word most similar to the text, ignoring case; empty if none is similar."""
    import difflib  # only for mistakes: it costs as much as everything else at the start of a command

    folded = {word.casefold(): word for word in known}
    return next((folded[word] for word in difflib.get_close_matches(text.casefold(), folded, n=1, cutoff=cutoff)), "")


def typo_of(name: str, known: Iterable[str]) -> str:
    """Returns the known name that differs from `name` in one place only, by at most two letters: a letter that is missing,
    doubled, wrong or swapped with its neighbour. Empty if there is none."""
    found = ((_difference(name, other), other) for other in known)
    near = [(letters, other) for letters, other in found if 0 < letters <= NEAR and letters < min(len(name), len(other))]
    return min(near)[1] if near else ""


def _difference(one: str, other: str) -> int:
    """Returns how many letters are left of the longer one without the beginning and the end that both share."""
    if abs(len(one) - len(other)) > NEAR:
        return NEAR + 1
    start = _shared(one, other)
    return max(len(one), len(other)) - start - _shared(one[start:][::-1], other[start:][::-1])


def _shared(one: str, other: str) -> int:
    """Returns the length of the beginning that both share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))
