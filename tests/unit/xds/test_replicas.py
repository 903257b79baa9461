"""Replicas among themselves: who may report, and that whoever leads gets to know."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import grpc
import msgspec
import pytest

from lasthop.api.meta import Key
from lasthop.outputs.envoy.resource import LISTENER
from lasthop.pki import authority as ca
from lasthop.pki.certificates import PemKeyPair
from lasthop.xds.acks import AckReport, GatewayAcks
from lasthop.xds.credentials import Credentials
from lasthop.xds.replicas import METHOD, SERVICE, Reporter
from lasthop.xds.server import Server
from tests.xds_envoy import Heard, until

NAME = "lasthop-xds.lasthop-system.svc"
OWNER = Key("HTTPRoute", "shop", "r")
REFUSED = (("type", "part", "hash", OWNER, "bad"),)
REPORT: AckReport = {Key("Gateway", "shop", "web"): GatewayAcks(True, {LISTENER: {"web/80": "1"}}, refused=REFUSED)}


class Leader:
    def __init__(self) -> None:
        self.now = time.time()
        self.authority = ca.renewed(None, self.now)
        self.credentials = Credentials(ca.server_pair(self.authority, (NAME,), self.now), self.authority.bundle)
        self.server = Server(Heard())
        self.leads = True
        self.told: list[tuple[str, AckReport]] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def heard(self, replica: str, report: AckReport) -> bool:
        if self.leads:
            self.told.append((replica, report))
        return self.leads

    def client(self, replica: str = "b") -> Credentials:
        return Credentials(ca.replica_pair(self.authority, replica, self.now), self.authority.bundle)


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    async with contextlib.AsyncExitStack() as stack:
        leader = Leader()
        stack.push_async_callback(leader.server.close)
        leader.port = await leader.server.start_tls("127.0.0.1:0", lambda: leader.credentials, lambda uid: None, leader.heard)
        yield leader


@contextlib.asynccontextmanager
async def reporting(reporter: Reporter) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(reporter.run())
        yield
        task.cancel()


async def call(leader: Leader, shown: tuple[bytes, bytes], content: bytes) -> str:
    credentials = grpc.ssl_channel_credentials(leader.authority.bundle, *shown)
    async with grpc.aio.secure_channel(leader.address, credentials, (("grpc.ssl_target_name_override", NAME),)) as channel:
        report: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        try:
            await report(content, timeout=5)
            return "OK"
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)


async def test_a_change_is_told_at_once_and_whole(leader: Leader) -> None:
    report: AckReport = {}
    client = leader.client()
    reporter = Reporter(lambda: leader.address, lambda: client, NAME, lambda: report)
    async with reporting(reporter):
        await until(lambda: leader.told == [("b", {})])
        report = REPORT
        reporter.changed.set()
        await until(lambda: leader.told[1:] == [("b", REPORT)])


async def test_a_proxy_cannot_report_not_even_on_its_own_gateway(leader: Leader) -> None:
    proxy = ca.client_secret(leader.authority, "uid-of-web", leader.now)
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


async def test_who_answers_must_be_a_controller(leader: Leader) -> None:
    """An address in the Lease is only where to look: a proxy that listens there is told nothing."""
    impostor = ca.client_secret(leader.authority, "uid-of-web", leader.now)
    leader.credentials = Credentials(PemKeyPair(impostor["tls.crt"], impostor["tls.key"]), leader.authority.bundle)
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
