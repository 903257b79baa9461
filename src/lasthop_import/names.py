"""Builds object names within Kubernetes' limits."""

from __future__ import annotations

import hashlib
import re
from typing import Final

LONGEST: Final = 63
"""Maximum characters of a generated name: some kinds permit no more."""


def slug(text: str) -> str:
    """Makes a part of a name from a hostname or path."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("*", "wildcard")).strip("-")


def shortened(name: str) -> str:
    """Returns a valid name of at most `LONGEST` characters; a longer one ends in its hash, so that it stays unique."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "imported"
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[: LONGEST - 9].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
