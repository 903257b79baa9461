"""Replicas among themselves: which may report, and that the leader receives it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.base.pki import authority as ca
from lasthop.base.pki.certificates import PemKeyPair
from lasthop.edge.xds.acks import AckReport, GatewayAcks
from lasthop.edge.xds.credentials import MutualTls
from lasthop.edge.xds.replicas import METHOD, SERVICE, Reporter
from lasthop.engine.outputs.envoy.resource import LISTENER
from tests.unit.xds.leader import NAME, WEB, Leader, leading
from tests.xds_envoy import until

OWNER = Key("HTTPRoute", "shop", "r")
REFUSED = (("type", "part", "hash", OWNER, "bad"),)
REPORT: AckReport = {WEB: GatewayAcks(True, {LISTENER: {"web/80": "1"}}, refused=REFUSED)}


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    async with leading() as serving:
        yield serving


@contextlib.asynccontextmanager
async def reporting(reporter: Reporter) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(reporter.run())
        yield
        task.cancel()


async def call(leader: Leader, shown: tuple[bytes, bytes], content: bytes) -> str:
    return await leader.call(shown, f"/{SERVICE}/{METHOD}", content)


async def test_a_change_is_reported_at_once_and_completely(leader: Leader) -> None:
    report: AckReport = {}
    client = leader.client()
    reporter = Reporter(lambda: leader.address, lambda: client, NAME, lambda: report)
    async with reporting(reporter):
        await until(lambda: leader.told == [("b", {})])
        report = REPORT
        reporter.changed.set()
        await until(lambda: leader.told[1:] == [("b", REPORT)])


async def test_a_proxy_cannot_report_not_even_on_its_own_gateway(leader: Leader) -> None:
    proxy = leader.proxy()
    assert await call(leader, (proxy["tls.key"], proxy["tls.crt"]), msgspec.msgpack.encode(REPORT)) == "PERMISSION_DENIED"
    assert leader.told == []


async def test_a_stranger_does_not_even_get_a_connection(leader: Leader) -> None:
    pair = ca.replica_pair(ca.renewed(None, leader.now), "b", leader.now)
    assert await call(leader, (pair.private_key, pair.certificate), msgspec.msgpack.encode({})) == "UNAVAILABLE"


async def test_nonsense_is_refused(leader: Leader) -> None:
    pair = leader.client().own
    assert (
        await call(leader, (pair.private_key, pair.certificate), msgspec.msgpack.encode({"shop/web": 1})) == "INVALID_ARGUMENT"
    )
    assert leader.told == []


async def test_the_responder_must_be_a_controller(leader: Leader) -> None:
    """An address in the Lease is only a hint: a proxy that listens there receives nothing."""
    impostor = leader.proxy()
    leader.credentials = MutualTls(PemKeyPair(impostor["tls.crt"], impostor["tls.key"]), leader.authority.bundle)
    problems: list[str] = []
    client = leader.client()
    async with reporting(Reporter(lambda: leader.address, lambda: client, NAME, lambda: REPORT, problem=problems.append)):
        await until(lambda: bool(problems))
    assert "UNAVAILABLE" in problems[0]
    assert leader.told == []


async def test_a_new_leader_is_found(leader: Leader) -> None:
    addresses = ["127.0.0.1:9"]
    problems: list[str] = []
    client = leader.client()
    reporter = Reporter(lambda: addresses[-1], lambda: client, NAME, lambda: REPORT, problem=problems.append)
    async with reporting(reporter):
        await until(lambda: bool(problems))
        addresses.append(leader.address)
        await until(lambda: problems[-1] == "")
    assert leader.told == [("b", REPORT)]


async def test_one_that_does_not_lead_takes_no_reports(leader: Leader) -> None:
    leader.leads = False
    pair = leader.client().own
    assert await call(leader, (pair.private_key, pair.certificate), msgspec.msgpack.encode({})) == "FAILED_PRECONDITION"
