"""Simulates a leading replica, for tests of reports to it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Container, Generator

import grpc

from lasthop.base.api.meta import Key
from lasthop.base.pki import authority as ca
from lasthop.edge.xds.acks import AckReport
from lasthop.edge.xds.credentials import MutualTls
from lasthop.edge.xds.observing import Peer, Reports
from lasthop.edge.xds.server import XdsServer
from lasthop.engine.plan.observation import ProxyReport
from lasthop.engine.plan.upstream import Hop, Protocol
from tests.xds_envoy import Heard

NAME = "lasthop-xds.lasthop-system.svc"
WEB = Key("Gateway", "shop", "web")
WEB_UID = "uid-of-web"
HOP = Hop(WEB, Key("Service", "shop", "api"), 443, Protocol.AUTO)
ENDPOINT = "10.0.0.1:8443"
ROUTE = Key("HTTPRoute", "shop", "r")


class Leader:
    def __init__(self) -> None:
        self.now = time.time()
        self.authority = ca.renewed(None, self.now)
        self.credentials = MutualTls(ca.server_pair(self.authority, (NAME,), self.now), self.authority.bundle)
        self.over = Heard()
        self.server = XdsServer(self.over)
        self.leads = True
        self.told: list[tuple[str, AckReport]] = []
        self.seen: list[tuple[ProxyReport, bool]] = []
        self.hops: dict[Hop, tuple[str, ...]] = {HOP: (ENDPOINT,)}
        self.routes = {(WEB, ROUTE)}
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def heard(self, replica: str, report: AckReport) -> bool:
        if self.leads:
            self.told.append((replica, report))
        return self.leads

    def observed(self, report: ProxyReport, passed_on: bool) -> Generator[None, None, bool]:
        yield
        if self.leads or not passed_on:
            self.seen.append((report, passed_on))
        return self.leads or not passed_on

    def addresses(self, hop: Hop) -> Container[str] | None:
        return self.hops.get(hop)

    def serves(self, gateway: Key, route: Key) -> bool:
        return (gateway, route) in self.routes

    @property
    def reports(self) -> Reports:
        assert self.server.reports
        return self.server.reports

    def peer(self, gateway: Key) -> Peer:
        return self.reports.peers.get(gateway) or Peer()

    def client(self, replica: str = "b") -> MutualTls:
        return MutualTls(ca.replica_pair(self.authority, replica, self.now), self.authority.bundle)

    def proxy(self, uid: str = WEB_UID) -> dict[str, bytes]:
        """Returns the files of a proxy's certificate."""
        return ca.client_secret(self.authority, uid, self.now)

    async def call(self, shown: tuple[bytes, bytes], method: str, content: bytes) -> str:
        """Calls a method with a key and a certificate; returns the code of the answer."""
        credentials = grpc.ssl_channel_credentials(self.authority.bundle, *shown)
        async with grpc.aio.secure_channel(self.address, credentials, (("grpc.ssl_target_name_override", NAME),)) as channel:
            report: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            try:
                await report(content, timeout=5)
                return "OK"
            except grpc.aio.AioRpcError as error:
                return str(error.code().name)


@contextlib.asynccontextmanager
async def leading() -> AsyncIterator[Leader]:
    async with contextlib.AsyncExitStack() as stack:
        leader = Leader()
        stack.push_async_callback(leader.server.close)
        uids = {WEB_UID: WEB, "uid-of-other": Key("Gateway", "other", "web")}
        leader.port = await leader.server.start_tls(
            "127.0.0.1:0", lambda: leader.credentials, uids.get, leader.heard, leader.observed, leader
        )
        yield leader
