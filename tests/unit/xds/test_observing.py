"""Observations of proxies reach the leader: from each proxy about its own Gateway only, and within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Container, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.edge import slices
from lasthop.edge.observe.foreign import GatewayParts, filtered_report
from lasthop.edge.observe.observations import EXPIRES, MAX_PROXIES
from lasthop.edge.observe.tally import Tally
from lasthop.edge.xds import observing
from lasthop.edge.xds.budget import BASE, PER_HOP
from lasthop.edge.xds.observing import MAX_REPORT, METHOD, SERVICE, ProxiesHere, ReportSender, bounded, encode
from lasthop.edge.xds.replicas import Reporter
from lasthop.engine.engine import ALL_ADDRESSES
from lasthop.engine.plan.observation import (
    LATENCY_BOUNDS,
    MAX_ENDPOINTS,
    MAX_NAMES,
    MAX_WORDS,
    EndpointSeen,
    HopSeen,
    LeafCertificate,
    ProxyReport,
    Traffic,
)
from lasthop.engine.plan.upstream import Hop, Protocol
from tests.unit.xds.leader import ENDPOINT, NAME, ROUTE, WEB, Leader, leading
from tests.unit.xds.playbook import clusters
from tests.xds_envoy import until

CALL = f"/{SERVICE}/{METHOD}"
OTHER = Key("Gateway", "other", "web")


def mk_hop(gateway: Key = WEB, name: str = "api") -> Hop:
    return Hop(gateway, Key("Service", "shop", name), 443, Protocol.AUTO)


def mk_report(proxy: str = "web-1", at: float = 2.0, **endpoint: Any) -> ProxyReport:
    seen = HopSeen(3, 1, endpoints=(EndpointSeen("10.0.0.1:8443", 1, **endpoint),))
    return ProxyReport(WEB, proxy, 1.0, at, {mk_hop(): seen})


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    async with leading() as serving:
        yield serving


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()


def certificates(folder: Path, leader: Leader) -> Path:
    for name, content in {**leader.proxy(), "ca.crt": leader.authority.bundle}.items():
        (folder / name).write_bytes(content)
    return folder


def keys(files: dict[str, bytes]) -> tuple[bytes, bytes]:
    return files["tls.key"], files["tls.crt"]


async def test_a_proxy_reports_again_and_again_what_is_newest(leader: Leader, tmp_path: Path) -> None:
    sender = ReportSender(leader.address, NAME, certificates(tmp_path, leader), lambda text: None, repeat=0.01)
    async with running(sender.run()):
        sender.update(mk_report())
        await until(lambda: (mk_report(), False) in leader.seen)
        sender.update(mk_report(at=3.0))
        await until(lambda: len([heard for heard in leader.seen if heard == (mk_report(at=3.0), False)]) > 1)


async def test_a_report_survives_the_wire_whole(leader: Leader) -> None:
    tally = Tally(WEB, "web-1", now=1.0)
    report = tally.report(2.0)
    assert await leader.call(keys(leader.proxy()), CALL, encode(report)) == "OK"
    assert leader.seen == [(report, False)]


async def test_a_renewed_certificate_is_used_without_a_restart(leader: Leader, tmp_path: Path) -> None:
    problems: list[str] = []
    sender = ReportSender(leader.address, NAME, tmp_path, problems.append, repeat=0.01)
    sender.update(mk_report())
    async with running(sender.run()):
        await until(lambda: bool(problems))
        assert "cannot read" in problems[0]
        certificates(tmp_path, leader)
        await until(lambda: problems[1:] == [""])
    assert leader.seen


async def test_a_proxy_can_report_only_about_its_own_gateway(leader: Leader) -> None:
    foreign = msgspec.structs.replace(mk_report(), gateway=OTHER, hops={mk_hop(OTHER): HopSeen(), mk_hop(): HopSeen(1)})
    assert await leader.call(keys(leader.proxy()), CALL, encode(foreign)) == "OK"
    ((report, _),) = leader.seen
    assert (report.gateway, report.hops) == (WEB, {mk_hop(): HopSeen(1)})


async def test_a_proxy_of_a_gateway_that_is_gone_reports_nothing(leader: Leader) -> None:
    assert await leader.call(keys(leader.proxy("uid-of-another")), CALL, encode(mk_report())) == "PERMISSION_DENIED"
    assert leader.seen == []


DEEP = b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize("content", [b"", b"\xc1", msgspec.msgpack.encode({"gateway": 1}), DEEP])
async def test_nonsense_is_refused(leader: Leader, content: bytes) -> None:
    assert await leader.call(keys(leader.proxy()), CALL, content) == "INVALID_ARGUMENT"
    assert leader.seen == []


async def test_a_follower_passes_on_what_its_proxies_report_and_each_report_once(leader: Leader) -> None:
    reports = [mk_report("web-1"), mk_report("web-2")]
    client = leader.client()
    reporter = Reporter(lambda: leader.address, lambda: client, NAME, dict, observed=lambda: reports)
    async with running(reporter.run()):
        await until(lambda: len(leader.seen) == 2)
        reports[0] = mk_report("web-1", at=9.0)
        reporter.changed.set()
        await until(lambda: len(leader.seen) > 2)
    assert leader.seen == [(mk_report("web-1"), True), (mk_report("web-2"), True), (mk_report("web-1", at=9.0), True)]


async def test_one_that_does_not_lead_takes_reports_of_proxies_and_none_of_replicas(leader: Leader) -> None:
    leader.leads = False
    own = leader.client().own
    assert await leader.call((own.private_key, own.certificate), CALL, encode(mk_report())) == "FAILED_PRECONDITION"
    assert await leader.call(keys(leader.proxy()), CALL, encode(mk_report())) == "OK"


class Everything:
    """Knows every hop, endpoint and route."""

    def addresses(self, hop: Hop) -> Container[str]:
        return ALL_ADDRESSES

    def serves(self, gateway: Key, route: Key) -> bool:
        return True


def belief(report: ProxyReport, known: GatewayParts = Everything()) -> ProxyReport:  # noqa: B008
    steps = filtered_report(report, WEB, known)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            proxy_report: ProxyReport = done.value
            return proxy_report


def test_texts_of_a_proxy_are_printable_and_bounded() -> None:
    hostile = "\x1b[31m" + "x" * 10_000
    leaf = LeafCertificate(hostile, hostile, (hostile,) * 100, 0.0, 1.0)
    endpoint = EndpointSeen(hostile, failure=hostile, tls_version=hostile, cipher=hostile, certificate=leaf, config=hostile)
    latency = ((0.1, 1),) * 1_000
    seen = HopSeen(
        tls_failures={f"{hostile}{n}": n for n in range(100)}, endpoints=(endpoint,) * 100, traffic=Traffic(latency=latency)
    )
    report = belief(ProxyReport(WEB, hostile, 1.0, 2.0, {mk_hop(): seen}, {ROUTE: Traffic(latency=latency)}))
    (hop_report,) = report.hops.values()
    assert len(hop_report.endpoints) == MAX_ENDPOINTS and len(hop_report.tls_failures) <= 30
    shown = hop_report.endpoints[0]
    assert shown.certificate is not None and len(shown.certificate.names) == MAX_NAMES
    texts = [
        report.proxy,
        shown.address,
        shown.failure,
        shown.tls_version,
        shown.cipher,
        shown.config,
        *shown.certificate.names,
    ]
    assert all(len(text) <= MAX_WORDS and text.isprintable() for text in texts)
    assert hop_report.traffic.latency == report.routes[ROUTE].latency == ()


def test_hops_of_another_gateway_are_not_believed_even_if_they_exist() -> None:
    assert belief(ProxyReport(WEB, "p", 1.0, 2.0, {mk_hop(OTHER): HopSeen(1), mk_hop(): HopSeen(1)})).hops.keys() == {mk_hop()}


async def test_budgets_of_peers_that_are_idle_are_let_go_when_there_are_many(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "MANY", 1)
    for uid in ("uid-of-web", "uid-of-other", "uid-of-web"):
        assert await leader.call(keys(leader.proxy(uid)), CALL, encode(mk_report())) == "OK"
    assert leader.reports.peers.keys() == {WEB}


def test_latencies_within_our_bounds_are_kept() -> None:
    ours = Traffic(latency=tuple((bound, 3) for bound in LATENCY_BOUNDS))
    report = belief(ProxyReport(WEB, "p", 1.0, 2.0, {mk_hop(): HopSeen(traffic=ours)}, {ROUTE: ours}))
    assert report.routes[ROUTE] == ours and report.hops[mk_hop()].traffic == ours


async def test_only_hops_routes_and_endpoints_of_the_gateway_are_believed(leader: Leader) -> None:
    made_up = {mk_hop(name=f"made-up-{number}"): HopSeen(1) for number in range(100)}
    endpoints = (EndpointSeen(ENDPOINT), EndpointSeen("192.0.2.66:1"), EndpointSeen(""))
    foreign = Key("HTTPRoute", "other", "r")
    hops = {mk_hop(): HopSeen(2, endpoints=endpoints), **made_up}
    routes = {ROUTE: Traffic((0, 1, 0, 0, 0)), foreign: Traffic((0, 9, 0, 0, 0))}
    report = ProxyReport(WEB, "web-1", 1.0, 2.0, hops, routes)
    replica = leader.client().own
    for shown in (keys(leader.proxy()), (replica.private_key, replica.certificate)):
        leader.seen.clear()
        assert await leader.call(shown, CALL, encode(report)) == "OK"
        ((heard_report, _),) = leader.seen
        assert heard_report.hops.keys() == {mk_hop()} and heard_report.routes.keys() == {ROUTE}
        assert [endpoint.address for endpoint in heard_report.hops[mk_hop()].endpoints] == [ENDPOINT, ""]


LEAF = LeafCertificate("CN=a", "CN=b", ("a.example",), 1.0, 2.0)
ENDPOINT_SEEN = EndpointSeen(ENDPOINT, 1, "no", True, 1, 1.0, 1.0, 1.0, LEAF, "v", "c", 1.0)
TRAFFIC = Traffic((1, 1, 1, 1, 1), ((0.1, 1),), 1)
HOP_SEEN = HopSeen(1, 1, 1, {"fail_verify_san": 1}, 1.0, 1.0, (ENDPOINT_SEEN,), TRAFFIC)
FULL = ProxyReport(WEB, "web-1", 1.0, 2.0, {mk_hop(): HOP_SEEN}, {ROUTE: TRAFFIC})
"""With a number wherever there can be one."""


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path to every number of a decoded report but the port of a hop, which has to exist."""
    match value:
        case bool() | str() | None:
            return
        case int() | float():
            yield path
        case dict():
            for key, inner in value.items():
                yield from numbers(inner, (*path, key))
        case list() | tuple():
            for index, inner in enumerate(value):
                yield from numbers(inner, (*path, index))


def changed(value: Any, path: tuple[Any, ...], new: float) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: changed(inner, path[1:], new) if key == path[0] else inner for key, inner in value.items()}
    return [changed(inner, path[1:], new) if index == path[0] else inner for index, inner in enumerate(value)]


TREE = msgspec.msgpack.decode(encode(FULL), strict=False)
PATHS = [*numbers(TREE)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(str(part) for part in path if not isinstance(part, tuple)))
def test_no_number_of_a_report_may_be_absurd(path: tuple[Any, ...]) -> None:
    """Walks the value, so that a new field is not forgotten."""
    bound = "latency" in path and path[-1] == 0
    certificate = "certificate" in path
    for absurd in (math.nan, -math.inf, *(() if bound else (math.inf, 1e300, 2.0**62)), *(() if certificate else (-1.0,))):
        with pytest.raises(msgspec.DecodeError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(changed(TREE, path, absurd)), type=ProxyReport)


def test_every_part_of_a_report_has_numbers_that_are_tried() -> None:
    named = {part for path in PATHS for part in path if isinstance(part, str)}
    structs = (ProxyReport, HopSeen, EndpointSeen, LeafCertificate, Traffic)
    types = {field.name: field.type for struct in structs for field in msgspec.structs.fields(struct)}
    texts = {name for name, type in types.items() if type in (str, bool, tuple[str, ...], Key)}
    assert types.keys() - texts <= named


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -1.0, 1e18])
async def test_a_report_with_an_absurd_number_is_refused_whole(leader: Leader, absurd: float) -> None:
    report = mk_report(last_success=absurd)
    assert await leader.call(keys(leader.proxy()), CALL, encode(report)) == "INVALID_ARGUMENT"
    assert leader.seen == []


async def test_a_report_larger_than_the_gateway_needs_is_refused_undecoded(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await leader.call(keys(leader.proxy()), CALL, b"x" * (BASE + 1)) == "RESOURCE_EXHAUSTED"
    assert await leader.call(keys(leader.proxy()), CALL, b"x" * BASE) == "INVALID_ARGUMENT"
    ((gateway, why),) = leader.over.refused
    assert gateway == WEB and "bytes" in why
    leader.server.update(WEB, clusters("a=1", "b=1"))
    assert await leader.call(keys(leader.proxy()), CALL, b"x" * (BASE + 2 * PER_HOP)) == "INVALID_ARGUMENT"
    assert await leader.call(keys(leader.proxy()), CALL, b"x" * (BASE + 2 * PER_HOP + 1)) == "RESOURCE_EXHAUSTED"


async def test_what_is_reported_faster_than_the_rate_is_left_out_and_another_gateway_is_not_concerned(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encode(mk_report())
    monkeypatch.setattr(observing, "REPORT_RATE", 0.001)
    monkeypatch.setattr(observing, "REPORT_BURST", 2.5 * len(content))
    for _ in range(5):
        assert await leader.call(keys(leader.proxy()), CALL, content) == "OK"
    assert len(leader.seen) == 2 and len(leader.over.refused) == 3
    assert await leader.call(keys(leader.proxy("uid-of-other")), CALL, encode(mk_report())) == "OK"
    assert len(leader.seen) == 3


async def test_reports_wait_unread_and_a_few_at_a_time_are_read(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy with unfinished reports occupies the places of its own Gateway, for a time."""
    monkeypatch.setattr(observing, "QUEUE", 3)
    credentials = grpc.ssl_channel_credentials(leader.authority.bundle, *keys(leader.proxy()))
    options = (("grpc.ssl_target_name_override", NAME),)
    async with grpc.aio.secure_channel(leader.address, credentials, options) as channel:
        call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(CALL)
        stalled = [call(timeout=30) for _ in range(3)]
        await until(lambda: leader.peer(WEB).waiting == 3)
        assert await leader.call(keys(leader.proxy()), CALL, encode(mk_report())) == "RESOURCE_EXHAUSTED"
        assert await leader.call(keys(leader.proxy("uid-of-other")), CALL, encode(mk_report())) == "OK"
        for stream in stalled:
            stream.cancel()
        await until(lambda: leader.peer(WEB).waiting == 0)
    assert await leader.call(keys(leader.proxy()), CALL, encode(mk_report())) == "OK"


async def test_a_report_that_does_not_come_to_its_end_gives_its_place_back(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "ANSWER_WITHIN", 0.05)
    credentials = grpc.ssl_channel_credentials(leader.authority.bundle, *keys(leader.proxy()))
    options = (("grpc.ssl_target_name_override", NAME),)
    async with grpc.aio.secure_channel(leader.address, credentials, options) as channel:
        call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(CALL)
        assert await call(timeout=30).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert leader.peer(WEB).waiting == 0 and not leader.peer(WEB).reading.locked()


async def test_a_large_report_is_taken_in_slices(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts turns of the event loop: with no time for a slice, others have one after each hop."""
    monkeypatch.setattr(slices, "SLICE", -1.0)
    report = msgspec.structs.replace(mk_report(), hops={mk_hop(name=f"h{number}"): HopSeen() for number in range(300)})
    call = asyncio.ensure_future(leader.call(keys(leader.proxy()), CALL, encode(report)))
    turns = 0
    while not call.done():
        turns += leader.reports._turn.locked()
        await asyncio.sleep(0)
    assert await call == "OK" and turns >= 300


def test_a_proxy_sends_no_more_than_is_taken_and_what_fails_first() -> None:
    leaf = LeafCertificate("s" * 300, "i" * 300, ("n" * 300,) * 10, 1.0, 2.0)
    endpoints = tuple(EndpointSeen(f"10.0.0.{n}:1", failure=f"{n}" * 300, certificate=leaf) for n in range(32))
    for hops, kept in ((1, 32), (60, 8), (400, 2), (4_000, 0)):
        report = ProxyReport(WEB, "p", 1.0, 2.0, {mk_hop(name=f"h{n}"): HopSeen(3, endpoints=endpoints) for n in range(hops)})
        content = bounded(report)
        assert len(content) <= MAX_REPORT
        decoded = msgspec.msgpack.decode(content, type=ProxyReport)
        assert len(decoded.hops) == hops and all(seen.endpoints == endpoints[:kept] for seen in decoded.hops.values())


def test_a_gateway_cannot_use_up_the_places_of_another() -> None:
    here = ProxiesHere()
    for number in range(MAX_PROXIES + 5):
        here.take(mk_report(f"web-{number}"), now=0.0)
    other = msgspec.structs.replace(mk_report("other-1"), gateway=OTHER)
    here.take(other, now=0.0)
    assert other in here.recent(1.0) and len(here.recent(1.0)) == MAX_PROXIES + 1


def test_proxies_that_fall_silent_are_forgotten_and_no_more_are_kept_than_the_limit() -> None:
    here = ProxiesHere()
    for number in range(MAX_PROXIES + 5):
        here.take(mk_report(f"web-{number}"), now=0.0)
    assert len(here.recent(1.0)) == MAX_PROXIES
    here.take(mk_report("late"), now=EXPIRES)
    assert [report.proxy for report in here.recent(EXPIRES)] == ["late"]
