"""Builds the filters of a route from the fields of a source, and lists values that a filter cannot hold.

It also joins filters, because a rule may have one of each type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lasthop.base.api.routes import HTTPHeaderFilter, HTTPRouteFilter
from lasthop_import.notes import Category
from lasthop_import.reader import FieldReader
from lasthop_import.values import CorsEdit, header_edits, header_filter, retry_codes


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)[:200]


def edited_headers(
    reader: FieldReader,
    key: str,
    kind: str,
    added: Mapping[str, str],
    replaced: Mapping[str, str],
    removed: Iterable[str] = (),
    unreadable: Iterable[str] = (),
) -> tuple[HTTPRouteFilter, ...]:
    """Returns the header edits of a field. Lists unreadable edits, and edits that Gateway API cannot express."""
    written = header_edits(kind, added, replaced, removed)
    if refused := [*unreadable, *written.refused]:
        reader.note(Category.CANNOT, "headers", f"cannot be edited: {listed(refused)}", key)
    return written.filters


def note_variables(reader: FieldReader, key: str, whose: str, *values: Mapping[str, str]) -> None:
    """Lists headers whose values contain variables of Envoy, because the new gateway sends them literally."""
    if names := sorted({name for headers in values for name, value in headers.items() if "%" in value}):
        text = f"{whose} in {', '.join(names)[:120]} are sent literally"
        reader.note(Category.CHANGED, "header-variables", text, key)


def allowed_origins(reader: FieldReader, edit: CorsEdit, unreadable: Iterable[str] = ()) -> tuple[HTTPRouteFilter, ...]:
    """Returns the CORS filter, and lists the origins that it no longer allows."""
    if refused := [*unreadable, *edit.refused]:
        reader.note(Category.CANNOT, "cors", f"cannot be expressed, and is no longer allowed: {listed(refused)}")
    return (edit.filter,) if edit.filter else ()


def retried_codes(reader: FieldReader, key: str, conditions: Iterable[str]) -> tuple[int, ...]:
    """Returns the status codes to retry, and lists conditions that Gateway API cannot express."""
    retries = retry_codes(conditions)
    if retries.refused:
        reader.note(Category.CANNOT, "retry-on", f"cannot be a reason to retry: {listed(retries.refused)}", key)
    return retries.codes


def joined(filters: Iterable[HTTPRouteFilter]) -> tuple[HTTPRouteFilter, ...]:
    """Returns one filter of each type: merges header edits, and keeps the first filter of any other type. Of two edits of one
    header the first wins."""
    by_type: dict[str, HTTPRouteFilter] = {}
    for route_filter in filters:
        earlier = by_type.get(route_filter.type)
        if earlier is None:
            by_type[route_filter.type] = route_filter
        elif (first := _header_edit(earlier)) and (second := _header_edit(route_filter)):
            by_type[route_filter.type] = header_filter(route_filter.type, _edits(first, second))
    return tuple(by_type.values())


def _header_edit(route_filter: HTTPRouteFilter) -> HTTPHeaderFilter | None:
    return route_filter.request_header_modifier or route_filter.response_header_modifier


def _edits(first: HTTPHeaderFilter, second: HTTPHeaderFilter) -> HTTPHeaderFilter:
    taken = {header.name.lower() for header in (*first.set, *first.add)} | {name.lower() for name in first.remove}
    return HTTPHeaderFilter(
        set=(*first.set, *(header for header in second.set if header.name.lower() not in taken)),
        add=(*first.add, *(header for header in second.add if header.name.lower() not in taken)),
        remove=(*first.remove, *(name for name in second.remove if name.lower() not in taken)),
    )
