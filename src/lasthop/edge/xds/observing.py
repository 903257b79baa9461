"""Carries observations from the proxies to the leading replica.

    proxy ──ProxyReport (mutual TLS; a certificate with its Gateway's UID)──> any replica ──> the replica that leads

Reports are complete and repeated, like the reports of acknowledgements (`replicas.py`), so neither side keeps state about the
other. A proxy can report only for the Gateway in its certificate, regardless of the report's content.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Final

import grpc
import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.text.repeat_filter import RepeatFilter
from lasthop.edge.observe.foreign import GatewayParts, filtered_report
from lasthop.edge.observe.observations import EXPIRES, MAX_PROXIES
from lasthop.edge.slices import step_by_step
from lasthop.edge.xds.budget import QUEUE, READING, REPORT_BURST, REPORT_RATE, Allotment, OverBudget, check_report
from lasthop.edge.xds.credentials import peer_replica, peer_uid
from lasthop.engine.plan.observation import ProxyReport

SERVICE: Final = "lasthop.Observations"
METHOD: Final = "Report"
REPEAT: Final = 3.0
"""Seconds between two reports of a proxy."""
ANSWER_WITHIN: Final = 5.0
RETRY: Final = 2.0

MAX_REPORT: Final = 4 * 1024 * 1024
"""Bytes of a proxy's report. A larger report is sent without the details of endpoints."""
MANY: Final = 1_000
"""Gateways and replicas whose budgets are remembered."""

OnReport = Callable[[ProxyReport, bool], Generator[None, None, bool]]
"""Processes a report in steps. The flag is set if another replica forwarded it. Returns False if this replica does not
accept reports."""
OnExceeded = Callable[[Key, str], None]

_decoder: Final = msgspec.msgpack.Decoder(ProxyReport)


class Peer:
    """Tracks the budget of a Gateway, or of a replica that forwards reports of its proxies."""

    def __init__(self) -> None:
        self.waiting = 0
        self.reading = asyncio.Semaphore(READING)
        self.allotment = Allotment(REPORT_RATE, REPORT_BURST)


class Reports:
    """Receives reports. The certificate identifies the Gateway, and the Gateway's budget applies before a report is
    decoded."""

    def __init__(
        self,
        gateway_of_uid: Callable[[str], Key | None],
        parts: GatewayParts,
        on_report: OnReport,
        hops: Callable[[Key], int],
        exceeded: OnExceeded,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hops` returns a Gateway's number of hops; `exceeded` is called if a proxy reports more than its Gateway's budget
        allows."""
        self._gateway_of_uid, self._known, self._on_report = gateway_of_uid, parts, on_report
        self._hops, self._exceeded, self._clock = hops, exceeded, clock
        self.peers: dict[Key | str, Peer] = {}
        self._turn = asyncio.Lock()

    def handler(self) -> grpc.GenericRpcHandler:
        # Uses a stream for the single message, because gRPC would read the message of a unary request before calling the
        # handler.
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(self._report)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def _report(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        replica = peer_replica(context)
        gateway = None if replica else self._gateway_of_uid(peer_uid(context))
        if gateway is None and not replica:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only proxies of existing Gateways may report")
        try:
            accepted = await self._take(messages, gateway, replica)
        except (msgspec.DecodeError, RecursionError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (OverBudget, TimeoutError) as error:
            reason = str(error) or f"a report took longer than {ANSWER_WITHIN:g} s"
            if gateway is not None:
                self._exceeded(gateway, reason)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
        if not accepted:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this replica does not lead")
        return b""

    async def _take(self, messages: AsyncIterator[bytes], gateway: Key | None, replica: str) -> bool:
        if len(self.peers) > MANY:  # idle peers start again with a full budget
            self.peers = {key: peer for key, peer in self.peers.items() if peer.waiting}
        peer = self.peers.setdefault(gateway or replica, Peer())
        if peer.waiting >= QUEUE:
            raise OverBudget(f"{QUEUE} reports are already queued, which is the limit")
        peer.waiting += 1
        try:
            async with asyncio.timeout(ANSWER_WITHIN), peer.reading:
                content = await anext(aiter(messages), b"")
                if gateway is not None:
                    check_report(len(content), self._hops(gateway))
                    if not peer.allotment.spend(len(content), self._clock()):
                        reason = f"its proxies send more than {REPORT_RATE:.0f} bytes of reports per second; some are dropped"
                        self._exceeded(gateway, reason)
                        return True
                # A large Gateway's report has megabytes, which would block the event loop.
                report = await asyncio.to_thread(_decoder.decode, content)
                async with self._turn:
                    report = await step_by_step(filtered_report(report, gateway or report.gateway, self._known))
                    return await step_by_step(self._on_report(report, bool(replica)))
        finally:
            peer.waiting -= 1


def ignored(report: ProxyReport, forwarded: bool) -> Generator[None, None, bool]:
    yield from ()
    return False


def encode(report: ProxyReport) -> bytes:
    return msgspec.msgpack.encode(report)


def bounded(report: ProxyReport) -> bytes:
    """Encodes a report within the size limit, with fewer endpoints if necessary. Failing endpoints come first."""
    content = encode(report)
    for limit in (8, 2, 0):
        if len(content) <= MAX_REPORT:
            break
        hops = {hop: msgspec.structs.replace(seen, endpoints=seen.endpoints[:limit]) for hop, seen in report.hops.items()}
        content = encode(msgspec.structs.replace(report, hops=hops))
    return content


class ProxiesHere:
    """Keeps the latest reports of the proxies that report to this replica. Time is an argument."""

    def __init__(self) -> None:
        self._reports: dict[tuple[Key, str], tuple[float, ProxyReport]] = {}

    def take(self, report: ProxyReport, now: float) -> None:
        key = (report.gateway, report.proxy)
        if key not in self._reports and self._full(report.gateway):
            self.recent(now)
            if self._full(report.gateway):
                return
        self._reports[key] = (now, report)

    def _full(self, gateway: Key) -> bool:
        return sum(owner == gateway for owner, _ in self._reports) >= MAX_PROXIES

    def recent(self, now: float) -> list[ProxyReport]:
        """Returns the reports of proxies that still report, and drops the others."""
        self._reports = {key: (at, report) for key, (at, report) in self._reports.items() if now - at < EXPIRES}
        return [report for _, report in self._reports.values()]


class ReportSender:
    """Sends the latest report of this proxy to the controller repeatedly."""

    def __init__(
        self, address: str, server_name: str, certificates: Path, problem: Callable[[str], None], repeat: float = REPEAT
    ) -> None:
        """`certificates` is the folder of tls.crt, tls.key and ca.crt, where they are renewed. `problem` receives the reason
        why the controller cannot be reached, and an empty text once it can."""
        self._address, self._server_name, self._certificates = address, server_name, certificates
        self._problem, self._repeat = RepeatFilter(problem), repeat
        self._latest: ProxyReport | None = None

    def update(self, report: ProxyReport) -> None:
        self._latest = report

    async def run(self) -> None:
        while True:
            try:
                await self._connected(self._files())
            except OSError as error:
                self._problem(f"cannot read the certificate for the controller: {error}")
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name} {error.details()}"
                self._problem(f"the controller at {self._address} does not accept reports: {reason}")
            await asyncio.sleep(RETRY)

    async def _connected(self, files: tuple[bytes, bytes, bytes]) -> None:
        """Sends reports until the certificate is renewed or a call fails."""
        credentials = grpc.ssl_channel_credentials(*files)
        options = (("grpc.ssl_target_name_override", self._server_name),)
        async with grpc.aio.secure_channel(self._address, credentials, options) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
            while self._files() == files:
                if self._latest is not None:
                    await call(bounded(self._latest), timeout=ANSWER_WITHIN)
                    self._problem("")
                await asyncio.sleep(self._repeat)

    def _files(self) -> tuple[bytes, bytes, bytes]:
        """Reads the files in the order of gRPC's parameters."""
        ca, key, certificate = ((self._certificates / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
        return ca, key, certificate
