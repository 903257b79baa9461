"""The syntax of what routes hand to Envoy: paths, header names and values, hostnames, origins, durations, numbers.

The CRDs state most of it too, but not in every bundle and not in both channels. Envoy refuses the whole route table, or writes
the text into a response as it is, so everything is checked here again.
"""

from __future__ import annotations

import re
from typing import Final

PATH: Final = re.compile(r"(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
PATH_LENGTH: Final = 1_024
"""The CRD's own limit. A rewritten prefix becomes a regular expression of that size, so it must be below `REGEX_CEILING`."""
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
"""A token (RFC 9110 5.6.2)."""
HEADER_VALUE: Final = re.compile("[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")
"""What Envoy takes: no control characters but the tab."""
HOSTNAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.IGNORECASE)
WILDCARD: Final = "*."
ORIGIN: Final = re.compile(r"\*|https?://(\*|(\*\.)?([A-Za-z0-9-]+\.)*[A-Za-z0-9-]+)(:[0-9]{1,5})?")
ORIGIN_LENGTH: Final = 253
GRPC_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A method of a gRPC service."""
GRPC_SERVICE: Final = re.compile(rf"\.?{GRPC_NAME.pattern}(\.{GRPC_NAME.pattern})*")
GRPC_LENGTH: Final = 1_024
DURATION: Final = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
"""GEP-2257. At most 45 years, which Envoy's clock can hold."""
_MILLISECONDS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})
SCHEMES: Final = frozenset({"http", "https"})
MAX_PORT: Final = 65_535
MAX_WEIGHT: Final = 1_000_000
"""The spec's. The sum for one rule must fit 32 bits."""
MAX_WEIGHTS: Final = (1 << 32) - 1
PROTECTED: Final = frozenset({"host", "connection", "transfer-encoding", "upgrade", "content-length"})
"""Headers that frame the message or decide where it goes: Envoy refuses to edit the first, and would be fooled by the rest."""


def is_hostname(text: str, *, wildcard: bool = False) -> bool:
    return HOSTNAME.fullmatch(text.removeprefix(WILDCARD) if wildcard else text) is not None


def shown(text: str, length: int = 60) -> str:
    """Returns a text of any length and content, for a message."""
    return ascii(text) if len(text) <= length else f"{text[:length]!a}..."


def word(text: str) -> str:
    """Returns the same for what is a single word, as a rule."""
    return text if text.isalnum() and text.isascii() and len(text) <= 60 else shown(text)


def is_duration(text: str) -> bool:
    """Returns whether it has the form; what has not would mean no time at all, which is no limit."""
    return DURATION.fullmatch(text) is not None


def seconds(duration: str) -> float:
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", duration)) / 1_000


def seconds_if_set(duration: str | None) -> float | None:
    return seconds(duration) if duration else None


def grpc_path_regex(service: str, method: str) -> str:
    """Returns a pattern for the path of a gRPC call, `/service/method`. A name that is not a pattern has letters, digits and
    underscores, nothing that means something in one."""
    return "/".join(("", *(f"(?:{part})" if part else "[^/]+" for part in (service, method))))
