"""Limits on what one owner's objects may cost the control plane and the proxy, which other owners share.

`resolve` checks them, because the installed CRDs may be more permissive. The defaults leave room for every use that we know
of. An operator changes them in `limits` of a GatewayProfile, up to a ceiling that protects the process."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

REGEX_CEILING: Final = 5_000
"""The size from which Envoy refuses an expression (`re2.max_program_size.error_level`). The time of a match is the program's
size times the input: in the worst case 0.3 s for a header of 50 kB at size 1,000. Our own patterns (names in certificates,
rewritten prefixes) stay below 1,100."""

MESSAGE_LENGTH: Final = 4_096
"""Characters in the message of a condition. The API server refuses a status with one of more than 32,768, and an object of
more than about 1.5 MiB; a Gateway has up to 64 listeners with several conditions each. So no profile can raise it."""

MAX_ENDPOINTS: Final = 5_000
"""Endpoints of a Service port or an XBackend that are used. Each change of one sends all of them to Envoy again."""

_WHY: Final = {
    "regex_program_size": "Size of a regular expression after RE2 has compiled it. A larger one can hold a worker of Envoy "
    "for seconds with a single request.",
    "regexes_per_route": "Regular expressions in the matches of one HTTPRoute or GRPCRoute. Each is compiled at every edit "
    "and tried at every request; 128 is one for each match that a route may have.",
    "regex_size_per_hostname": "The sizes of all regular expressions that the routes of one namespace have under one "
    "hostname, added up: in the worst case each of them is tried with every request. Older routes come first.",
    "retry_attempts": "`retry.attempts` of a rule. Every attempt is a request to the backend, so this is the factor by which "
    "a route may multiply its traffic.",
    "forward_body_bytes": "`forwardBody.maxSize` of an ExternalAuth filter. The proxy holds that much of every request in "
    "memory until the server has answered.",
    "matches_per_hostname": "Matches that the routes of one namespace may have under one hostname of a listener. The "
    "hostname is shared: its table is built and sent anew with every edit. Older routes come first.",
    "listeners_per_namespace": "Listeners that the ListenerSets of one namespace may add to a Gateway. Conflicts are settled "
    "over all of a Gateway's listeners with every edit of one. Older ListenerSets come first.",
    "header_value_length": "Bytes in a header value that a filter sets or adds, or that a match compares. 4,096 is the CRD's "
    "own limit; Envoy refuses a route with more than 16,384, in which percent signs count twice.",
    "session_name_length": "Characters in the name of a session's cookie or header. Every client sends it with every request.",
    "ca_bundle_bytes": "PEM bytes of all CA certificates that a BackendTLSPolicy or XBackend refers to. They are part of "
    "each of its clusters, in the control plane and in every proxy.",
    "ca_certificates": "The same, in certificates: Envoy parses each of them for each cluster. A public trust store has "
    "about 150, and `wellKnownCACertificates: System` is not counted.",
}
"""Describes each limit and the reason for it."""


def _within(lowest: int, highest: int, field: str) -> Meta:
    return Meta(ge=lowest, le=highest, description=_WHY[field])


class Limits(msgspec.Struct, frozen=True, rename="camel"):
    """The limits of one Gateway: the lowest value, the ceiling and the default."""

    regex_program_size: Annotated[int, _within(1, REGEX_CEILING, "regex_program_size")] = 1_000
    regexes_per_route: Annotated[int, _within(0, 2_048, "regexes_per_route")] = 128
    regex_size_per_hostname: Annotated[int, _within(0, 200_000, "regex_size_per_hostname")] = 10_000
    retry_attempts: Annotated[int, _within(0, 1_000, "retry_attempts")] = 100
    forward_body_bytes: Annotated[int, _within(0, 64 << 20, "forward_body_bytes")] = 1 << 20
    matches_per_hostname: Annotated[int, _within(1, 50_000, "matches_per_hostname")] = 2_000
    listeners_per_namespace: Annotated[int, _within(0, 10_000, "listeners_per_namespace")] = 1_000
    header_value_length: Annotated[int, _within(0, 8_192, "header_value_length")] = 4_096
    session_name_length: Annotated[int, _within(1, 256, "session_name_length")] = 128
    ca_bundle_bytes: Annotated[int, _within(1, 16 << 20, "ca_bundle_bytes")] = 256 << 10
    ca_certificates: Annotated[int, _within(1, 10_000, "ca_certificates")] = 200


FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Limits)}


def clamped(field: str, value: int) -> int:
    """Returns a profile's value within the bounds of its CRD, in case the API server has not validated it."""
    return max(floor(field), min(value, ceiling(field)))


def over(limits: Limits, field: str) -> str:
    """Returns the end of a message about an exceeded limit: its value and how to raise it."""
    limit, highest = getattr(limits, field), ceiling(field)
    raised = f", or raise spec.limits.{FIELDS[field].encode_name} (up to {highest:,}) in the Gateway's GatewayProfile"
    return f"the limit is {limit:,}; use less{raised if limit < highest else ''}"


def floor(field: str) -> int:
    return int(_meta(field).ge or 0)


def ceiling(field: str) -> int:
    return int(_meta(field).le or 0)


def reason(field: str) -> str:
    return _meta(field).description or ""


def _meta(field: str) -> Meta:
    meta: Meta = FIELDS[field].type.__metadata__[0]
    return meta
