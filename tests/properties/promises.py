"""Checks the promises about the final xDS, derived from the objects.

The oracle reads the objects with naive code of its own, and shares no code with `resolve`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import ssl
from datetime import datetime, timedelta
from typing import Any

from envoy.extensions.transport_sockets.tls.v3 import common_pb2

from lasthop.base.api.backends import XBackend
from lasthop.base.api.core import Secret, Service, ServiceImport
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.base.api.profiles import BackendTLSProfile
from lasthop.base.api.verification import PinSetSpec
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, SECRET
from lasthop.engine.plan.tls_options import OPTIONS
from tests.properties.gateway_promises import (
    Objects,
    check_clients,
    check_keys,
    check_retries,
    check_revocation,
    check_tracing,
    check_upgrades,
    granted,
    secrets_of,
)
from tests.random_world import APP_PROTOCOLS, BASE, WEAK_CA, Edit
from tests.snapshot import Prepared, Snapshot, settle, tls_context
from tests.world import NOW, STORE, key

Text = BackendTLSPolicy | RejectedPolicy

EXEMPT = ("passthrough", "udp")
"""Hops without policies: the client's own TLS, and protocols that cannot carry TLS."""


def texts(objects: Objects) -> list[Text]:
    """Every text of every policy: the present one, and the last good one where the present one cannot be read."""
    policies = [obj for obj in objects.values() if isinstance(obj, BackendTLSPolicy | RejectedPolicy)]
    return [*policies, *(obj.last_good for obj in policies if isinstance(obj, RejectedPolicy) and obj.last_good)]


def sections(obj: Text, service: Key) -> list[str]:
    """Returns the sections of a Service that a text names; for an unreadable text, only those that its last good text does not
    name."""
    if obj.metadata.namespace != service.namespace:
        return []
    targets = obj.spec.target_refs if isinstance(obj, BackendTLSPolicy) else obj.targets
    named = [t.section_name for t in targets if t.kind == service.kind and t.name == service.name]
    if isinstance(obj, BackendTLSPolicy) or obj.last_good is None:
        return named
    covered = sections(obj.last_good, service)
    return [section for section in named if section not in covered and "" not in covered]


def named_by_policy(objects: Objects, service: Key, port_name: str) -> list[Text]:
    """Yields every policy that names this port, valid or not."""
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


def check(objects: Objects, snapshot: Snapshot, now: datetime = NOW) -> None:
    check_clients(objects, snapshot)
    check_retries(objects, snapshot)
    check_tracing(objects, snapshot)
    check_keys(objects, snapshot)
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
        profiles = profiles_of(objects, gateway)
        assert not cluster.transport_socket_matches
        means_plaintext = service_port.app_protocol in APP_PROTOCOLS["plaintext"]
        denying = {"Deny"} if means_plaintext else {"Deny", "Declared"}
        denied = [p for p in profiles if p.plaintext_backends in denying]
        if protocol in EXEMPT:
            assert context is None, f"{name} speaks TLS, which is not ours to speak there"
            assert protocol == "passthrough" or not denied, f"{name} cannot be encrypted, and that is denied"
            continue
        if context is None:
            assert not policies, f"{name} is plaintext although {[p.metadata.name for p in policies]} name it"
            assert not denied, f"{name} is plaintext although it is denied"
            assert service_port.app_protocol not in APP_PROTOCOLS["TLS"], f"{name} is plaintext although its port says TLS"
            astray = missed(objects, service, obj)
            assert means_plaintext or not astray, f"{name} is plaintext although policies name {astray} of its Service"
            continue
        assert policies, f"{name} speaks TLS and no policy asked for it"
        policy = winner(policies, service, port_name)
        assert isinstance(policy, BackendTLSPolicy), "a rejected policy was served"
        check_weakened(snapshot, gateway, name, check_verification(objects, policy, context), profiles, now)
        check_pinned(context, profiles)
        check_strong(context, profiles)
        check_client_certificate(objects, snapshot, gateway, policy, context, profiles)
        lowest = context.common_tls_context.tls_params.tls_minimum_protocol_version
        assert all(f"1.{lowest - 1}" >= p.min_tls_version for p in profiles)


def check_xbackend(objects: Objects, snapshot: Snapshot, gateway: Key, name: str, now: datetime) -> None:
    """The same for an XBackend, which configures TLS itself."""
    *_, namespace, own_name, port, protocol = name.split("/")
    cluster = snapshot.clusters()[gateway, name]
    backend = objects.get(Key("XBackend", namespace, own_name))
    assert isinstance(backend, XBackend), f"{name} leads to an XBackend that does not exist"
    spec, context, profiles = backend.spec, tls_context(cluster), profiles_of(objects, gateway)
    assert int(port) == spec.port.number and protocol != "udp"
    if spec.type == "ExternalHostname":
        address = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
        assert (address.address, address.port_value) == ("api.example", 443)
        assert "Deny" not in [spec.external_hostnames for spec in profile_specs(objects, gateway) if spec]
    if context is None:
        assert protocol == "passthrough" or spec.tls.mode == "None", f"{name} is plaintext although it asks for TLS"
        assert protocol == "passthrough" or not [p for p in profiles if p.plaintext_backends in ("Deny", "Declared")]
        return
    assert spec.tls.mode in ("ServerOnly", "ClientAndServer") and protocol != "passthrough"
    check_weakened(snapshot, gateway, name, check_verification(objects, backend, context), profiles, now)
    check_pinned(context, profiles)
    check_strong(context, profiles)
    lowest = context.common_tls_context.tls_params.tls_minimum_protocol_version
    assert all(f"1.{lowest - 1}" >= p.min_tls_version for p in profiles)
    shown = [secret.name.partition("@")[0] for secret in context.common_tls_context.tls_certificate_sds_secret_configs]
    ref = spec.tls.client_certificate_ref
    holder = ref.namespace or namespace if ref else ""
    assert shown == ([f"{holder}/{ref.name}"] if ref and spec.tls.mode == "ClientAndServer" else [])
    if shown and holder != namespace:
        assert granted(objects, "XBackend", namespace, holder, "Secret"), f"{name} shows a certificate that it may not have"
    assert secrets_of(context) <= {name for at, type_url, name in snapshot.xds if (at, type_url) == (gateway, SECRET)}


def check_client_certificate(
    objects: Objects,
    snapshot: Snapshot,
    gateway: Key,
    policy: BackendTLSPolicy,
    context: Any,
    profiles: list[BackendTLSProfile],
) -> None:
    """Envoy presents the Gateway's certificate to a policy's backends, or one of the policy's namespace; never another."""
    obj: Any = objects[gateway]
    ref = obj.spec.tls.backend.client_certificate_ref if obj.spec.tls and obj.spec.tls.backend else None
    own = f"{ref.namespace or gateway.namespace}/{ref.name}" if ref else ""
    name = dict(policy.spec.options).get("lasthop.dev/client-certificate", "")
    named = f"{policy.metadata.namespace}/{name}" if name else ""
    first = "GatewayFirst" in [p.client_certificate for p in profiles]
    wanted = (own or named) if first else (named or own)
    assert [secret.partition("@")[0] for secret in secrets_of(context)] == ([wanted] if wanted else [])
    if ref and wanted == own and ref.namespace not in ("", gateway.namespace):
        assert granted(objects, "Gateway", gateway.namespace, ref.namespace, "Secret"), f"{own} is another namespace's"
    assert secrets_of(context) <= {name for at, type_url, name in snapshot.xds if (at, type_url) == (gateway, SECRET)}


def check_pinned(context: Any, profiles: list[BackendTLSProfile]) -> None:
    """Pins alone have effect only where the operator does not deny them."""
    validation = context.common_tls_context.validation_context
    pinned = validation.verify_certificate_spki or validation.verify_certificate_hash
    assert not pinned or validation.HasField("trusted_ca") or "Deny" not in [p.pinned_only for p in profiles]


def check_strong(context: Any, profiles: list[BackendTLSProfile]) -> None:
    """A CA whose key is below today's floor is trusted only where the operator does not deny it."""
    pem = context.common_tls_context.validation_context.trusted_ca.inline_bytes.decode()
    assert WEAK_CA not in pem or "Deny" not in [p.weak_certificates for p in profiles]


def check_weakened(
    snapshot: Snapshot, gateway: Key, name: str, waiver: Any, profiles: list[BackendTLSProfile], now: datetime
) -> None:
    """A waiver has effect only where the operator allows it, and only until its end."""
    expires = None
    if waiver is not None:
        assert [p for p in profiles if p.waivers == "Allow"], f"{name} is weakened and nobody allowed it"
        assert not [p for p in profiles if p.waivers == "Deny"], f"{name} is weakened although it is denied"
        expires = datetime.fromisoformat(waiver.spec.expires) if waiver.spec.expires else None
        assert expires is None or expires > now, f"{name} is weakened by a waiver that is over"
        for limit in [p.max_waiver_days for p in profiles if p.max_waiver_days]:
            created = datetime.fromisoformat(waiver.metadata.creation_timestamp)
            assert expires and created <= now and expires <= created + timedelta(days=limit)
    assert snapshot.xds[gateway, CLUSTER, name].expires == (expires.timestamp() if expires else None)


STRICTEST = BackendTLSProfile(
    waivers="Deny",
    client_certificate="GatewayFirst",
    plaintext_backends="Deny",
    pinned_only="Deny",
    weak_certificates="Deny",
    min_tls_version="1.3",
)


def profiles_of(objects: Objects, gateway: Key) -> list[BackendTLSProfile]:
    """Returns the operator's rules for this Gateway; with a missing profile, nothing is permitted."""
    return [spec.backend_tls if spec else STRICTEST for spec in profile_specs(objects, gateway)]


def profile_specs(objects: Objects, gateway: Key) -> list[Any]:
    """Returns the specs of the named GatewayProfiles; None for each that does not exist."""
    obj: Any = objects[gateway]
    gateway_class: Any = objects[Key("GatewayClass", "", obj.spec.gateway_class_name)]
    of_class, own = gateway_class.spec.parameters_ref, obj.spec.infrastructure and obj.spec.infrastructure.parameters_ref
    keys = [Key("GatewayProfile", of_class.namespace, of_class.name)] if of_class else []
    keys += [Key("GatewayProfile", gateway.namespace, own.name)] if own else []
    profiles: list[Any] = [objects.get(key) for key in keys]
    return [profile.spec if profile else None for profile in profiles]


def check_verification(objects: Objects, policy: Any, context: Any) -> Any:
    """Checks that the context verifies everything that the policy or XBackend requires. Only a waiver, which is returned, may
    reduce it."""
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
    validation_context = context.common_tls_context.validation_context
    assert validation_context.trust_chain_verification == common_pb2.CertificateValidationContext.VERIFY_TRUST_CHAIN
    assert not validation_context.HasField("system_root_certs")
    assert validation_context.allow_expired_certificate == (waives == "Expiry")
    spec = pins[0].spec if pins else PinSetSpec()
    pins_only = bool(pins) and not (spec.certificates or spec.ca_certificate_refs or spec.well_known_ca_certificates)
    names = 0 if waives == "Names" or pins_only else max(1, len(validation.subject_alt_names))
    assert len(validation_context.match_typed_subject_alt_names) == names
    assert names or not validation.subject_alt_names
    shown = {base64.b64decode(pin).hex() for pin in validation_context.verify_certificate_spki}
    assert shown == {_hex(pin.value) for pin in spec.pins}
    assert set(validation_context.verify_certificate_hash) == {_fingerprint(pem) for pem in spec.certificates}
    if pins:
        assert shown or validation_context.verify_certificate_hash
        assert {ref.kind for ref in refs} <= {"PinSet", "VerificationWaiver"}
    if pins_only:
        assert not validation_context.HasField("trusted_ca") and not waivers
    elif ours["WellKnownCACertificates"] or spec.well_known_ca_certificates or validation.well_known_ca_certificates:
        assert validation_context.trusted_ca.filename == STORE.path
    else:
        cas = spec.ca_certificate_refs if pins else [ref for ref in refs if ref.kind not in ours]
        allowed = "".join(_ca_of(objects, policy, ref) for ref in cas) if cas else "".join(spec.certificates)
        pem = validation_context.trusted_ca.inline_bytes.decode()
        assert pem.strip(), "no trust anchor"
        assert all(block in allowed for block in pem.split("-----END CERTIFICATE-----\n") if block)
        assert "PRIVATE KEY" not in pem
        trusted = [objects.get(Key(ref.kind, policy.metadata.namespace, ref.name)) for ref in cas]
        check_revocation(validation_context, trusted, waives)
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


PREPARED = Prepared(BASE, STORE)


@functools.cache
def _checked(base: Prepared) -> Objects:
    objects: Objects = {k: v for k, v in base.objects.items() if v is not None}
    check(objects, base()[1])
    return objects


def walk(edits: list[Edit], base: Prepared = PREPARED) -> tuple[Objects, Engine, Snapshot]:
    objects = dict(_checked(base))
    engine, snapshot = base()
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
