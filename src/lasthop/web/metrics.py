"""/metrics: what an operator wants to count, and what Envoy itself counts on the hop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lasthop.outputs.audit.hops import HopReport
from lasthop.plan.finding import Finding
from lasthop.proxy.admin import AdminUnavailable
from lasthop.web.measures import BUCKETS, Durations, Measure
from lasthop.web.slices import in_slices
from lasthop.web.view import AdminView


class _Families(list[Metric]):
    """What a registry is to `generate_latest`: families that are worked out already."""

    def collect(self) -> Iterator[Metric]:
        return iter(self)


def _own(view: AdminView, found: list[Finding]) -> Iterator[Metric]:
    """What this process knows but for the hops."""
    ready = not view.readiness().unready
    yield GaugeMetricFamily("lasthop_ready", "Whether /readyz is 200.", ready)
    objects = GaugeMetricFamily("lasthop_objects", "Objects known, by kind.", labels=["kind"])
    for kind, count in view.counts().items():
        objects.add_metric([kind], count)
    yield objects
    findings = GaugeMetricFamily("lasthop_findings", "Problems found in the objects.", labels=["severity", "reason"])
    for (severity, reason), count in Counter((f.severity, f.reason) for f in found).items():
        findings.add_metric([severity, reason], count)
    yield findings
    names = ("responses", "resources", "removals", "bytes", "acks", "nacks")
    for name in names:
        family = CounterMetricFamily(f"lasthop_xds_{name}", f"xDS {name}, by type.", labels=["type"])
        for type_url, traffic in view.traffic.items():
            family.add_metric([type_url.rpartition(".")[2]], getattr(traffic, name))
        yield family
    yield from map(_family, view.measures())
    yield _histogram(
        "lasthop_time_to_programmed_seconds",
        "From a change of a Gateway's configuration until its proxies have confirmed all of it.",
        view.time_to_programmed,
    )


def _family(measure: Measure) -> Metric:
    make = CounterMetricFamily if measure.counter else GaugeMetricFamily
    family = make(measure.name, measure.help, labels=measure.labels)
    for texts, value in measure.values:
        family.add_metric(texts, value)
    return family


def _histogram(name: str, help: str, durations: Durations) -> Metric:
    family = HistogramMetricFamily(name, help, labels=[])
    totals = [float(total) for total in accumulate(durations.counts)]
    family.add_metric([], list(zip((*map(str, BUCKETS), "+Inf"), totals, strict=True)), durations.sum)
    return family


def _verification(hops: Iterable[HopReport]) -> Iterator[Metric]:
    """How each hop is verified: what a security officer alerts on."""
    labels = ["gateway", "kind", "namespace", "service", "port", "mode"]
    how = GaugeMetricFamily("lasthop_backend_tls_verification", "1 for the way in which a hop is verified.", labels=labels)
    # The same port may fail twice, over TCP and UDP, and is one sample.
    samples = dict.fromkeys((hop.gateway, hop.kind, hop.backend, hop.port, hop.mode) for hop in hops)
    for gateway, kind, service, port, mode in samples:
        how.add_metric([gateway, kind, *service.split("/"), str(port), mode], 1)
    yield how
    ends = {hop.waiver: hop.until for hop in hops if hop.until}
    name, about = "lasthop_waiver_expiry_timestamp_seconds", "When a VerificationWaiver that is in effect ends."
    until = GaugeMetricFamily(name, about, labels=["namespace", "waiver"])
    for path, end in sorted(ends.items()):
        until.add_metric(path.split("/"), end)
    yield until


async def metrics(view: AdminView) -> bytes:
    """Hops in slices, and the text, of which there may be megabytes, beside the event loop."""
    hops = await view.hops()
    own = await in_slices(_own(view, await view.findings()))
    return await asyncio.to_thread(_text, own, hops) + await _proxies(view)


def _text(own: list[Metric], hops: list[HopReport]) -> bytes:
    families = _Families([*own, *_verification(hops)])
    text: bytes = generate_latest(families)
    return text


async def _proxies(view: AdminView) -> bytes:
    """How often each hop's TLS failed and why, from Envoy's own statistics."""
    lines = [
        "# HELP lasthop_backend_tls_events_total TLS handshakes and failures on a hop, as Envoy counts them.",
        "# TYPE lasthop_backend_tls_events_total counter",
    ]
    for key, proxy in list(view.proxies.items()):
        try:
            stats = await proxy.admin.tls_stats()
        except AdminUnavailable:
            continue
        lines += await asyncio.to_thread(_events, key.path, stats)
    return ("\n".join(lines) + "\n").encode()


def _events(gateway: str, stats: dict[str, dict[str, int]]) -> list[str]:
    return [
        f'lasthop_backend_tls_events_total{{gateway="{gateway}",hop="{cluster}",event="{event}"}} {count}'
        for cluster, counts in stats.items()
        for event, count in counts.items()
    ]
