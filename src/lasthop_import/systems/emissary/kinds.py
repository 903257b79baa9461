"""Defines Emissary's kinds, and finds the objects of the imported instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object
from lasthop_import.documents import Document, texts
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.unread import may_restrict

GROUP, OLD_GROUP = "getambassador.io", "x.getambassador.io"
GROUPS: Final = (GROUP, OLD_GROUP)
_NAMES: Final = {
    "Mapping": "mappings",
    "TCPMapping": "tcpmappings",
    "Host": "hosts",
    "Listener": "listeners",
    "TLSContext": "tlscontexts",
    "Module": "modules",
    "AuthService": "authservices",
    "RateLimitService": "ratelimitservices",
    "LogService": "logservices",
    "TracingService": "tracingservices",
    "DevPortal": "devportals",
    "ConsulResolver": "consulresolvers",
    "KubernetesEndpointResolver": "kubernetesendpointresolvers",
    "KubernetesServiceResolver": "kubernetesserviceresolvers",
}
KINDS: Final = (
    *(Kind(name, GROUP, ("v3alpha1", "v2", "v1"), plural, Object) for name, plural in _NAMES.items()),
    *(Kind(f"Ambassador{name}", OLD_GROUP, ("v3alpha1",), f"ambassador{plural}", Object) for name, plural in _NAMES.items()),
)
RESTRICTING: Final = frozenset(
    ("AuthService", "AmbassadorAuthService", "Module", "AmbassadorModule", "Filter", "FilterPolicy")
)
"""Filter and FilterPolicy are Edge Stack's logins."""
ANNOTATION: Final = "getambassador.io/config"
_SKIPPED: Final = {
    "LogService": "logs are the gateway's own",
    "TracingService": "tracing is not configured by an object",
    "DevPortal": "there is no developer portal",
    "KubernetesServiceResolver": "Services are always resolved",
    "KubernetesEndpointResolver": "endpoints are always used",
}


AUTOMATIC: Final = "_automatic_"
"""The ambassador_id of objects that belong to every instance."""
_INSTANCE: Final = ("ambassadorId", "ambassador_id")
_READ: Final = ("use_ambassador_namespace_for_service_resolution", "cluster_request_timeout_ms")


_HARMLESS: Final = frozenset(
    (
        *("add_linkerd_headers", "admin_port", "buffer_limit_bytes", "circuit_breakers", "cluster_idle_timeout_ms"),
        *("cluster_max_connection_lifetime_ms", "cors", "debug_mode", "default_label_domain", "default_labels", "diagnostics"),
        *("docs", "enable_grpc_http11_bridge", "enable_grpc_web", "enable_http10", "enable_ipv4", "enable_ipv6"),
        *("envoy_log_format", "envoy_log_path", "envoy_log_type", "envoy_validation_timeout", "error_response_overrides"),
        *("grpc_stats", "gzip", "header_case_overrides", "headers_with_underscores_action", "keepalive"),
        *("listener_idle_timeout_ms", "liveness_probe", "load_balancer", "max_request_headers_kb", "merge_slashes"),
        *("preserve_external_request_id", "proper_case", "prune_unreachable_routes", "readiness_probe", "regex_max_size"),
        *("regex_type", "reject_requests_with_escaped_slashes", "resolver", "retry_policy", "server_name", "service_port"),
        *("statsd", "strip_matching_host_port", "suppress_envoy_headers", "use_remote_address", "xff_num_trusted_hops"),
        "allow_chunked_length",
    )
)
"""Settings of a Module that restrict nothing and lose no request."""


class ModuleSettings(NamedTuple):
    """The settings of the Module for the whole instance."""

    own_namespace: bool = False
    """Services without a namespace are in Emissary's own namespace, not the Mapping's."""
    timeout: int | None = None
    """The request timeout in milliseconds."""


class EmissaryObjects:
    def __init__(self, inputs: Inputs, instance: str) -> None:
        self._inputs = inputs
        self._instance = instance

    def of(self, name: str) -> Iterator[FieldReader]:
        """Yields this instance's objects of a kind, in Emissary's order: by name, then namespace."""
        kinds = [kind for kind in KINDS if kind.kind in (name, f"Ambassador{name}")]
        for document in sorted((document for kind in kinds for document in self._inputs.of(kind)), key=_order):
            instances = _instances(document)
            if self._instance in instances or instances == (AUTOMATIC,):
                reader = self._inputs.open(document)
                reader.child("spec").ignore(*_INSTANCE)
                yield reader
            else:
                self._inputs.skip(document, "other-instance", f"ambassador_id is {', '.join(instances)}, not {self._instance}")

    def module(self) -> ModuleSettings:
        settings = ModuleSettings()
        for reader in self.of("Module"):
            config = reader.child("spec").child("config")
            settings = ModuleSettings(
                config.boolean("use_ambassador_namespace_for_service_resolution") or settings.own_namespace,
                config.integer("cluster_request_timeout_ms") or settings.timeout,
            )
            for key in sorted({*config.value} - {*_READ}):
                if key in ("ip_allow", "ip_deny"):
                    config.access_control(key, "Emissary restricted client addresses; the new gateway accepts all clients")
                    continue
                text = "a setting of the whole instance that is not carried over"
                if may_restrict(key) and key != "allow_chunked_length":
                    config.access_control(key, text)
                    continue
                severity = None if key in _HARMLESS else NoteSeverity.HIGH
                config.note(Category.CANNOT, "module", text, key, severity=severity)
        return settings

    def list_others(self) -> None:
        for reader in self.of("RateLimitService"):
            text = "requests were limited; the new gateway does not limit them"
            reader.note(Category.ACCESS_CONTROL, "rate-limits", text, "spec")
        for reader in self.of("ConsulResolver"):
            reader.note(Category.CANNOT, "consul", "backends of Consul have no equivalent", "spec", severity=NoteSeverity.HIGH)
        for name, text in _SKIPPED.items():
            for reader in self.of(name):
                reader.note(Category.SKIPPED, "not-needed", text, "spec")
        for document in self._inputs.documents:
            if ANNOTATION in document.annotations:
                text = "Mappings and other objects in annotations are not read, and their settings are lost"
                source = SourceRef(document, ("metadata", "annotations", ANNOTATION))
                remedy = "Write them as separate objects."
                note = Note(Category.CANNOT, "in-annotation", text, source, remedy=remedy, severity=NoteSeverity.HIGH)
                self._inputs.notes.append(note)


def _order(document: Document) -> str:
    return f"{document.bare_name}.{document.namespace}"


def _instances(document: Document) -> tuple[str, ...]:
    value = next((identifiers for key in _INSTANCE if (identifiers := document.spec.get(key)) is not None), None)
    return texts([value] if isinstance(value, str) else value) or ("default",)
