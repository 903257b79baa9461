"""What can go wrong between us and the API server."""

from __future__ import annotations

from typing import Any

import msgspec


class ConfigError(Exception):
    """There is no usable way to reach an API server; the message says what was tried."""


class ApiError(Exception):
    """The API server said no, or nothing at all (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}" if self.status else f"{self.reason}: {self.message}"

    @property
    def conflict(self) -> bool:
        return self.status == 409

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def forgotten(self) -> bool:
        """410, or 504 "too large resource version": the server cannot continue from our version, so read all again."""
        return self.status == 410 or (self.status == 504 and "resource version" in self.message.lower())

    @property
    def refused(self) -> bool:
        return self.status in (401, 403)

    @property
    def passing(self) -> bool:
        """No answer, overload or a fault of the server: the same question may well succeed later."""
        return self.status in (0, 408, 429) or self.status >= 500


UNREACHABLE = "Unreachable"
SILENT = "Silent"
RESET = "Reset"


def from_status(status: int, body: bytes, retry_after: float = 0.0) -> ApiError:
    """From an answer's body, which is a `Status` object unless something in between has answered."""
    try:
        said: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        said = None
    if not isinstance(said, dict) or said.get("kind") != "Status":
        return ApiError(status, "", body[:300].decode(errors="replace"), retry_after)
    return ApiError(said.get("code") or status, said.get("reason") or "", said.get("message") or "", retry_after)
