"""Counts the engine's work for one edit, and for all objects at the start, at three sizes of each kind: `python -m
bench.growth`.

No clock: functions entered and bytes sent are the same on every machine. It prints a Markdown table (docs/performance.md).
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NamedTuple

from lasthop.base.api.meta import Key, Object
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.response import encode
from lasthop.edge.xds.session import XdsSession
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, Resource
from tests.unit.xds.client import Client
from tests.world import (
    NOW,
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_service,
    mk_slice,
)

GATEWAY: Final = "a/gw"
EDITED: Final = 7


class Cost(NamedTuple):
    functions: int
    """Python and C functions entered."""
    sent: int
    """Bytes of resources for Envoy."""


class Dimension(NamedTuple):
    title: str
    edit: str
    sizes: tuple[int, int, int]
    objects: Callable[[int], Iterator[Object]]
    change: Callable[[int], Object]
    """Makes the edit in a world of that size."""


def _hop(name: str, addresses: int = 1) -> Iterator[Object]:
    yield mk_service(f"a/{name}")
    yield _slice(name, addresses)
    yield mk_config_map(f"a/{name}", ca_pem("own"))
    yield _policy(name)


def _policy(name: str, hostname: str = "api.example") -> Object:
    return mk_policy(f"a/{name}", name, hostname, [name])


def _slice(name: str, addresses: int, first: int = 0) -> Object:
    numbers = range(first, first + addresses)
    return mk_slice(f"a/{name}", name, [f"10.0.{number // 250}.{number % 250 + 1}" for number in numbers])


def _route(number: int, hostname: str, service: str, path: str = "/", gateway: str = GATEWAY) -> Object:
    rule = {"matches": [{"path": {"value": path}}], "backendRefs": [{"name": service, "port": 443}]}
    return mk_route(f"a/r{number:05}", gateway, [], [hostname], rules=[rule])


def _policies(size: int) -> Iterator[Object]:
    for number in range(size):
        yield from _hop(f"s{number:05}")
        yield _route(number, f"{number}.example", f"s{number:05}")


def _of_one_service(route: Callable[[int], Object]) -> Callable[[int], Iterator[Object]]:
    def objects(size: int) -> Iterator[Object]:
        yield from _hop("s")
        yield from map(route, range(size))

    return objects


def _gateways(size: int) -> Iterator[Object]:
    yield from _hop("s")
    for number in range(size):
        yield mk_gateway(f"a/g{number:05}")
        yield _route(number, "shared.example", "s", gateway=f"a/g{number:05}")


def _endpoints(size: int) -> Iterator[Object]:
    yield from _hop("s", size)
    yield _route(0, "shared.example", "s")


DIMENSIONS: Final = (
    Dimension(
        "policies, each with a Service, a CA and a route",
        "a policy",
        (100, 1000, 5000),
        _policies,
        lambda size: _policy(f"s{EDITED:05}", "new.example"),
    ),
    Dimension(
        "hosts of one port, one backend",
        "a route",
        (100, 1000, 5000),
        _of_one_service(lambda number: _route(number, f"{number}.example", "s")),
        lambda size: _route(EDITED, f"{EDITED}.example", "s", "/new"),
    ),
    Dimension(
        "routes of one hostname, one backend",
        "a route",
        (10, 100, 1000),
        _of_one_service(lambda number: _route(number, "shared.example", "s", f"/{number}")),
        lambda size: _route(EDITED, "shared.example", "s", "/new"),
    ),
    Dimension(
        "Gateways that reach one backend (a policy's status has room for 16)",
        "its policy",
        (4, 8, 16),
        _gateways,
        lambda size: _policy("s", "new.example"),
    ),
    Dimension("endpoints of one Service", "one endpoint", (10, 100, 1000), _endpoints, lambda size: _slice("s", size, 1)),
)


@contextlib.contextmanager
def _counting(counted: list[int]) -> Iterator[None]:
    """Adds the number of functions entered."""
    functions = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal functions
        functions += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        counted.append(functions)


def _counted(work: Callable[[], int]) -> Cost:
    functions: list[int] = []
    with _counting(functions):
        sent = work()
    return Cost(sum(functions), sent)


def _settled(engine: Engine, objects: dict[Key, Object | None]) -> int:
    """Applies objects; returns the bytes of the resources that change."""
    engine.apply(objects)
    sent = 0
    while engine.unsettled:
        update = engine.settle()
        changes = (change for by_type in update.xds.values() for named in by_type.values() for change in named.values())
        sent += sum(len(change.body) for change in changes if isinstance(change, Resource))
    return sent


def measure(dimension: Dimension, size: int) -> tuple[Cost, Cost]:
    """Returns the cost of a start and of an edit."""
    engine = Engine(now=NOW.timestamp())
    objects = keyed(mk_class(), mk_gateway(GATEWAY), *dimension.objects(size))
    start = _counted(lambda: _settled(engine, objects))
    edit = keyed(dimension.change(size))
    _settled(engine, edit)  # the first edit also builds what later edits reuse
    back = {key: objects[key] for key in edit}
    return start, _counted(lambda: _settled(engine, back))


class Proxy:
    """A stream of the xDS server, without gRPC, and an Envoy that acknowledges every response."""

    def __init__(self, cache: Cache) -> None:
        self._session, self._client = XdsSession(cache), Client()
        self._client.connect()

    def follow(self) -> Cost:
        """Exchanges messages until neither side has any left; counts the server's work."""
        functions: list[int] = []
        sent, talking = 0, True
        while talking:
            talking = False
            while self._client.outbox:
                with _counting(functions):
                    deque(self._session.receiving(self._client.outbox.popleft(), 0.0), maxlen=0)
                talking = True
            with _counting(functions):
                response = self._session.poll(0.0)
                sent += len(encode(response)) if response else 0
            if response:
                self._client.inbox.append(response)
                self._client.read()
                talking = True
        return Cost(sum(functions), sent)


def _cluster(edition: int) -> dict[str, dict[str, Resource]]:
    cluster = Resource(CLUSTER, "edited", b"x" * 1000, str(edition))
    endpoints = Resource(ENDPOINTS, f"edited@{edition}", b"x" * 200, str(edition))
    return {CLUSTER: {cluster.name: cluster}, ENDPOINTS: {endpoints.name: endpoints}}


def proxies(size: int) -> tuple[Cost, Cost]:
    """Returns the server's cost for all proxies of a Gateway: when they connect, and for an edit of a policy."""
    cache = Cache()
    cache.apply(_cluster(1))
    streams = [Proxy(cache) for _ in range(size)]

    def followed() -> Cost:
        costs = [stream.follow() for stream in streams]
        return Cost(sum(cost.functions for cost in costs), sum(cost.sent for cost in costs))

    start = followed()
    cache.apply(_cluster(2))
    return start, followed()


def main() -> None:
    print("| with more | size | start: functions for each | edit | functions | bytes to Envoy |")
    print("|---|---|---|---|---|---|")
    for dimension in DIMENSIONS:
        for size in dimension.sizes:
            start, edit = measure(dimension, size)
            figures = (f"{start.functions / size:,.0f}", dimension.edit, f"{edit.functions:,}", f"{edit.sent:,}")
            print(f"| {dimension.title} | {size:,} | {' | '.join(figures)} |", flush=True)
    for size in (4, 20, 100):
        start, edit = proxies(size)
        figures = (f"{start.functions / size:,.0f}", "a policy", f"{edit.functions:,}", f"{edit.sent:,}")
        print(f"| proxies of one Gateway, in the xDS server | {size} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
