"""Calls the API server: a thin JSON client on aiohttp that knows HTTP and the API's verbs, but no kinds."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Self

import aiohttp
import msgspec

from lasthop.base.api.documents import Json
from lasthop.edge.kubernetes.config import Access
from lasthop.edge.kubernetes.errors import (
    NOT_OPENED,
    RESET,
    SILENT,
    UNREACHABLE,
    UNTRUSTED,
    ApiError,
    ConfigError,
    from_status,
)

CONNECT: Final = 5.0
TIMEOUT: Final = 30.0
"""Seconds for a whole response other than a stream."""
PAGE: Final = 500
"""Objects in a page of a list, as in client-go."""
JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
FIELD_MANAGER: Final = "lasthop"

Params = Mapping[str, str]


def path_of(group: str, version: str, plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Returns `/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}/{subresource}`, without empty parts."""
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    tail = "".join(f"/{part}" for part in (name, subresource) if part)
    return f"{base}{scope}/{plural}{tail}"


class Client:
    def __init__(self, access: Access, *, timeout: float = TIMEOUT) -> None:
        self.access = access
        self.heard = time.monotonic()
        """The time of the API server's last response. A part of a watch counts, a failure of the server (5xx) does not."""
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    def for_other_loop(self) -> Client:
        """Returns a client for another event loop, with its own connections."""
        return Client(self.access.for_other_loop(), timeout=self._timeout)

    async def __aenter__(self) -> Self:
        # No connection limit, because every kind keeps a watch open. No compression, because inside one network it costs more
        # than it saves.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"User-Agent": FIELD_MANAGER, "Accept-Encoding": "identity"},
            raise_for_status=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, path: str, params: Params | None = None, *, accept: str = JSON) -> Json:
        return _decoded(await self.request("GET", path, params=params, accept=accept))

    async def pages(
        self, path: str, params: Params | None = None, limit: int = PAGE, *, accept: str = JSON
    ) -> AsyncGenerator[bytes, None]:
        """Yields a consistent list, page by page, as received. Raises 410 if the remaining pages have expired meanwhile."""
        token = ""
        while True:
            query = {**(params or {}), "limit": str(limit), **({"continue": token} if token else {})}
            page = await self.request("GET", path, params=query, accept=accept)
            yield page
            token = msgspec.json.decode(page, type=_Page).metadata.continue_
            if not token:
                return

    async def watch(self, path: str, params: Params, idle: float) -> AsyncGenerator[bytes, None]:
        """Yields an empty line once the watch is open, then its lines until the server ends it.

        More than `idle` seconds without a byte is an error.
        """
        limit = aiohttp.ClientTimeout(total=None, connect=CONNECT, sock_read=idle)
        async with self._respond("GET", path, params={**params, "watch": "true"}, limit=limit) as response:
            yield b""
            async for line in _lines(response.content):
                self.heard = time.monotonic()
                yield line

    @asynccontextmanager
    async def websocket(self, path: str, params: Params, protocol: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Opens a WebSocket. Raises `ApiError` if the server refuses it or the protocol."""
        assert self._session is not None, "use `async with`"
        try:
            async with self._session.ws_connect(
                self.access.url + path,
                params=params,
                protocols=(protocol,),
                headers=await self.access.headers(),
                timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT),
                ssl=self.access.ssl or True,
                server_hostname=self.access.server_hostname,
                proxy=self.access.proxy,
                max_msg_size=0,
            ) as socket:
                if socket.protocol != protocol:
                    raise ApiError(0, RESET, f"{self.access.url} does not support the protocol {protocol}")
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, NOT_OPENED, f"{self.access.url}{path} refuses a WebSocket") from error
        except ConfigError as error:
            raise ApiError(0, UNREACHABLE, str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(0, UNREACHABLE, f"{self.access.url}: {error}") from error

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(self, path: str, body: Json) -> Json:
        return _decoded(await self.request("POST", path, body=body))

    async def put(self, path: str, body: Json) -> Json:
        """Replaces an object. With `metadata.resourceVersion` in the body, a change since then is a conflict (409)."""
        return _decoded(await self.request("PUT", path, body=body))

    async def merge(self, path: str, body: Json) -> Json:
        return _decoded(await self.request("PATCH", path, body=body, content_type=MERGE))

    async def apply(self, path: str, body: Json) -> Json:
        """Applies the body server-side; creates the object if it does not exist."""
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return _decoded(await self.request("PATCH", path, params=params, body=body, content_type=APPLY))

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Deletes an object if it exists. With `uid` it deletes only that object, not another one of the same name."""
        body: Json = {"propagationPolicy": "Background", **({"preconditions": {"uid": uid}} if uid else {})}
        try:
            await self.request("DELETE", path, body=body)
        except ApiError as error:
            if not error.not_found:
                raise

    # --- requests ----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        within: float | None = None,
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=within or self._timeout, connect=CONNECT)
        async with self._respond(
            method, path, params=params, body=body, content_type=content_type, accept=accept, limit=limit
        ) as response:
            return await response.read()

    @asynccontextmanager
    async def _respond(
        self,
        method: str,
        path: str,
        *,
        params: Params | None,
        limit: aiohttp.ClientTimeout,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields a successful response; everything else raises `ApiError`. A 401 is retried once with new credentials."""
        assert self._session is not None, "use `async with`"
        content, request_headers = None, [("Accept", accept)]
        if body is not None:
            content = msgspec.json.encode(body)
            request_headers.append(("Content-Type", content_type))
        may_renew = True
        while True:
            with self._errors_translated():
                credentials = await self.access.headers()
                async with self._session.request(
                    method,
                    self.access.url + path,
                    params=params,
                    data=content,
                    headers=(*request_headers, *credentials),
                    timeout=limit,
                    ssl=self.access.ssl or True,
                    server_hostname=self.access.server_hostname,
                    proxy=self.access.proxy,
                    allow_redirects=False,
                ) as response:
                    if response.status < 500:
                        self.heard = time.monotonic()
                    if response.status == 401 and may_renew and await self.access.renew(credentials):
                        may_renew = False
                        continue
                    if not 200 <= response.status < 300:
                        raise from_status(response.status, await response.read(), _retry_after(response))
                    yield response
                    return

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            raise ApiError(0, UNREACHABLE, str(error)) from error
        except TimeoutError as error:
            raise ApiError(0, SILENT, f"{self.access.url} did not respond in time") from error
        except aiohttp.ClientConnectorError as error:
            reason = UNTRUSTED if isinstance(error, aiohttp.ClientConnectorCertificateError) else UNREACHABLE
            raise ApiError(0, reason, f"{self.access.url}: {error.strerror or error.os_error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(0, RESET, f"{type(error).__name__} {error}".strip()) from error


class _PageMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _PageMeta = msgspec.field(default_factory=_PageMeta)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields the lines. aiohttp's own iterator fails at 512 KiB, and an object may have 1.5 MiB."""
    buffer = bytearray()
    async for chunk in content.iter_any():
        start, end = 0, chunk.find(b"\n")
        while end >= 0:
            buffer += chunk[start:end]
            if buffer:
                yield bytes(buffer)
            buffer.clear()
            start, end = end + 1, chunk.find(b"\n", end + 1)
        buffer += chunk[start:]
    # The rest is incomplete: the stream was cut inside an event, which the next watch sends again.


def _decoded(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body, type=Json)
    except msgspec.DecodeError as error:
        raise ApiError(0, RESET, f"not JSON: {body[:100]!r}") from error


def _retry_after(response: aiohttp.ClientResponse) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else 0.0
