"""Simulates proxies of one Gateway: each has its own connection and stream, and subscribes and acknowledges like Envoy.

Run as `python -m bench.control.proxies SOCKET GATEWAY NUMBER`. Prints `ready` once each has all clusters, endpoints, listeners
and routes. Then it prints a line for each changed cluster when the last proxy has it with its endpoints, because an Envoy
would use it from then on. A line has the name and the time (`time.perf_counter`, the same clock for all processes). Ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from typing import Any

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, cluster_of

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
QUIET = 2.0
"""Seconds without a message after which everything has been received."""
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))


class Fleet:
    """The resources that all proxies have received."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.heard = time.perf_counter()
        self.ready = False
        self._counts: Counter[str] = Counter()

    def warm(self, endpoints: str) -> None:
        """Some proxy has a cluster and these endpoints of it."""
        if self.ready:
            self._counts[endpoints] += 1
            if self._counts[endpoints] % self.number == 0:
                print(cluster_of(endpoints), time.perf_counter(), flush=True)


class Proxy:
    def __init__(self, fleet: Fleet, gateway: str) -> None:
        self._fleet, self._gateway = fleet, gateway
        self._stream: Any = None
        self._services: dict[str, str] = {}
        """The name of the endpoints of each cluster."""

    async def run(self, socket: str) -> None:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
            self._stream = channel.stream_stream(
                METHOD,
                request_serializer=DeltaDiscoveryRequest.SerializeToString,
                response_deserializer=DeltaDiscoveryResponse.FromString,
            )()
            await self._say(CLUSTER)
            await self._say(LISTENER)
            async for response in self._stream:
                self._fleet.heard = time.perf_counter()
                await self._hear(response)

    async def _hear(self, response: DeltaDiscoveryResponse) -> None:
        match response.type_url:
            case str() as type_url if type_url == CLUSTER:
                await self._clusters(response)
            case str() as type_url if type_url == LISTENER:
                await self._say(LISTENER, nonce=response.nonce)
                if tables := [name for listener in response.resources for name in _tables(listener.resource.value)]:
                    await self._say(ROUTES, subscribe=tables)
            case type_url:
                await self._say(type_url, nonce=response.nonce)
                if type_url == ENDPOINTS:
                    for resource in response.resources:
                        self._fleet.warm(resource.name)

    async def _clusters(self, response: DeltaDiscoveryResponse) -> None:
        new, old = [], []
        for resource in response.resources:
            service = Cluster.FromString(resource.resource.value).eds_cluster_config.service_name
            if service and self._services.get(resource.name) != service:
                old += [self._services[resource.name]] if resource.name in self._services else []
                self._services[resource.name] = service
                new.append(service)
        old += [self._services.pop(name) for name in response.removed_resources if name in self._services]
        if new or old:
            await self._say(ENDPOINTS, subscribe=new, unsubscribe=old)
        await self._say(CLUSTER, nonce=response.nonce)

    async def _say(
        self, type_url: str, nonce: str = "", subscribe: list[str] | None = None, unsubscribe: list[str] | None = None
    ) -> None:
        request = DeltaDiscoveryRequest(
            type_url=type_url,
            response_nonce=nonce,
            resource_names_subscribe=subscribe or (),
            resource_names_unsubscribe=unsubscribe or (),
        )
        request.node.id = self._gateway
        await self._stream.write(request)


def _tables(listener: bytes) -> list[str]:
    """Returns the route tables that a listener refers to."""
    tables = []
    for chain in Listener.FromString(listener).filter_chains:
        for filter in chain.filters:
            manager = http_connection_manager_pb2.HttpConnectionManager()
            if filter.typed_config.Unpack(manager) and manager.rds.route_config_name:
                tables.append(manager.rds.route_config_name)
    return tables


async def main(socket: str, gateway: str, number: str) -> None:
    fleet = Fleet(int(number))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(Proxy(fleet, gateway).run(socket)) for _ in range(fleet.number)]
        while time.perf_counter() - fleet.heard < QUIET:  # noqa: ASYNC110 - nothing happens, which is no event
            await asyncio.sleep(0.1)
        fleet.ready = True
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for proxy in running:
            proxy.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
