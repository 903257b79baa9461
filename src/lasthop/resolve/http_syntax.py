"""What is a path and what a name of a header, and which headers are nobody's to set."""

from __future__ import annotations

import re
from typing import Final

PATH: Final = re.compile(r"(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
PROTECTED: Final = frozenset({"host", "connection", "transfer-encoding", "upgrade", "content-length"})
"""Headers that frame the message or decide where it goes: Envoy refuses to edit the first, and would be fooled by the rest."""
