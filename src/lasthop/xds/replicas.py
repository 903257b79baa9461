"""Reports from the replicas that do not hold the Lease to the one that does: what their proxies have acknowledged.

    follower ──AckReport (mutual TLS; a certificate for `lasthop://controller/…`)──> leader ──> status

A whole report each time, as soon as something has changed and every few seconds besides, so nothing need be remembered about
what the other side has heard. A proxy's certificate speaks for its Gateway and not for a replica: it cannot report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
import msgspec

from lasthop.xds.acks import AckReport
from lasthop.xds.credentials import Credentials, peer_replica

SERVICE: Final = "lasthop.Replicas"
METHOD: Final = "Report"
REPEAT: Final = 3.0
COALESCE: Final = 0.05
"""Seconds for more to come before a report goes out."""
ANSWER_WITHIN: Final = 3.0
RETRY: Final = 1.0

Heard = Callable[[str, AckReport], bool]
"""The replica and what it tells; False if this one does not lead."""

_decoder: Final = msgspec.msgpack.Decoder(AckReport)


def handler(heard: Heard) -> grpc.GenericRpcHandler:
    async def report(content: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        replica = peer_replica(context)
        if not replica:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only a replica of the controller may report")
        try:
            told = _decoder.decode(content)
        except msgspec.DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not heard(replica, told):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this replica does not lead")
        return b""

    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(report)})


class Reporter:
    """`run` reports for as long as another replica leads; `changed` says that there is something new to tell."""

    def __init__(
        self,
        leader: Callable[[], str],
        credentials: Callable[[], Credentials],
        server_name: str,
        report: Callable[[], AckReport],
        *,
        problem: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`leader` is its address, empty while there is none or it is this one; `problem` hears why it cannot be reached, and
        an empty text when it can."""
        self.changed = asyncio.Event()
        self._leader, self._credentials, self._server_name, self._report = leader, credentials, server_name, report
        self._problem, self._told = problem, ""

    async def run(self) -> None:
        while True:
            if address := self._leader():
                await self._to(address)
            await asyncio.sleep(RETRY)

    async def _to(self, address: str) -> None:
        """Until it leads no more, does not answer, or a new certificate is to be shown."""
        shown = self._credentials()
        credentials = grpc.ssl_channel_credentials(shown.trusted, shown.own.private_key, shown.own.certificate)
        # Who answers must be a controller; at which address it does so is only where to look for it.
        options = (("grpc.ssl_target_name_override", self._server_name),)
        try:
            async with grpc.aio.secure_channel(address, credentials, options) as channel:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
                while self._leader() == address and self._credentials() is shown:
                    self.changed.clear()
                    await call(msgspec.msgpack.encode(self._report()), timeout=ANSWER_WITHIN)
                    self._say("")
                    await self._pause()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:  # it will lead no more, or not yet
                self._say(f"the leader at {address} does not take reports: {error.code().name} {error.details()}")

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(REPEAT):
                await self.changed.wait()
                await asyncio.sleep(COALESCE)
        except TimeoutError:
            pass

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._problem(text)
