"""XTelemetryPolicies (GEP-4768): the one that applies to a Gateway, its tracing settings, and its collector.

The oldest policy that names a Gateway applies, then the first by {namespace}/{name}, even if it is invalid: an invalid policy
disables tracing, and no other policy replaces it. The collector is a hop like any other, so BackendTLSPolicies,
GatewayProfiles, audit and the memory of verification apply to it. Errors of telemetry never affect requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lasthop.base.api import telemetry as api
from lasthop.base.api.backends import GROUP as EXPERIMENTAL
from lasthop.base.api.gateway import GROUP
from lasthop.base.api.gateway import Gateway as ApiGateway
from lasthop.base.api.meta import Key
from lasthop.base.api.routes import Fraction
from lasthop.base.api.traffic import LocalPolicyTargetReference
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.limits import Limits
from lasthop.engine.plan.problem import Problem, joined, not_found, unsupported_value
from lasthop.engine.plan.telemetry import SAMPLED, AttributeSource, SpanAttribute, TracingPlan
from lasthop.engine.plan.tls import BackendTLS, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import BackendTarget, target
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.gateways import gateway as served_gateway
from lasthop.engine.resolve.gateways.gateways import gateway_accepted
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.observed import connected
from lasthop.engine.resolve.hops.weakening import weakened, weakening
from lasthop.engine.resolve.policies.policy_kind import PolicyKind
from lasthop.engine.resolve.routing.http_syntax import HEADER_NAME, PROTECTED, shown, value_problem, word
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

KIND: Final = "XTelemetryPolicy"
MAX_ATTRIBUTES: Final = 64
MAX_HEADERS: Final = 16
"""Every span carries the attributes, and every export the headers. The CRD has no limit for attributes."""
NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,256}")
SPAN_NAME: Final = re.compile(rf"(?=.{{1,256}}\Z){NAME.pattern}(?: {NAME.pattern})*")
LITERAL: Final = re.compile("[^\x00-\x1f\x7f\ud800-\udfff]{1,1024}")
OF_GRPC: Final = frozenset({"te", "content-type", "user-agent"})
MODES: Final = ("Enabled", "Disabled", api.DEFAULT)
KNOWN_ATTRIBUTES: Final = frozenset(
    (
        *("client.address", "client.port", "server.address", "server.port", "user_agent.original"),
        *("http.request.method", "http.request.body.size", "http.response.body.size", "http.response.status_code"),
        *("network.local.address", "network.local.port", "network.peer.address", "network.peer.port"),
        *("network.protocol.name", "rpc.grpc.status_code", "url.path", "url.scheme"),
        *("tls.cipher", "tls.client.issuer", "tls.client.server_name", "tls.client.subject"),
    )
)
"""Keys of OpenTelemetry's semantic conventions that a span can have by `attributeKey`."""


def gateway_of(policy: Key, target: LocalPolicyTargetReference) -> Key | None:
    """Returns the Gateway that a target names; None for other kinds."""
    return Key("Gateway", policy.namespace, target.name) if (target.group, target.kind) == (GROUP, "Gateway") else None


def _gateways(g: Graph, policy: Key, obj: api.XTelemetryPolicy) -> list[Key]:
    """Returns the Gateways that a policy names, except those of other controllers. Missing Gateways are included, because the
    policy's status reports them (GEP-4768)."""
    gateways = TELEMETRY.targets(policy, obj)
    return [key for key in gateways if read(g, key, ApiGateway) is None or gateway_accepted(g, key)]


TELEMETRY: Final = PolicyKind(
    KIND, api.XTelemetryPolicy, gateway_of, _gateways, "name a Gateway of group gateway.networking.k8s.io"
)


# --- settings ------------------------------------------------------------------------------------------------


@query
def tracing_problems(g: Graph, policy: Key, gateway: Key) -> tuple[Problem, ...]:
    """Returns the unsupported settings. Any of them disables tracing, because an export without a required header could reach
    the wrong tenant."""
    obj = read(g, policy, api.XTelemetryPolicy)
    return tuple(_problems(obj.spec.tracing, limits(g, gateway))) if obj else ()


def _problems(spec: api.Tracing, limits: Limits) -> Iterator[Problem]:
    field, parents = "spec.tracing", spec.parent_based_sampling
    for mode, place in ((spec.mode, "mode"), (parents.mode, "parentBasedSampling.mode")):
        if mode not in MODES:
            yield unsupported_value(f"{word(mode)} is not one of {', '.join(MODES)}", f"{field}.{place}")
    if (spec.mode == "Enabled") != (spec.provider is not None):
        message = "provider requires mode Enabled, and mode Enabled requires provider; set both or neither"
        yield unsupported_value(message, f"{field}.provider")
    for rate, place in ((spec.sampling_rate, "samplingRate"), (parents.sampling_rate, "parentBasedSampling.samplingRate")):
        if rate and not (rate.denominator >= 1 and 0 <= rate.numerator <= rate.denominator):
            yield unsupported_value(f"{rate.numerator}/{rate.denominator} is not between 0 and 1", f"{field}.{place}")
    for name, form, place in ((spec.service_name, NAME, "serviceName"), (spec.span_name, SPAN_NAME, "spanName")):
        if name and not form.fullmatch(name):
            message = f"{shown(name)} is too long, or has characters other than letters, digits and _.:/-"
            yield unsupported_value(message, f"{field}.{place}")
    yield from _header_problems(spec, f"{field}.provider.headers", limits)
    yield from _attribute_problems(spec.attributes, f"{field}.attributes")


def _header_problems(spec: api.Tracing, field: str, limits: Limits) -> Iterator[Problem]:
    headers = spec.provider.headers if spec.provider else ()
    if len(headers) > MAX_HEADERS:
        yield unsupported_value(f"{len(headers)} headers; write at most {MAX_HEADERS}", field)
    for number, header in enumerate(headers):
        name, place = header.name.lower(), f"{field}[{number}]"
        if name in PROTECTED | OF_GRPC or name.startswith(("grpc-", "x-envoy-")) or not HEADER_NAME.fullmatch(name):
            yield unsupported_value(f"header {shown(name)} cannot be set; remove it", place)
        elif not header.value:
            yield unsupported_value(f"the value of header {shown(name)} is empty", place)
        elif "%" in header.value:
            # Envoy parses the value as a format and may refuse it, but then sends it unchanged, so a percent sign cannot be
            # escaped.
            yield unsupported_value(f"the value of header {shown(name)} has a percent sign, which Envoy cannot send", place)
        elif problem := value_problem(name, header.value, limits):
            yield unsupported_value(problem, place)


def _attribute_problems(attributes: tuple[api.Attribute, ...], field: str) -> Iterator[Problem]:
    if len(attributes) > MAX_ATTRIBUTES:
        yield unsupported_value(f"{len(attributes)} attributes; write at most {MAX_ATTRIBUTES}", field)
    for number, attribute in enumerate(attributes):
        place = f"{field}[{number}]"
        if not NAME.fullmatch(attribute.name):
            message = f"the name {shown(attribute.name)} is too long, or has characters other than letters, digits and _.:/-"
            yield unsupported_value(message, place)
        if attribute.source_type not in _VALUES:
            yield unsupported_value(f"sourceType {word(attribute.source_type)} is not one of {', '.join(_VALUES)}", place)
        elif attribute.source_type == AttributeSource.HEADER and not HEADER_NAME.fullmatch(attribute.header_name):
            yield unsupported_value(f"{shown(attribute.header_name)} is not the name of a header", f"{place}.headerName")
        elif attribute.source_type == AttributeSource.LITERAL and not LITERAL.fullmatch(attribute.literal_value):
            message = f"{shown(attribute.literal_value)} is empty, has control characters, or is longer than 1,024 characters"
            yield unsupported_value(message, f"{place}.literalValue")


_VALUES: Final = {
    str(AttributeSource.HEADER): "header_name",
    str(AttributeSource.LITERAL): "literal_value",
    str(AttributeSource.REQUEST): "attribute_key",
}
"""The field with the value, by source."""


def unknown_attributes(obj: api.XTelemetryPolicy) -> tuple[Problem, ...]:
    """Returns the attributes that are omitted because Envoy has no such value. GEP-4768 permits to omit and report them."""
    return tuple(
        unsupported_value(
            f"attribute {shown(attribute.attribute_key)} is unknown and left out",
            f"spec.tracing.attributes[{number}].attributeKey",
            "see docs/telemetry.md for the known ones",
        )
        for number, attribute in enumerate(obj.spec.tracing.attributes)
        if not _known(attribute)
    )


# --- result ------------------------------------------------------------------------------------------------


@query
def collector(g: Graph, policy: Key) -> BackendTarget | Problem | None:
    """Returns the collector of a policy, or why the reference is invalid; None if the policy exports nothing."""
    obj = read(g, policy, api.XTelemetryPolicy)
    if obj is None or obj.spec.tracing.mode != "Enabled" or obj.spec.tracing.provider is None:
        return None
    return target(g, policy, obj.spec.tracing.provider.backend_ref, EXPERIMENTAL)


@query
def tracing(g: Graph, gateway: Key) -> TracingPlan | None:
    """Returns the tracing settings of a Gateway's proxies; None if they trace nothing.

    They depend on the policy and the ReferenceGrants for the collector, but not on the collector's state, which only changes
    its cluster. So listeners do not change with a BackendTLSPolicy, a Service or a CA."""
    policy = TELEMETRY.applied(g, gateway, gateway)
    obj = read(g, policy, api.XTelemetryPolicy) if policy else None
    if policy is None or obj is None:
        return None
    backend = collector(g, policy)
    if not isinstance(backend, BackendTarget) or tracing_problems(g, policy, gateway):
        return None
    spec, parents = obj.spec.tracing, obj.spec.tracing.parent_based_sampling
    headers = {header.name.lower(): header.value for header in reversed(spec.provider.headers if spec.provider else ())}
    return TracingPlan(
        Hop(gateway, backend.backend, backend.port, Protocol.H2),
        spec.service_name or f"{gateway.name}.{gateway.namespace}",
        _share(spec.sampling_rate),
        None if parents.mode == "Disabled" else _share(parents.sampling_rate),
        spec.span_name,
        tuple(sorted(headers.items())),
        tuple(_attribute(attribute) for attribute in spec.attributes if _known(attribute)),
    )


def _attribute(attribute: api.Attribute) -> SpanAttribute:
    return SpanAttribute(
        attribute.name, AttributeSource(attribute.source_type), getattr(attribute, _VALUES[attribute.source_type])
    )


def _known(attribute: api.Attribute) -> bool:
    return attribute.source_type != AttributeSource.REQUEST or attribute.attribute_key in KNOWN_ATTRIBUTES


def _share(rate: Fraction | None) -> int:
    """Returns a share in millionths, Envoy's finest unit. A share above zero stays above zero."""
    if rate is None:
        return SAMPLED
    return max(round(SAMPLED * rate.numerator / rate.denominator), 1 if rate.numerator else 0)


@indexer("Gateway")
def index_collectors(g: Graph, key: Key) -> Iterator[Entry]:
    accepted = gateway_accepted(g, key)
    plan = tracing(g, key) if accepted and accepted.status else None
    policy = TELEMETRY.winner(g, key)
    if plan and policy:
        hop = plan.collector
        yield HOPS.entry((hop.gateway, hop.backend, hop.port, hop.protocol), policy)


# --- the conditions at a Gateway -------------------------------------------------------------------------------------


def gateway_problem(g: Graph, policy: Key, gateway: Key) -> Problem | None:
    """Returns why a policy does not apply to a Gateway that it names."""
    if read(g, gateway, ApiGateway) is None:
        return not_found(reasons.TARGET_NOT_FOUND, gateway)
    return TELEMETRY.conflict(g, policy, gateway)


def collector_hop(g: Graph, policy: Key, gateway: Key) -> Hop | None:
    backend = collector(g, policy)
    return Hop(gateway, backend.backend, backend.port, Protocol.H2) if isinstance(backend, BackendTarget) else None


@query
def collector_problem(g: Graph, policy: Key, gateway: Key) -> Problem | None:
    """Returns why nothing is exported from a Gateway."""
    backend = collector(g, policy)
    if isinstance(backend, Problem):
        return backend
    hop = collector_hop(g, policy, gateway)
    tls = hop_tls(g, *hop) if hop else None
    return tls.problem if isinstance(tls, Refused) else None


def conditions(g: Graph, policy: Key, gateway: Key) -> tuple[Condition, ...]:
    obj = read(g, policy, api.XTelemetryPolicy)
    if obj is None:
        return ()
    if problem := gateway_problem(g, policy, gateway):
        return (failed(reasons.ACCEPTED, problem),)
    if problems := tracing_problems(g, policy, gateway):
        return (failed(reasons.ACCEPTED, joined(problems, reasons.INVALID, fields=True)),)
    unknown = unknown_attributes(obj)
    result = [true(reasons.ACCEPTED, _note(g, obj, gateway))]
    if unknown:
        result.append(failed(reasons.PARTIALLY_INVALID, joined(unknown, fields=True)))
    if unserved := serves_nothing(g, gateway):
        result.append(failed(reasons.PROGRAMMED, unserved))
    if obj.spec.tracing.provider is None:
        return tuple(result)
    unresolved = collector_problem(g, policy, gateway)
    if unresolved:
        nothing = unresolved.at("").within("nothing is exported: spec.tracing.provider.backendRef")
        return (*result, failed(reasons.RESOLVED_REFS, nothing))
    result.append(true(reasons.RESOLVED_REFS))
    if hop := collector_hop(g, policy, gateway):
        observed = connected(g, [hop], tls=isinstance(hop_tls(g, *hop), BackendTLS))
        result += [*filter(None, [observed]), *weakened(tuple(filter(None, [weakening(g, hop)])))]
    return tuple(result)


def _note(g: Graph, obj: api.XTelemetryPolicy, gateway: Key) -> str:
    served = served_gateway(g, gateway)
    if obj.spec.tracing.provider is None:
        return "nothing is traced"
    if served and not any(listener.http for listener in served.listeners):
        return "the Gateway has no HTTP or HTTPS listener, so nothing is traced"
    return ""
