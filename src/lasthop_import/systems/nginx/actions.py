"""Translates actions, splits and conditions of the routes of a VirtualServer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.routes import (
    HTTPPathModifier,
    HTTPRequestRedirectFilter,
    HTTPRouteFilter,
    HTTPURLRewriteFilter,
    SessionPersistence,
)
from lasthop_import.model import ImportedHop, ImportedMatch, ImportedValueMatch, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.paths import rewritten
from lasthop_import.values import header_edits, value_match

_REDIRECT: Final = re.compile(
    r"(?P<scheme>https?|\$\{(?:scheme|http_x_forwarded_proto)\})://(?P<host>\$\{host\}|[A-Za-z0-9.-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[^$?#{}]*)?(?P<tail>\$\{request_uri\})?"
)
CODES: Final = (301, 302, 303, 307, 308)


class ActionOutcome(NamedTuple):
    """What is done with the requests of a route."""

    hops: tuple[ImportedHop, ...] = ()
    filters: tuple[HTTPRouteFilter, ...] = ()
    grpc: bool = False
    persistence: SessionPersistence | None = None


class ActionHop(NamedTuple):
    hop: ImportedHop
    grpc: bool
    persistence: SessionPersistence | None


Lookup = Callable[[str, FieldReader, str], ActionHop | None]
"""Returns the hop to an upstream by name, and lists a name that there is not: (name, reader, key)."""


def outcome(route: FieldReader, path: PathMatch, lookup: Lookup) -> ActionOutcome:
    """Returns what `action` or `splits` of a route, or of one of its matches, do."""
    splits = route.children("splits")
    if not splits:
        return _action(route.child("action"), path, lookup)
    hops: list[ImportedHop] = []
    grpc, rewrites = False, set[HTTPRouteFilter]()
    found = [(_weight(each), _action(each.child("action"), path, lookup), each) for each in splits]
    for weight, one, each in found:
        if not one.hops:
            text = f"a share of {weight} that is not passed to an upstream is left out"
            each.note(Category.CANNOT, "split-without-upstream", text, None, severity=NoteSeverity.HIGH)
            continue
        rewrites |= {one for one in one.filters if one.type == "URLRewrite"} or {HTTPRouteFilter("")}
        rest = tuple(one for one in one.filters if one.type != "URLRewrite")
        hops.append(msgspec.structs.replace(one.hops[0], weight=weight, filters=rest))
        grpc = grpc or one.grpc
    shared = tuple(each for each in rewrites if each.type) if len(rewrites) == 1 else ()
    if len(rewrites) > 1:
        text = "each share rewrites the path in its own way, which cannot be written; none does now"
        route.note(Category.CANNOT, "rewrites-of-splits", text, "splits", severity=NoteSeverity.HIGH)
    return ActionOutcome(tuple(hops), shared, grpc, next((one.persistence for _, one, _ in found if one.persistence), None))


def _weight(split: FieldReader) -> int:
    return max(0, split.integer("weight", 0) or 0)


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


def _passed(found: ActionHop | None, filters: tuple[HTTPRouteFilter, ...]) -> ActionOutcome:
    return (
        ActionOutcome(filters=filters)
        if found is None
        else ActionOutcome((found.hop,), filters, found.grpc, found.persistence)
    )


def _redirect(reader: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    url, code = reader.text("url"), reader.integer("code", 301)
    found = _REDIRECT.fullmatch(url)
    if found is None or (found["tail"] and found["path"]):
        text = "the address has variables or a query that cannot be written; these requests get 500"
        reader.note(Category.CANNOT, "redirect", text, "url", severity=NoteSeverity.HIGH)
        return ()
    if code not in CODES:
        reader.note(Category.CANNOT, "redirect-code", f"{code} cannot be written; it is 302 now", "code")
    modifier = None if found["tail"] else HTTPPathModifier("ReplaceFullPath", replace_full_path=found["path"] or "/")
    scheme = "" if "$" in found["scheme"] else found["scheme"]
    host = "" if "$" in found["host"] else found["host"].lower()
    port, status = int(found["port"] or 0), code if code in CODES else 302
    return (
        HTTPRouteFilter(
            "RequestRedirect", request_redirect=HTTPRequestRedirectFilter(scheme, host, modifier, port, status or 302)
        ),
    )


def _proxy_filters(proxy: FieldReader, path: PathMatch) -> tuple[HTTPRouteFilter, ...]:
    found = rewritten(path, proxy.text("rewritePath"))
    if found.lost:
        proxy.note(Category.CANNOT, "rewrite-dropped", found.lost, "rewritePath", severity=NoteSeverity.HIGH)
    if found.changed:
        proxy.note(Category.CHANGED, "rewrite-slash", found.changed, "rewritePath")
    requests, responses = proxy.child("requestHeaders"), proxy.child("responseHeaders")
    if requests.raw("pass") is False:
        requests.note(Category.CANNOT, "headers-passed", "headers of requests were held back; all are passed on now", "pass")
    wanted = _headers(requests, "set")
    host = next((value for name, value in wanted.items() if name.lower() == "host"), "").lower()
    edits = header_edits("RequestHeaderModifier", {}, {k: v for k, v in wanted.items() if k.lower() != "host"})
    added = _headers(responses, "add")
    answers = header_edits("ResponseHeaderModifier", added, {}, responses.texts("hide"))
    for key in ("pass", "ignore"):
        responses.cannot(key, "which headers of nginx's own handling are passed or ignored has no equivalent")
    for reader, refused in ((requests, edits.refused), (responses, answers.refused)):
        if refused:
            reader.note(Category.CANNOT, "headers", f"{', '.join(refused)} cannot be written", None)
    rewrite = HTTPURLRewriteFilter(host, found.modifier)
    rewrites = (HTTPRouteFilter("URLRewrite", url_rewrite=rewrite),) if host or found.modifier else ()
    return (*edits.filters, *answers.filters, *rewrites)


def _headers(reader: FieldReader, key: str) -> dict[str, str]:
    """Returns headers by name; those with nginx's variables are listed and left out."""
    found = {}
    for each in reader.children(key):
        name, value = each.text("name"), each.text("value")
        each.ignore("always")
        if "$" in value:
            each.note(Category.CANNOT, "header-variable", f"{name} has a variable of nginx, and is left out", "value")
        else:
            found[name] = value
    return found


# --- conditions ------------------------------------------------------------------------------------------------------


class MatchConditions(NamedTuple):
    match: ImportedMatch
    refused: str = ""


def conditions(route: FieldReader, path: PathMatch) -> MatchConditions:
    """Returns the conditions of a match, all of which must hold."""
    headers: list[ImportedValueMatch] = []
    query: list[ImportedValueMatch] = []
    method, refused = "", ""
    for each in route.children("conditions"):
        header, cookie, argument = each.text("header"), each.text("cookie"), each.text("argument")
        variable, value = each.text("variable"), each.text("value")
        if value.startswith("!"):
            refused = f"the condition {value} is negated"
        elif variable == "$request_method" and value.isalpha():
            method = value.upper()
        elif variable:
            refused = f"a condition on {variable} cannot be written"
        elif header or argument:
            found = _value(header or argument, value)
            refused = refused if found else f"the condition on {header or argument} cannot be written"
            (headers if header else query).extend([found] if found else [])
        else:
            pattern = _pattern(value)
            headers.append(ImportedValueMatch("Cookie", rf"(?:.*;\s*)?{re.escape(cookie)}=(?:{pattern})(?:;.*)?", regex=True))
    return MatchConditions(ImportedMatch(path, tuple(headers), tuple(query), method), refused)


def _value(name: str, value: str) -> ImportedValueMatch | None:
    """Returns a match by value. nginx compares texts without regard to case."""
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
