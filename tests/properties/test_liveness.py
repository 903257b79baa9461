"""Valid and permitted objects are served. The other promises are prohibitions, which a Lasthop that refuses everything would
keep.

The oracle is naive and knows only the plain cases: a hop that some route or chain names, to a port that no policy of its
Service concerns, or that one plainly good policy rules.
"""

from __future__ import annotations

from typing import Any

from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from hypothesis import given

from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import MULTICLUSTER_API
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES
from tests.examples import slow
from tests.properties.gateway_promises import Objects
from tests.properties.promises import profiles_of, texts, walk
from tests.random_world import APP_PROTOCOLS, EDITS, Edit
from tests.snapshot import Snapshot, tls_context
from tests.world import PINS, ca_pem, key_pair

OF_POLICIES = ("auto", "h1-upgrade", "h2", "tcp")
"""Protocols of hops that policies concern."""
GOOD_CA = ca_pem("good")


def named_hops(snapshot: Snapshot) -> set[tuple[Key, str]]:
    """Returns the hops to Services that route tables or filter chains use."""
    hops: set[tuple[Key, str]] = set()
    for (gateway, type_url, _), resource in snapshot.xds.items():
        if type_url == ROUTES:
            for host in route_pb2.RouteConfiguration.FromString(resource.body).virtual_hosts:
                for route in host.routes:
                    action = route.route
                    names = [action.cluster, *(c.name for c in action.weighted_clusters.clusters)]
                    hops |= {(gateway, name) for name in names}
        elif type_url == LISTENER:
            for chain in listener_pb2.Listener.FromString(resource.body).filter_chains:
                for filter in chain.filters:
                    proxy = tcp_proxy_pb2.TcpProxy()
                    if filter.typed_config.Is(proxy.DESCRIPTOR):
                        filter.typed_config.Unpack(proxy)
                        names = [proxy.cluster, *(c.name for c in proxy.weighted_clusters.clusters)]
                        hops |= {(gateway, name) for name in names}
    return {(gw, name) for gw, name in hops if name.rpartition("/")[2] in OF_POLICIES and "/XBackend/" not in name}


def expected(objects: Objects, gateway: Key, name: str) -> str | None:
    """Returns the expected connection of a hop: "plaintext", or the SNI of its policy; None for ambiguous cases."""
    *_, kind, namespace, service_name, port, _ = name.split("/")
    group, kind = (MULTICLUSTER_API, kind) if kind == "ServiceImport" else ("", "Service")
    service = objects.get(Key(kind, namespace, service_name))
    served = service.spec.ports if isinstance(service, AnyService) else ()
    ports = [p for p in served if p.port == int(port) and p.protocol == "TCP"]
    owner: Any = objects[gateway]
    rules = profiles_of(objects, gateway)
    if not ports or not can_show_a_certificate(objects, owner) or any(rule.min_tls_version == "1.3" for rule in rules):
        return None
    concerned = [
        (obj, target)
        for obj in texts(objects)
        if obj.metadata.namespace == namespace
        for target in (obj.spec.target_refs if isinstance(obj, BackendTLSPolicy) else obj.targets)
        if (target.group, target.kind, target.name) == (group, kind, service_name)
    ]
    # A section that names no port concerns them all: it may be a typo.
    names = {p.name for p in served}
    if not [
        obj for obj, target in concerned if target.section_name in ("", ports[0].name) or target.section_name not in names
    ]:
        denied = any(rule.plaintext_backends == "Deny" for rule in rules) or ports[0].app_protocol in APP_PROTOCOLS["TLS"]
        return None if denied else "plaintext"
    by_section = [obj for obj, target in concerned if target.section_name == ports[0].name]
    rivals = by_section or [obj for obj, target in concerned if not target.section_name]
    # A text that was rejected does not stand against the last good one of the same policy.
    good = {obj.metadata.name for obj in rivals if isinstance(obj, BackendTLSPolicy)}
    rivals = [obj for obj in rivals if isinstance(obj, BackendTLSPolicy) or obj.metadata.name not in good]
    if not rivals:
        return None
    oldest = min(rivals, key=lambda obj: (obj.metadata.creation_timestamp, obj.metadata.name))
    return (
        oldest.spec.validation.hostname
        if isinstance(oldest, BackendTLSPolicy) and plainly_good(objects, oldest, rules)
        else None
    )


def can_show_a_certificate(objects: Objects, gateway: Any) -> bool:
    """Reports whether the Gateway names no client certificate, or a good one of its own namespace."""
    backend = gateway.spec.tls.backend if gateway.spec.tls else None
    ref = backend.client_certificate_ref if backend else None
    if ref is None:
        return True
    secret: Any = objects.get(Key("Secret", gateway.metadata.namespace, ref.name))
    shown = [secret.data.get(name).decode() for name in ("tls.crt", "tls.key")] if secret else []
    return not ref.namespace and shown == list(key_pair(ref.name))


def plainly_good(objects: Objects, policy: BackendTLSPolicy, rules: list[Any]) -> bool:
    """A CA that holds the one good certificate, beside it at most a waiver of names that is permitted without a limit; or
    a PinSet that holds one good pin and nothing else."""
    validation, options = policy.spec.validation, policy.spec.options
    if validation.hostname[0].isdigit() or validation.subject_alt_names or any("lasthop.dev/" in key for key, _ in options):
        return False
    refs = {ref.kind: ref for ref in validation.ca_certificate_refs}
    if len(refs) != len(validation.ca_certificate_refs) or not refs:
        return False
    held: dict[str, Any] = {kind: objects.get(Key(kind, policy.metadata.namespace, ref.name)) for kind, ref in refs.items()}
    if held.keys() == {"PinSet"} and held["PinSet"]:
        spec = held["PinSet"].spec
        return [pin.value for pin in spec.pins] == [PINS[0]] and not (
            spec.certificates or spec.ca_certificate_refs or spec.well_known_ca_certificates
        )
    ca, waiver = held.pop("ConfigMap", None), held.pop("VerificationWaiver", None)
    waiver_is_good = "VerificationWaiver" not in refs or (
        waiver is not None
        and waiver.spec.waives == "Names"
        and not waiver.spec.expires
        and [rule.waivers for rule in rules] == ["Allow"] * max(1, len(rules))
        and not any(rule.max_waiver_days for rule in rules)
    )
    return not held and ca is not None and dict(ca.data).get("ca.crt") == GOOD_CA and waiver_is_good


def unserved(objects: Objects, snapshot: Snapshot) -> tuple[int, list[str]]:
    """Returns the number of hops with an expectation, and those that differ from it."""
    known, missing = 0, []
    clusters = snapshot.clusters()
    for gateway, name in sorted(named_hops(snapshot)):
        wanted = expected(objects, gateway, name)
        if wanted is None:
            continue
        known += 1
        cluster = clusters.get((gateway, name))
        context = tls_context(cluster) if cluster is not None else None
        if cluster is None or (context.sni if context is not None else "plaintext") != wanted:
            missing.append(f"{name} is to be {wanted}, and is {'absent' if cluster is None else context}")
    return known, missing


@slow(150)
@given(EDITS)
def test_valid_and_permitted_objects_are_served(edits: list[Edit]) -> None:
    objects, _, snapshot = walk(edits)
    assert unserved(objects, snapshot)[1] == []


def test_the_oracle_finds_served_hops() -> None:
    objects, _, snapshot = walk([])
    known, missing = unserved(objects, snapshot)
    assert (known >= 10, missing) == (True, [])
    policed = {name for gateway, name in named_hops(snapshot) if expected(objects, gateway, name) == "api.example"}
    assert {"a/g0/a/s0/443/auto", "a/g0/a/s1/443/auto"} <= policed
