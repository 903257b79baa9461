"""Suggests the closest existing name: a similar word for messages, or a typo in one place for decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEAR: Final = 2
"""Letters that may differ, all in one place."""


def closest(text: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns the word most similar to the text, ignoring case; empty if none is similar."""
    import difflib  # only for mistakes: it costs as much as everything else at the start of a command

    folded = {word.casefold(): word for word in words}
    return next((folded[word] for word in difflib.get_close_matches(text.casefold(), folded, n=1, cutoff=cutoff)), "")


def typo_of(name: str, names: Iterable[str]) -> str:
    """Returns the existing name that differs from `name` in one place only, by at most two letters: a letter that is missing,
    doubled, wrong or swapped with its neighbour. Empty if there is none."""
    differences = ((_difference(name, candidate), candidate) for candidate in names)
    near = [
        (letters, candidate)
        for letters, candidate in differences
        if 0 < letters <= NEAR and letters < min(len(name), len(candidate))
    ]
    return min(near)[1] if near else ""


def _difference(name: str, other: str) -> int:
    """Returns the length of the longer name without the common prefix and suffix."""
    if abs(len(name) - len(other)) > NEAR:
        return NEAR + 1
    start = _common_prefix(name, other)
    return max(len(name), len(other)) - start - _common_prefix(name[start:][::-1], other[start:][::-1])


def _common_prefix(name: str, other: str) -> int:
    """Returns the length of the common prefix."""
    pairs = enumerate(zip(name, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(name), len(other)))
