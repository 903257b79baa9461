"""Carries what proxies have seen on the wire to the replica that leads.

    proxy ──ProxyReport (mutual TLS; a certificate with its Gateway's UID)──> any replica ──> the replica that leads

Reports are whole and repeated, as are those of acknowledgements (`replicas.py`): neither side remembers what the other has. A
proxy can report of its own Gateway only, whatever it writes into the report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
import msgspec

from lasthop.api.meta import Key
from lasthop.observe.foreign import believed
from lasthop.observe.observations import EXPIRES, MAX_PROXIES
from lasthop.on_change import OnChange
from lasthop.plan.observation import ProxyReport
from lasthop.xds.credentials import peer_replica, peer_uid

SERVICE: Final = "lasthop.Observations"
METHOD: Final = "Report"
REPEAT: Final = 3.0
"""Seconds between two reports of a proxy."""
ANSWER_WITHIN: Final = 5.0
RETRY: Final = 2.0

OnReport = Callable[[ProxyReport, bool], bool]
"""Takes a report, and whether another replica has passed it on; returns False if this replica does not accept it."""

_decoder: Final = msgspec.msgpack.Decoder(ProxyReport)


def handler(gateway_of_uid: Callable[[str], Key | None], on_report: OnReport) -> grpc.GenericRpcHandler:
    async def report(content: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        passed_on = bool(peer_replica(context))
        gateway = None if passed_on else gateway_of_uid(peer_uid(context))
        if gateway is None and not passed_on:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only a proxy of a Gateway that exists may report")
        try:
            # A large Gateway's report has megabytes, and other proxies wait for the event loop.
            received = await asyncio.to_thread(_read, content, gateway)
        except msgspec.DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not on_report(received, passed_on):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this replica does not lead")
        return b""

    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(report)})


def _read(content: bytes, gateway: Key | None) -> ProxyReport:
    report = _decoder.decode(content)
    return believed(report, gateway or report.gateway)


def encode(report: ProxyReport) -> bytes:
    return msgspec.msgpack.encode(report)


class ProxiesHere:
    """The latest reports of the proxies that report to this replica. Time is an argument."""

    def __init__(self) -> None:
        self._reports: dict[tuple[Key, str], tuple[float, ProxyReport]] = {}

    def take(self, report: ProxyReport, now: float) -> None:
        if len(self._reports) >= MAX_PROXIES:
            self.recent(now)
        key = (report.gateway, report.proxy)
        if key in self._reports or len(self._reports) < MAX_PROXIES:
            self._reports[key] = (now, report)

    def recent(self, now: float) -> list[ProxyReport]:
        """Returns those of proxies that still report, and forgets the others."""
        self._reports = {key: (at, report) for key, (at, report) in self._reports.items() if now - at < EXPIRES}
        return [report for _, report in self._reports.values()]


class ReportSender:
    """Sends the latest report of this proxy to the controller, for as long as it runs."""

    def __init__(
        self, address: str, server_name: str, certificates: Path, problem: Callable[[str], None], repeat: float = REPEAT
    ) -> None:
        """`certificates` is the folder with tls.crt, tls.key and ca.crt, which are renewed there. `problem` receives why the
        controller cannot be reached, or an empty text once it can."""
        self._address, self._server_name, self._certificates = address, server_name, certificates
        self._problem, self._repeat = OnChange(problem), repeat
        self._latest: ProxyReport | None = None

    def update(self, report: ProxyReport) -> None:
        self._latest = report

    async def run(self) -> None:
        while True:
            try:
                await self._connected(self._files())
            except OSError as error:
                self._problem(f"the certificate for the controller cannot be read: {error}")
            except grpc.aio.AioRpcError as error:
                self._problem(f"the controller at {self._address} takes no reports: {error.code().name} {error.details()}")
            await asyncio.sleep(RETRY)

    async def _connected(self, files: tuple[bytes, bytes, bytes]) -> None:
        """Sends until the certificate is renewed, or something fails."""
        credentials = grpc.ssl_channel_credentials(*files)
        options = (("grpc.ssl_target_name_override", self._server_name),)
        async with grpc.aio.secure_channel(self._address, credentials, options) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
            while self._files() == files:
                if self._latest is not None:
                    await call(encode(self._latest), timeout=ANSWER_WITHIN)
                    self._problem("")
                await asyncio.sleep(self._repeat)

    def _files(self) -> tuple[bytes, bytes, bytes]:
        """Reads the files in the order in which gRPC takes them."""
        ca, key, certificate = ((self._certificates / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
        return ca, key, certificate
