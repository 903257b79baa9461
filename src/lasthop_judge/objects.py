"""The objects of a run and of its cases. Each case has Services, policies and a route of its own, named by its id, so that all
run side by side in one namespace."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from lasthop_judge.adapters import Adapter
from lasthop_judge.cases.routes import MTLS
from lasthop_judge.certificates import CA, Issuer, Recipe, leaf
from lasthop_judge.model import (
    CABundle,
    Case,
    CasePort,
    CaseService,
    GatewayRole,
    Json,
    Policy,
    RouteType,
    Serving,
    SkippedChecks,
)

GATEWAY: Final = "gateway.networking.k8s.io"
API: Final = f"{GATEWAY}/v1"
DOMAIN: Final = "judge.test"
CANARY: Final = "canary"
"""A Service without a policy. Each route leads to it too: once it answers there, the gateway serves the route."""
CANARY_PATH: Final = "/judge-canary"
CANARY_METHOD: Final = "judge.Canary"
STREAM_CANARIES: Final = {RouteType.TLS: "tls", RouteType.TCP: f"tcp-{CANARY}"}
"""Listeners of the routes that lead connections to the canary: such a route has no second backend."""
CANARIES: Final = {f"{CANARY}.http": Serving(alpn=()), f"{CANARY}.grpc": Serving(alpn=(), grpc=True)}
LABEL: Final = {"app": "judge-backend"}
LISTENER_CERTIFICATE: Final = "judge-listener"
CLIENT_CERTIFICATE: Final = "judge-client"
CLIENT: Final = Recipe("judge gateway", issuer=MTLS, purposes=("client",))

Listeners = Mapping[tuple[GatewayRole, str], int]
"""(Gateway, listener) -> port."""


def backend_key(case: Case, service: str, port: str) -> str:
    return f"{case.slug}.{service}.{port}"


def servings(cases: Sequence[Case]) -> dict[str, Serving]:
    """Returns the behaviour of each backend port, by key."""
    by_key = dict(CANARIES)
    for case in cases:
        for service in case.all_services:
            by_key |= {backend_key(case, service.name, port.name): port.serving for port in service.ports if port.serving}
    return by_key


def serving_document(serving: Serving, issuer: Issuer) -> Json:
    """Returns a serving in the format of backend.py."""
    document: Json = {"alpn": list(serving.alpn), "both": serving.both, "grpc": serving.grpc}
    document |= {"only_sni": serving.only_sni, "version": serving.version}
    if serving.certificate:
        issued = issuer.issue(serving.certificate)
        document |= {"certificate": issuer.chain(serving.certificate, serving.chain), "key": issued.key_pem}
    if serving.client_ca:
        document["client_ca"] = issuer.issue(serving.client_ca).pem
    return document


def listener_of(case: Case) -> str:
    match case.via:
        case RouteType.HTTPS:
            return "https"
        case RouteType.TLS:
            return "tls"
        case RouteType.TCP:
            return f"tcp-{case.slug}"
        case RouteType.UDP:
            return f"udp-{case.slug}"
    return "http"


def hostname_of(case: Case) -> str:
    middle = {RouteType.HTTPS: "https.", RouteType.TLS: "tls."}.get(case.via, "")
    return f"{case.slug}.{middle}{DOMAIN}"


def canary_hostname(via: RouteType) -> str:
    return f"{CANARY}.{via.name.lower()}.{DOMAIN}"


def path_of(service: str, port: str) -> str:
    return f"/{service}/{port}"


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """The settings of a run from which objects are built, together with a case."""

    namespace: str
    gateway_class: str
    adapter: Adapter
    issuer: Issuer
    ports: Mapping[str, int]
    """Backend key -> the port on which the backend listens."""
    listeners: Listeners
    endpoint: str = ""
    """The backend's address; empty: Services select its Pod."""
    pod: str = ""
    """The address of the backend's Pod, for adapters that name endpoints themselves."""
    bind: str = ""
    """The address of the Gateways; empty: the implementation chooses."""
    dated: bool = False
    """Objects carry their age as creationTimestamp; otherwise they are created in that order."""

    def gateway_of(self, case: Case) -> GatewayRole:
        if self.adapter.permits_everywhere and case.role is GatewayRole.PERMITTING:
            return GatewayRole.PLAIN
        return case.role

    # --- of the run ---------------------------------------------------------------------------------------------------

    def common(self, cases: Sequence[Case]) -> list[Json]:
        ports = tuple(CasePort(key.partition(".")[2], number, None) for number, key in enumerate(CANARIES, 80))
        return [
            *self._service(CANARY, CANARY, ports),
            self._key_pair(LISTENER_CERTIFICATE, leaf(f"*.https.{DOMAIN}", f"*.tls.{DOMAIN}")),
            self._key_pair(CLIENT_CERTIFICATE, CLIENT),
            *(document for role in gateways(self, cases) for document in self._gateway(role, cases)),
            *(self._stream_canary(via, listener) for via, listener in _stream_canaries(cases).items()),
        ]

    def _stream_canary(self, via: RouteType, listener: str) -> Json:
        spec: Json = {"parentRefs": [{"name": str(GatewayRole.PLAIN), "sectionName": listener}]}
        if via is RouteType.TLS:
            spec["hostnames"] = [canary_hostname(via)]
        rules = [{"backendRefs": [{"name": CANARY, "port": 80}]}]
        return self.mk(API, f"{via.name}Route", f"{CANARY}-{via.name.lower()}", spec={**spec, "rules": rules})

    def _gateway(self, role: GatewayRole, cases: Sequence[Case]) -> Iterator[Json]:
        spec: Json = {"gatewayClassName": self.gateway_class}
        if self.bind:
            spec["addresses"] = [{"type": "IPAddress", "value": self.bind}]
        spec["listeners"] = [self._listener(role, name) for gateway, name in self.listeners if gateway is role]
        if role is GatewayRole.MTLS:
            ref = {"group": "", "kind": "Secret", "name": CLIENT_CERTIFICATE}
            spec["tls"] = {"backend": {"clientCertificateRef": ref}}
        if role in (GatewayRole.PERMITTING, GatewayRole.WITHDRAWING) and (
            permission := self.adapter.permission(str(role), True)
        ):
            yield from map(self.namespaced, permission.objects)
            spec |= permission.spec
        yield self.mk(API, "Gateway", role, spec=spec)

    def _listener(self, role: GatewayRole, name: str) -> Json:
        listener: Json = {"name": name, "port": self.listeners[role, name], "allowedRoutes": {"namespaces": {"from": "Same"}}}
        certificate = {"certificateRefs": [{"group": "", "kind": "Secret", "name": LISTENER_CERTIFICATE}]}
        match name:
            case "http":
                return {**listener, "protocol": "HTTP"}
            case "https":
                return {**listener, "protocol": "HTTPS", "hostname": f"*.https.{DOMAIN}", "tls": certificate}
            case "tls":
                terminate = {**certificate, "mode": "Terminate"}
                return {**listener, "protocol": "TLS", "hostname": f"*.tls.{DOMAIN}", "tls": terminate}
        return {**listener, "protocol": "UDP" if name.startswith("udp-") else "TCP"}

    def _key_pair(self, name: str, recipe: Recipe) -> Json:
        issued = self.issuer.issue(recipe)
        data = {"tls.crt": _base64(issued.pem), "tls.key": _base64(issued.key_pem)}
        return self.mk("v1", "Secret", name, type="kubernetes.io/tls", data=data)

    # --- of a case ----------------------------------------------------------------------------------------------------

    def documents(self, case: Case) -> list[Json]:
        """Returns the objects in the order of creation: a policy never comes after the route that leads to its target."""
        parts: tuple[Policy | CABundle | CaseService, ...] = (
            *case.bundles,
            *case.all_services,
            *sorted(case.policies, key=lambda policy: policy.born),
        )
        return [*(document for part in parts for document in self.of(case, part)), self.route(case)]

    def of(self, case: Case, part: Policy | CABundle | CaseService) -> list[Json]:
        match part:
            case CABundle():
                return [self._bundle(case, part)]
            case CaseService():
                return self._service(f"{case.slug}-{part.name}", f"{case.slug}.{part.name}", part.ports)
        return self._policy(case, part)

    def _bundle(self, case: Case, bundle: CABundle) -> Json:
        whole = "".join(self.issuer.issue(recipe).pem for recipe in bundle.certificates)
        text = whole if bundle.text is None else _filled(bundle.text, self.issuer)
        data = {bundle.key: text} if bundle.key else {}
        data |= {key: self.issuer.issue(recipe).pem for key, recipe in bundle.beside}
        if bundle.kind == "Secret":
            data = {key: _base64(value) for key, value in data.items()}
        return self.mk("v1", bundle.kind, f"{case.slug}-{bundle.name}", data=data)

    def _service(self, name: str, prefix: str, ports: Sequence[CasePort]) -> list[Json]:
        listed = [
            {
                "name": port.name,
                "port": port.number,
                "protocol": port.protocol,
                "targetPort": self.ports.get(f"{prefix}.{port.name}", port.number),
                **({"appProtocol": port.app_protocol} if port.app_protocol else {}),
            }
            for port in ports
        ]
        spec: Json = {"ports": listed, **({} if self.endpoint else {"selector": LABEL})}
        documents = [self.mk("v1", "Service", name, spec=spec)]
        if self.endpoint:
            served = [{"name": entry["name"], "port": entry["targetPort"], "protocol": entry["protocol"]} for entry in listed]
            endpoints = self.mk(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                name,
                addressType="IPv4",
                endpoints=[{"addresses": [self.endpoint], "conditions": {"ready": True}}],
                ports=served,
            )
            endpoints["metadata"]["labels"] = {"kubernetes.io/service-name": name}
            documents.append(endpoints)
        return documents

    def _policy(self, case: Case, policy: Policy) -> list[Json]:
        extension = self._extension(case, policy)
        if extension and extension.backend:
            return [self.namespaced(document) for document in extension.objects]
        validation: Json = {"hostname": policy.hostname}
        prefix = f"{case.slug}-"
        refs: list[Json] = [
            {"group": ref.group, "kind": ref.kind, "name": ref.name if "/" in ref.name else prefix + ref.name}
            for ref in policy.refs
        ]
        refs += extension.refs if extension else ()
        if refs:
            validation["caCertificateRefs"] = refs
        if policy.well_known:
            validation["wellKnownCACertificates"] = policy.well_known
        if policy.sans:
            validation["subjectAltNames"] = [_san(value) for value in policy.sans]
        target = {"group": "", "kind": "Service", "name": prefix + policy.target}
        if policy.section:
            target["sectionName"] = policy.section
        spec: Json = {"targetRefs": [target], "validation": validation}
        manifest = self.mk(API, "BackendTLSPolicy", prefix + policy.name, spec=spec)
        if self.dated:
            manifest["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{policy.born:02}Z"
        return [*(self.namespaced(document) for document in (extension.objects if extension else ())), manifest]

    def _extension(self, case: Case, policy: Policy) -> Any:
        if not policy.extension:
            return None
        service = next(candidate for candidate in case.all_services if candidate.name == policy.target)
        port = self.ports.get(backend_key(case, service.name, service.ports[0].name), 0)
        return self.adapter.extension_objects(
            f"{case.slug}-{policy.name}", policy.extension, self.pod or self.endpoint, port, self.issuer
        )

    def supports(self, case: Case) -> bool:
        """Returns whether the adapter can write the case."""
        if any(self._extension(case, policy) is None for policy in case.policies if policy.extension):
            return False
        permission = self.adapter.permission(str(case.role), True) is not None
        match case.role:
            case GatewayRole.PERMITTING:
                return permission or self.adapter.permits_everywhere
            case GatewayRole.WITHDRAWING:
                return permission
        denied = any(isinstance(extension, SkippedChecks) for extension in case.extensions)
        return permission or not denied

    def route(self, case: Case) -> Json:
        parents = [{"name": str(self.gateway_of(case)), "sectionName": listener_of(case)}]
        spec: Json = {"parentRefs": parents}
        if case.via not in (RouteType.TCP, RouteType.UDP):
            spec["hostnames"] = [hostname_of(case)]
        every = [(service, port) for service in case.all_services for port in service.ports]
        served = [(service, port) for service, port in every if port.serving] or every
        match case.via:
            case RouteType.GRPC:
                canary = {"matches": [{"method": {"service": CANARY_METHOD}}], "backendRefs": [{"name": CANARY, "port": 81}]}
                rules = [canary, {"backendRefs": [self._backend(case, *served[0])]}]
                return self.mk(API, "GRPCRoute", case.slug, spec={**spec, "rules": rules})
            case RouteType.TLS | RouteType.TCP | RouteType.UDP:
                rules = [{"backendRefs": [self._backend(case, *served[0])]}]
                kind = {RouteType.TLS: "TLSRoute", RouteType.TCP: "TCPRoute"}.get(case.via, "UDPRoute")
                return self.mk(API, kind, case.slug, spec={**spec, "rules": rules})
        rules = [_rule(CANARY_PATH, {"name": CANARY, "port": 80}), *(self._http_rule(case, *pair) for pair in served)]
        return self.mk(API, "HTTPRoute", case.slug, spec={**spec, "rules": rules})

    def _http_rule(self, case: Case, service: CaseService, port: CasePort) -> Json:
        path, backend = path_of(service.name, port.name), self._backend(case, service, port)
        if case.via is not RouteType.MIRROR:
            return _rule(path, backend)
        mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": backend}}
        return {**_rule(path, {"name": CANARY, "port": 80}), "filters": [mirror]}

    def _backend(self, case: Case, service: CaseService, port: CasePort) -> Json:
        for policy in case.policies:
            extension = self._extension(case, policy) if policy.target == service.name else None
            if extension and extension.backend:
                return {**extension.backend, "port": port.number}
        return {"name": f"{case.slug}-{service.name}", "port": port.number}

    def namespaced(self, document: Json) -> Json:
        return {**document, "metadata": {**document["metadata"], "namespace": self.namespace}}

    def mk(self, api: str, kind: str, name: str, **body: Any) -> Json:
        return {"apiVersion": api, "kind": kind, "metadata": {"name": str(name), "namespace": self.namespace}, **body}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block, so that certificates can be copied."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(documents: Sequence[Json]) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)


def gateways(settings: RunSettings, cases: Sequence[Case]) -> list[GatewayRole]:
    used = {settings.gateway_of(case) for case in cases}
    return [role for role in GatewayRole if role in used]


def wanted_listeners(cases: Sequence[Case], used: Sequence[GatewayRole]) -> list[tuple[GatewayRole, str]]:
    """Returns the listeners that these cases use. All Gateways have an HTTP listener."""
    http = [(role, "http") for role in used]
    canaries = [(GatewayRole.PLAIN, listener) for listener in _stream_canaries(cases).values()]
    streams = [(GatewayRole.PLAIN, listener_of(case)) for case in cases if listener_of(case) != "http"]
    return [*http, *dict.fromkeys((*canaries, *streams))]


def _stream_canaries(cases: Sequence[Case]) -> dict[RouteType, str]:
    used = {case.via for case in cases}
    return {via: listener for via, listener in STREAM_CANARIES.items() if via in used}


def _rule(path: str, backend: Json) -> Json:
    return {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [backend]}


def _san(value: str) -> Json:
    return {"type": "URI", "uri": value} if "://" in value else {"type": "Hostname", "hostname": value}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _filled(text: str, issuer: Issuer) -> str:
    ca = issuer.issue(CA)
    texts = {
        "{ca}": ca.pem,
        "{key}": ca.key_pem,
        "{crlf}": ca.pem.replace("\n", "\r\n"),
        "{cut}": ca.pem[:-40],
        "{base64}": "".join(ca.pem.splitlines()[1:-1]),
    }
    for name, value in texts.items():
        text = text.replace(name, value)
    return text
