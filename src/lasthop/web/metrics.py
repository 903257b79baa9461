"""/metrics: what an operator wants to count, and what Envoy itself counts on the hop.

What happens is counted where it happens, in the controller's registry; what is the case is read when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lasthop.api.kinds import KINDS
from lasthop.outputs.audit.hops import HopReport
from lasthop.plan.finding import Finding
from lasthop.proxy.admin import AdminUnavailable
from lasthop.web.controller_view import ControllerView
from lasthop.web.slices import in_slices

disable_created_metrics()  # the time of a counter's first increment is a second series for each


class _Families(list[Metric]):
    """Stands in for a registry whose families are collected already."""

    def collect(self) -> Iterator[Metric]:
        return iter(self)


Samples = Iterable[tuple[tuple[str, ...], float]]
"""Each with the values of its labels."""


def _gauge(name: str, help: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, sample in samples:
        family.add_metric(values, sample)
    return family


def _state(view: ControllerView, findings: list[Finding]) -> Iterator[Metric]:
    """What this process knows except for the hops."""
    controller = view.controller
    yield _gauge("lasthop_ready", "Whether /readyz is 200.", (), [((), not view.readiness().unready)])
    objects = (((kind,), controller.engine.store.count(kind)) for kind in KINDS)
    yield _gauge("lasthop_objects", "Objects known, by kind.", ("kind",), objects)
    counted = Counter((str(each.severity), each.reason) for each in findings)
    yield _gauge("lasthop_findings", "Problems found in the objects.", ("severity", "reason"), counted.items())
    for name in ("responses", "resources", "removals", "bytes", "acks", "nacks"):
        family = CounterMetricFamily(f"lasthop_xds_{name}", f"xDS {name}, by type.", labels=["type"])
        for type_url, traffic in controller.server.traffic.items():
            family.add_metric([type_url.rpartition(".")[2]], getattr(traffic, name))
        yield family
    gateways = sorted(controller.fleet.gateways.items())
    states = [((key.path,), controller.server.state(key)) for key, _ in gateways]
    clients = ((name, state.proxies) for name, state in states)
    yield _gauge("lasthop_xds_clients", "Proxies connected to this process.", ("gateway",), clients)
    synced = ((name, state.synced) for name, state in states)
    yield _gauge("lasthop_xds_synced", "Whether each of these has confirmed all there is.", ("gateway",), synced)
    known = ((key, proxies.state) for key, proxies in gateways if proxies.state)
    programmed = (((key.path,), bool(state.ports or state.udp_ports)) for key, state in known)
    help = "Whether some port of the Gateway is served as it is written now."
    yield _gauge("lasthop_gateway_programmed", help, ("gateway",), programmed)
    yield from controller.metrics.collect()


def _verification(hops: list[HopReport]) -> Iterator[Metric]:
    """How each hop is verified: what a security officer alerts on."""
    labels = ("gateway", "kind", "namespace", "service", "port", "mode")
    # The same port may fail twice, over TCP and UDP, and is one sample.
    modes = {(hop.gateway.path, *hop.backend, str(hop.port), hop.mode): 1 for hop in hops}
    yield _gauge("lasthop_backend_tls_verification", "1 for the way in which a hop is verified.", labels, modes.items())
    ends = {hop.waiver[1:]: hop.until for hop in hops if hop.waiver and hop.until}
    help = "When a VerificationWaiver that is in effect ends."
    yield _gauge("lasthop_waiver_expiry_timestamp_seconds", help, ("namespace", "waiver"), sorted(ends.items()))


async def metrics(view: ControllerView) -> bytes:
    """Works in slices on the event loop, and writes the text, of which there may be megabytes, beside it."""
    hops = await view.hops()
    state = await in_slices(_state(view, await view.findings()))
    stats = {}
    for key, proxy in list(view.proxies.items()):
        try:
            stats[key.path] = await proxy.admin.tls_stats()
        except AdminUnavailable:
            continue
    return await asyncio.to_thread(_text, state, hops, stats)


def _text(state: list[Metric], hops: list[HopReport], stats: dict[str, dict[str, dict[str, int]]]) -> bytes:
    help = "TLS handshakes and failures on a hop, as Envoy counts them."
    events = CounterMetricFamily("lasthop_backend_tls_events", help, labels=["gateway", "hop", "event"])
    for gateway, clusters in stats.items():
        for cluster, counts in clusters.items():
            for event, count in counts.items():
                events.add_metric([gateway, cluster, event], count)
    text: bytes = generate_latest(_Families([*state, *_verification(hops), events]))
    return text
