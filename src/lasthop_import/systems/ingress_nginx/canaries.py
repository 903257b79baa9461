"""Reads canaries: Ingresses that take some requests, or a share of all requests, from another Ingress's path."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from lasthop_import.ingresses import Annotations
from lasthop_import.model import ImportedRule, ImportedValueMatch
from lasthop_import.systems.ingress_nginx.locations import IngressLocation


def canary_rules(location: IngressLocation, rule: ImportedRule) -> Iterator[ImportedRule]:
    """Yields the rules by header and cookie first, because they take precedence over the weight, then the rule itself."""
    if not location.canaries or not rule.hops:
        yield rule
        return
    canary, at = location.canaries[0]
    annotations = canary.annotations
    weight, total = annotations.number("canary-weight", 0), annotations.number("canary-weight-total", 100)
    main = rule.hops[0]
    if at.backend is None:
        yield rule
        return
    canary_hop = msgspec.structs.replace(main, source=at.source, backend=at.backend)
    replace = msgspec.structs.replace
    for condition, to in _conditions(annotations):
        matches = tuple(replace(match, headers=(*match.headers, condition)) for match in rule.matches)
        yield replace(rule, matches=matches, hops=(canary_hop if to == "canary" else main,))
    weight = max(0, min(weight, total))
    if weight and total > 0:
        yield replace(rule, hops=(replace(main, weight=total - weight), replace(canary_hop, weight=weight)))
    else:
        yield rule


def _conditions(annotations: Annotations) -> Iterator[tuple[ImportedValueMatch, str]]:
    """Yields header matches, each with its destination: "canary" or "main"."""
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
