"""Checks the syntax of labels (apimachinery's validation package)."""

from __future__ import annotations

import re
from typing import Final

SUBDOMAIN: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS subdomain (RFC 1123)."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_qualified_name(text: str) -> bool:
    """Checks a label or annotation key: `name` or `prefix.example/name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and SUBDOMAIN.fullmatch(prefix) is None:
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    return text == "" or _NAME.fullmatch(text) is not None
