"""Checks the promises about a Gateway itself: admitted clients, contacted servers, and the keys it holds.

Like `promises.py` it reads the objects with naive code of its own.
"""

from __future__ import annotations

from typing import Any

from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.config.trace.v3 import opentelemetry_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2

from lasthop.base.api.gateway import ListenerSet, ReferenceGrant
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.routes import HTTPRoute
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES, SECRET
from tests.random_world import ca_content
from tests.snapshot import Snapshot, tls_context
from tests.world import CLIENTS, crl_pem

Objects = dict[Key, Object]


def check_clients(objects: Objects, snapshot: Snapshot) -> None:
    """A Gateway that requests client certificates admits only clients with one of its CAs."""
    for (gateway, type_url, _), resource in snapshot.xds.items():
        obj: Any = objects.get(gateway)
        if type_url != LISTENER or obj is None:
            continue
        listener = listener_pb2.Listener.FromString(resource.body)
        frontend = obj.spec.tls.frontend if obj.spec.tls else None
        for_port = {entry.port: entry.tls for entry in frontend.per_port} if frontend else {}
        tls = for_port.get(listener.address.socket_address.port_value, frontend.default if frontend else None)
        for chain in listener.filter_chains:
            context = tls_pb2.DownstreamTlsContext()
            https = chain.transport_socket.typed_config.Unpack(context) and "http_connection_manager" in chain.filters[0].name
            if not https or not tls or not tls.validation:
                continue
            validation = context.common_tls_context.validation_context
            strict = tls.validation.mode == "AllowValidOnly"
            assert context.require_client_certificate.value == strict
            assert (validation.trust_chain_verification == validation.VERIFY_TRUST_CHAIN) == strict
            allowed = "".join(_client_ca(objects, gateway, ref) for ref in tls.validation.ca_certificate_refs)
            pem = validation.trusted_ca.inline_bytes.decode()
            assert pem.strip(), "no trust anchor"
            assert all(block in allowed for block in pem.split("-----END CERTIFICATE-----\n") if block)
            assert not any(ref.kind == "PinSet" for ref in tls.validation.ca_certificate_refs)
            trusted = [_client_ca_object(objects, gateway, ref) for ref in tls.validation.ca_certificate_refs]
            check_revocation(validation, trusted)


def _client_ca(objects: Objects, gateway: Key, ref: Any) -> str:
    return _text(_client_ca_object(objects, gateway, ref), "ca.crt") or ""


def _client_ca_object(objects: Objects, gateway: Key, ref: Any) -> Any:
    namespace = ref.namespace or gateway.namespace
    allowed = namespace == gateway.namespace or granted(objects, "Gateway", gateway.namespace, namespace, ref.kind)
    return objects.get(Key(ref.kind, namespace, ref.name)) if allowed else None


def granted(objects: Objects, kind: str, source: str, into: str, to: str) -> bool:
    """Reports whether objects of a namespace may refer to objects of a kind in another namespace."""
    grants = [obj for obj in objects.values() if isinstance(obj, ReferenceGrant) and obj.metadata.namespace == into]
    froms = {(f.kind, f.namespace, t.kind) for grant in grants for f in grant.spec.from_ for t in grant.spec.to}
    return (kind, source, to) in froms


def _text(obj: Any, name: str) -> str | None:
    """Returns the value of a key in a Secret or ConfigMap."""
    value = dict(obj.data).get(name) if obj is not None else None
    return value.decode() if isinstance(value, bytes) else value


UNSENT = {"connect-failure", "refused-stream", "reset-before-request"}


def check_retries(objects: Objects, snapshot: Snapshot) -> None:
    """By default, only unsent requests are retried, and only to the same backend."""
    attempts = [
        rule.retry.attempts
        for obj in objects.values()
        if isinstance(obj, HTTPRoute)
        for rule in obj.spec.rules
        if rule.retry is not None
    ]
    for (_, type_url, _), resource in snapshot.xds.items():
        if type_url == ROUTES:
            for host in route_pb2.RouteConfiguration.FromString(resource.body).virtual_hosts:
                retry = host.retry_policy
                assert set(filter(None, retry.retry_on.split(","))) <= UNSENT
                assert not retry.retriable_status_codes and not retry.HasField("retry_priority")
                own = [route.route.retry_policy for route in host.routes if route.route.HasField("retry_policy")]
                assert all(policy.num_retries.value in attempts for policy in own)
    for cluster in snapshot.clusters().values():
        assert cluster.outlier_detection.max_ejection_percent.value <= 50
        assert len(cluster.circuit_breakers.thresholds) == 1 and cluster.circuit_breakers.thresholds[0].HasField(
            "retry_budget"
        )


def check_tracing(objects: Objects, snapshot: Snapshot) -> None:
    """Spans of a Gateway's requests go only to the collector of the oldest policy of its namespace that names it."""
    for (gateway, type_url, _), resource in snapshot.xds.items():
        listener = listener_pb2.Listener.FromString(resource.body) if type_url == LISTENER else listener_pb2.Listener()
        for chain in (chain for chain in listener.filter_chains if chain.filters):
            manager, otel = hcm_pb2.HttpConnectionManager(), opentelemetry_pb2.OpenTelemetryConfig()
            if not chain.filters[0].typed_config.Unpack(manager) or not manager.HasField("tracing"):
                continue
            assert manager.tracing.provider.typed_config.Unpack(otel)
            policy = _oldest_telemetry_policy(objects, gateway)
            assert policy and policy.spec.tracing.mode == "Enabled" and policy.spec.tracing.provider
            ref = policy.spec.tracing.provider.backend_ref
            namespace = ref.namespace or gateway.namespace
            kind = "" if ref.kind == "Service" else f"{ref.kind}/"
            named = f"{gateway.path}/{kind}{namespace}/{ref.name}/"
            cluster_name = otel.grpc_service.envoy_grpc.cluster_name
            assert cluster_name.startswith(named) and cluster_name.endswith("/h2"), (
                f"{cluster_name} is told, and {named} was meant"
            )
            assert namespace == gateway.namespace or granted(
                objects, "XTelemetryPolicy", gateway.namespace, namespace, ref.kind
            )


def _oldest_telemetry_policy(objects: Objects, gateway: Key) -> XTelemetryPolicy | None:
    policies = [o for k, o in objects.items() if isinstance(o, XTelemetryPolicy) and k.namespace == gateway.namespace]
    named = [o for o in policies if any(target.name == gateway.name for target in o.spec.target_refs)]
    return min(named, key=lambda o: (o.metadata.creation_timestamp, o.metadata.name), default=None)


def check_keys(objects: Objects, snapshot: Snapshot) -> None:
    """A Gateway is given the private keys that its listeners may serve with and that its backends are shown, and no other."""
    shown: dict[Key, set[str]] = {}
    for (gateway, _), cluster in snapshot.clusters().items():
        context = tls_context(cluster)
        shown.setdefault(gateway, set()).update(secrets_of(context) if context is not None else ())
    for gateway, type_url, name in snapshot.xds:
        if type_url == SECRET:
            known = shown.get(gateway, set()) if "@" in name else _served_keys(objects, gateway)
            assert name in known, f"{gateway} is given the key of {name}, which it has no use for"


def _served_keys(objects: Objects, gateway: Key) -> set[str]:
    """Returns the Secrets that the Gateway's listeners and its ListenerSets name with permission."""
    own: Any = objects[gateway]
    sets = [
        obj
        for key, obj in objects.items()
        if isinstance(obj, ListenerSet)
        and own.spec.allowed_listeners
        and Key("Gateway", obj.spec.parent_ref.namespace or key.namespace, obj.spec.parent_ref.name) == gateway
    ]
    owners = [(gateway.kind, gateway.namespace, own), *(("ListenerSet", obj.metadata.namespace, obj) for obj in sets)]
    named = [
        (kind, namespace, ref)
        for kind, namespace, owner in owners
        for listener in owner.spec.listeners
        for ref in (listener.tls.certificate_refs if listener.tls else ())
    ]
    return {
        f"{ref.namespace or namespace}/{ref.name}"
        for kind, namespace, ref in named
        if ref.namespace in ("", None, namespace) or granted(objects, kind, namespace, ref.namespace, "Secret")
    }


def secrets_of(context: Any) -> set[str]:
    return {secret.name for secret in context.common_tls_context.tls_certificate_sds_secret_configs}


def check_revocation(validation: Any, trusted: list[Any], waives: str = "") -> None:
    """Checks that every revocation list is enforced, and that nothing with an unusable list or a list beside an unusable CA is
    served."""
    usable = ("good", "other", "weak", CLIENTS, *(("expired", "early") if waives == "Expiry" else ()))
    revoking = [ca for ca in trusted if _text(ca, "ca.crl") is not None]
    assert {_text(ca, "ca.crt") for ca in revoking} <= {*map(ca_content, usable)}, "a list is left out with its CA"
    lists = {_text(ca, "ca.crl") or "" for ca in revoking}
    assert lists <= {crl_pem("good")}, "served, though a revocation list cannot be used"
    assert validation.crl.inline_bytes.decode() == "".join(sorted(lists)), "a revocation list is not enforced"


def check_upgrades(snapshot: Snapshot) -> None:
    """Upgrades pass the filters that requests pass, and their connections differ only in ALPN, never in names."""
    for (_, type_url, _), resource in snapshot.xds.items():
        listener = listener_pb2.Listener.FromString(resource.body) if type_url == LISTENER else listener_pb2.Listener()
        for chain in (chain for chain in listener.filter_chains if chain.filters):
            manager, states = hcm_pb2.HttpConnectionManager(), set_filter_state_pb2.Config()
            if not chain.filters[0].typed_config.Unpack(manager):
                continue
            (upgrade,) = manager.upgrade_configs
            first, *rest = upgrade.filters
            assert rest == list(manager.http_filters)
            assert first.typed_config.Unpack(states)
            filter_states = {
                state.object_key: state.format_string.text_format_source.inline_string for state in states.on_request_headers
            }
            assert filter_states == {"envoy.network.application_protocols": "http/1.1", "lasthop.upgrade": "true"}
