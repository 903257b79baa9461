"""Serves /metrics: the counters and gauges of controller and proxies together.

Events are counted where they happen, in the controller's registry and by the proxies. States are read at the request.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import Metric

from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.edge.slices import in_slices
from lasthop.engine.outputs.audit.certificates import CertificateReport, Role
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.audit.observed import observed
from lasthop.engine.outputs.envoy.resource import type_name
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.upstream import Hop
from lasthop.run.controller import Controller
from lasthop.web.controller_view import ControllerView
from lasthop.web.traffic_metrics import BACKEND, Samples, backend_labels, counter, each_row, gauge, traffic_metrics

disable_created_metrics()  # a counter's creation time would be a second series for each

PROCESS: Final = ProcessCollector(registry=CollectorRegistry())
"""CPU, memory and files of this process."""
ROLES: Final = {Role.SERVER: "listener", Role.CLIENT: "client", Role.ANCHOR: "ca", Role.PINNED: "pin"}
MAX_PER_HOLDER: Final = 10
"""Certificates of one object that have a series, the first to expire first: a bundle may have hundreds."""
MAX_SUBJECT_LENGTH: Final = 120
"""Characters of a subject, because the certificate's author has written it."""


class _Families(list[Metric]):
    """Replaces a registry, with families that are already collected."""

    def collect(self) -> Iterator[Metric]:
        return iter(self)


def _state(view: ControllerView, findings: list[Finding]) -> Iterator[Metric]:
    """Yields the state of this process except the hops."""
    controller = view.controller
    about = {"version": version("lasthop"), "python": platform.python_version()}
    yield gauge("lasthop_build_info", "1, labelled with versions.", tuple(about), [(tuple(about.values()), 1)])
    yield from PROCESS.collect()
    yield gauge("lasthop_ready", "Whether /readyz is 200.", (), [((), not view.readiness().unready)])
    objects = (((kind,), controller.engine.store.count(kind)) for kind in KINDS)
    yield gauge("lasthop_objects", "Known objects, by kind.", ("kind",), objects)
    counted = Counter((str(finding.severity), finding.reason) for finding in findings)
    yield gauge("lasthop_findings", "Problems found in the objects.", ("severity", "reason"), counted.items())
    yield from _sent(controller)
    yield from _gateways(controller)
    yield from controller.metrics.collect()


def _sent(controller: Controller) -> Iterator[Metric]:
    for name in ("responses", "resources", "removals", "bytes", "acks", "nacks"):
        by_type = ((type_name(type_url), traffic) for type_url, traffic in controller.server.traffic.items())
        samples = (((type,), getattr(traffic, name)) for type, traffic in by_type)
        yield counter(f"lasthop_xds_{name}", f"xDS {name}, by type.", ("type",), samples)


def _gateways(controller: Controller) -> Iterator[Metric]:
    gateways = sorted(controller.fleet.gateways.items())
    states = [((key.path,), controller.server.state(key)) for key, _ in gateways]
    clients = ((name, state.proxies) for name, state in states)
    yield gauge("lasthop_xds_clients", "Proxies connected to this process.", ("gateway",), clients)
    synced = ((name, state.synced) for name, state in states)
    yield gauge(
        "lasthop_xds_synced", "Whether each of these proxies has confirmed its whole configuration.", ("gateway",), synced
    )
    reporting = (((key.path,), len(controller.observations.proxies(key))) for key, _ in gateways)
    yield gauge("lasthop_proxies_reporting", "Proxies that report observations.", ("gateway",), reporting)
    exceeded = (((key.path,), controller.exceeded[key]) for key, _ in gateways)
    help = "Streams and reports of a Gateway's proxies that were refused because they exceed its budget."
    yield counter("lasthop_over_budget", help, ("gateway",), exceeded)
    proxy_states = ((key, proxies.state) for key, proxies in gateways if proxies.state)
    programmed = (((key.path,), bool(state.ports or state.udp_ports)) for key, state in proxy_states)
    help = "Whether some port of the Gateway is served in its current form."
    yield gauge("lasthop_gateway_programmed", help, ("gateway",), programmed)


def verification_metrics(hops: list[HopReport], weakened: list[Hop]) -> Iterator[Metric]:
    """Yields the verification of each hop, for security alerts."""
    # The same port may fail over both TCP and UDP, and is one sample.
    modes = {(hop.gateway.path, *hop.backend, str(hop.port), hop.mode): 1 for hop in hops}
    yield gauge(
        "lasthop_backend_tls_verification", "1 for the verification mode of a backend.", (*BACKEND, "mode"), modes.items()
    )
    help = "1 for a backend whose verification was reduced without acknowledgement."
    yield gauge("lasthop_backend_tls_weakened", help, BACKEND, ((backend_labels(hop), 1) for hop in weakened))
    ends = {hop.waiver[1:]: hop.until for hop in hops if hop.waiver and hop.until}
    help = "End of a VerificationWaiver that is in effect."
    yield gauge("lasthop_waiver_expiry_timestamp_seconds", help, ("namespace", "waiver"), sorted(ends.items()))


def certificates_metric(certificates: list[CertificateReport]) -> Metric:
    """Returns the certificates in objects. Several with one subject are one series, of the first to expire."""
    held = (((ROLES[report.role], *report.holder), report) for report in certificates if report.role in ROLES)
    help = "Expiry of a listener's certificate, a client certificate, a CA or a pinned certificate."
    names = ("role", "kind", "namespace", "name", "subject")
    return gauge("lasthop_certificate_expiry_timestamp_seconds", help, names, _expiries(held))


def revocations_metric(certificates: list[CertificateReport]) -> Metric:
    """Returns when revocation lists are due, in a separate family, because most are due every few days."""
    held = ((tuple(report.holder), report) for report in certificates if report.role is Role.REVOCATIONS)
    help = "Due time of the next revocation list of a CA; without it connections that need it fail."
    names = ("kind", "namespace", "name", "issuer")
    return gauge("lasthop_revocation_list_next_update_timestamp_seconds", help, names, _expiries(held))


def _expiries(labelled: Iterable[tuple[tuple[str, ...], CertificateReport]]) -> Samples:
    """Returns the first `MAX_PER_HOLDER` of each object, by the given labels and the subject."""
    series: dict[tuple[str, ...], float] = {}
    held: Counter[Key] = Counter()
    for holder, report in labelled:
        labels = (*holder, report.subject[:MAX_SUBJECT_LENGTH])
        if labels not in series and held[report.holder] < MAX_PER_HOLDER:
            held[report.holder] += 1
            series[labels] = report.not_after
    return series.items()


async def metrics(view: ControllerView) -> bytes:
    """Computes the metrics in slices on the event loop, and renders the text, possibly megabytes, in a thread."""
    hops, certificates = await view.hops(), await view.certificates()
    controller, graph = view.controller, view.engine.graph
    # Upgrades of a backend are observed as a separate hop, and count for the same backend.
    names = {also for hop in view.engine.hop_names() for also in (hop, hop.for_upgrades) if also}
    state = await in_slices(_state(view, await view.findings()))
    rows = await in_slices(each_row(controller.observations, names))
    reports = await in_slices(observed(graph, hop, controller.observations.seen) for hop in hops)
    controller.totals.keep(names, lambda route: view.engine.store.get(route) is not None)
    totals, routes = dict(controller.totals.hops), dict(controller.totals.routes)

    def text() -> bytes:
        families = [
            *state,
            *traffic_metrics(rows, reports, totals, routes),
            *verification_metrics(hops, weakened),
            certificates_metric(certificates),
            revocations_metric(certificates),
        ]
        written: bytes = generate_latest(_Families(families))
        return written

    weakened = view.engine.weakened()
    return await asyncio.to_thread(text)
