"""Implements an xDS client other than Envoy: subscribes, receives and acknowledges by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from tests.xds_envoy import NODE

PATIENCE = 30
"""Seconds, which only a broken server or a very busy machine takes."""

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


class Proxy:
    def __init__(self, stream: Any, node: str) -> None:
        self._stream = stream
        self._node = node

    async def ask(self, type_url: str, nonce: str = "", error: str = "", subscribe: Sequence[str] = ()) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=type_url, response_nonce=nonce, resource_names_subscribe=subscribe
        )
        request.node.id = self._node
        if error:
            request.error_detail.message = error
        await self._stream.write(request)

    async def write(self, content: bytes) -> None:
        """Sends what need not be a request."""
        await self._stream.write(content)

    async def hear(self) -> Any:
        return await asyncio.wait_for(self._stream.read(), PATIENCE)

    async def ended(self) -> Any:
        return await asyncio.wait_for(self._stream.code(), PATIENCE)


@contextlib.asynccontextmanager
async def proxy(socket: Path, node: str = NODE) -> AsyncIterator[Proxy]:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call = channel.stream_stream(
            METHOD,
            request_serializer=lambda sent: sent if isinstance(sent, bytes) else sent.SerializeToString(),
            response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
        )
        stream = call()
        yield Proxy(stream, node)
        stream.cancel()
