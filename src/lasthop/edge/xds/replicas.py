"""Reports the acknowledgements and observations of a follower's proxies to the leader.

    follower ──AckReport, ProxyReports (mutual TLS; a certificate for `lasthop://controller/…`)──> leader ──> status

A report and its response contain the age of each side's last contact with the API server. A replica that has lost the API
server thus notices that another replica has not (`edge/kubernetes/contact.py`).

Every report is complete, and is sent after changes and every few seconds, so neither side keeps state about the other. A
proxy's certificate names a Gateway, not a replica, so a proxy cannot send these reports.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

import grpc
import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.text.repeat_filter import RepeatFilter
from lasthop.edge.xds import observing
from lasthop.edge.xds.acks import AckReport
from lasthop.edge.xds.credentials import MutualTls, peer_replica
from lasthop.engine.plan.observation import ProxyReport

SERVICE: Final = "lasthop.Replicas"
METHOD: Final = "Report"
REPEAT: Final = 3.0
COALESCE: Final = 0.05
"""Seconds to wait for further changes before a report is sent."""
ANSWER_WITHIN: Final = 3.0
RETRY: Final = 1.0

AGE: Final = "lasthop-api-server-heard"
"""Metadata of a report: seconds since its sender heard the API server."""

OnReport = Callable[[str, AckReport], bool]
"""Takes a replica's report; returns False if this replica does not lead."""


class ContactAges:
    """Exchanges the age of the last contact with the API server with other replicas."""

    def age(self) -> float:
        """Returns this replica's age."""
        return 0.0

    def peer(self, age: float) -> None:
        """Records another replica's age."""


_decoder: Final = msgspec.msgpack.Decoder(AckReport)
_age: Final = msgspec.msgpack.Decoder(float)


def handler(on_report: OnReport, ages: ContactAges | None = None) -> grpc.GenericRpcHandler:
    contact_ages = ages or ContactAges()

    async def report(messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        replica = peer_replica(context)
        if not replica:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only a replica of the controller may report")
        _record_age(contact_ages, dict(context.invocation_metadata() or ()).get(AGE))
        try:
            received = _decoder.decode(await anext(aiter(messages), b""))
        except msgspec.DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not on_report(replica, received):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this replica does not lead")
        return msgspec.msgpack.encode(contact_ages.age())

    # Uses a stream for the single message, so that requests from proxies are refused unread.
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(report)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


def _record_age(ages: ContactAges, received_age: str | bytes | None) -> None:
    """Records the age that another replica sends; older versions send none."""
    with contextlib.suppress(ValueError, msgspec.DecodeError):
        if received_age:
            ages.peer(float(received_age) if isinstance(received_age, str) else _age.decode(received_age))


class Reporter:
    """Sends reports while another replica leads. `changed` is set when there is something new to report."""

    def __init__(
        self,
        leader: Callable[[], str],
        credentials: Callable[[], MutualTls],
        server_name: str,
        report: Callable[[], AckReport],
        *,
        observed: Callable[[], Iterable[ProxyReport]] = lambda: (),
        problem: Callable[[str], None] = lambda text: None,
        ages: ContactAges | None = None,
    ) -> None:
        """`leader` returns the leader's address, or an empty text if there is none or this replica leads. `observed` returns
        the reports of the proxies that are connected here. `problem` receives the reason why the leader cannot be reached, and
        an empty text once it can."""
        self.changed = asyncio.Event()
        self._leader, self._credentials, self._server_name, self._report = leader, credentials, server_name, report
        self._observed, self._problem, self._ages = observed, RepeatFilter(problem), ages or ContactAges()

    async def run(self) -> None:
        while True:
            if address := self._leader():
                await self._to(address)
            await asyncio.sleep(RETRY)

    async def _to(self, address: str) -> None:
        """Reports to one leader until it stops leading, does not answer, or our certificate is renewed."""
        own_tls = self._credentials()
        credentials = grpc.ssl_channel_credentials(own_tls.trusted, own_tls.own.private_key, own_tls.own.certificate)
        # The server must present a controller's certificate; the address alone proves nothing.
        options = (("grpc.ssl_target_name_override", self._server_name),)
        try:
            async with grpc.aio.secure_channel(address, credentials, options) as channel:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
                forwarded: dict[tuple[Key, str], float] = {}
                while self._leader() == address and self._credentials() is own_tls:
                    self.changed.clear()
                    age = ((AGE, f"{self._ages.age():.3f}"),)
                    _record_age(
                        self._ages, await call(msgspec.msgpack.encode(self._report()), timeout=ANSWER_WITHIN, metadata=age)
                    )
                    await self._pass_on(channel, forwarded)
                    self._problem("")
                    await self._pause()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:  # it no longer leads, or does not lead yet
                self._problem(f"the leader at {address} does not accept reports: {error.code().name} {error.details()}")

    async def _pass_on(self, channel: grpc.aio.Channel, forwarded: dict[tuple[Key, str], float]) -> None:
        """Forwards new reports of proxies, one call each, because all of them together could exceed the message limit."""
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{observing.SERVICE}/{observing.METHOD}")
        for seen in self._observed():
            if forwarded.get((seen.gateway, seen.proxy)) != seen.at:
                await call(observing.bounded(seen), timeout=observing.ANSWER_WITHIN)
                forwarded[seen.gateway, seen.proxy] = seen.at

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(REPEAT):
                await self.changed.wait()
                await asyncio.sleep(COALESCE)
        except TimeoutError:
            pass
