"""The page at the admin address: Gateways, routes, policies, hops and findings, live. htmx asks each second what has changed
and is told "nothing" unless something has; there is nothing to build.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

from lasthop.web.view import View

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = (("Gateways", "Gateway"), ("Routes", "HTTPRoute"), ("Policies", "BackendTLSPolicy"))
_MANNER = {"verified": "good", "pinned only": "good", "waived": "bad", "failing closed": "bad"}
"""Whatever else there is deserves a look."""


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader

    return Environment(loader=PackageLoader("lasthop.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def page(view: View) -> str:
    live = _live(view)
    return _templates().get_template("page.html").render(_values(view), seen=_digest(live))


def live(view: View, seen: str) -> str | None:
    """The part of the page that changes; None if it is what the browser has already seen."""
    content = _live(view)
    digest = _digest(content)
    if digest == seen:
        return None
    return f'<main id="live" hx-get="live?seen={digest}" hx-trigger="every 1s" hx-swap="outerHTML">\n{content}</main>'


def _live(view: View) -> str:
    return _templates().get_template("live.html").render(_values(view))


def _values(view: View) -> dict[str, Any]:
    sections = [(title, [_row(document) for document in view.objects(kind)]) for title, kind in SECTIONS]
    return {
        "ready": view.ready,
        "sections": sections,
        "hops": view.hops(),
        "findings": view.findings(),
        "manner": _MANNER,
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _row(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    path = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
    return (path, *summary(document))


NEGATIVE = frozenset({"Conflicted", "PartiallyInvalid"})
"""Conditions that are bad news when true."""

DEGRADED = frozenset({"VerificationDegraded", "InsecureBackendVerification"})
"""Conditions that are there only while a waiver is in effect: it works as it was asked to, and that is worth knowing."""


def summary(document: dict[str, Any]) -> tuple[str, str]:
    """(ready, why): True if nothing in the status is bad news, with the first bad news otherwise."""
    status = document.get("status")
    if not status:
        return "Unknown", "nothing of ours reaches it"
    groups = [("", status), *((listener["name"], listener) for listener in status.get("listeners", ()))]
    for entry in (*status.get("parents", ()), *status.get("ancestors", ())):
        ref = entry.get("parentRef") or entry.get("ancestorRef")
        groups.append((f"{ref.get('namespace', '')}/{ref['name']}", entry))
    degraded = ""
    for name, group in groups:
        for condition in group.get("conditions", ()):
            if condition["type"] in DEGRADED:
                degraded = degraded or condition["message"]
            elif (condition["status"] == "True") == (condition["type"] in NEGATIVE):
                where = f"{name}: " if name else ""
                return "False", f"{where}{condition['reason']}: {condition['message']}"
    return "True", degraded
