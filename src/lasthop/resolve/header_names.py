"""Names of headers: what one is, and which are nobody's to set."""

from __future__ import annotations

import re
from typing import Final

HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
PROTECTED: Final = frozenset({"host", "connection", "transfer-encoding", "upgrade", "content-length"})
"""Headers that frame the message or decide where it goes: Envoy refuses to edit the first, and would be fooled by the rest."""
