"""Declares the errors of requests to the API server."""

from __future__ import annotations

from typing import Any

import msgspec


class ConfigError(Exception):
    """The API server's address or credentials cannot be determined; the message lists the sources."""


class ApiError(Exception):
    """The API server responded with an error, or not at all (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after

    def __str__(self) -> str:
        return f"{' '.join(filter(None, (str(self.status or ''), self.reason)))}: {self.message}"

    @property
    def conflict(self) -> bool:
        return self.status == 409

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def expired(self) -> bool:
        """Returns whether the server cannot continue from our version, so that a new list is required: 410, or 504 "too large
        resource version"."""
        return self.status == 410 or (self.status == 504 and "resource version" in self.message.lower())

    @property
    def denied(self) -> bool:
        return self.status in (401, 403)

    @property
    def transient(self) -> bool:
        """Returns whether the same request may succeed later: no response, overload, or a failure of the server."""
        return self.status in (0, 408, 429) or self.status >= 500


UNREACHABLE = "Unreachable"
UNTRUSTED = "Untrusted"
"""The server's certificate does not verify."""
SILENT = "Silent"
RESET = "Reset"
NOT_OPENED = "NotOpened"
"""The server, or a proxy before it, refused a WebSocket."""


def from_status(status: int, body: bytes, retry_after: float = 0.0) -> ApiError:
    """Parses the body of an error response, which is a `Status` object unless a proxy has responded."""
    try:
        content: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != "Status":
        return ApiError(status, "", body[:300].decode(errors="replace").strip(), retry_after)
    return ApiError(content.get("code") or status, content.get("reason") or "", content.get("message") or "", retry_after)
