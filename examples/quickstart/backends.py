"""Runs three small HTTPS servers: one correct, one with a certificate for another name, one signed by an unknown CA."""

from __future__ import annotations

import contextlib
import errno
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

# The same ports as in backends.yaml.
PORTS = {"right": 18441, "wrong-name": 18442, "unknown-ca": 18443}


class PortTaken(Exception):
    def __init__(self, port: int, whose: str) -> None:
        super().__init__(
            f"Port {port} of 127.0.0.1 is taken, and {whose} needs it. "
            f"Stop the program that has it (`ss -ltnp 'sport = :{port}'` shows which), then try again."
        )


@contextlib.asynccontextmanager
async def backends(certificates: Path) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for name, port in PORTS.items():
            runner = web.AppRunner(_app(name), access_log=None, shutdown_timeout=1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
            context.set_alpn_protocols(["http/1.1"])
            try:
                await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise PortTaken(port, f"the demo backend `{name}`") from error
        yield


def _app(name: str) -> web.Application:
    async def hello(request: web.Request) -> web.Response:
        connection = request.get_extra_info("ssl_object")
        return web.Response(text=f"Hello from {name}, over {connection.version()}\n")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    return app
