"""Checks Kubernetes' formats of names and labels (apimachinery's validation package)."""

from __future__ import annotations

import re
from typing import Final

SUBDOMAIN: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS subdomain (RFC 1123)."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")

DNS_LABEL = "at most 63 characters of a-z, 0-9 and '-', with a letter or digit at both ends"
DNS_SUBDOMAIN = "at most 253 characters: parts of a-z, 0-9 and '-', joined by dots"


def is_dns_label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    return SUBDOMAIN.fullmatch(text) is not None


def is_data_key(text: str) -> bool:
    return len(text) <= 253 and text not in (".", "..") and _DATA_KEY.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Checks a label or annotation key: `name` or `prefix.example/name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and SUBDOMAIN.fullmatch(prefix) is None:
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    return text == "" or _NAME.fullmatch(text) is not None
