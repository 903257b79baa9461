"""Reads canaries: which requests, or what share of them, go to the backend of another Ingress of the same path."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from lasthop_import.ingresses import Annotations
from lasthop_import.model import ImportedRule, ImportedValueMatch
from lasthop_import.systems.ingress_nginx.locations import IngressLocation


def canary_rules(each: IngressLocation, rule: ImportedRule) -> Iterator[ImportedRule]:
    """Yields the rule, before it those by header and cookie: these go before the weight."""
    if not each.canaries or not rule.hops:
        yield rule
        return
    canary, at = each.canaries[0]
    annotations = canary.annotations
    weight, total = annotations.number("canary-weight", 0), annotations.number("canary-weight-total", 100)
    main = rule.hops[0]
    if at.backend is None:
        yield rule
        return
    other = msgspec.structs.replace(main, source=at.source, backend=at.backend)
    replace = msgspec.structs.replace
    for condition, to in _conditions(annotations):
        matches = tuple(replace(match, headers=(*match.headers, condition)) for match in rule.matches)
        yield replace(rule, matches=matches, hops=(other if to == "canary" else main,))
    weight = max(0, min(weight, total))
    if weight and total > 0:
        yield replace(rule, hops=(replace(main, weight=total - weight), replace(other, weight=weight)))
    else:
        yield rule


def _conditions(annotations: Annotations) -> Iterator[tuple[ImportedValueMatch, str]]:
    """Yields the header that sends a request to the canary, or to the main backend."""
    header, value = annotations.text("canary-by-header"), annotations.text("canary-by-header-value")
    pattern, cookie = annotations.text("canary-by-header-pattern"), annotations.text("canary-by-cookie")
    if header and value:
        yield ImportedValueMatch(header, value), "canary"
    elif header and pattern:
        yield ImportedValueMatch(header, f".*(?:{pattern}).*", regex=True), "canary"
    elif header:
        yield ImportedValueMatch(header, "always"), "canary"
        yield ImportedValueMatch(header, "never"), "main"
    if cookie:
        for word, to in (("always", "canary"), ("never", "main")):
            yield ImportedValueMatch("Cookie", rf"(?:.*;\s*)?{re.escape(cookie)}={word}(?:;.*)?", regex=True), to
