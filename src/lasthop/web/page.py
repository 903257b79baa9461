"""The page at the admin address: Gateways, routes, policies, hops and findings, live. htmx asks each second what has changed
and is told "nothing" unless something has; there is nothing to build.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import time
from typing import TYPE_CHECKING, Any

from lasthop.api.route_kinds import ROUTE_KINDS
from lasthop.outputs.status.summary import summary
from lasthop.web.controller_view import ControllerView
from lasthop.web.slices import in_slices

if TYPE_CHECKING:
    from jinja2 import Environment

    from lasthop.outputs.audit.certificates import CertificateReport

DAY = 86400
SOON = 30
"""Days before it expires from which on a certificate is shown."""
SECTIONS = (
    ("Gateways", "Gateway"),
    ("Listener sets", "ListenerSet"),
    ("Routes", "HTTPRoute"),
    *((f"{kind}s", kind) for kind in ROUTE_KINDS if kind != "HTTPRoute"),
    ("Policies", "BackendTLSPolicy"),
    ("Backends", "XBackend"),
)
ALWAYS = frozenset({"Gateway", "ListenerSet", "HTTPRoute", "BackendTLSPolicy"})
"""Sections that are shown even if they are empty."""
_MANNER = {"verified": "good", "pinned only": "good", "waived": "bad", "failing closed": "bad"}
"""Whatever else there is deserves a look."""


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader

    return Environment(loader=PackageLoader("lasthop.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True)


async def page(view: ControllerView) -> str:
    values = await _values(view)
    return await asyncio.to_thread(_page, values)


def _page(values: dict[str, Any]) -> str:
    return _templates().get_template("page.html").render(values, seen=_digest(_live(values)))


async def live(view: ControllerView, seen: str) -> str | None:
    """The part of the page that changes; None if it is what the browser has already seen."""
    values = await _values(view)
    content = await asyncio.to_thread(_live, values)
    digest = _digest(content)
    if digest == seen:
        return None
    return f'<main id="live" hx-get="live?seen={digest}" hx-trigger="every 1s" hx-swap="outerHTML">\n{content}</main>'


def _live(values: dict[str, Any]) -> str:
    return _templates().get_template("live.html").render(values)


async def _values(view: ControllerView) -> dict[str, Any]:
    """Plain and unchanging, so that they can be rendered beside the event loop."""
    found = [(title, kind, await in_slices(map(_row, await view.objects(kind)))) for title, kind in SECTIONS]
    sections = [(title, rows) for title, kind, rows in found if rows or kind in ALWAYS]
    await asyncio.sleep(0)  # what is there already is answered without a pause
    hops, certificates = await view.hops(), await view.certificates()
    await asyncio.sleep(0)
    readiness = view.readiness()
    return {
        "ready": not readiness.unready,
        "problems": readiness.problems,
        "sections": sections,
        "hops": hops,
        "certificates": _expiring(certificates),
        "findings": await view.findings(),
        "manner": _MANNER,
    }


def _expiring(held: list[CertificateReport]) -> list[tuple[int, bool, CertificateReport]]:
    """Certificates that are to be renewed, each with the days that are left and whether it is not valid yet."""
    now = time.time()
    found = ((math.floor((each.not_after - now) / DAY), each) for each in held)
    return [(days, now < each.not_before, each) for days, each in found if each.due(now, SOON)]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _row(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    path = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
    return (path, *summary(document))
