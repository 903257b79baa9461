"""Makes the filters of a route from the fields of a source, lists what they cannot hold, and joins them: a rule may have one
of each type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lasthop.base.api.routes import HTTPHeaderFilter, HTTPRouteFilter
from lasthop_import.notes import Category
from lasthop_import.reader import FieldReader
from lasthop_import.values import CorsEdit, header_edits, header_filter, retried


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
    """Returns the edits of headers in a field, and lists those that cannot be written, the unreadable ones included."""
    written = header_edits(kind, added, replaced, removed)
    if refused := [*unreadable, *written.refused]:
        reader.note(Category.CANNOT, "headers", f"cannot be edited: {listed(refused)}", key)
    return written.filters


def note_variables(reader: FieldReader, key: str, whose: str, *values: Mapping[str, str]) -> None:
    """Lists headers whose values contain variables of Envoy, because the new gateway sends them literally."""
    if names := sorted({name for each in values for name, value in each.items() if "%" in value}):
        text = f"{whose} in {', '.join(names)[:120]} are sent literally"
        reader.note(Category.CHANGED, "header-variables", text, key)


def allowed_origins(reader: FieldReader, found: CorsEdit, unreadable: Iterable[str] = ()) -> tuple[HTTPRouteFilter, ...]:
    """Returns the CORS filter, and lists the origins that it no longer allows."""
    if refused := [*unreadable, *found.refused]:
        reader.note(Category.CANNOT, "cors", f"cannot be expressed, and is no longer allowed: {listed(refused)}")
    return (found.filter,) if found.filter else ()


def retried_codes(reader: FieldReader, key: str, conditions: Iterable[str]) -> tuple[int, ...]:
    """Returns the status codes to retry, and lists conditions that Gateway API cannot express."""
    found = retried(conditions)
    if found.refused:
        reader.note(Category.CANNOT, "retry-on", f"cannot be a reason to retry: {listed(found.refused)}", key)
    return found.codes


def joined(filters: Iterable[HTTPRouteFilter]) -> tuple[HTTPRouteFilter, ...]:
    """Returns one filter of each type: edits of headers together, of all others the first. Of two edits of one header the
    first counts."""
    found: dict[str, HTTPRouteFilter] = {}
    for each in filters:
        known = found.get(each.type)
        if known is None:
            found[each.type] = each
        elif (first := _header_edit(known)) and (second := _header_edit(each)):
            found[each.type] = header_filter(each.type, _edits(first, second))
    return tuple(found.values())


def _header_edit(step: HTTPRouteFilter) -> HTTPHeaderFilter | None:
    return step.request_header_modifier or step.response_header_modifier


def _edits(first: HTTPHeaderFilter, second: HTTPHeaderFilter) -> HTTPHeaderFilter:
    taken = {each.name.lower() for each in (*first.set, *first.add)} | {each.lower() for each in first.remove}
    return HTTPHeaderFilter(
        set=(*first.set, *(each for each in second.set if each.name.lower() not in taken)),
        add=(*first.add, *(each for each in second.add if each.name.lower() not in taken)),
        remove=(*first.remove, *(each for each in second.remove if each.lower() not in taken)),
    )
