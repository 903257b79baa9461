"""Converts values of other systems into those of Gateway API: durations, header edits, CORS, matches.

Values without an equivalent are returned beside the rest, so that an importer can list them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.names import is_dns_subdomain
from lasthop.base.api.routes import (
    CookieConfig,
    HTTPCORSFilter,
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPPathModifier,
    HTTPRequestRedirectFilter,
    HTTPRouteFilter,
    HTTPURLRewriteFilter,
    SessionPersistence,
)
from lasthop_import.model import ImportedMatch, ImportedRule, ImportedValueMatch, ListenerKey, PathKind, PathMatch
from lasthop_import.notes import SourceRef

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
REQUEST_HEADERS: Final = "RequestHeaderModifier"
RESPONSE_HEADERS: Final = "ResponseHeaderModifier"
REDIRECT_CODES: Final = (301, 302, 303, 307, 308)
ROOT: Final = ImportedMatch(PathMatch(PathKind.SEGMENT, "/"))
"""Matches all requests."""
MAX_HEADERS: Final = 16
MAX_CORS: Final = 64
LONGEST_MATCH: Final = 4096
TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
ORIGIN: Final = re.compile(r"\*|https?://(?:(?:\*\.)?(?:[A-Za-z0-9-]+\.)*[A-Za-z0-9-]+|\*)(?::[0-9]{1,5})?")
_DURATION: Final = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:h|ms|m|s|us|µs|ns))+")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_MILLISECONDS: Final = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 0.001, "µs": 0.001, "ns": 0.000_001}
_ALTERNATIVES: Final = re.compile(r"\^?\(?([A-Z]+(?:\|[A-Z]+)*)\)?\$?")
_RETRIED: Final[dict[str, tuple[int, ...]]] = {
    "5xx": (500, 502, 503, 504),
    "gateway-error": (502, 503, 504),
    "retriable-4xx": (409,),
    "retriable-status-codes": (),
    **dict.fromkeys(("connect-failure", "refused-stream", "unavailable", "cancelled", "reset", "reset-before-request"), ()),
}
_LONGEST: Final = 99_999 * 3_600_000


def milliseconds(text: str) -> int | None:
    """Returns a duration as Go or protobuf writes it (`1.5s`, `1h30m`), rounded up; None if it is invalid or too long."""
    if text == "0":
        return 0
    if not _DURATION.fullmatch(text):
        return None
    total = sum(float(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
    whole = int(total) + (total > int(total))
    return whole if whole <= _LONGEST else None


def duration(total: int) -> str:
    """Writes milliseconds as a duration of Gateway API (GEP-2257): up to five digits for each unit."""
    if total == 0:
        return "0s"
    seconds, remainder = divmod(total, 1000)
    if seconds <= 99_999:
        return (f"{seconds}s" if seconds else "") + (f"{remainder}ms" if remainder else "")
    hours, left = divmod(seconds, 3600)
    return f"{hours}h" + (f"{left}s" if left else "") + (f"{remainder}ms" if remainder else "")


def is_host(name: str) -> bool:
    """Returns whether a listener or route can have the hostname: lower-case, perhaps with a leading `*.`."""
    return len(name) <= 253 and is_dns_subdomain(name.removeprefix("*.")) and not is_ip(name)


def is_port(number: int) -> bool:
    return 0 < number < 65536


def is_number(text: str) -> bool:
    """Returns whether a text is a number without a sign, as ports and seconds are written."""
    return text.isascii() and text.isdigit()


def port_number(text: str) -> int:
    """Returns a port that is written in digits; 0 if it is invalid."""
    digits = text.lstrip("0")
    return int(digits) if is_number(digits) and len(digits) < 6 and is_port(int(digits)) else 0


class HeaderChanges(NamedTuple):
    filters: tuple[HTTPRouteFilter, ...]
    refused: tuple[str, ...] = ()
    """Names of headers that cannot be edited: no names, the Host, or too many."""


def header_edits(
    kind: str, added: Mapping[str, str], replaced: Mapping[str, str], removed: Iterable[str] = ()
) -> HeaderChanges:
    """Returns the filter that edits headers; `kind` is REQUEST_HEADERS or RESPONSE_HEADERS."""
    to_set, to_add, to_remove = map(_editable, (replaced, added, dict.fromkeys(removed, "")))
    refused = (*to_set.refused, *to_add.refused, *to_remove.refused, *to_set.empty, *to_add.empty)
    edit = HTTPHeaderFilter(set=to_set.valued, add=to_add.valued, remove=to_remove.empty)
    return HeaderChanges((header_filter(kind, edit),) if edit != HTTPHeaderFilter() else (), refused)


class _Editable(NamedTuple):
    kept: list[HTTPHeader]
    refused: list[str]

    @property
    def valued(self) -> tuple[HTTPHeader, ...]:
        return tuple(header for header in self.kept if header.value)

    @property
    def empty(self) -> tuple[str, ...]:
        """Names without a value."""
        return tuple(header.name for header in self.kept if not header.value)


def _editable(headers: Mapping[str, str]) -> _Editable:
    """Returns the headers that one list of a filter can hold, each once."""
    kept: dict[str, HTTPHeader] = {}
    refused: list[str] = []
    for name, value in headers.items():
        fits = TOKEN.fullmatch(name) and name.lower() != "host" and value.isprintable() and len(value) <= LONGEST_MATCH
        if fits and name.lower() not in kept and len(kept) < MAX_HEADERS:
            kept[name.lower()] = HTTPHeader(name, value)
        else:
            refused.append(name)
    return _Editable(list(kept.values()), refused)


def header_filter(kind: str, edit: HTTPHeaderFilter) -> HTTPRouteFilter:
    if kind == REQUEST_HEADERS:
        return HTTPRouteFilter(kind, request_header_modifier=edit)
    return HTTPRouteFilter(kind, response_header_modifier=edit)


class CorsEdit(NamedTuple):
    filter: HTTPRouteFilter | None
    refused: tuple[str, ...] = ()
    """Origins, methods and headers that cannot be written."""


def cors(
    origins: Iterable[str],
    methods: Iterable[str] = (),
    headers: Iterable[str] = (),
    exposed: Iterable[str] = (),
    max_age: int | None = None,
    credentials: bool = False,
) -> CorsEdit:
    """Returns the CORS filter; None without a valid origin, so that browsers refuse the requests."""
    refused: list[str] = []

    def listed(values: Iterable[str], fits: re.Pattern[str] | tuple[str, ...]) -> tuple[str, ...]:
        cors_filter = [value for value in dict.fromkeys(map(str.strip, values)) if value]
        good = [value for value in cors_filter if (value in fits if isinstance(fits, tuple) else fits.fullmatch(value))][
            :MAX_CORS
        ]
        refused.extend(value for value in cors_filter if value not in good)
        return ("*",) if "*" in good else tuple(good)

    allowed = listed(origins, ORIGIN)
    verbs = listed((method.upper() for method in methods), (*METHODS, "*"))[: len(METHODS)]
    names, shown = listed(headers, TOKEN), listed(exposed, TOKEN)
    if not allowed:
        return CorsEdit(None, tuple(refused))
    age = {} if max_age is None else {"max_age": max(1, min(max_age, 2**31 - 1))}
    cors_filter = HTTPCORSFilter(allowed, credentials, verbs, names, shown, **age)
    return CorsEdit(HTTPRouteFilter("CORS", cors=cors_filter), tuple(refused))


# --- redirects, rewrites and sessions ------------------------------------------------------------------------------


def full_path(path: str) -> HTTPPathModifier:
    return HTTPPathModifier("ReplaceFullPath", replace_full_path=path)


def prefix_path(path: str) -> HTTPPathModifier:
    return HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=path)


def redirect(
    scheme: str = "", host: str = "", path: HTTPPathModifier | None = None, port: int = 0, code: int = 302, usual: int = 302
) -> HTTPRouteFilter:
    """Returns a redirect without the parts that Gateway API refuses; `usual` replaces a code that it does not permit."""
    redirect_filter = HTTPRequestRedirectFilter(
        scheme=scheme if scheme in ("http", "https") else "",
        hostname=host if is_host(host) else "",
        path=path,
        port=port if is_port(port) else 0,
        status_code=code if code in REDIRECT_CODES else usual,
    )
    return HTTPRouteFilter("RequestRedirect", request_redirect=redirect_filter)


def https_redirect(code: int = 301) -> HTTPRouteFilter:
    return redirect("https", code=code)


def https_redirect_rule(
    source: SourceRef,
    namespace: str,
    route: str,
    listeners: tuple[ListenerKey, ...],
    hostnames: tuple[str, ...],
    matches: tuple[ImportedMatch, ...] = (ROOT,),
    code: int = 301,
) -> ImportedRule:
    """Returns the rule that redirects the plain HTTP requests of `route` to HTTPS."""
    name = f"{route}-https-redirect"
    return ImportedRule(source, namespace, name, listeners, hostnames, matches=matches, filters=(https_redirect(code),))


def url_rewrite(host: str = "", path: HTTPPathModifier | None = None) -> tuple[HTTPRouteFilter, ...]:
    """Returns the rewrite of Host and path; no filter if neither changes."""
    if not host and path is None:
        return ()
    return (HTTPRouteFilter("URLRewrite", url_rewrite=HTTPURLRewriteFilter(host, path)),)


def cookie_sessions(name: str, path: str = "/", lifetime: str = "") -> SessionPersistence:
    """Returns sessions by a cookie. A cookie without a lifetime ends with the browser."""
    if not lifetime:
        return SessionPersistence("Cookie", CookieConfig(name, path))
    return SessionPersistence("Cookie", CookieConfig(name, path, "Permanent"), absolute_timeout=lifetime)


class RetryCodes(NamedTuple):
    codes: tuple[int, ...]
    refused: tuple[str, ...] = ()
    """Conditions that cannot be a reason to retry."""


def retry_codes(conditions: Iterable[str]) -> RetryCodes:
    """Returns the status codes of Envoy's retry conditions. Gateways retry failed connections always."""
    codes: list[int] = []
    refused: list[str] = []
    for condition in conditions:
        if is_number(condition) and 400 <= int(condition[:4]) <= 599:
            codes.append(int(condition))
        elif condition in _RETRIED:
            codes += _RETRIED[condition]
        else:
            refused.append(condition)
    return RetryCodes(tuple(dict.fromkeys(codes)), tuple(refused))


# --- matches ---------------------------------------------------------------------------------------------------------


def string_prefix(path: str, *, ignore_case: bool = False) -> PathMatch:
    """Returns a match of a prefix of characters, as in most gateways before Gateway API."""
    if ignore_case and path != "/":
        return PathMatch(PathKind.REGEX, f"(?i){re.escape(path)}.*")
    return PathMatch(PathKind.STRING, path)


def exact_path(path: str, *, ignore_case: bool = False) -> PathMatch:
    return PathMatch(PathKind.REGEX, f"(?i){re.escape(path)}") if ignore_case else PathMatch(PathKind.EXACT, path)


def methods(value: str, *, regex: bool = False) -> tuple[str, ...] | None:
    """Returns the methods of a string, or of a regular expression such as `GET|POST`; None for any other value."""
    alternatives = _ALTERNATIVES.fullmatch(value) if regex else None
    names = tuple(alternatives[1].split("|")) if alternatives else (value,)
    return names if all(name in METHODS for name in names) else None


def value_match(name: str, kind: str, value: str) -> ImportedValueMatch | None:
    """Returns the match of a header or query parameter by `exact`, `prefix`, `suffix`, `contains`, `regex` or `present`; None
    if it cannot be written."""
    escaped = re.escape(value)
    patterns = {"prefix": f"{escaped}.*", "suffix": f".*{escaped}", "contains": f".*{escaped}.*", "present": ".*"}
    written = patterns.get(kind, value)
    if not TOKEN.fullmatch(name) or not written or len(written) > LONGEST_MATCH or not written.isprintable():
        return None
    return ImportedValueMatch(name, written, regex=kind != "exact")
