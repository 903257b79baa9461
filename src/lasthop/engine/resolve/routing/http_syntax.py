"""Checks the syntax of values that routes pass to Envoy: paths, headers, hostnames, origins, durations and numbers.

The CRDs check most of them too, but not in every release and channel. For an invalid value, Envoy refuses the whole route
table or copies the value into a response, so everything is checked again here."""

from __future__ import annotations

import re
from typing import Final

from lasthop.engine.plan.limits import Limits, over

PATH: Final = re.compile(r"(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
PATH_LENGTH: Final = 1_024
"""The CRD's limit. A rewritten prefix becomes a regular expression of that size, so it must be below `REGEX_CEILING`."""
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
"""A token (RFC 9110 5.6.2)."""
HEADER_VALUE: Final = re.compile("[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")
"""The values that Envoy accepts: no control characters but the tab."""
HOSTNAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.IGNORECASE)
WILDCARD: Final = "*."
ORIGIN: Final = re.compile(r"\*|https?://(\*|(\*\.)?([A-Za-z0-9-]+\.)*[A-Za-z0-9-]+)(:[0-9]{1,5})?")
ORIGIN_LENGTH: Final = 253
GRPC_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of a gRPC method."""
GRPC_SERVICE: Final = re.compile(rf"\.?{GRPC_NAME.pattern}(\.{GRPC_NAME.pattern})*")
GRPC_LENGTH: Final = 1_024
DURATION: Final = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
"""GEP-2257. At most 45 years, which Envoy's clock can hold."""
_MILLISECONDS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})
SCHEMES: Final = frozenset({"http", "https"})
MAX_PORT: Final = 65_535
MAX_WEIGHT: Final = 1_000_000
"""The spec's limit. The sum for one rule must fit 32 bits."""
MAX_WEIGHTS: Final = (1 << 32) - 1
PROTECTED: Final = frozenset({"host", "connection", "transfer-encoding", "upgrade", "content-length"})
"""Headers that frame or route the message. Envoy refuses to edit the first; edits of the others would break it."""


def is_hostname(text: str, *, wildcard: bool = False) -> bool:
    return HOSTNAME.fullmatch(text.removeprefix(WILDCARD) if wildcard else text) is not None


def shown(text: str, length: int = 60) -> str:
    """Quotes and truncates any text for a message."""
    return ascii(text) if len(text) <= length else f"{text[:length]!a}..."


def word(text: str) -> str:
    """Like `shown`, but without quotes around a single word."""
    return text if text.isalnum() and text.isascii() and len(text) <= 60 else shown(text)


def value_problem(name: str, value: str, limits: Limits) -> str:
    """Returns why a header cannot have a value; empty if it can."""
    if not HEADER_VALUE.fullmatch(value):
        return f"the value of header {shown(name)} has control characters (RFC 9110 5.5); remove them"
    if (length := len(value.encode())) > limits.header_value_length:
        return f"the value of header {shown(name)} has {length:,} bytes; {over(limits, 'header_value_length')}"
    return ""


def is_duration(text: str) -> bool:
    """Returns whether a text is a duration (GEP-2257). Any other text would count as zero, which means no limit."""
    return DURATION.fullmatch(text) is not None


def seconds(duration: str) -> float:
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", duration)) / 1_000


def seconds_if_set(duration: str | None) -> float | None:
    return seconds(duration) if duration else None


def grpc_path_regex(service: str, method: str) -> str:
    """Returns a pattern for the path of a gRPC call, `/service/method`. Names without a pattern contain no special
    characters."""
    return "/".join(("", *(f"(?:{part})" if part else "[^/]+" for part in (service, method))))
