"""The log names each change of a hop once, when the edit is in force."""

from __future__ import annotations

from typing import Any

from lasthop.engine.engine import Engine
from lasthop.engine.memory.causes import EditKind
from lasthop.engine.memory.record import Entry, RecordedCause
from lasthop.engine.outputs.envoy.clusters import CLUSTERS
from lasthop.engine.plan.upstream import Hop
from lasthop.run.hop_log import SHOWN, HopLog
from tests.snapshot import settled
from tests.world import (
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_service,
    mk_slice,
)


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fields: list[dict[str, str]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(event)
        self.fields.append(fields)


def world(count: int = 1) -> list[Any]:
    names = [f"api{number}" for number in range(count)]
    backends = [{"name": name, "port": 443} for name in names]
    objects = [
        mk_class(),
        mk_gateway("shop/web"),
        mk_config_map("shop/ca", ca_pem("CA")),
        mk_route("shop/r", "shop/web", backends),
    ]
    for name in names:
        objects += [mk_service(f"shop/{name}"), mk_slice(f"shop/{name}-1", name, ["10.0.0.1"])]
    return objects


def edited(engine: Engine, log: HopLog, *objects: Any) -> None:
    engine.apply(keyed(*objects))
    log.changed(engine.settle().hops)
    log.tell(engine.graph, engine.has_hop, first=False)


def started(count: int = 1) -> tuple[Engine, HopLog, Log]:
    sink = Log()
    engine, log = settled(keyed(*world(count)))[0], HopLog(sink)
    log.changed(Hop(*key) for key in engine.stages.members(CLUSTERS))
    log.tell(engine.graph, engine.has_hop, first=True)
    return engine, log, sink


def test_the_start_names_no_backend_and_counts_them() -> None:
    _, log, sink = started(3)
    assert sink.lines == []
    assert log.summary() == "3 plaintext"


def test_an_edit_names_what_it_changed_once_and_what_it_was_before() -> None:
    engine, log, sink = started()
    policy = mk_policy("shop/p", "api0", "api.example", ["ca"], created="2026-01-01T00:00:00Z")
    edited(engine, log, policy)
    assert sink.lines == ["shop/api0:443 must now be verified (was plaintext): CA CA, for api.example"]
    assert log.summary() == "1 must be verified"
    sink.lines.clear()
    edited(engine, log, mk_slice("shop/api0-1", "api0", ["10.0.0.2"]))
    assert sink.lines == [], "endpoints are another matter"


def test_another_ca_and_an_older_tls_are_named_though_the_words_are_the_same() -> None:
    engine, log, sink = started()
    edited(engine, log, mk_policy("shop/p", "api0", "api.example", ["ca"]))
    sink.lines.clear()
    edited(engine, log, mk_config_map("shop/ca", ca_pem("other")))
    (line,) = sink.lines
    assert line.startswith("shop/api0:443 must now be verified: CA other, for api.example; trusts CA other (SHA-256 ")
    assert "no longer trusts CA CA (SHA-256 " in line
    sink.lines.clear()
    older = {"options": {"lasthop.dev/min-tls-version": "1.0"}}
    edited(engine, log, mk_policy("shop/p", "api0", "api.example", ["ca"], spec=older))
    assert sink.lines == ["shop/api0:443 must be verified as before, but now: TLS 1.0 to 1.3, no longer TLS 1.2 to 1.3"]


def test_an_edit_of_many_backends_is_a_few_lines() -> None:
    engine, log, sink = started(50)
    edited(engine, log, *(mk_policy(f"shop/p{n}", f"api{n}", "api.example", ["ca"]) for n in range(50)))
    assert len(sink.lines) == SHOWN + 1 and sink.lines[-1] == "and 40 more backends; see: lasthop audit"


def test_a_backend_that_loses_its_last_route_is_logged_once() -> None:
    engine, log, sink = started(2)
    edited(engine, log, mk_route("shop/r", "shop/web", [{"name": "api0", "port": 443}]))
    assert sink.lines == ["shop/api1:443 is no longer used by any route"]


def test_a_line_names_the_edit_and_its_author_as_the_record_has_them() -> None:
    engine, log, sink = started()
    causes = (RecordedCause("BackendTLSPolicy shop/p", EditKind.CREATED, "Ann"),)
    words = ("plaintext", "verified", "BackendTLSPolicy shop/p was created")
    log.recorded([Entry(1.0, "Service", "shop/api0", 443, *words, gateways=("shop/web",), causes=causes)])
    edited(engine, log, mk_policy("shop/p", "api0", "api.example", ["ca"]))
    assert sink.fields == [{"gateway": "shop/web", "because": "BackendTLSPolicy shop/p was created", "by": "Ann"}]
