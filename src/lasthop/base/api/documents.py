"""Documents: objects as JSON or YAML has them, not yet decoded or about to be written."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
