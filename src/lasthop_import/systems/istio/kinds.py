"""Defines Istio's kinds, and reads host names and the settings of the mesh."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from lasthop.base.api.kinds import KINDS, Kind
from lasthop.base.api.meta import Object
from lasthop.edge.admission.yaml import parse
from lasthop.engine.plan.tls_options import CIPHER_SUITES, OPTIONS, TLSOptions
from lasthop_import.documents import Document, mapping, texts
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.settings import ImportSettings

CRL_KEYS: Final = ("ca.crl", "crl")
"""Keys of a revocation list in the Secret of a CA."""
NETWORKING, SECURITY = "networking.istio.io", "security.istio.io"
GROUPS: Final = (NETWORKING, SECURITY, "telemetry.istio.io", "extensions.istio.io")
_V: Final = ("v1", "v1beta1", "v1alpha3")
GATEWAY: Final = Kind("Gateway", NETWORKING, _V, "gateways", Object)
VIRTUAL_SERVICE: Final = Kind("VirtualService", NETWORKING, _V, "virtualservices", Object)
DESTINATION_RULE: Final = Kind("DestinationRule", NETWORKING, _V, "destinationrules", Object)
SERVICE_ENTRY: Final = Kind("ServiceEntry", NETWORKING, _V, "serviceentries", Object)
PEER_AUTHENTICATION: Final = Kind("PeerAuthentication", SECURITY, ("v1", "v1beta1"), "peerauthentications", Object)
AUTHORIZATION_POLICY: Final = Kind("AuthorizationPolicy", SECURITY, ("v1", "v1beta1"), "authorizationpolicies", Object)
REQUEST_AUTHENTICATION: Final = Kind("RequestAuthentication", SECURITY, ("v1", "v1beta1"), "requestauthentications", Object)
OTHERS: Final = (
    Kind("EnvoyFilter", NETWORKING, ("v1alpha3",), "envoyfilters", Object),
    Kind("Sidecar", NETWORKING, _V, "sidecars", Object),
    Kind("ProxyConfig", NETWORKING, ("v1beta1",), "proxyconfigs", Object),
    Kind("WorkloadEntry", NETWORKING, _V, "workloadentries", Object),
    Kind("WorkloadGroup", NETWORKING, _V, "workloadgroups", Object),
    Kind("WasmPlugin", "extensions.istio.io", ("v1alpha1",), "wasmplugins", Object),
)
READ_KINDS: Final = (
    *(GATEWAY, VIRTUAL_SERVICE, DESTINATION_RULE, SERVICE_ENTRY, KINDS["Namespace"]),
    *(PEER_AUTHENTICATION, AUTHORIZATION_POLICY, REQUEST_AUTHENTICATION, *OTHERS),
)
DOMAIN: Final = "svc.cluster.local"
_SERVICE: Final = re.compile(r"(?P<name>[^.*]+)\.(?P<namespace>[^.]+)\.svc\.cluster\.local")
OUTSIDE_MESH: Final = "--istio-outside-mesh"
SYSTEM_STORE_SINCE: Final = (1, 21)
LOST: Final = {
    "AuthorizationPolicy": "restricts requests, and is not carried over",
    "RequestAuthentication": "verifies tokens (JWT) of requests, and is not carried over",
    "EnvoyFilter": "changes Envoy's configuration in any way, and is not carried over; it may restrict access",
    "WasmPlugin": "runs code for each request, and is not carried over; it may restrict access",
}
OLD_GROUPS: Final = ("authentication.istio.io", "rbac.istio.io", "config.istio.io")
"""API groups of Istio before 1.6."""
OLD_RESTRICTIONS: Final = (
    *("Policy", "MeshPolicy", "ServiceRole", "ServiceRoleBinding", "RbacConfig", "ClusterRbacConfig", "AuthorizationPolicy"),
    *("rule", "handler", "instance", "QuotaSpec"),
)


def fqdn(host: str, namespace: str) -> str:
    """Completes a short host name (a name without a dot)."""
    return host.lower() if "." in host or "*" in host else f"{host.lower()}.{namespace}.{DOMAIN}"


def service_of(host: str) -> tuple[str, str] | None:
    """Returns namespace and name of the Service with this host."""
    match = _SERVICE.fullmatch(host)
    return (match["namespace"], match["name"]) if match else None


def gateway_name(reference: str, namespace: str) -> str:
    """Completes the name of a Gateway: `namespace/name`, `./name` or `name`."""
    owner, slash, name = reference.partition("/")
    return f"{namespace}/{owner}" if not slash else f"{namespace if owner == '.' else owner}/{name}"


def exported(export_to: Sequence[str], namespace: str, viewer: str) -> bool:
    """Returns whether an object in `namespace` is visible in the namespace `viewer`."""
    return not export_to or "*" in export_to or viewer in export_to or ("." in export_to and namespace == viewer)


class Mesh(msgspec.Struct, frozen=True):
    root: str
    version: tuple[int, ...]
    """Empty means unknown."""
    sidecars: frozenset[str]
    """Namespaces with labels that inject proxies of the mesh into Pods."""
    strict: frozenset[str]
    """Namespaces whose Pods accept only mesh mTLS."""
    options: TLSOptions
    outside: frozenset[str] = frozenset()
    """Namespaces without such labels; `*` means all."""

    @property
    def old(self) -> bool:
        """Whether SIMPLE without a CA verified nothing."""
        return bool(self.version) and self.version < SYSTEM_STORE_SINCE

    def meshed(self, namespace: str) -> str:
        """Returns the reason why connections to a namespace were mesh mTLS; empty means no known reason."""
        if namespace in self.strict or self.root in self.strict:
            return "a PeerAuthentication is STRICT there"
        return "the Namespace's labels inject proxies of the mesh" if namespace in self.sidecars else ""

    def unknown(self, namespace: str) -> str:
        """Returns the reason why it is unknown whether connections to a namespace were mesh mTLS; empty if it is known."""
        if self.meshed(namespace) or {namespace, "*"} & self.outside:
            return ""
        return (
            f"Namespace {namespace} is not in the input, and its labels decide whether this was mesh mTLS or plaintext; add "
            f"it, or pass {OUTSIDE_MESH} {namespace} if its Pods have no proxy of the mesh"
        )


def read_mesh(inputs: Inputs, settings: ImportSettings) -> Mesh:
    """Returns the settings of the mesh, from the command line, Namespaces, PeerAuthentications and the mesh's ConfigMap."""
    root = str(settings.flags.get("istio-namespace") or "istio-system")
    written = str(settings.flags.get("istio-version") or "")
    version = tuple(int(number) for number in re.findall(r"\d+", written)[:2])
    strict = frozenset(_strict_namespaces(inputs))
    sidecars = frozenset(_sidecars(inputs))
    outside_flags = (
        "*" if namespace == "all" else namespace for namespace in settings.flags.get(OUTSIDE_MESH.lstrip("-")) or ()
    )
    outside = {document.bare_name for document in inputs.of(KINDS["Namespace"])} - sidecars | {*outside_flags}
    return Mesh(root, version, sidecars, strict, _options(inputs, root), frozenset(outside))


def _strict_namespaces(inputs: Inputs) -> Iterator[str]:
    """Lists all PeerAuthentications, and yields the namespaces with Pods, or ports of Pods, that accept only mesh mTLS."""
    for document in inputs.of(PEER_AUTHENTICATION):
        reader = inputs.open(document)
        spec = reader.child("spec")
        modes = (spec.value.get("mtls"), *mapping(spec.value.get("portLevelMtls")).values())
        strict = any(mapping(mode).get("mode") == "STRICT" for mode in modes)
        if strict:
            yield document.namespace
        text = "configures how Pods with a sidecar accept connections; the new gateway is not part of the mesh"
        severity = NoteSeverity.HIGH if strict else None
        reader.note(Category.CHANGED, "peer-authentication", text, "spec", severity=severity)


def _sidecars(inputs: Inputs) -> list[str]:
    namespaces = []
    for document in inputs.of(KINDS["Namespace"]):
        labels = document.labels
        revised = labels.get("istio.io/rev") and labels.get("istio-injection") != "disabled"
        ambient = labels.get("istio.io/dataplane-mode") == "ambient"
        if labels.get("istio-injection") == "enabled" or revised or ambient:
            namespaces.append(document.bare_name)
    return namespaces


def _options(inputs: Inputs, root: str) -> TLSOptions:
    """Returns the ciphers and curves of meshConfig.tlsDefaults, which apply to all TLS that the proxies start."""
    content = (inputs.data("ConfigMap", root, "istio") or {}).get("mesh", b"")
    parsed = parse(content).documents
    values: Any = parsed[0] if parsed and isinstance(parsed[0], dict) else {}
    defaults = values.get("tlsDefaults")
    if not isinstance(defaults, dict):
        return TLSOptions()
    curves = next(option.values for option in OPTIONS if option.field == "curves")
    return TLSOptions(
        cipher_suites=_choosable(inputs, root, defaults, "cipherSuites", CIPHER_SUITES),
        curves=_choosable(inputs, root, defaults, "ecdhCurves", curves),
    )


def _choosable(inputs: Inputs, root: str, defaults: dict[str, Any], key: str, supported: Sequence[str]) -> tuple[str, ...]:
    """Returns the values that a policy supports, and lists the others."""
    values, document = texts(defaults.get(key)), inputs.find("ConfigMap", root, "istio")
    if document and (unsupported := [value for value in values if value not in supported]):
        text = f"tlsDefaults.{key}: {', '.join(unsupported)[:120]} cannot be chosen for backends, and is left out"
        inputs.notes.append(Note(Category.CANNOT, "tls-defaults", text, SourceRef(document, ("data", "mesh"))))
    return tuple(value for value in values if value in supported)


def list_others(inputs: Inputs, mesh: Mesh) -> None:
    gateway_selectors = [mapping(gateway.spec.get("selector")) for gateway in inputs.of(GATEWAY)]
    for kind in (AUTHORIZATION_POLICY, REQUEST_AUTHENTICATION, *OTHERS):
        for document in inputs.of(kind):
            if document.kind in LOST:
                reason = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", document.kind).lower()
                inputs.open(document).ignore("spec")
                everywhere = document.namespace == mesh.root or _selects(document, gateway_selectors)
                source, text = SourceRef(document, ("spec",)), LOST[document.kind]
                inputs.notes.append(Note(Category.ACCESS_CONTROL, reason, text, source, everywhere=everywhere))
            else:
                inputs.skip(document, "sidecars-only", "configures sidecars, not gateways")
    for document in inputs.documents:
        if document.kind == "BackendTLSPolicy":
            text = "Istio reads Gateway API too, and lets a DestinationRule override this policy field by field"
            inputs.notes.append(
                Note(
                    Category.CHANGED,
                    "gateway-api-beside",
                    text,
                    SourceRef(document),
                    remedy="Compare it with the written objects.",
                )
            )


def _selects(document: Document, gateway_selectors: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a policy selects Pods of gateways. A gateway's Pods and routes may be in any namespace."""
    chosen = mapping(document.spec.get("selector")).get("matchLabels")
    labels = mapping(chosen or mapping(document.spec.get("workloadSelector")).get("labels"))
    return any(selector.get(key) == value for selector in gateway_selectors for key, value in labels.items())
