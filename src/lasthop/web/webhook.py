"""Serves the validating webhook over HTTPS with the controller's own certificate, also after a renewal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from lasthop.base.api.addresses import split_port
from lasthop.base.pki.certificates import PemKeyPair
from lasthop.base.text.logs import LOG
from lasthop.web.app import AdminUnusable
from lasthop.web.reviews import LARGEST, BadReview, NotJudged, Reviews

PATH: Final = "/validate"
CONNECTIONS: Final = 500
CONNECTIONS_EACH: Final = 50
"""Open connections, in total and of one address. The API server keeps a few."""
IDLE: Final = 30.0
LINGER: Final = 1.0
"""Seconds for which the body of an unread, refused request is discarded, so that its sender receives the response."""
HANDSHAKE: Final = 5.0
CERTIFICATE_CHECK_SECONDS: Final = 30.0
"""Seconds between two checks of the certificate."""
REVIEWS: Final = web.AppKey("reviews", Reviews)


async def _validate(request: web.Request) -> web.Response:
    if (request.content_length or 0) > LARGEST:
        raise web.HTTPRequestEntityTooLarge(LARGEST, request.content_length or 0)
    try:
        return web.json_response(await request.app[REVIEWS].answer(request.remote or "", request.read))
    except BadReview as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    except NotJudged as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None


class ConnectionLimiter:
    """Limits the number of connections, in total and per address; excess connections are closed at once."""

    def __init__(self, serve: Callable[[], asyncio.Protocol]) -> None:
        self.serve = serve
        self.open: Counter[str] = Counter()

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self)


class _Connection(asyncio.Protocol):
    """Forwards the events of an admitted connection."""

    def __init__(self, limiter: ConnectionLimiter) -> None:
        self._limiter, self._inner, self._peer = limiter, asyncio.Protocol(), ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened, peer = self._limiter.open, str(transport.get_extra_info("peername", ("",))[0])
        if opened.total() >= CONNECTIONS or opened[peer] >= CONNECTIONS_EACH:
            transport.close()
            return
        opened[peer] += 1
        self._peer, self._inner = peer, self._limiter.serve()
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._peer:
            self._limiter.open -= Counter((self._peer,))
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def application(reviews: Reviews) -> web.Application:
    app = web.Application(client_max_size=LARGEST)
    app[REVIEWS] = reviews
    app.router.add_post(PATH, _validate)
    return app


def load(context: ssl.SSLContext, pair: PemKeyPair) -> None:
    """Makes new connections use this certificate; open connections keep theirs."""
    # OpenSSL reads files only; this one is in memory, because the file system of a Pod is read-only.
    with open(os.memfd_create("webhook", os.MFD_CLOEXEC), "wb", buffering=0) as file:
        file.write(pair.certificate + pair.private_key)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


@contextlib.asynccontextmanager
async def serving(reviews: Reviews, address: str, pair: Callable[[], PemKeyPair], ready: asyncio.Event) -> AsyncIterator[None]:
    """Serves once there is a certificate (`ready`). Raises AdminUnusable if it cannot listen."""
    host, port = split_port(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    runner = web.AppRunner(
        application(reviews), access_log=None, shutdown_timeout=2, keepalive_timeout=IDLE, lingering_time=LINGER
    )
    await runner.setup()
    assert runner.server is not None
    limiter = ConnectionLimiter(runner.server)

    async def run() -> None:
        await ready.wait()
        shown = pair()
        load(context, shown)
        await reviews.warm_up()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(limiter, host, int(port), ssl=context, ssl_handshake_timeout=HANDSHAKE)
        except OSError as error:
            raise AdminUnusable(f"the webhook cannot listen on {address}: {error.strerror}") from error
        LOG.info("judging edits", address=address)
        try:
            while True:
                await asyncio.sleep(CERTIFICATE_CHECK_SECONDS)
                if (current := pair()) != shown:
                    shown = current
                    load(context, shown)
        finally:
            server.close()

    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run())
            yield
            running.cancel()
    finally:
        await runner.cleanup()
