"""The validating webhook's HTTPS server; its certificate is the controller's own, and follows when that is renewed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from lasthop import logs
from lasthop.api.addresses import split_port
from lasthop.pki.certificates import PemKeyPair
from lasthop.web.app import AdminUnusable
from lasthop.web.reviews import NotJudged, Reviews

PATH: Final = "/validate"
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a review: it holds an object twice, before and after, and the API server takes 3 MiB."""
LOOK: Final = 30.0
"""Seconds between two looks at the certificate."""
REVIEWS: Final = web.AppKey("reviews", Reviews)


async def _validate(request: web.Request) -> web.Response:
    try:
        return web.json_response(await request.app[REVIEWS].answer(await request.read()))
    except NotJudged as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None


def application(reviews: Reviews) -> web.Application:
    app = web.Application(client_max_size=LARGEST)
    app[REVIEWS] = reviews
    app.router.add_post(PATH, _validate)
    return app


def load(context: ssl.SSLContext, pair: PemKeyPair) -> None:
    """Has new connections use this certificate; those that are open keep theirs."""
    # OpenSSL reads files only; this one is in memory, and the file system of a Pod is read-only.
    with open(os.memfd_create("webhook", os.MFD_CLOEXEC), "wb", buffering=0) as file:
        file.write(pair.certificate + pair.private_key)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


@contextlib.asynccontextmanager
async def serving(reviews: Reviews, address: str, pair: Callable[[], PemKeyPair], ready: asyncio.Event) -> AsyncIterator[None]:
    """Serves from when there is a certificate (`ready`) on. Raises AdminUnusable if it cannot listen."""
    host, port = split_port(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    runner = web.AppRunner(application(reviews), access_log=None, shutdown_timeout=2)
    await runner.setup()

    async def run() -> None:
        await ready.wait()
        shown = pair()
        load(context, shown)
        await reviews.warm_up()
        try:
            await web.TCPSite(runner, host, int(port), ssl_context=context).start()
        except OSError as error:
            raise AdminUnusable(f"the webhook cannot listen on {address}: {error.strerror}") from error
        logs.get().info("judging edits", address=address)
        while True:
            await asyncio.sleep(LOOK)
            if (current := pair()) != shown:
                shown = current
                load(context, shown)

    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run())
            yield
            running.cancel()
    finally:
        await runner.cleanup()
