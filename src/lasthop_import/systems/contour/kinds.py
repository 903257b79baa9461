"""Defines Contour's kinds, and reads classes, the delegation of Secrets and the controller's configuration."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object
from lasthop.edge.admission.yaml import parse
from lasthop.engine.plan.tls_options import CIPHER_SUITES, VERSIONS, TLSOptions
from lasthop_import.documents import Document, mapping, texts
from lasthop_import.inputs import Inputs
from lasthop_import.model import ObjectName
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import UNREAD, FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.unread import may_restrict

GROUP = "projectcontour.io"
HTTP_PROXY: Final = Kind("HTTPProxy", GROUP, ("v1",), "httpproxies", Object)
DELEGATION: Final = Kind("TLSCertificateDelegation", GROUP, ("v1",), "tlscertificatedelegations", Object)
EXTENSION_SERVICE: Final = Kind("ExtensionService", GROUP, ("v1alpha1",), "extensionservices", Object)
CONFIGURATION: Final = Kind("ContourConfiguration", GROUP, ("v1alpha1",), "contourconfigurations", Object)
KINDS: Final = (HTTP_PROXY, DELEGATION, EXTENSION_SERVICE, CONFIGURATION)
PREFIXES: Final = ("projectcontour.io/", "ingress.kubernetes.io/", "kubernetes.io/ingress.")
CLASS_ANNOTATIONS: Final = ("projectcontour.io/ingress.class", "kubernetes.io/ingress.class")

CHECKS: Final = ("globalExtAuth", "rateLimitService")
"""Settings by which the controller checks every request."""
_SPEC: Final = (
    *("xdsServer", "ingress", "debug", "health", "gateway", "httpproxy", "enableExternalNameService", "policy", "metrics"),
    *("tracing", "featureFlags"),
)
_ENVOY: Final = (
    *("listener", "service", "http", "https", "health", "metrics", "logging", "defaultHTTPVersions", "timeouts", "network"),
    "omEnforcedHealth",
)
_FILE: Final = frozenset(
    (
        *("accesslog-format", "accesslog-format-string", "accesslog-level", "json-fields", "debug", "default-http-versions"),
        *("disablePermitInsecure", "disableAllowChunkedLength", "disableMergeSlashes", "serverHeaderTransformation"),
        *("enableExternalNameService", "gateway", "incluster", "ingress-status-address", "kubeconfig", "leaderelection"),
        *("listener", "metrics", "network", "policy", "server", "timeouts", "tracing", "featureFlags", "useEndpointSlices"),
        *("globalCircuitBreakerDefaults", "omEnforcedHealthListener", "compression", "socket-options"),
    )
)
"""Settings of contour.yaml that are not carried over and restrict nothing."""


def class_of(document: Document) -> str:
    """Returns the class of an HTTPProxy or Ingress from an annotation, or from the field."""
    values = [*(document.annotations.get(name) for name in CLASS_ANNOTATIONS), document.spec.get("ingressClassName")]
    return next((value for value in values if isinstance(value, str) and value), "")


def is_ours(document: Document, settings: ImportSettings) -> bool:
    """Returns whether an object has a class of --ingress-class, or by default the class contour or none."""
    classes = settings.ingress_classes
    return "all" in classes or class_of(document) in (classes or ("", "contour"))


class Delegations:
    """Finds the Secrets that other namespaces may use."""

    def __init__(self, inputs: Inputs) -> None:
        self._granted: set[tuple[str, str, str]] = set()
        for document in inputs.of(DELEGATION):
            for delegation in inputs.open(document).child("spec").children("delegations"):
                for target in delegation.texts("targetNamespaces"):
                    self._granted.add((document.namespace, delegation.text("secretName"), target))
                delegation.ignore("secretName")

    def permit(self, secret: ObjectName, namespace: str) -> bool:
        granted = self._granted & {(secret.namespace, secret.name, target) for target in (namespace, "*")}
        return secret.namespace == namespace or bool(granted)


def secret_name(text: str, namespace: str) -> ObjectName:
    """Reads `[namespace/]name`."""
    owner, _, name = text.rpartition("/")
    return ObjectName(owner or namespace, name)


class ContourConfig(msgspec.Struct, frozen=True):
    client: ObjectName | None = None
    """The client certificate for every backend with TLS."""
    options: TLSOptions = TLSOptions()


def read_config(inputs: Inputs, settings: ImportSettings) -> ContourConfig:
    """Reads the configuration from the file of --contour-config, the ConfigMap `contour` or a ContourConfiguration."""
    content, source = _config_file(inputs, settings)
    parsed = parse(content) if content else None
    config = ContourConfig()
    if parsed and len(parsed.documents) == 1 and isinstance(parsed.documents[0], dict) and not parsed.mistakes:
        config = _of_file(inputs, parsed.documents[0], source)
    elif parsed:
        text = "contour.yaml cannot be read; it may restrict access to all routes"
        inputs.notes.append(Note(Category.ACCESS_CONTROL, "configuration-unreadable", text, source, everywhere=True))
    for document in inputs.of(CONFIGURATION):
        config = _of_object(inputs.open(document).child("spec"), config)
    return config


def _config_file(inputs: Inputs, settings: ImportSettings) -> tuple[bytes, SourceRef | None]:
    """Returns contour.yaml, and its source if it is in the input."""
    content = settings.flags.get("contour-config")
    if isinstance(content, bytes) and content:
        return content, None
    document = next((e for e in inputs.documents if e.kind == "ConfigMap" and e.bare_name == "contour"), None)
    document = document or inputs.find("ConfigMap", "projectcontour", "contour")
    if document is None:
        return b"", None
    data = inputs.data("ConfigMap", document.namespace, "contour") or {}
    return data.get("contour.yaml", b""), SourceRef(document, ("data", "contour.yaml"))


def _of_object(spec: FieldReader, before: ContourConfig) -> ContourConfig:
    envoy = spec.child("envoy")
    certificate, tls = envoy.child("clientCertificate"), envoy.child("cluster").child("upstreamTLS")
    name, namespace = certificate.text("name"), certificate.text("namespace")
    options = _options(tls.text("minimumProtocolVersion"), tls.text("maximumProtocolVersion"), tls.texts("cipherSuites"))
    tls.cannot("ecdhCurves", "curves are the new gateway's own")
    for key in CHECKS:
        spec.access_control(key, "checked every request; there is no equivalent")
    for reader, keys in ((envoy, _ENVOY), (spec, _SPEC)):
        for key in keys:
            reader.cannot(key, "a setting of the whole controller that has no equivalent")
    return ContourConfig(ObjectName(namespace, name) if name else before.client, options)


def _of_file(inputs: Inputs, values: dict[str, Any], source: SourceRef | None) -> ContourConfig:
    tls, cluster = (mapping(values.get(key)) for key in ("tls", "cluster"))
    certificate, upstream = mapping(tls.get("envoy-client-certificate")), mapping(cluster.get("upstream-tls"))
    for key in CHECKS:
        if values.get(key):
            text = f"{key} of contour.yaml checked every request; there is no equivalent"
            inputs.notes.append(Note(Category.ACCESS_CONTROL, key, text, source))
    dropped = sorted({*map(str, values)} - {"tls", "cluster", *CHECKS})
    if dropped:
        text = f"settings of the whole controller are not carried over: {', '.join(dropped)[:200]}"
        inputs.notes.append(Note(Category.CANNOT, "controller-settings", text, source, severity=NoteSeverity.INFO))
    for key in sorted({*dropped} - _FILE):
        category = Category.ACCESS_CONTROL if may_restrict(key) else Category.UNKNOWN
        text = f"this importer does not know {key[:60]} of contour.yaml"
        inputs.notes.append(Note(category, UNREAD, text, source, severity=NoteSeverity.HIGH, everywhere=True))
    name, namespace = certificate.get("name"), certificate.get("namespace")
    client = ObjectName(namespace, name) if isinstance(name, str) and isinstance(namespace, str) and name else None
    versions = [str(upstream.get(f"{which}-protocol-version", "")) for which in ("minimum", "maximum")]
    return ContourConfig(client, _options(versions[0], versions[1], texts(upstream.get("cipher-suites"))))


def _options(lowest: str, highest: str, ciphers: list[str] | tuple[str, ...]) -> TLSOptions:
    """Returns the settings for all backends. Splits groups of ciphers (`[A|B]`)."""
    names = [name for group in ciphers for name in group.strip("[]").split("|") if name in CIPHER_SUITES]
    return TLSOptions(
        min_version=lowest if lowest in VERSIONS and lowest != "1.2" else None,
        max_version=highest if highest in VERSIONS else VERSIONS[-1],
        cipher_suites=tuple(dict.fromkeys(names)),
    )
