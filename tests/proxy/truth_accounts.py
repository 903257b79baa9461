"""Collects the reports of every place about a row of the table, and how each may differ from its client's result."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from lasthop.base.api.meta import Key
from lasthop.web.picture import line_id
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop, conditions
from tests.proxy.scrape import Scrape
from tests.proxy.truth_rows import MTLS, Fate, How, Row

LINE = re.compile(r'<a id="h-([0-9a-f]+)" class="row ([a-z-]+)[ "].*?<span class="words" title="([^"]*)"', re.DOTALL)
STATES = {"verified": "verified", "pinned only": "verified", "waived": "waived", "plaintext": "plaintext"}
"""The state of a working line on the page by verification mode; passthrough is not the gateway's own TLS."""


class Accounts:
    """All of it at one moment."""

    def __init__(self, lasthop: Lasthop) -> None:
        self._lasthop = lasthop
        documents = json.loads(lasthop.command("status", "-o", "json").stdout)
        self.conditions = {(d["kind"], d["metadata"]["name"]): conditions(d) for d in documents}
        self.ready = self._rows()
        self.of_kind = self._rows("httproute,grpcroute,tlsroute,tcproute")
        documents = json.loads(lasthop.ask("/api/objects")[1])
        keys = (Key(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]).argument for d in documents)
        self.judged = {key: (d["ready"]["ready"], d["ready"]["because"]) for key, d in zip(keys, documents, strict=True)}
        hops = json.loads(lasthop.command("audit", "-o", "json").stdout)["hops"]
        self.audit = {hop["service"].partition("/")[2]: hop for hop in hops}
        self.findings = {f["object"] for f in lasthop.findings() if f["reason"] == "BackendFailing"}
        self.metrics = Scrape(lasthop.ask("/metrics")[1].decode())
        self.page = {id: (state, html.unescape(words)) for id, state, words in self._lines()}

    def _rows(self, *kinds: str) -> dict[str, tuple[str, str]]:
        shown = self._lasthop.command("status", *kinds, "--no-headers").stdout.splitlines()
        lines = (line.split(maxsplit=2) for line in shown)
        return {name: (ready, why[0] if why else "") for name, ready, *why in lines if name[-1] != ":"}

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        number, before = 1, None
        while (lines := LINE.findall(self._lasthop.ask(f"/live?page={number}")[1].decode())) and lines != before:
            yield from lines
            number, before = number + 1, lines

    def leaves(self, kind: str, name: str) -> list[tuple[str, str]]:
        """Returns the observation in `explain`: (state, text)."""
        asked = urlencode({"kind": kind, "namespace": "shop", "name": name})
        return list(_observed(json.loads(self._lasthop.ask(f"/api/explain?{asked}")[1])))


def _observed(fact: Document) -> Iterator[tuple[str, str]]:
    if fact["text"].startswith("observed: "):
        yield fact.get("state", ""), fact["text"]
    for inner in fact.get("because", ()):
        yield from _observed(inner)


def disagreements(said: Accounts, name: str, row: Row, port: int, answers: dict[Fate, int]) -> Iterator[str]:
    """Yields every report that differs from the client's result. `port` is the port of the backend in its object."""
    for place, difference in _places(said, name, row, port, answers):
        if difference:
            yield f"{name}: {place}: {difference}"


def _places(said: Accounts, name: str, row: Row, port: int, answers: dict[Fate, int]) -> Iterator[tuple[str, Any]]:
    yield "client", set(answers) != _answers(row) and answers
    kind = "XBackend" if row.xbackend else "BackendTLSPolicy"
    policed = row.xbackend or row.refs is not None
    if policed:
        yield "condition", _condition(row, said.conditions.get((kind, name), {}))
        yield "status", _status(row, said.ready.get(f"{kind.lower()}/shop/{name}"))
    yield "status of the route", _status(row, said.ready.get(f"{row.how.route.lower()}/shop/{name}"), route=True)
    yield "READY of the route, from other commands", list(_others(said, row, f"{row.how.route.lower()}/shop/{name}"))
    owner = f"{kind if policed else 'Service'} shop/{name}"
    yield "finding", (owner in said.findings) != (row.fate in (Fate.FAILING, Fate.PARTLY)) and owner
    yield "audit", _audit(row, said.audit.get(name, {}))
    labels = {"gateway": "shop/web", "kind": "XBackend" if row.xbackend else "Service", "namespace": "shop"}
    yield "metrics", list(_metrics(row, said.metrics, {**labels, "service": name, "port": str(port)}, answers))
    yield "explain", _explain(row, said.leaves(row.how.route, name))
    own = "passthrough" if row.how is How.PASSTHROUGH else ""
    backend = Key("XBackend" if row.xbackend else "Service", "shop", name)
    yield "page", _page(row, said.page.get(line_id(Key("Gateway", "shop", "web"), backend, port, own)))


def _answers(row: Row) -> set[Fate]:
    if row.fate is Fate.PARTLY:
        # Clients do not notice: another endpoint is tried.
        return {Fate.WORKING}
    # Only HTTP has a 500 beside the 503.
    return {row.fate if row.how in (How.HTTP, How.WEBSOCKET) or not row.bad else Fate.FAILING}


def _lacks(row: Row, text: str) -> bool:
    return not all(part in text for part in row.words.split("|"))


def _condition(row: Row, by_type: dict[str, tuple[str, str, str]]) -> Any:
    connected = by_type.get("BackendConnected", ("", "", ""))
    match row.fate:
        case Fate.REFUSED:
            fine = by_type["Accepted"][0] == "False" and not _lacks(row, str(by_type)) and connected[0] != "True"
        case Fate.WORKING:
            fine = connected[:2] == ("True", "HandshakesSucceed")
        case _:
            reason = "HandshakeFailed" if row.handshake else "RequestsFailed" if row.request else "ConnectionFailed"
            fine = connected[:2] == ("False", reason) and not _lacks(row, connected[2])
            fine = fine and not (row.request and MTLS in connected[2])
    return not fine and by_type


def _status(row: Row, ready_and_why: tuple[str, str] | None, *, route: bool = False) -> Any:
    fine = ready_and_why is not None and ready_and_why[0] == ("False" if row.bad else "True")
    return not (fine and (route or not row.bad or not _lacks(row, ready_and_why[1] if ready_and_why else ""))) and (
        ready_and_why or "no row"
    )


def _others(said: Accounts, row: Row, name: str) -> Iterator[str]:
    """Yields the commands whose READY of a route differs from that in the complete table."""
    wanted = "False" if row.bad else "True"
    for way, table in (("API", said.judged), ("table of its kind", said.of_kind)):
        if table.get(name, ("",))[0] != wanted:
            yield f"{way}: {table.get(name)}"


def _audit(row: Row, report: Document) -> Any:
    if row.fate is Fate.REFUSED:
        return (report.get("standing"), report.get("manner")) != (row.manner, row.manner) and report
    seen = report.get("observed") or {}
    standing = "failing" if row.bad else row.manner
    fine = (report.get("manner"), report.get("standing"), seen.get("health")) == (row.manner, standing, row.fate)
    why = "; ".join(f"{len(failure['endpoints'])} of 2 endpoints {failure['why']}" for failure in seen.get("failures", ()))
    return not (fine and not _lacks(row, why)) and report


def _metrics(row: Row, scrape: Scrape, labels: dict[str, str], answers: dict[Fate, int]) -> Iterator[str]:
    health = [fate for fate in Fate if scrape.value("lasthop_backend_health", **labels, health=fate)]
    if health != ([] if row.fate is Fate.REFUSED else [row.fate]):
        yield f"lasthop_backend_health {health}"
    if row.fate is Fate.REFUSED:
        return
    name = "lasthop_backend_tls_handshakes_total"
    counted = {
        dict(key)["outcome"]: n
        for (metric, key), n in scrape.samples.items()
        if metric == name and labels.items() <= dict(key).items()
    }
    if row.outcome and not counted.get(row.outcome):
        yield f"no handshake {row.outcome}: {counted}"
    if row.fate is Fate.WORKING and set(counted) - {"success"}:
        yield f"failed handshakes: {counted}"
    if row.fate is Fate.FAILING and row.outcome in ("untrusted", "wrong_name", "not_pinned", "") and counted.get("success"):
        yield f"handshakes that succeeded: {counted}"
    # Simultaneous requests are sampled, so their number is not exact, but their class is.
    name = "lasthop_backend_requests_total"
    classes = {code for code in ("1xx", "2xx", "4xx", "5xx") if scrape.value(name, **labels, code=code)}
    works = "5xx" if row.answers[0] == 503 else "1xx" if row.answers[0] == 101 else "2xx"
    seen = {works if fate is Fate.WORKING else "5xx" for fate in answers}
    # A stream that its backend refuses after the handshake of TLS 1.3 was forwarded.
    if classes - seen and not (row.how is How.TLS and row.words == MTLS):
        yield f"{name} {classes}, clients saw {seen}"


def _explain(row: Row, leaves: list[tuple[str, str]]) -> Any:
    if row.fate is Fate.REFUSED:
        return [leaf for leaf in leaves if leaf[0]]
    if row.bad:
        fine = [state for state, _ in leaves] == ["bad"] and not _lacks(row, leaves[0][1])
    else:
        succeed = "handshakes" if row.manner in ("verified", "pinned only", "waived") else "connections"
        fine = leaves == [("good", f"observed: {succeed} succeed")]
    return not fine and (leaves or "nothing")


def _page(row: Row, line: tuple[str, str] | None) -> Any:
    if line is None:
        return "no line"
    working = STATES.get(row.manner, "passthrough-or-udp")
    state = row.fate.replace(" ", "-") if row.fate in (Fate.FAILING, Fate.PARTLY) else working
    state = "failing" if row.fate is Fate.REFUSED else state
    return not (line[0] == state and not _lacks(row, line[1])) and line
