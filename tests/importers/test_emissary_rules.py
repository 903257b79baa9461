"""Compares the Mapping for a request by Emissary's rules (emissary_oracle.py) with the route of the imported objects.

A difference is allowed only if the report has a line about it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lasthop.engine.engine import Engine
from lasthop.engine.outputs.explain.request_answer import RequestAction, RequestAnswer
from lasthop.engine.outputs.explain.requests import explain_request
from lasthop.engine.plan.request import read_request
from lasthop.engine.resolve.routing.routes import PROTOCOLS
from lasthop_import.check import engine_of
from lasthop_import.decisions import Decisions
from tests.importers import emissary_oracle as oracle
from tests.importers import surroundings
from tests.importers.harness import Outcome, run_values
from tests.importers.harness import settings as import_settings

Json = dict[str, Any]
NAMES = ("a.example", "b.example", "x.a.example", "other.test")
PORTS = {False: 80, True: 443}
TENANTS = ("one", "two", "three", "four")


def _object(kind: str, name: str, spec: Json, version: str = "v3alpha1", labels: Json | None = None) -> Json:
    metadata = {"name": name, "namespace": "shop", **({"labels": labels} if labels else {})}
    return {"apiVersion": f"getambassador.io/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def _host(name: str, spec: Json, **more: Any) -> Json:
    return _object("Host", name, spec, **more)


def _mapping(service: str, spec: Json, **more: Any) -> Json:
    return _object("Mapping", service, {"prefix": "/", "service": service, **spec}, **more)


def _listener(port: int, protocol: str, model: str = "XFP", binding: Json | None = None) -> Json:
    spec = {"port": port, "protocol": protocol, "securityModel": model}
    return _object("Listener", f"port-{port}", {**spec, "hostBinding": binding or {"namespace": {"from": "ALL"}}})


LISTENERS = [_listener(80, "HTTP"), _listener(443, "HTTPS")]
ROUTED = {"requestPolicy": {"insecure": {"action": "Route"}}}
AROUND = [
    *(each for name in TENANTS for each in surroundings.service("shop", name, {"http": 80})),
    surroundings.secret("shop", "pair", tls_crt=surroundings.CERTIFICATE, tls_key=surroundings.KEY),
]


class Imported:
    def __init__(self, documents: list[Json], **flags: Any) -> None:
        wanted = import_settings(flags=flags)
        self.outcome: Outcome = run_values("emissary", [*documents, *AROUND], Decisions(), wanted)
        self.engine: Engine = engine_of(self.outcome.result, wanted.now)

    def answer(self, url: str, method: str = "GET", headers: tuple[str, ...] = ()) -> RequestAnswer:
        routes = [key for kind in PROTOCOLS for key in self.engine.store.keys(kind)]
        request = read_request(method, url, headers)
        steps = explain_request(self.engine.graph, self.engine.store.keys("Gateway"), routes, request)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                found: RequestAnswer = done.value[0]
                return found

    def said(self, reason: str) -> set[str]:
        """Names of the objects that the report has a line about, with this reason."""
        notes = self.outcome.result.notes
        return {note.source.document.bare_name for note in notes if note.reason == reason and note.source}


def _shares(answer: RequestAnswer) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in answer.backends:
        found[each.backend.rpartition("/")[2]] = found.get(each.backend.rpartition("/")[2], 0) + each.share
    return found


def _differs(imported: Imported, expected: oracle.Outcome, found: RequestAnswer) -> bool:
    """Whether an answer differs from Emissary's without a line of the report."""
    wanted = {name: share / 100 for name, share in expected.shares}
    if wanted:
        if found.action is RequestAction.FORWARD:
            shares = _shares(found)
            if shares.keys() == wanted.keys() and all(abs(shares[name] - wanted[name]) < 0.02 for name in wanted):
                return False
        weights = imported.said("weights-scaled") | imported.said("weights")
        return imported.said("order-changed").isdisjoint(wanted) and not weights
    if expected.location:
        return found.action is not RequestAction.REDIRECT
    if found.action is RequestAction.REDIRECT and found.listener.startswith("http"):
        return not imported.said("redirect-widened")
    return found.action not in (RequestAction.RESPOND, RequestAction.UNREACHABLE, RequestAction.CLOSE)


def _compare(documents: list[Json], hosts: Iterable[str], paths: Iterable[str], **request: Any) -> Imported:
    imported = Imported(documents)
    headers = request.get("headers") or {}
    for host, path, secure in itertools.product(hosts, paths, PORTS):
        method = request.get("method", "GET")
        expected = oracle.answer(oracle.virtual_hosts(documents, PORTS[secure], secure), host, path, method, headers)
        url = f"{'https' if secure else 'http'}://{host}{path}"
        found = imported.answer(url, method, tuple(f"{name}: {value}" for name, value in headers.items()))
        assert not _differs(imported, expected, found), (url, expected, found.action, found.backends, _lines(imported))
    return imported


def _lines(imported: Imported) -> list[str]:
    return [f"{note.reason}: {note.text}" for note in imported.outcome.result.notes]


# --- the table: one Host, one Mapping --------------------------------------------------------------------------------

SELECTORS: tuple[Json, ...] = (
    {},
    {"mappingSelector": {"matchLabels": {"team": "pay"}}},
    {"mappingSelector": {"matchLabels": {"team": "pay", "tier": "web"}}},
    {"selector": {"matchLabels": {"team": "pay"}}},
    {"mappingSelector": {}},
    {"mappingSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    {"mappingSelector": {"matchLabels": {}}, "selector": {"matchLabels": {"team": "pay"}}},
)
ASKED: tuple[Json, ...] = (
    {},
    {"hostname": "*"},
    {"hostname": "a.example"},
    {"hostname": "*.a.example"},
    {"hostname": "*.example"},
    {"host": "a.example"},
    {"host": "*"},
    {"host": "[ab].example", "host_regex": True},
    {"headers": {":authority": "a.example"}},
    {"hostname": "b.example", "host": "a.example"},
)
LABELS: tuple[Json, ...] = ({}, {"team": "pay"}, {"team": "pay", "tier": "web"}, {"team": "other"})


@pytest.mark.parametrize("version", ["v3alpha1", "v2", "v1"])
@pytest.mark.parametrize("hostname", ["", "*", "a.example", "*.a.example"])
def test_a_host_takes_the_mappings_that_emissary_gives_it(hostname: str, version: str) -> None:
    for selector, asked, labels in itertools.product(SELECTORS, ASKED, LABELS):
        host = {**({"hostname": hostname} if hostname else {}), **selector, **ROUTED}
        documents = [_host("host", host), *LISTENERS, _mapping("one", asked, version=version, labels=labels)]
        imported = _compare(documents, NAMES, ("/",))
        if not imported.outcome.result.rows:
            reasons = {"no-hostname", "no-host", "not-routed", "mapping-left-out", "host-missing"}
            assert any(imported.said(reason) for reason in reasons), (selector, asked, labels)


# --- tenants, weights, names -----------------------------------------------------------------------------------------


def test_mappings_of_different_hosts_are_never_one_rule() -> None:
    hosts = [
        _host(name, {"hostname": f"{name}.example", "mappingSelector": {"matchLabels": {"host": name}}, **ROUTED})
        for name in ("a", "b")
    ]
    mappings = [_mapping(name, {"prefix": "/test/"}, labels={"host": host}) for name, host in (("one", "a"), ("two", "b"))]
    imported = _compare([*hosts, *LISTENERS, *mappings], NAMES, ("/test/x",))
    assert _shares(imported.answer("http://a.example/test/x")) == {"one": 1.0}
    assert _shares(imported.answer("http://b.example/test/x")) == {"two": 1.0}


def test_a_mapping_without_a_hostname_is_not_published() -> None:
    documents = [_host("pub", {"hostname": "a.example", **ROUTED}), *LISTENERS, _mapping("one", {"prefix": "/admin/"})]
    imported = _compare(documents, NAMES, ("/admin/x",))
    assert imported.said("no-hostname") == {"one"}
    assert imported.outcome.result.exit_code() == 0


def test_a_mapping_for_all_names_serves_a_name_that_another_mapping_has() -> None:
    mappings = [
        _mapping("one", {"hostname": "*", "prefix": "/a/"}),
        _mapping("two", {"hostname": "a.example", "prefix": "/b/"}),
    ]
    imported = _compare([_host("all", ROUTED), *LISTENERS, *mappings], NAMES, ("/a/x", "/b/x", "/c"))
    assert _shares(imported.answer("http://a.example/a/x")) == {"one": 1.0}


WEIGHTS = [*itertools.product((None, 0, 10, 34, 100), repeat=2), (None, None, None), (50, None, None), (10, 20, 70)]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_weights_are_shared_as_before_or_the_report_says_otherwise(weights: tuple[int | None, ...]) -> None:
    specs = [{"hostname": "*", **({} if each is None else {"weight": each})} for each in weights]
    mappings = [_mapping(name, spec) for name, spec in zip(TENANTS, specs, strict=False)]
    _compare([_host("all", ROUTED), *LISTENERS, *mappings], NAMES[:1], ("/",))


# --- TLS in front ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listeners", [LISTENERS, LISTENERS[:1], LISTENERS[1:]], ids=("both", "http", "https"))
def test_a_host_behind_a_balancer_that_ends_tls_is_a_question(listeners: list[Json]) -> None:
    documents = [_host("pay", {"hostname": "a.example"}), *listeners, _mapping("one", {"hostname": "a.example"})]
    undecided = Imported(documents)
    assert undecided.outcome.result.exit_code() == 3
    assert undecided.said("default-certificate") == {"pay"}
    assert not undecided.said("no-host") and undecided.outcome.result.rows
    decided = Imported(documents, **{"emissary-tls-offloaded": True})
    assert decided.outcome.result.exit_code() == 0
    url = "http://a.example:443/" if listeners == LISTENERS[1:] else "http://a.example/"
    assert _shares(decided.answer(url)) == {"one": 1.0}
    assert decided.said("redirect-dropped") == {"pay"}


def test_without_hosts_in_the_input_nothing_is_known() -> None:
    documents = [*LISTENERS, _mapping("one", {"hostname": "a.example"}), _mapping("two", {"prefix": "/two/"})]
    imported = Imported(documents)
    assert imported.outcome.result.exit_code() == 3
    assert imported.said("hosts-missing") == {"one"}
    assert imported.said("host-missing") == {"two"}


def test_a_mapping_whose_host_is_not_in_the_input_is_a_question() -> None:
    documents = [_host("b", {"hostname": "b.example", **ROUTED}), *LISTENERS, _mapping("one", {"hostname": "a.example"})]
    imported = Imported(documents)
    assert imported.said("host-missing") == {"one"} and imported.outcome.result.exit_code() == 3


# --- everything together ---------------------------------------------------------------------------------------------

SECURE = {"tlsSecret": {"name": "pair"}}


@st.composite
def _hosts(draw: st.DrawFn) -> list[Json]:
    names = draw(st.lists(st.sampled_from(("*", *NAMES, "*.a.example", "*.example")), min_size=1, max_size=3, unique=True))
    found = []
    for number, hostname in enumerate(names):
        spec: Json = {"hostname": hostname, **draw(st.sampled_from((*SELECTORS[:2], SELECTORS[0])))}
        spec |= draw(st.sampled_from((SECURE, SECURE, {})))
        action = draw(st.sampled_from(("Route", "Redirect", "Reject")))
        spec["requestPolicy"] = {"insecure": {"action": action}}
        found.append(_host(f"host-{number}", spec, labels=draw(st.sampled_from(({}, {"edge": "yes"})))))
    return found


@st.composite
def _mappings(draw: st.DrawFn) -> list[Json]:
    found = []
    for name in TENANTS[: draw(st.integers(1, 4))]:
        spec = dict(draw(st.sampled_from(ASKED)))
        spec["prefix"] = draw(st.sampled_from(("/", "/a/", "/a/b/", "/.well-known/acme-challenge/")))
        for key, values in (("precedence", (0, 0, 5, -1)), ("method", (None, None, "GET")), ("weight", (None, None, 30))):
            if (value := draw(st.sampled_from(values))) is not None:
                spec[key] = value
        if draw(st.integers(0, 5)) == 0:
            spec |= {"host_redirect": True, "service": "elsewhere.example"}
        if draw(st.integers(0, 5)) == 0:
            spec.setdefault("headers", {})
            spec["headers"] = {**spec["headers"], "x-canary": "yes"}
        version = draw(st.sampled_from(("v3alpha1", "v3alpha1", "v2")))
        found.append(_mapping(name, spec, version=version, labels=draw(st.sampled_from(LABELS))))
    return found


@st.composite
def _listeners(draw: st.DrawFn) -> list[Json]:
    bindings: tuple[Json, ...] = (
        {"namespace": {"from": "ALL"}},
        {"namespace": {"from": "SELF"}},
        {"selector": {"matchLabels": {"edge": "yes"}}},
    )
    models = ("XFP", "XFP", "SECURE")
    return [
        _listener(port, protocol, draw(st.sampled_from(models)), draw(st.sampled_from(bindings)))
        for port, protocol in ((80, "HTTP"), (443, "HTTPS"))
    ]


@settings(max_examples=60, deadline=None)
@given(_hosts(), _mappings(), _listeners(), st.sampled_from(({}, {"x-canary": "yes"})))
def test_requests_get_where_emissary_sent_them(
    hosts: list[Json], mappings: list[Json], listeners: list[Json], headers: Json
) -> None:
    paths = ("/", "/x", "/a/x", "/a/b/x", "/.well-known/acme-challenge/x")
    _compare([*hosts, *listeners, *mappings], NAMES, paths, headers=headers)
