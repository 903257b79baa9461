"""Renders the page at the admin address: a live picture of every hop. htmx polls each second for changes; there is no build
step."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from lasthop.base.text.printable import printable
from lasthop.web import figures
from lasthop.web.drawing import ROW, row_id
from lasthop.web.page_model import Detail, PageModel, Picture
from lasthop.web.picture import BY_SLUG, Filter, Line, LineState

if TYPE_CHECKING:
    from jinja2 import Environment

    from lasthop.edge.probe.result import ProbeResult

MAX_SEARCH_LENGTH: Final = 200
"""Characters of a search text."""
MAX_FINDINGS: Final = 20
MAX_CERTIFICATES: Final = 10
MAX_YAML_LINES: Final = 400


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader

    # Everything is made printable and then escaped: characters that reorder or hide text are shown as their codes.
    environment = Environment(
        loader=PackageLoader("lasthop.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.globals.update(
        ROW=ROW,
        LineState=LineState,
        address=address,
        row_id=row_id,
        rem=lambda units: f"{units / 16:g}rem",
        is_line=lambda row: isinstance(row, Line),
        yaml=_yaml,
        per_second=figures.rate,
        **{name: getattr(figures, name) for name in ("share", "seconds", "days", "due", "date")},
    )
    return environment


def _shown(value: object) -> object:
    return printable(str(value)) if type(value) is str or isinstance(value, LineState) else value


def filter_of(query: Mapping[str, str]) -> Filter:
    """Returns the reader's filter without invalid values."""
    page = query.get("page", "")
    return Filter(
        query.get("q", "")[:MAX_SEARCH_LENGTH].strip(),
        query.get("namespace", "")[:MAX_SEARCH_LENGTH],
        query.get("gateway", "")[: 2 * MAX_SEARCH_LENGTH],
        BY_SLUG.get(query.get("state", "")),
        int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 0,
    )


def address(filter: Filter, /, **replaced: str | int | None) -> str:
    """Returns the query of this filter's address, with some values replaced."""
    state = filter.state.slug if filter.state else ""
    values: dict[str, str | int | None] = {
        "q": filter.text,
        "namespace": filter.namespace,
        "gateway": filter.gateway,
        "state": state,
        "page": filter.page,
        **replaced,
    }
    return f"?{urlencode({name: value for name, value in values.items() if value})}"


async def page(model: PageModel, filter: Filter, hop: str = "") -> str:
    picture = await model.picture(filter)
    opened = await model.detail(hop) if hop else None
    return await asyncio.to_thread(_page, model, picture, opened)


def _page(model: PageModel, picture: Picture, opened: Detail | None) -> str:
    values = _values(picture)
    live = _live(picture, _render("picture.html", values))
    detail = _render("detail.html", _detail_values(model, opened)) if opened else ""
    return _render("page.html", {**values, "live": live, "where": model.view.where, "detail": detail})


async def live(model: PageModel, filter: Filter, seen: str) -> str | None:
    """Returns the changing part of the page, or None if the browser has it. A browser that has no part yet has just changed
    its filter, and gets the last state without waiting; newer data comes with its next poll, a second later."""
    picture = await model.picture(filter, at_once=not seen)
    return await asyncio.to_thread(_changed, picture, seen)


def _changed(picture: Picture, seen: str) -> str | None:
    content = _render("picture.html", _values(picture))
    return None if _digest(content) == seen else _live(picture, content)


def _live(picture: Picture, content: str) -> str:
    poll = address(picture.page_filter, seen=_digest(content))
    return _render("live.html", {"poll": poll, "content": content, "page_filter": picture.page_filter})


def _values(picture: Picture) -> dict[str, Any]:
    now = time.time()
    due = [certificate for certificate in picture.certificates if certificate.due(now, figures.SOON)]
    return {
        **{name: getattr(picture, name) for name in picture.__struct_fields__},
        "now": now,
        "root_causes": picture.root_causes[:MAX_FINDINGS],
        "more_root_causes": max(0, len(picture.root_causes) - MAX_FINDINGS),
        "certificates": due[:MAX_CERTIFICATES],
        "more_certificates": max(0, len(due) - MAX_CERTIFICATES),
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


async def detail(model: PageModel, hop: str) -> str | None:
    """Returns the details of a line; None if it no longer exists."""
    opened = await model.detail(hop)
    if opened is None:
        return None
    return await asyncio.to_thread(_render, "detail.html", _detail_values(model, opened))


def _detail_values(model: PageModel, opened: Detail) -> dict[str, Any]:
    return {"detail": opened, "line": opened.line, "token": model.probes.token, "now": time.time()}


async def state(model: PageModel, hop: str) -> str | None:
    """Returns the changing part of a line's detail."""
    selected = await model.line(hop)
    return await asyncio.to_thread(_render, "state.html", {"line": selected, "now": time.time()}) if selected else None


async def probed(result: ProbeResult) -> str:
    return await asyncio.to_thread(_render, "probe.html", {"result": result, "at": time.time()})


def _render(template: str, values: dict[str, Any]) -> str:
    return _templates().get_template(template).render(values)


def _yaml(document: Any) -> list[str]:
    """Returns the lines of an object's YAML; a very long one is truncated."""
    import yaml

    lines = yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False, allow_unicode=True, width=120).splitlines()
    return (
        lines
        if len(lines) <= MAX_YAML_LINES
        else [*lines[:MAX_YAML_LINES], f"... and {len(lines) - MAX_YAML_LINES} more lines"]
    )
