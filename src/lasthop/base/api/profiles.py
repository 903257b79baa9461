"""GatewayProfile: the operator's settings for Gateways, referenced by a GatewayClass or by a Gateway's `infrastructure`.

An omitted field sets nothing: `resolve/gateways/profiles.py` merges the profiles of a GatewayClass and a Gateway.
"""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Object, PassedOn, StringMap, Struct

GROUP = "lasthop.dev"
PREFIX = f"{GROUP}/"
"""The prefix of our own option names."""
ALLOW = "Allow"
DENY = "Deny"


class Resources(Struct, frozen=True):
    requests: StringMap = StringMap()
    limits: StringMap = StringMap()


class ServiceSettings(Struct, frozen=True):
    type: str = "LoadBalancer"
    external_traffic_policy: str = ""
    load_balancer_class: str = ""
    annotations: StringMap = StringMap()


class SecretName(Struct, frozen=True):
    name: str = ""


class PodSettings(Struct, frozen=True):
    """Scheduling and metadata of the proxy's Pods. Fields without a type are passed on unchanged."""

    labels: StringMap = StringMap()
    annotations: StringMap = StringMap()
    node_selector: StringMap = StringMap()
    tolerations: tuple[PassedOn, ...] = ()
    affinity: PassedOn | None = None
    topology_spread_constraints: tuple[PassedOn, ...] | None = None
    priority_class_name: str = ""
    image_pull_secrets: tuple[SecretName, ...] = ()


class DisruptionBudget(Struct, frozen=True):
    """At most one field is set, to a number or a percentage."""

    max_unavailable: int | str | None = None
    min_available: int | str | None = None


class Autoscaling(Struct, frozen=True):
    max_replicas: int = 0
    min_replicas: int = 1
    target_cpu_utilization_percentage: int = msgspec.field(default=80, name="targetCPUUtilizationPercentage")


class ProxyProfile(Struct, frozen=True):
    """The `proxy` field of a GatewayProfile."""

    replicas: int | None = None
    resources: Resources | None = None
    service: ServiceSettings | None = None
    pod: PodSettings | None = None
    autoscaling: Autoscaling | None = None
    disruption_budget: DisruptionBudget | None = None
    drain_seconds: int | None = None
    image: str = ""
    access_log: str = ""
    connect_retries: int | None = None
    ejection_seconds: int | None = None


class ProxySettings(Struct, frozen=True):
    """The proxy settings of a Gateway: a `ProxyProfile` with defaults."""

    replicas: int | None = None
    """None leaves the number to an autoscaler; the Deployment starts with one."""
    resources: Resources = Resources()
    service: ServiceSettings = ServiceSettings()
    pod: PodSettings = PodSettings()
    autoscaling: Autoscaling | None = None
    disruption_budget: DisruptionBudget = DisruptionBudget(max_unavailable=1)
    drain_seconds: int = 30
    """Seconds that a terminating Pod has to finish its requests."""
    image: str = ""
    """Empty: the controller's own image."""


class AcknowledgedBackend(Struct, forbid_unknown_fields=True, frozen=True):
    """A backend whose weak verification is acknowledged."""

    namespace: str = ""
    name: str = ""
    reason: str = ""
    kind: str = "Service"
    port: int = 0
    """0 means all ports."""
    verification: str = "Plaintext"


class BackendTLSProfile(Struct, forbid_unknown_fields=True, frozen=True):
    """Rules for connections to backends. An empty text sets nothing. A field of a newer version might forbid something, so a
    profile with an unknown field counts as unreadable."""

    waivers: str = ""
    max_waiver_days: int | None = None
    plaintext_backends: str = ""
    pinned_only: str = ""
    weak_certificates: str = ""
    client_certificate: str = ""
    min_tls_version: str = msgspec.field(default="", name="minTLSVersion")
    acknowledged: tuple[AcknowledgedBackend, ...] = ()


POLICY_FIRST = "PolicyFirst"
ESCAPED_SLASHES = ("RejectRequest", "UnescapeAndRedirect", "UnescapeAndForward", "KeepUnchanged")
UNDERSCORES = ("RejectRequest", "DropHeader", "Allow")
"""Both sorted from strict to permissive."""


class HTTPProfile(Struct, frozen=True):
    """The `http` field of a GatewayProfile."""

    escaped_slashes: str = ""
    merge_slashes: bool | None = None
    underscores_in_headers: str = ""
    idle_seconds: int | None = None
    handshake_seconds: int | None = None


class LimitsProfile(Struct, frozen=True):
    """The `limits` field of a GatewayProfile; `engine/plan/limits.py` describes each limit."""

    regex_program_size: int | None = None
    regexes_per_route: int | None = None
    regex_size_per_hostname: int | None = None
    retry_attempts: int | None = None
    forward_body_bytes: int | None = None
    matches_per_hostname: int | None = None
    listeners_per_namespace: int | None = None
    header_value_length: int | None = None
    session_name_length: int | None = None
    ca_bundle_bytes: int | None = None
    ca_certificates: int | None = None


class AdmissionProfile(Struct, frozen=True):
    """The `admission` field of a GatewayProfile: edits that the validating webhook refuses instead of warning."""

    refuse: tuple[str, ...] = ()


class GatewayProfileSpec(Struct, frozen=True):
    backend_tls: BackendTLSProfile = msgspec.field(default=BackendTLSProfile(), name="backendTLS")
    admission: AdmissionProfile = AdmissionProfile()
    external_name_services: str = ""
    external_hostnames: str = ""
    http: HTTPProfile = HTTPProfile()
    limits: LimitsProfile = LimitsProfile()
    proxy: ProxyProfile = ProxyProfile()


class GatewayProfile(Object, frozen=True):
    spec: GatewayProfileSpec = GatewayProfileSpec()
