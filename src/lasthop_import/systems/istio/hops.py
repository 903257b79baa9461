"""Translates destinations to hops. A subset becomes a Service with a narrower selector."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import Backend, HopTLS, HostBackend, ImportedHop, ImportedMirror, ServiceBackend
from lasthop_import.names import shortened
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.rule_hops import unread_policy
from lasthop_import.systems.istio import filters
from lasthop_import.systems.istio.backend_tls import DestinationUse, hop_tls
from lasthop_import.systems.istio.destination_rules import DestinationRules, Effective, unread_rule
from lasthop_import.systems.istio.destinations import HTTP2, TLS, Destinations, DestinationTarget
from lasthop_import.systems.istio.gateways import IstioGateway
from lasthop_import.systems.istio.kinds import Mesh, fqdn
from lasthop_import.values import is_host, url_rewrite

HTTP, STREAM, PASSTHROUGH = "http", "stream", "passthrough"
MIRRORS = ("mirror", "mirrors", "mirrorPercent", "mirrorPercentage")


class RequestOrigin(NamedTuple):
    """The gateway, port and hosts of incoming requests."""

    gateway: IstioGateway
    port: int
    """The port of the listener; the default port of destinations."""
    hosts: tuple[str, ...]
    """The possible Hosts at the backend; empty means any."""
    kind: str = HTTP


class HopReader:
    def __init__(self, inputs: Inputs, mesh: Mesh, rules: DestinationRules, destinations: Destinations) -> None:
        self._inputs = inputs
        self._mesh = mesh
        self._rules = rules
        self._destinations = destinations
        self.services: dict[tuple[str, str], tuple[SourceRef, Json]] = {}
        """The Services that replace subsets."""

    def hops(self, route: FieldReader, at: RequestOrigin) -> tuple[tuple[ImportedHop, ...], bool]:
        """Returns the hops of a route, and whether all of them are gRPC."""
        hops: list[tuple[ImportedHop, str]] = []
        entries = route.children("route")
        for entry in entries:
            weight = entry.integer("weight")
            share = 1 if len(entries) == 1 else max(0, weight or 0)
            edits = filters.headers(entry.child("headers"))
            host = filters.bare_host(edits.authority)
            steps = edits.filters
            if is_host(host):
                steps = (*steps, *url_rewrite(host))
            origin = at._replace(hosts=(host,)) if host else at
            if hop := self._hop(entry.child("destination"), origin):
                hops.append((msgspec.structs.replace(hop[0], weight=share, filters=steps), hop[1]))
        return tuple(hop for hop, _ in hops), bool(hops) and all(protocol == "grpc" for _, protocol in hops)

    def mirrors(self, route: FieldReader, at: RequestOrigin) -> tuple[ImportedMirror, ...]:
        mirrors = []
        for reader, value in _mirrored(route):
            share = 100.0 if not isinstance(value, int | float) or isinstance(value, bool) else float(value)
            if share != int(share):
                text = f"{share} percent are mirrored as {max(1, round(share))}"
                reader.note(Category.CHANGED, "mirror-percent", text, severity=NoteSeverity.INFO)
            if share > 0 and (hop := self._hop(reader, at)):
                mirrors.append(ImportedMirror(hop[0], min(100, max(1, round(share)))))
        return tuple(mirrors)

    def _hop(self, destination: FieldReader, at: RequestOrigin) -> tuple[ImportedHop, str] | None:
        """Returns a hop with the protocol of its port; None if the destination cannot be reached."""
        host = fqdn(destination.text("host"), destination.namespace)
        port = destination.child("port").integer("number") if "port" in destination else None
        subset, source = destination.text("subset"), destination.source()
        target = self._destinations.find(host, port, at.port, at.gateway.namespace)
        if isinstance(target, str):
            text = f"{target}; the reference is left out, and its share of the requests gets 500"
            remedy = "If it exists, add it to the input."
            destination.note(Category.TODO, "destination-unknown", text, "host", remedy=remedy)
            return None
        backend = target.backend
        if subset and isinstance(backend, ServiceBackend):
            backend = self._subset(destination, backend, host, subset)
        elif subset:
            text = "a subset of a ServiceEntry has no equivalent; all its endpoints are used"
            destination.note(Category.CANNOT, "subset", text, "subset")
        if at.kind == PASSTHROUGH:
            passed = HopTLS(OldLevel.PASSTHROUGH, "the server's tls.mode is PASSTHROUGH")
            return ImportedHop(source, backend, passed), target.protocol
        effective = self._rules.effective(
            host, target.namespace, target.port, subset, at.gateway.namespace, self._mesh.root, at.gateway.selector
        )
        unread = unread_rule(self._inputs, host)
        if unread is None and effective.tls is None and isinstance(target.backend, ServiceBackend):
            unread = unread_policy(self._inputs, target.backend, read_versions=False)
        hop = self._terminated(source, backend, target, at, effective, unread)
        return hop, target.protocol

    def _terminated(
        self,
        source: SourceRef,
        backend: Backend,
        target: DestinationTarget,
        at: RequestOrigin,
        effective: Effective,
        unread: HopTLS | None,
    ) -> ImportedHop:
        """Returns a hop on which the gateway opens its own connection. `unread`: the hop's TLS if a rule cannot be read."""
        tls = unread or hop_tls(self._inputs, effective, _context(target, at, effective.upgrade), self._mesh)
        h2c = (target.protocol in HTTP2 or effective.upgrade) and (tls is None or tls.level is OldLevel.PLAINTEXT)
        if tls is None and effective.tls is None and not target.external:
            text = "plaintext; it was mesh mTLS if labels of the Pods themselves inject a sidecar"
            self._inputs.notes.append(Note(Category.CHANGED, "mesh-perhaps", text, source, severity=NoteSeverity.INFO))
        if isinstance(backend, HostBackend) and tls is not None:
            wire = "HTTP11" if tls.options.alpn == ("http/1.1",) else ""  # an XBackend has no option for ALPN
            backend = msgspec.structs.replace(backend, protocol=wire)
            tls = msgspec.structs.replace(tls, options=msgspec.structs.replace(tls.options, alpn=()))
        return ImportedHop(source, backend, tls, h2c=h2c, budget=effective.budget)

    # --- subsets -----------------------------------------------------------------------------------------------------

    def _subset(self, destination: FieldReader, backend: ServiceBackend, host: str, subset: str) -> ServiceBackend:
        """Returns the Service of a subset, and adds it to the output if its selector is known."""
        subset_backend = msgspec.structs.replace(backend, name=shortened(f"{backend.name}-{subset}"))
        service = self._inputs.find("Service", backend.namespace, backend.name)
        labels = self._rules.labels_of(host, subset)
        if labels is None or service is None or not isinstance(service.spec.get("selector"), dict):
            why = "no DestinationRule defines it" if labels is None else "the Service with its selector is not in the input"
            text = f"subset {subset} needs a Service {backend.namespace}/{subset_backend.name} with a narrower selector; {why}"
            destination.note(Category.TODO, "subset", text, "subset", remedy="Create it.")
            return subset_backend
        text = f"subset {subset} is Service {backend.namespace}/{subset_backend.name} now"
        destination.note(Category.CHANGED, "subset", text, "subset", severity=NoteSeverity.INFO)
        key = (backend.namespace, subset_backend.name)
        self.services.setdefault(key, (destination.source(), _narrowed(service.value, subset_backend.name, labels)))
        return subset_backend


def _mirrored(route: FieldReader) -> Iterator[tuple[FieldReader, object]]:
    """Yields the destinations of mirrors, each with its percentage as written."""
    percentage = route.child("mirrorPercentage").raw("value") if "mirrorPercentage" in route else None
    old = route.raw("mirrorPercent")
    if "mirror" in route:
        yield route.child("mirror"), percentage if percentage is not None else old
    for mirror in route.children("mirrors"):
        yield mirror.child("destination"), mirror.child("percentage").raw("value") if "percentage" in mirror else None


def _narrowed(service: Json, name: str, labels: Mapping[str, str]) -> Json:
    spec = service["spec"]
    ports = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec.get("ports") or ()]
    metadata = {"name": name, "namespace": service["metadata"].get("namespace", "default")}
    selector = {**spec["selector"], **labels}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": copy.deepcopy({"selector": selector, "ports": ports}),
    }


def _context(target: DestinationTarget, at: RequestOrigin, upgrade: bool) -> DestinationUse:
    return DestinationUse(
        http=at.kind == HTTP,
        hosts=at.hosts,
        http2=target.protocol in HTTP2 or upgrade,
        tls_port=target.protocol in TLS,
        external=target.external,
        external_names=target.names,
        namespace=target.namespace,
        gateway_namespace=at.gateway.namespace,
    )
