"""What proxies have seen reaches the replica that leads: from each proxy on its own Gateway only, and within bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lasthop.api.meta import Key
from lasthop.observe.foreign import believed
from lasthop.observe.observations import EXPIRES, MAX_PROXIES
from lasthop.observe.tally import Tally
from lasthop.plan.observation import MAX_ENDPOINTS, MAX_NAMES, MAX_WORDS, EndpointSeen, HopSeen, LeafCertificate, ProxyReport
from lasthop.plan.upstream import Hop, Protocol
from lasthop.xds.observing import METHOD, SERVICE, ProxiesHere, ReportSender, encode
from lasthop.xds.replicas import Reporter
from tests.unit.xds.leader import NAME, WEB, Leader, leading
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
    async with leading() as found:
        yield found


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
        await until(lambda: len([each for each in leader.seen if each == (mk_report(at=3.0), False)]) > 1)


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
        assert "cannot be read" in problems[0]
        certificates(tmp_path, leader)
        await until(lambda: problems[1:] == [""])
    assert leader.seen


async def test_a_proxy_speaks_of_its_own_gateway_only_whatever_it_writes(leader: Leader) -> None:
    foreign = msgspec.structs.replace(mk_report(), gateway=OTHER, hops={mk_hop(OTHER): HopSeen(), mk_hop(): HopSeen(1)})
    assert await leader.call(keys(leader.proxy()), CALL, encode(foreign)) == "OK"
    ((report, _),) = leader.seen
    assert (report.gateway, report.hops) == (WEB, {mk_hop(): HopSeen(1)})


async def test_a_proxy_of_a_gateway_that_is_gone_reports_nothing(leader: Leader) -> None:
    assert await leader.call(keys(leader.proxy("uid-of-another")), CALL, encode(mk_report())) == "PERMISSION_DENIED"
    assert leader.seen == []


@pytest.mark.parametrize("content", [b"", b"\xc1", msgspec.msgpack.encode({"gateway": 1})])
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


def test_what_a_proxy_writes_is_printable_and_bounded() -> None:
    hostile = "\x1b[31m" + "x" * 10_000
    leaf = LeafCertificate(hostile, hostile, (hostile,) * 100, 0.0, 1.0)
    endpoint = EndpointSeen(hostile, failure=hostile, tls_version=hostile, cipher=hostile, certificate=leaf, config=hostile)
    seen = HopSeen(tls_failures={f"{hostile}{n}": n for n in range(100)}, endpoints=(endpoint,) * 100)
    report = believed(ProxyReport(WEB, hostile, 1.0, 2.0, {mk_hop(): seen}), WEB)
    (found,) = report.hops.values()
    assert len(found.endpoints) == MAX_ENDPOINTS and len(found.tls_failures) <= 30
    shown = found.endpoints[0]
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


def test_proxies_that_fall_silent_are_forgotten_and_no_more_are_kept_than_the_limit() -> None:
    here = ProxiesHere()
    for number in range(MAX_PROXIES + 5):
        here.take(mk_report(f"web-{number}"), now=0.0)
    assert len(here.recent(1.0)) == MAX_PROXIES
    here.take(mk_report("late"), now=EXPIRES)
    assert [report.proxy for report in here.recent(EXPIRES)] == ["late"]
