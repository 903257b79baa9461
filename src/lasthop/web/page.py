"""The page at the admin address: Gateways, routes, policies and findings, as they are now. Plain HTML, nothing to build."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from lasthop.web.view import View

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
.good { color: #197a3c } .bad { color: #c02626 } @media (prefers-color-scheme: dark) { body { background: #111; color: #eee } }
"""


def page(view: View) -> str:
    state = "<span class=good>ready</span>" if view.ready else "<span class=bad>not ready</span>"
    findings = [(f.severity, str(f)) for f in view.findings()]
    return "".join(
        (
            "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=2><title>Lasthop</title>",
            f"<style>{_STYLE}</style><h1>Lasthop <small>{state}</small></h1>",
            _table(("Object", "Ready", "Why"), (_row(document) for document in view.objects())),
            "<h2>Findings</h2>" + (_table(("Severity", "What"), findings) if findings else "<p>None.</p>"),
            "<p><a href=metrics>metrics</a> · <a href=api/objects>objects</a> · <a href=api/findings>findings</a></p>",
        )
    )


def _row(document: dict[str, Any]) -> tuple[str, str, str]:
    ready, why = summary(document)
    metadata = document["metadata"]
    path = "/".join(p for p in (metadata.get("namespace", ""), metadata["name"]) if p)
    return f"{document['kind']} {path}", ready, why


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    def cell(text: str) -> str:
        kind = {"True": " class=good", "False": " class=bad", "error": " class=bad"}.get(text, "")
        return f"<td{kind}>{escape(text)}"

    body = "".join("<tr>" + "".join(cell(text) for text in row) for row in rows)
    return "<table><tr>" + "".join(f"<th>{name}" for name in head) + body + "</table>"


NEGATIVE = frozenset({"Conflicted", "PartiallyInvalid"})
"""Conditions that are bad news when true."""


def summary(document: dict[str, Any]) -> tuple[str, str]:
    """(ready, why): True if nothing in the status is bad news, with the first bad news otherwise."""
    status = document.get("status")
    if not status:
        return "Unknown", "nothing of ours reaches it"
    groups = [("", status), *((listener["name"], listener) for listener in status.get("listeners", ()))]
    for entry in (*status.get("parents", ()), *status.get("ancestors", ())):
        ref = entry.get("parentRef") or entry.get("ancestorRef")
        groups.append((f"{ref.get('namespace', '')}/{ref['name']}", entry))
    for name, group in groups:
        for condition in group.get("conditions", ()):
            if (condition["status"] == "True") == (condition["type"] in NEGATIVE):
                where = f"{name}: " if name else ""
                return "False", f"{where}{condition['reason']}: {condition['message']}"
    return "True", ""
