"""Translates actions, splits and conditions of the routes of a VirtualServer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.routes import HTTPRouteFilter, SessionPersistence
from lasthop_import.model import ImportedHop, ImportedMatch, ImportedValueMatch, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.paths import rewritten
from lasthop_import.values import (
    REDIRECT_CODES,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    full_path,
    header_edits,
    redirect,
    url_rewrite,
    value_match,
)

_REDIRECT: Final = re.compile(
    r"(?P<scheme>https?|\$\{(?:scheme|http_x_forwarded_proto)\})://(?P<host>\$\{host\}|[A-Za-z0-9.-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[^$?#{}]*)?(?P<tail>\$\{request_uri\})?"
)


class ActionOutcome(NamedTuple):
    """The result of a route's action."""

    hops: tuple[ImportedHop, ...] = ()
    filters: tuple[HTTPRouteFilter, ...] = ()
    grpc: bool = False
    persistence: SessionPersistence | None = None


class ActionHop(NamedTuple):
    hop: ImportedHop
    grpc: bool
    persistence: SessionPersistence | None


Lookup = Callable[[str, FieldReader, str], ActionHop | None]
"""Returns the hop to an upstream by name, and lists an unknown name. Arguments: name, reader, key."""


def outcome(route: FieldReader, path: PathMatch, lookup: Lookup) -> ActionOutcome:
    """Returns the outcome of `action` or `splits` of a route, or of one of its matches."""
    splits = route.children("splits")
    if not splits:
        return _action(route.child("action"), path, lookup)
    shares = [(max(0, split.integer("weight", 0) or 0), _action(split.child("action"), path, lookup)) for split in splits]
    for (weight, share), split in zip(shares, splits, strict=True):
        if not share.hops:
            text = f"a share of {weight} that is not passed to an upstream is left out"
            split.note(Category.CANNOT, "split-without-upstream", text, None, severity=NoteSeverity.HIGH)
    return _joined(route, [(weight, share) for weight, share in shares if share.hops])


def _joined(route: FieldReader, shares: Sequence[tuple[int, ActionOutcome]]) -> ActionOutcome:
    return ActionOutcome(
        tuple(_weighted(share, weight) for weight, share in shares),
        _shared_rewrite(route, [share for _, share in shares]),
        any(share.grpc for _, share in shares),
        next((share.persistence for _, share in shares if share.persistence), None),
    )


def _weighted(share: ActionOutcome, weight: int) -> ImportedHop:
    filters = tuple(route_filter for route_filter in share.filters if route_filter.type != "URLRewrite")
    return msgspec.structs.replace(share.hops[0], weight=weight, filters=filters)


def _shared_rewrite(route: FieldReader, shares: Sequence[ActionOutcome]) -> tuple[HTTPRouteFilter, ...]:
    """Returns the rewrite that all shares have. A rule has one rewrite for all its backends."""
    rewrites = {tuple(route_filter for route_filter in share.filters if route_filter.type == "URLRewrite") for share in shares}
    if len(rewrites) > 1:
        text = "each share rewrites the path in its own way, which cannot be written; none does now"
        route.note(Category.CANNOT, "rewrites-of-splits", text, "splits", severity=NoteSeverity.HIGH)
    return rewrites.pop() if len(rewrites) == 1 else ()


def _action(action: FieldReader, path: PathMatch, lookup: Lookup) -> ActionOutcome:
    if "redirect" in action:
        return ActionOutcome(filters=_redirect(action.child("redirect")))
    if "return" in action:
        text = "a fixed answer cannot be written; these requests get 500"
        action.note(Category.CANNOT, "return", text, "return", severity=NoteSeverity.HIGH)
        return ActionOutcome()
    if "proxy" in action:
        proxy = action.child("proxy")
        return _passed(lookup(proxy.text("upstream"), proxy, "upstream"), _proxy_filters(proxy, path))
    return _passed(lookup(action.text("pass"), action, "pass"), ())


def _passed(action_hop: ActionHop | None, filters: tuple[HTTPRouteFilter, ...]) -> ActionOutcome:
    if action_hop is None:
        return ActionOutcome(filters=filters)
    return ActionOutcome((action_hop.hop,), filters, action_hop.grpc, action_hop.persistence)


def _redirect(reader: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    code, match = reader.integer("code", 301) or 0, _REDIRECT.fullmatch(reader.text("url"))
    if match is None or (match["tail"] and match["path"]):
        text = "the address has variables or a query that cannot be written; these requests get 500"
        reader.note(Category.CANNOT, "redirect", text, "url", severity=NoteSeverity.HIGH)
        return ()
    if code not in REDIRECT_CODES:
        reader.note(Category.CANNOT, "redirect-code", f"{code} cannot be written; it is 302 now", "code")
    path = None if match["tail"] else full_path(match["path"] or "/")
    scheme, host = ("" if "$" in part else part.lower() for part in (match["scheme"], match["host"]))
    return (redirect(scheme, host, path, int(match["port"] or 0), code),)


def _proxy_filters(proxy: FieldReader, path: PathMatch) -> tuple[HTTPRouteFilter, ...]:
    rewrite = rewritten(path, proxy.text("rewritePath"))
    if rewrite.lost:
        proxy.note(Category.CANNOT, "rewrite-dropped", rewrite.lost, "rewritePath", severity=NoteSeverity.HIGH)
    if rewrite.changed:
        proxy.note(Category.CHANGED, "rewrite-slash", rewrite.changed, "rewritePath")
    requests, responses = proxy.child("requestHeaders"), proxy.child("responseHeaders")
    if requests.raw("pass") is False:
        requests.note(Category.CANNOT, "headers-passed", "headers of requests were held back; all are passed on now", "pass")
    headers = _headers(requests, "set")
    hosts = [headers.pop(name) for name in list(headers) if name.lower() == "host"]
    for key in ("pass", "ignore"):
        responses.cannot(key, "which headers of nginx's own handling are passed or ignored has no equivalent")
    edits = header_edits(REQUEST_HEADERS, {}, headers)
    answers = header_edits(RESPONSE_HEADERS, _headers(responses, "add"), {}, responses.texts("hide"))
    for reader, refused in ((requests, edits.refused), (responses, answers.refused)):
        if refused:
            reader.note(Category.CANNOT, "headers", f"{', '.join(refused)} cannot be written", None)
    return (*edits.filters, *answers.filters, *url_rewrite(hosts[0].lower() if hosts else "", rewrite.modifier))


def _headers(reader: FieldReader, key: str) -> dict[str, str]:
    """Returns headers by name. Lists and omits headers with nginx variables."""
    headers = {}
    for header in reader.children(key):
        name, value = header.text("name"), header.text("value")
        header.ignore("always")
        if "$" in value:
            header.note(Category.CANNOT, "header-variable", f"{name} has a variable of nginx, and is left out", "value")
        else:
            headers[name] = value
    return headers


# --- conditions ------------------------------------------------------------------------------------------------------


class MatchConditions(NamedTuple):
    match: ImportedMatch
    refused: str = ""


def conditions(route: FieldReader, path: PathMatch) -> MatchConditions:
    matched = MatchConditions(ImportedMatch(path))
    for condition in route.children("conditions"):
        matched = _with_condition(matched, condition)
    return matched


def _with_condition(matched: MatchConditions, condition: FieldReader) -> MatchConditions:
    header, cookie, argument = (condition.text(key) for key in ("header", "cookie", "argument"))
    variable, value = condition.text("variable"), condition.text("value")
    match, replace = matched.match, msgspec.structs.replace
    if value.startswith("!"):
        return matched._replace(refused=f"the condition {value} is negated")
    if variable == "$request_method" and value.isalpha():
        return matched._replace(match=replace(match, method=value.upper()))
    if variable:
        return matched._replace(refused=f"a condition on {variable} cannot be written")
    if header or argument:
        expected = _value(header or argument, value)
        if expected is None:
            return matched._replace(refused=f"the condition on {header or argument} cannot be written")
        if header:
            return matched._replace(match=replace(match, headers=(*match.headers, expected)))
        return matched._replace(match=replace(match, query=(*match.query, expected)))
    pattern = rf"(?:.*;\s*)?{re.escape(cookie)}=(?:{_pattern(value)})(?:;.*)?"
    return matched._replace(match=replace(match, headers=(*match.headers, ImportedValueMatch("Cookie", pattern, regex=True))))


def _value(name: str, value: str) -> ImportedValueMatch | None:
    """Returns a match by value. nginx compares texts case-insensitively."""
    if value.startswith("~") or value.lower() != value.upper():
        return value_match(name, "regex", _pattern(value))
    return value_match(name, "exact", value)


def _pattern(value: str) -> str:
    if not value.startswith("~"):
        return f"(?i){re.escape(value)}" if value.lower() != value.upper() else re.escape(value)
    insensitive = value.startswith("~*")
    pattern = value[2 if insensitive else 1 :]
    before = "" if pattern.startswith("^") else ".*"
    after = "" if pattern.endswith("$") else ".*"
    return f"{'(?i)' if insensitive else ''}{before}(?:{pattern.removeprefix('^').removesuffix('$')}){after}"
