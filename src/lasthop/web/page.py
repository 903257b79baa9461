"""The page at the admin address: Gateways, routes, policies, hops and findings, live. htmx asks each second what has changed
and is told "nothing" unless something has; there is nothing to build.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lasthop.api.route_kinds import ROUTE_KINDS
from lasthop.web.view import View

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
    found = [(title, kind, [_row(document) for document in view.objects(kind)]) for title, kind in SECTIONS]
    sections = [(title, rows) for title, kind, rows in found if rows or kind in ALWAYS]
    return {
        "ready": view.ready,
        "sections": sections,
        "hops": view.hops(),
        "certificates": _expiring(view),
        "findings": view.findings(),
        "manner": _MANNER,
    }


def _expiring(view: View) -> list[tuple[int, bool, CertificateReport]]:
    """Certificates that are to be renewed, each with the days that are left and whether it is not valid yet."""
    now = time.time()
    found = ((math.floor((each.not_after - now) / DAY), each) for each in view.certificates())
    return [(days, now < each.not_before, each) for days, each in found if each.due(now, SOON)]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _row(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    path = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
    return (path, *summary(document))


NEGATIVE = frozenset({"Conflicted", "PartiallyInvalid"})
"""Conditions that are bad news when true."""

DEGRADED = frozenset({"VerificationDegraded", "InsecureBackendVerification", "InsecureFrontendValidationMode"})
"""Conditions that are there only while less is checked than could be: it works as asked, and that is worth knowing."""


def summary(document: dict[str, Any]) -> tuple[str, str]:
    """(ready, why): True if nothing in our part of the status is bad news, with the first bad news otherwise."""
    if problem := document.get("rejected"):
        return "False", problem
    found = [(name, condition) for name, group in _groups(document) for condition in group.get("conditions") or ()]
    if not found:
        return "Unknown", "nothing of ours reaches it"
    told = [(name, c) for name, c in found if c["type"] not in DEGRADED]
    bad = [(name, c) for name, c in told if (c["status"] == "True") == (c["type"] in NEGATIVE)]
    for name, condition in sorted(bad, key=lambda each: each[1]["status"] == "Unknown"):
        where = f"{name}: " if name else ""
        said = f"{where}{condition['reason']}: {condition['message']}"
        return ("Unknown" if condition["status"] == "Unknown" else "False"), said
    seen, now = min(c.get("observedGeneration", 0) for _, c in found), document["metadata"].get("generation", 0)
    if seen < now:
        return "Unknown", f"no word yet on its newest version (generation {now}, the status speaks of {seen})"
    return "True", next((c["message"] for _, c in found if c["type"] in DEGRADED), "")


def _groups(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    from lasthop.api.kinds import CONTROLLER_NAME  # here, so that the CLI starts quickly

    status = document.get("status") or {}
    yield "", status
    yield from ((listener["name"], listener) for listener in status.get("listeners") or ())
    for entry in (*(status.get("parents") or ()), *(status.get("ancestors") or ())):
        if entry.get("controllerName", CONTROLLER_NAME) == CONTROLLER_NAME:
            ref = entry.get("parentRef") or entry.get("ancestorRef")
            yield f"{ref.get('namespace', '')}/{ref['name']}".lstrip("/"), entry
