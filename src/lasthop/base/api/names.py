"""Checks Kubernetes' name formats (apimachinery's validation package)."""

from __future__ import annotations

import re

from lasthop.base.api.labels import SUBDOMAIN

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
