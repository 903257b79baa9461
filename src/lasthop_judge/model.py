"""The values of the suite: cases, the behaviour of their backends, requirements and verdicts."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Any, Final

from lasthop_judge.certificates import CA, Recipe, leaf

Json = dict[str, Any]

HOSTNAME: Final = "api.example"
"""The hostname of a policy that does not name another one."""


class Area(StrEnum):
    NAMES = "names"
    DATES = "dates"
    CHAINS = "chains"
    KEYS = "keys"
    TRUST = "trust"
    PRECEDENCE = "precedence"
    INVALID = "invalid"
    PROTOCOLS = "protocols"
    CHANGES = "changes"
    STATUS = "status"
    GEP_4152 = "gep4152"


class FaultSeverity(StrEnum):
    """The severities of violations, worst first."""

    PLAINTEXT = "plaintext"
    """Bytes without TLS reached a backend that a policy targets."""
    OPEN = "open"
    """A request reached a backend although its connection must fail."""
    CLOSED = "closed"
    """A request failed that must succeed."""
    STATUS = "status"
    """A condition, or the code that a client received, differs from the requirement."""


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_CLAIMED = "not claimed"
    NOT_RUN = "not run"


class RouteType(StrEnum):
    """The protocol of the client's request and the kind of the route."""

    HTTP = "HTTPRoute"
    HTTPS = "HTTPRoute on an HTTPS listener"
    WEBSOCKET = "HTTPRoute, upgraded to WebSocket"
    MIRROR = "HTTPRoute with a RequestMirror filter"
    GRPC = "GRPCRoute"
    TLS = "TLSRoute on a listener of mode Terminate"
    TCP = "TCPRoute"
    UDP = "UDPRoute"
    """Only for status: no policy applies to UDP."""

    @property
    def stream(self) -> bool:
        """Whether the route forwards a stream without HTTP, so that no path can select another backend."""
        return self in (RouteType.TLS, RouteType.TCP, RouteType.UDP)


class GatewayRole(StrEnum):
    """The Gateways of a run."""

    PLAIN = "judge"
    MTLS = "judge-client-certificate"
    PERMITTING = "judge-permitting"
    """The operator permits the options of GEP-4152."""
    WITHDRAWING = "judge-withdrawing"
    """The same, until a step withdraws the permission."""


class Expected(StrEnum):
    PASSES = "passes"
    """The backend answers, over TLS."""
    REFUSED = "refused"
    """No request reaches the backend, and the client receives an error."""
    REFUSED_5XX = "refused with 5xx"
    """The same, and over HTTP the error is a 5xx."""
    PLAINTEXT = "plaintext"
    """The backend answers, without TLS: no policy targets the port."""
    IGNORED = "ignored"
    """Only conditions count."""

    @property
    def refused(self) -> bool:
        return self in (Expected.REFUSED, Expected.REFUSED_5XX)


@dataclasses.dataclass(frozen=True)
class Requirement:
    """A sentence of a specification, and its source."""

    sentence: str
    source: str


@dataclasses.dataclass(frozen=True)
class Serving:
    """The behaviour of a backend on one port. Without a certificate it speaks plaintext."""

    certificate: Recipe | None = None
    chain: tuple[Recipe, ...] = ()
    """Sent after the certificate."""
    alpn: tuple[str, ...] = ("http/1.1",)
    version: str = ""
    """The only TLS version it speaks; empty: 1.2 and 1.3."""
    both: bool = False
    """Answers plaintext too, on the same port."""
    client_ca: Recipe | None = None
    """Requires a client certificate of this CA."""
    only_sni: str = ""
    """Answers other server names with the alert unrecognized_name."""
    grpc: bool = False
    """Answers as a gRPC server, and closes connections for which ALPN has not picked h2."""


@dataclasses.dataclass(frozen=True)
class Ref:
    """An entry of caCertificateRefs."""

    name: str
    kind: str = "ConfigMap"
    group: str = ""


class SkippedChecks(StrEnum):
    """The checks that a policy skips (GEP-4152)."""

    ALL = "all"
    NAMES = "names"
    DATES = "dates"


@dataclasses.dataclass(frozen=True)
class PinnedCertificates:
    """Pins: the policy trusts any one of these certificates, by the hash of its key or of itself (GEP-4152)."""

    certificates: tuple[Recipe, ...]
    by: str = "key"
    """`key` or `certificate`."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A BackendTLSPolicy. `RunSettings` prefixes its names with the id of the case."""

    refs: tuple[Ref, ...] = (Ref("ca"),)
    hostname: str = HOSTNAME
    sans: tuple[str, ...] = ()
    name: str = "policy"
    target: str = "backend"
    section: str = ""
    well_known: str = ""
    """Instead of refs."""
    born: int = 0
    """The order in which policies of different age are created."""
    extension: SkippedChecks | PinnedCertificates | None = None
    """A skipped check or pins (GEP-4152); an adapter turns them into objects."""


@dataclasses.dataclass(frozen=True)
class CABundle:
    """A ConfigMap or Secret with CA certificates, or with other content."""

    name: str = "ca"
    certificates: tuple[Recipe, ...] = (CA,)
    key: str = "ca.crt"
    """Empty: the ConfigMap has no data."""
    text: str | None = None
    """Instead of the certificates; objects.py replaces {ca} and similar placeholders."""
    beside: tuple[tuple[str, Recipe], ...] = ()
    """Further keys."""
    kind: str = "ConfigMap"


@dataclasses.dataclass(frozen=True)
class CasePort:
    name: str
    number: int
    serving: Serving | None
    protocol: str = "TCP"
    app_protocol: str = ""


@dataclasses.dataclass(frozen=True)
class CaseService:
    name: str = "backend"
    ports: tuple[CasePort, ...] = ()


@dataclasses.dataclass(frozen=True)
class ExpectedCondition:
    """A condition that a policy of the case must have."""

    type: str
    status: str
    reasons: tuple[str, ...] = ()
    """One of these; empty: any reason."""
    of: str = "policy"
    """The name of a policy of the case; `policy`: the first."""
    mentions: tuple[str, ...] = ()
    """Words that the message must contain."""


class StatusCheck(StrEnum):
    """Other properties of the status."""

    CURRENT_GENERATION = "observedGeneration of every condition is the policy's generation"
    FOREIGN_KEPT = "the ancestor entry of another controller stays as it was"
    TRANSITION_KEPT = "lastTransitionTime changes only if the condition's status does"
    NOT_ACCEPTED = "no ancestor entry has both Accepted=True and ResolvedRefs=True"
    GATEWAY_IS_ANCESTOR = "an ancestor entry names the Gateway"
    DEGRADED = "a condition shows degraded verification"


@dataclasses.dataclass(frozen=True)
class Step:
    """A change, and the requirement afterwards."""

    title: str
    expect: Expected
    put: tuple[Policy | CABundle | CaseService, ...] = ()
    remove: tuple[Policy | CABundle, ...] = ()
    serve: tuple[tuple[str, Serving], ...] = ()
    """New behaviour of backend ports, by port name. Their open connections end."""
    sni: str = ""
    conditions: tuple[ExpectedCondition, ...] = ()
    service: str = ""
    """The Service that receives requests; empty: as before the step."""
    withdraw: bool = False
    """The operator withdraws the permission of GEP-4152."""

    @property
    def policies(self) -> tuple[Policy, ...]:
        return tuple(part for part in self.put if isinstance(part, Policy))


@dataclasses.dataclass(frozen=True)
class Case:
    id: str
    """AREA/NAME."""
    title: str
    requirement: Requirement
    expect: Expected
    serving: Serving = Serving(leaf(HOSTNAME))
    policies: tuple[Policy, ...] = (Policy(),)
    bundles: tuple[CABundle, ...] = (CABundle(),)
    services: tuple[CaseService, ...] = ()
    """Empty: one named `backend`, port `https` 443, with `serving`."""
    via: RouteType = RouteType.HTTP
    role: GatewayRole = GatewayRole.PLAIN
    port: str = "https"
    sni: str = ""
    """The server name that the backend must receive; empty: any."""
    alpn: str = ""
    client: bool = False
    """The backend must receive the Gateway's client certificate."""
    conditions: tuple[ExpectedCondition, ...] = ()
    checks: tuple[StatusCheck, ...] = ()
    steps: tuple[Step, ...] = ()
    features: tuple[str, ...] = ()
    """Beyond Gateway, HTTPRoute and BackendTLSPolicy."""
    optional: bool = False
    """The specification leaves support open: a refusal is `not claimed`."""

    @property
    def area(self) -> Area:
        return Area(self.id.partition("/")[0])

    @property
    def name(self) -> str:
        return self.id.partition("/")[2]

    @property
    def slug(self) -> str:
        """The prefix of its objects' names, and the first label of its hostname."""
        return self.id.replace("/", "-")

    @property
    def needs(self) -> tuple[str, ...]:
        """The features that the implementation must claim."""
        kind = {
            RouteType.GRPC: ("GRPCRoute",),
            RouteType.TLS: ("TLSRoute", "TLSRouteModeTerminate"),
            RouteType.TCP: ("TCPRoute",),
            RouteType.UDP: ("UDPRoute",),
        }
        mirror = ("HTTPRouteRequestMirror",) if self.via is RouteType.MIRROR else ()
        sans = ("BackendTLSPolicySANValidation",) if any(policy.sans for policy in self._all_policies) else ()
        mtls = ("GatewayBackendClientCertificate",) if self.role is GatewayRole.MTLS else ()
        return ("BackendTLSPolicy", *kind.get(self.via, ("HTTPRoute",)), *mirror, *sans, *mtls, *self.features)

    @property
    def _all_policies(self) -> tuple[Policy, ...]:
        return (*self.policies, *(policy for step in self.steps for policy in step.policies))

    @property
    def extensions(self) -> tuple[SkippedChecks | PinnedCertificates, ...]:
        return tuple(policy.extension for policy in self._all_policies if policy.extension)

    @property
    def all_services(self) -> tuple[CaseService, ...]:
        return self.services or (CaseService(ports=(CasePort("https", 443, self.serving),)),)

    @property
    def only_refuses(self) -> bool:
        """Whether a gateway that refuses everything would pass."""
        expected = {self.expect, *(step.expect for step in self.steps)} - {Expected.IGNORED}
        return bool(expected) and all(expectation.refused for expectation in expected)

    @property
    def severities(self) -> tuple[FaultSeverity, ...]:
        """The severities of the faults that this case can find."""
        expected = {self.expect, *(step.expect for step in self.steps)} - {Expected.IGNORED}
        conditions = self.conditions or any(step.conditions for step in self.steps)
        possible = {
            FaultSeverity.PLAINTEXT: expected & {Expected.PASSES, Expected.REFUSED, Expected.REFUSED_5XX},
            FaultSeverity.OPEN: any(expectation.refused for expectation in expected),
            FaultSeverity.CLOSED: expected & {Expected.PASSES, Expected.PLAINTEXT},
            FaultSeverity.STATUS: conditions or self.checks or Expected.REFUSED_5XX in expected,
        }
        return tuple(severity for severity, is_possible in possible.items() if is_possible)


@dataclasses.dataclass(frozen=True)
class Fault:
    severity: FaultSeverity
    seen: str
    step: str = ""


@dataclasses.dataclass(frozen=True)
class CaseVerdict:
    case: Case
    outcome: Outcome
    faults: tuple[Fault, ...] = ()
    why: str = ""
    """The reason of `not claimed` and `not run`."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    repro_commands: tuple[str, ...] = ()
    """Commands that repeat a failing case by hand."""
    objects: tuple[Json, ...] = ()
    """The objects of a failing case."""
    unserved: bool = False
    """Not run because the gateway did not serve the route or accepted no valid certificate, or because the environment
    failed."""

    @property
    def accepted(self) -> bool:
        """Whether the requirement before all changes was met."""
        return self.outcome is Outcome.PASS or any(fault.step for fault in self.faults)

    @property
    def severity(self) -> FaultSeverity | None:
        order = list(FaultSeverity)
        return min((fault.severity for fault in self.faults), key=order.index, default=None)
