"""What somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def closest(text: str, known: Iterable[str]) -> str:
    """Empty if nothing is near."""
    import difflib  # only for mistakes: it costs as much as everything else at the start

    return next(iter(difflib.get_close_matches(text, list(known), n=1, cutoff=0.6)), "")
