"""Measures edits of one host's route among many by delivery, and the parts of the cost of an RDS edit."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from envoy.config.route.v3.route_components_pb2 import VirtualHost
from msgspec.structs import replace

from bench.route_delivery.deliveries import Rds, Srds, Vhds, resource
from bench.route_delivery.emitted import PATHS, Emitted, Variant
from bench.route_delivery.proxy import Edit, Proxy
from lasthop.engine.outputs.envoy.resource import ROUTES

EDITED = "s00003"
"""The set whose route is edited: one that has a cluster."""


@dataclasses.dataclass
class Row:
    hosts: int
    way: str
    sent: float
    """Bytes."""
    cpu_ms: float
    """Of Envoy's main thread."""
    effective_ms: float | None = None
    slowest_ms: float | None = None
    kib_per_host: float | None = None

    @classmethod
    def of(cls, hosts: int, way: str, edits: list[Edit], bytes_per_host: float) -> Row:
        sent, effective, cpu = (statistics.median(column) for column in zip(*edits, strict=True))
        slowest = max(edit.effective for edit in edits)
        return cls(hosts, way, sent, cpu * 1e3, effective * 1e3, slowest * 1e3, bytes_per_host / 1024)


def _as_emitted(_host: VirtualHost) -> None:
    pass


def _no_retries(host: VirtualHost) -> None:
    host.ClearField("retry_policy")


def _deprecated(host: VirtualHost) -> None:
    host.per_request_buffer_limit_bytes.value = host.request_body_buffer_limit.value
    host.ClearField("request_body_buffer_limit")


def _bare(host: VirtualHost) -> None:
    (route,) = host.routes
    kept = VirtualHost(name=host.name, domains=host.domains)
    kept.routes.add(match=route.match).route.cluster = route.route.cluster
    host.CopyFrom(kept)


NAMES = 4


def _several_names(host: VirtualHost) -> None:
    """As one HTTPRoute with several hostnames could be laid out."""
    host.domains.extend(f"{number}.{host.name}" for number in range(1, NAMES))


class Way(NamedTuple):
    delivery: type[Rds | Vhds | Srds]
    variant: Variant = _as_emitted
    walks: bool = False
    """Whether Envoy checks for unknown and deprecated fields; Lasthop disables that."""
    names: int = 1
    """Of each virtual host."""


WAYS = {
    "RDS": Way(Rds),
    "VHDS": Way(Vhds),
    "SRDS": Way(Srds),
    "RDS, Envoy looks for unknown fields": Way(Rds, walks=True),
    "RDS, and finds a deprecated one in each host": Way(Rds, _deprecated, walks=True),
    "RDS, hosts without retries": Way(Rds, _no_retries),
    "RDS, hosts with a name, a path and a cluster only": Way(Rds, _bare),
    f"RDS, virtual hosts of {NAMES} names each": Way(Rds, _several_names, names=NAMES),
}


def _varied(hosts: list[VirtualHost], variant: Variant) -> list[VirtualHost]:
    for host in hosts:
        variant(host)
    return hosts


@contextlib.contextmanager
def _running(home: Path, emitted: Emitted, size: int) -> Iterator[dict[str, tuple[Proxy, float]]]:
    """Starts an Envoy for each way, with the edited host first; yields them with the bytes that each further host takes."""
    with contextlib.ExitStack() as stack:
        started = {}
        for number, (name, way) in enumerate(WAYS.items()):
            proxy = Proxy(home / f"{size}-{number}", way.delivery(emitted.table), emitted)
            stack.callback(proxy.stop)
            proxy.ads.put(proxy.delivery.changed(_varied([emitted.host(EDITED)], way.variant)))
            proxy.ads.start()
            proxy.start(walks=way.walks)
            proxy.until(f"{EDITED}.example")
            before = proxy.allocated()
            proxy.send(proxy.delivery.changed(_varied(emitted.hosts(size // way.names), way.variant)))
            started[name] = (proxy, (proxy.allocated() - before) / (size - 1))
        yield started


def measure(home: Path, emitted: Emitted, size: int, edits: int) -> list[Row]:
    seen: dict[str, list[Edit]] = {}
    with _running(home, emitted, size) as started:
        for number in range(-1, edits):
            for name, (proxy, _) in sorted(started.items(), reverse=bool(number % 2)):
                path = PATHS[number % 2]
                edited = _varied([emitted.host(EDITED, path)], WAYS[name].variant)
                edit = proxy.edit(edited, f"{EDITED}.example", path)
                if number >= 0:  # the first round warms up
                    seen.setdefault(name, []).append(edit)
        rows = [Row.of(size, name, seen[name], cost) for name, (_, cost) in started.items()]
        return rows + _parts(size, started["RDS"][0], emitted, edits)


def _parts(size: int, proxy: Proxy, emitted: Emitted, edits: int) -> list[Row]:
    """Returns the cost of an RDS edit for Envoy up to two points. An unrequested table is only received and dropped. The
    current table under another version is parsed, validated and compared, but not built."""
    (table,) = proxy.delivery.changed([emitted.host(EDITED, PATHS[0])])
    proxy.send([table])
    dropped, same = [], []
    for number in range(edits):
        dropped.append(proxy.send([resource(ROUTES, f"{table.name}x", table.body)]))
        same.append(proxy.send([replace(table, version=f"{number:016}")]))
    return [
        Row(size, f"RDS, {name}", len(table.body), statistics.median(cpu) * 1e3)
        for name, cpu in (("received and dropped", dropped), ("received, read and compared", same))
    ]
