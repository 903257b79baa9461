"""Suggests what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def closest(text: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns the known word that is most like the text, whatever its case; empty if none is."""
    import difflib  # only for mistakes: it costs as much as everything else at the start of a command

    folded = {word.casefold(): word for word in known}
    return next((folded[word] for word in difflib.get_close_matches(text.casefold(), folded, n=1, cutoff=cutoff)), "")
