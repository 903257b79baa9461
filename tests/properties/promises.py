"""What the design promises of the final xDS, read from the objects.

The oracle reads the objects by itself and naively; it shares no code with `resolve`.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from datetime import datetime, timedelta
from typing import Any

from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.config.trace.v3 import opentelemetry_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2

from lasthop.api.backends import XBackend
from lasthop.api.core import Secret, Service, ServiceImport
from lasthop.api.gateway import ReferenceGrant
from lasthop.api.meta import Key, Object
from lasthop.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.api.profiles import BackendTLSProfile
from lasthop.api.routes import HTTPRoute
from lasthop.api.telemetry import XTelemetryPolicy
from lasthop.api.verification import PinSetSpec
from lasthop.engine import Engine
from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, SECRET
from lasthop.plan.tls_options import OPTIONS
from tests.random_world import BASE, Edit, ca_content
from tests.snapshot import Snapshot, settle, settled, tls_context
from tests.world import NOW, STORE, crl_pem, key

Objects = dict[Key, Object]
Text = BackendTLSPolicy | RejectedPolicy

EXEMPT = ("passthrough", "udp")
"""Hops in which no policy has a say: the client's own TLS, and what cannot carry any."""


def texts(objects: Objects) -> list[Text]:
    """Every text of every policy: the present one, and the last good one where the present one cannot be read."""
    policies = [obj for obj in objects.values() if isinstance(obj, BackendTLSPolicy | RejectedPolicy)]
    return [*policies, *(obj.last_good for obj in policies if isinstance(obj, RejectedPolicy) and obj.last_good)]


def sections(obj: Text, service: Key) -> list[str]:
    """Which sections of a Service a text names; of one that cannot be read, those that its last good text does not."""
    if obj.metadata.namespace != service.namespace:
        return []
    targets = obj.spec.target_refs if isinstance(obj, BackendTLSPolicy) else obj.targets
    named = [t.section_name for t in targets if t.kind == service.kind and t.name == service.name]
    if isinstance(obj, BackendTLSPolicy) or obj.last_good is None:
        return named
    covered = sections(obj.last_good, service)
    return [section for section in named if section not in covered and "" not in covered]


def named_by_policy(objects: Objects, service: Key, port_name: str) -> list[Text]:
    """Every policy that means this port, in whatever state it is."""
    means = {"", port_name}
    return [obj for obj in texts(objects) if means.intersection(sections(obj, service))]


def winner(policies: list[Text], service: Key, port_name: str) -> Text:
    def rank(obj: Text) -> tuple[Any, ...]:
        specific = port_name in sections(obj, service)
        return (not specific, obj.metadata.creation_timestamp, obj.metadata.namespace, obj.metadata.name)

    return min(policies, key=rank)


def missed(objects: Objects, key: Key, service: Service | ServiceImport) -> list[str]:
    """Ports that policies name and the Service does not have."""
    known = {"", *(port.name for port in service.spec.ports)}
    return [section for obj in texts(objects) for section in sections(obj, key) if section not in known]


def check_clients(objects: Objects, snapshot: Snapshot) -> None:
    """Where a Gateway asks for clients' certificates, nobody comes in without one that a CA it names has signed."""
    for (gateway, type_url, _), resource in snapshot.xds.items():
        obj: Any = objects.get(gateway)
        if type_url != LISTENER or obj is None:
            continue
        listener = listener_pb2.Listener.FromString(resource.body)
        asked = obj.spec.tls.frontend if obj.spec.tls else None
        for_port = {each.port: each.tls for each in asked.per_port} if asked else {}
        tls = for_port.get(listener.address.socket_address.port_value, asked.default if asked else None)
        for chain in listener.filter_chains:
            context = tls_pb2.DownstreamTlsContext()
            https = chain.transport_socket.typed_config.Unpack(context) and "http_connection_manager" in chain.filters[0].name
            if not https or not tls or not tls.validation:
                continue
            found = context.common_tls_context.validation_context
            strict = tls.validation.mode == "AllowValidOnly"
            assert context.require_client_certificate.value == strict
            assert (found.trust_chain_verification == found.VERIFY_TRUST_CHAIN) == strict
            allowed = "".join(_client_ca(objects, gateway, ref) for ref in tls.validation.ca_certificate_refs)
            pem = found.trusted_ca.inline_bytes.decode()
            assert pem.strip(), "no trust anchor"
            assert all(block in allowed for block in pem.split("-----END CERTIFICATE-----\n") if block)
            assert not any(ref.kind == "PinSet" for ref in tls.validation.ca_certificate_refs)


def _client_ca(objects: Objects, gateway: Key, ref: Any) -> str:
    namespace = ref.namespace or gateway.namespace
    grants = [o for k, o in objects.items() if k.kind == "ReferenceGrant" and k.namespace == namespace]
    granted = any(f.kind == "Gateway" and t.kind == ref.kind for o in grants for f in o.spec.from_ for t in o.spec.to)  # type: ignore[attr-defined]
    obj: Any = objects.get(Key(ref.kind, namespace, ref.name))
    if obj is None or (namespace != gateway.namespace and not granted):
        return ""
    return (obj.data.get("ca.crt") or b"").decode() if isinstance(obj, Secret) else str(dict(obj.data).get("ca.crt", ""))


UNSENT = {"connect-failure", "refused-stream", "reset-before-request"}


def check_retries(objects: Objects, snapshot: Snapshot) -> None:
    """What nobody asked to be tried again is tried again only if it was not sent, and there where it was to go."""
    asked = [
        rule.retry.attempts
        for obj in objects.values()
        if isinstance(obj, HTTPRoute)
        for rule in obj.spec.rules
        if rule.retry is not None
    ]
    for (_, type_url, _), resource in snapshot.xds.items():
        if type_url == ROUTES:
            for host in route_pb2.RouteConfiguration.FromString(resource.body).virtual_hosts:
                found = host.retry_policy
                assert set(filter(None, found.retry_on.split(","))) <= UNSENT
                assert not found.retriable_status_codes and not found.HasField("retry_priority")
                own = [route.route.retry_policy for route in host.routes if route.route.HasField("retry_policy")]
                assert all(policy.num_retries.value in asked for policy in own)
    for cluster in snapshot.clusters().values():
        assert cluster.outlier_detection.max_ejection_percent.value <= 50
        assert len(cluster.circuit_breakers.thresholds) == 1 and cluster.circuit_breakers.thresholds[0].HasField(
            "retry_budget"
        )


def check_tracing(objects: Objects, snapshot: Snapshot) -> None:
    """Requests of a Gateway are told to whom the oldest policy of its namespace that names it says, and to nobody else."""
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
            told = otel.grpc_service.envoy_grpc.cluster_name
            assert told.startswith(named) and told.endswith("/h2"), f"{told} is told, and {named} was meant"
            grants = [o for k, o in objects.items() if isinstance(o, ReferenceGrant) and k.namespace == namespace]
            froms = {(f.kind, f.namespace, t.kind) for o in grants for f in o.spec.from_ for t in o.spec.to}
            assert namespace == gateway.namespace or ("XTelemetryPolicy", gateway.namespace, ref.kind) in froms


def check_upgrades(snapshot: Snapshot) -> None:
    """Upgrades pass the filters that requests pass, and all that is told of their connections is the ALPN: never a name."""
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
            told = {each.object_key: each.format_string.text_format_source.inline_string for each in states.on_request_headers}
            assert told == {"envoy.network.application_protocols": "http/1.1", "lasthop.upgrade": "true"}


def _oldest_telemetry_policy(objects: Objects, gateway: Key) -> XTelemetryPolicy | None:
    policies = [o for k, o in objects.items() if isinstance(o, XTelemetryPolicy) and k.namespace == gateway.namespace]
    named = [o for o in policies if any(target.name == gateway.name for target in o.spec.target_refs)]
    return min(named, key=lambda o: (o.metadata.creation_timestamp, o.metadata.name), default=None)


def check(objects: Objects, snapshot: Snapshot, now: datetime = NOW) -> None:
    check_clients(objects, snapshot)
    check_retries(objects, snapshot)
    check_tracing(objects, snapshot)
    check_upgrades(snapshot)
    for (gateway, name), cluster in snapshot.clusters().items():
        *_, kind, namespace, service_name, port, protocol = name.split("/")
        if kind == "XBackend":
            check_xbackend(objects, snapshot, gateway, name, now)
            continue
        service = Key("ServiceImport" if kind == "ServiceImport" else "Service", namespace, service_name)
        obj = objects.get(service)
        assert isinstance(obj, Service | ServiceImport), f"{name} leads to a {service.kind} that does not exist"
        transport = "UDP" if protocol == "udp" else "TCP"
        service_port = next(p for p in obj.spec.ports if p.port == int(port) and p.protocol == transport)
        port_name = service_port.name
        policies = named_by_policy(objects, service, port_name)
        context = tls_context(cluster)
        said = profiles_of(objects, gateway)
        assert not cluster.transport_socket_matches
        means_plaintext = service_port.app_protocol in ("http", "kubernetes.io/h2c")
        denying = {"Deny"} if means_plaintext else {"Deny", "Declared"}
        denied = [p for p in said if p.plaintext_backends in denying]
        if protocol in EXEMPT:
            assert context is None, f"{name} speaks TLS, which is not ours to speak there"
            assert protocol == "passthrough" or not denied, f"{name} cannot be encrypted, and that is denied"
            continue
        if context is None:
            assert not policies, f"{name} is plaintext although {[p.metadata.name for p in policies]} name it"
            assert not denied, f"{name} is plaintext although it is denied"
            assert service_port.app_protocol != "HTTPS", f"{name} is plaintext although its port says TLS"
            astray = missed(objects, service, obj)
            assert means_plaintext or not astray, f"{name} is plaintext although policies name {astray} of its Service"
            continue
        assert policies, f"{name} speaks TLS and no policy asked for it"
        policy = winner(policies, service, port_name)
        assert isinstance(policy, BackendTLSPolicy), "a rejected policy was served"
        check_weakened(snapshot, gateway, name, check_verification(objects, policy, context), said, now)
        check_pinned(context, said)
        check_client_certificate(objects, snapshot, gateway, policy, context, said)
        lowest = context.common_tls_context.tls_params.tls_minimum_protocol_version
        assert all(f"1.{lowest - 1}" >= p.min_tls_version for p in said)


def check_xbackend(objects: Objects, snapshot: Snapshot, gateway: Key, name: str, now: datetime) -> None:
    """The same of an XBackend, which asks for TLS itself."""
    *_, namespace, own_name, port, protocol = name.split("/")
    cluster = snapshot.clusters()[gateway, name]
    backend = objects.get(Key("XBackend", namespace, own_name))
    assert isinstance(backend, XBackend), f"{name} leads to an XBackend that does not exist"
    spec, context, said = backend.spec, tls_context(cluster), profiles_of(objects, gateway)
    assert int(port) == spec.port.number and protocol != "udp"
    if spec.type == "ExternalHostname":
        address = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
        assert (address.address, address.port_value) == ("api.example", 443)
        assert "Deny" not in [spec.external_hostnames for spec in profile_specs(objects, gateway) if spec]
    if context is None:
        assert protocol == "passthrough" or spec.tls.mode == "None", f"{name} is plaintext although it asks for TLS"
        assert protocol == "passthrough" or not [p for p in said if p.plaintext_backends in ("Deny", "Declared")]
        return
    assert spec.tls.mode in ("ServerOnly", "ClientAndServer") and protocol != "passthrough"
    check_weakened(snapshot, gateway, name, check_verification(objects, backend, context), said, now)
    check_pinned(context, said)
    lowest = context.common_tls_context.tls_params.tls_minimum_protocol_version
    assert all(f"1.{lowest - 1}" >= p.min_tls_version for p in said)
    shown = [secret.name.partition("@")[0] for secret in context.common_tls_context.tls_certificate_sds_secret_configs]
    ref = spec.tls.client_certificate_ref
    holder = ref.namespace or namespace if ref else ""
    assert shown == ([f"{holder}/{ref.name}"] if ref and spec.tls.mode == "ClientAndServer" else [])
    if shown and holder != namespace:
        assert grants_xbackend(objects, namespace, holder), f"{name} shows a certificate that it may not have"
    assert secrets_of(context) <= {name for at, type_url, name in snapshot.xds if (at, type_url) == (gateway, SECRET)}


def grants_xbackend(objects: Objects, source: str, into: str) -> bool:
    grants = [obj for obj in objects.values() if isinstance(obj, ReferenceGrant) and obj.metadata.namespace == into]
    froms = [(f.kind, f.namespace) for grant in grants for f in grant.spec.from_ if grant.spec.to[0].kind == "Secret"]
    return ("XBackend", source) in froms


def secrets_of(context: Any) -> set[str]:
    return {secret.name for secret in context.common_tls_context.tls_certificate_sds_secret_configs}


def check_client_certificate(
    objects: Objects, snapshot: Snapshot, gateway: Key, policy: BackendTLSPolicy, context: Any, said: list[BackendTLSProfile]
) -> None:
    """A policy's backends are shown the Gateway's certificate, or one of the policy's own namespace; never another."""
    obj: Any = objects[gateway]
    ref = obj.spec.tls.backend.client_certificate_ref if obj.spec.tls and obj.spec.tls.backend else None
    own = f"{ref.namespace or gateway.namespace}/{ref.name}" if ref else ""
    name = dict(policy.spec.options).get("lasthop.dev/client-certificate", "")
    named = f"{policy.metadata.namespace}/{name}" if name else ""
    first = "GatewayFirst" in [p.client_certificate for p in said]
    wanted = (own or named) if first else (named or own)
    assert [each.partition("@")[0] for each in secrets_of(context)] == ([wanted] if wanted else [])
    assert secrets_of(context) <= {name for at, type_url, name in snapshot.xds if (at, type_url) == (gateway, SECRET)}


def check_pinned(context: Any, said: list[BackendTLSProfile]) -> None:
    """Pins alone have effect only where the operator does not deny them."""
    found = context.common_tls_context.validation_context
    pinned = found.verify_certificate_spki or found.verify_certificate_hash
    assert not pinned or found.HasField("trusted_ca") or "Deny" not in [p.pinned_only for p in said]


def check_weakened(
    snapshot: Snapshot, gateway: Key, name: str, waiver: Any, said: list[BackendTLSProfile], now: datetime
) -> None:
    """A waiver has effect only where the operator allows it, and only until its end."""
    expires = None
    if waiver is not None:
        assert [p for p in said if p.waivers == "Allow"], f"{name} is weakened and nobody allowed it"
        assert not [p for p in said if p.waivers == "Deny"], f"{name} is weakened although it is denied"
        expires = datetime.fromisoformat(waiver.spec.expires) if waiver.spec.expires else None
        assert expires is None or expires > now, f"{name} is weakened by a waiver that is over"
        for limit in [p.max_waiver_days for p in said if p.max_waiver_days]:
            created = datetime.fromisoformat(waiver.metadata.creation_timestamp)
            assert expires and created <= now and expires <= created + timedelta(days=limit)
    assert snapshot.xds[gateway, CLUSTER, name].expires == (expires.timestamp() if expires else None)


STRICTEST = BackendTLSProfile(
    waivers="Deny", client_certificate="GatewayFirst", plaintext_backends="Deny", pinned_only="Deny", min_tls_version="1.3"
)


def profiles_of(objects: Objects, gateway: Key) -> list[BackendTLSProfile]:
    """What operators say of this Gateway; where a profile is named and not there, nothing may be taken for permitted."""
    return [spec.backend_tls if spec else STRICTEST for spec in profile_specs(objects, gateway)]


def profile_specs(objects: Objects, gateway: Key) -> list[Any]:
    """None for one that is named and not there."""
    obj: Any = objects[gateway]
    gateway_class: Any = objects[Key("GatewayClass", "", obj.spec.gateway_class_name)]
    of_class, own = gateway_class.spec.parameters_ref, obj.spec.infrastructure and obj.spec.infrastructure.parameters_ref
    keys = [Key("GatewayProfile", of_class.namespace, of_class.name)] if of_class else []
    keys += [Key("GatewayProfile", gateway.namespace, own.name)] if own else []
    found: list[Any] = [objects.get(key) for key in keys]
    return [profile.spec if profile else None for profile in found]


def check_verification(objects: Objects, policy: Any, context: Any) -> Any:
    """What is checked is what the policy or XBackend asks for, and never less but for a waiver, which is returned."""
    validation: Any = (policy.spec.tls if isinstance(policy, XBackend) else policy.spec).validation
    refs = validation.ca_certificate_refs
    ours: dict[str, list[Any]] = {"PinSet": [], "VerificationWaiver": [], "WellKnownCACertificates": []}
    for ref in refs:
        assert ref.kind in {"ConfigMap", "Secret", "ClusterTrustBundle", *ours}
        if ref.kind in ours:
            ours[ref.kind].append(objects.get(Key(ref.kind, policy.metadata.namespace, ref.name)))
    pins, waivers = ours["PinSet"], ours["VerificationWaiver"]
    assert None not in pins + waivers, "served, though something that it names is not there"
    assert len(pins) <= 1 and len(waivers) <= 1
    waives = waivers[0].spec.waives if waivers else ""
    known = {f"lasthop.dev/{option.name}": set(option.values) for option in OPTIONS}
    for name, value in getattr(policy.spec, "options", ()):
        if name != "lasthop.dev/client-certificate" and name.startswith("lasthop.dev/"):
            assert set(value.split(",")) <= known[name], "served, though an option is wrong"
    assert context.sni == validation.hostname
    if not context.common_tls_context.HasField("validation_context"):
        assert waives == "All" and len(refs) == 1 and not validation.subject_alt_names
        return waivers[0]
    assert waives != "All"
    found = context.common_tls_context.validation_context
    assert found.trust_chain_verification == common_pb2.CertificateValidationContext.VERIFY_TRUST_CHAIN
    assert not found.HasField("system_root_certs")
    assert found.allow_expired_certificate == (waives == "Expiry")
    spec = pins[0].spec if pins else PinSetSpec()
    pins_only = bool(pins) and not (spec.certificates or spec.ca_certificate_refs or spec.well_known_ca_certificates)
    names = 0 if waives == "Names" or pins_only else max(1, len(validation.subject_alt_names))
    assert len(found.match_typed_subject_alt_names) == names
    assert names or not validation.subject_alt_names
    shown = {base64.b64decode(pin).hex() for pin in found.verify_certificate_spki}
    assert shown == {_hex(pin.value) for pin in spec.pins}
    assert set(found.verify_certificate_hash) == {_fingerprint(pem) for pem in spec.certificates}
    if pins:
        assert shown or found.verify_certificate_hash
        assert {ref.kind for ref in refs} <= {"PinSet", "VerificationWaiver"}
    if pins_only:
        assert not found.HasField("trusted_ca") and not waivers
    elif ours["WellKnownCACertificates"] or spec.well_known_ca_certificates or validation.well_known_ca_certificates:
        assert found.trusted_ca.filename == STORE.path
    else:
        cas = spec.ca_certificate_refs if pins else [ref for ref in refs if ref.kind not in ours]
        allowed = "".join(_ca_of(objects, policy, ref) for ref in cas) if cas else "".join(spec.certificates)
        pem = found.trusted_ca.inline_bytes.decode()
        assert pem.strip(), "no trust anchor"
        assert all(block in allowed for block in pem.split("-----END CERTIFICATE-----\n") if block)
        assert "PRIVATE KEY" not in pem
        lists = [crl for ref in cas if (crl := _crl_of(objects, policy, ref, waives)) is not None]
        assert set(lists) <= {crl_pem("good")}, "served, though a revocation list cannot be used"
        assert found.crl.inline_bytes.decode() == "".join(sorted(set(lists))), "a revocation list is not enforced"
    return waivers[0] if waivers else None


def _hex(value: str) -> str:
    return base64.b64decode(value).hex() if value.endswith("=") else value.replace(":", "").lower()


def _fingerprint(pem: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _ca_of(objects: Objects, policy: Object, ref: Any) -> str:
    """Only from the policy's own namespace, only ca.crt."""
    namespace = "" if ref.kind == "ClusterTrustBundle" else policy.metadata.namespace
    obj: Any = objects.get(Key(ref.kind, namespace, ref.name))
    if obj is None:
        return ""
    if isinstance(obj, Secret):
        return (obj.data.get("ca.crt") or b"").decode()
    return str(obj.spec.trust_bundle) if ref.kind == "ClusterTrustBundle" else str(dict(obj.data).get("ca.crt", ""))


def _crl_of(objects: Objects, policy: Object, ref: Any, waives: str) -> str | None:
    obj: Any = objects.get(Key(ref.kind, policy.metadata.namespace, ref.name)) if ref.kind == "ConfigMap" else None
    # Beside a CA that is left out, its list is, too; an unusable list never is.
    kinds = ("good", "other", *(("expired", "early") if waives == "Expiry" else ()))
    left_out = obj is None or dict(obj.data).get("ca.crt") not in map(ca_content, kinds)
    return None if left_out else dict(obj.data).get("ca.crl")


def walk(edits: list[Edit]) -> tuple[Objects, Engine, Snapshot]:
    objects: Objects = {k: v for k, v in BASE.items() if v is not None}
    engine, snapshot = settled(BASE, store=STORE)
    check(objects, snapshot)
    for obj, delete, look in edits:
        engine.apply({key(obj): None if delete else obj})
        objects.pop(key(obj), None)
        if not delete:
            objects[key(obj)] = obj
        if look:
            settle(engine, snapshot)
            check(objects, snapshot)
    settle(engine, snapshot)
    return objects, engine, snapshot
