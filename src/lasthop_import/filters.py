"""Joins the filters of a route from several places: a rule may have one of each type."""

from __future__ import annotations

from collections.abc import Iterable

from lasthop.base.api.routes import HTTPHeaderFilter, HTTPRouteFilter


def joined(filters: Iterable[HTTPRouteFilter]) -> tuple[HTTPRouteFilter, ...]:
    """Returns one filter of each type: edits of headers together, of all others the first. Of two edits of one header the
    first counts."""
    found: dict[str, HTTPRouteFilter] = {}
    for each in filters:
        known = found.get(each.type)
        if known is None:
            found[each.type] = each
        elif known.request_header_modifier and each.request_header_modifier:
            edits = _edits(known.request_header_modifier, each.request_header_modifier)
            found[each.type] = HTTPRouteFilter(each.type, request_header_modifier=edits)
        elif known.response_header_modifier and each.response_header_modifier:
            edits = _edits(known.response_header_modifier, each.response_header_modifier)
            found[each.type] = HTTPRouteFilter(each.type, response_header_modifier=edits)
    return tuple(found.values())


def _edits(first: HTTPHeaderFilter, second: HTTPHeaderFilter) -> HTTPHeaderFilter:
    taken = {each.name.lower() for each in (*first.set, *first.add)} | {each.lower() for each in first.remove}
    return HTTPHeaderFilter(
        set=(*first.set, *(each for each in second.set if each.name.lower() not in taken)),
        add=(*first.add, *(each for each in second.add if each.name.lower() not in taken)),
        remove=(*first.remove, *(each for each in second.remove if each.lower() not in taken)),
    )
