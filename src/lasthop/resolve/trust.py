"""Where trust comes from: the objects that `caCertificateRefs` may name, and the system store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, cast

import msgspec

from lasthop.api.core import ClusterTrustBundle, ConfigMap, Secret
from lasthop.api.meta import Key
from lasthop.api.policies import LocalObjectReference
from lasthop.plan import reasons
from lasthop.plan.tls import SystemStore
from lasthop.resolve.certificates import SOON, Anchor, BadCertificate, Bundle, parse_bundle
from lasthop.resolve.settings import SYSTEM_STORE
from lasthop.store.graph import Graph
from lasthop.store.store import read

CA_KEY: Final = "ca.crt"
CA_KINDS: Final = {("", "ConfigMap"), ("", "Secret"), ("certificates.k8s.io", "ClusterTrustBundle")}
KNOWN_CA_KINDS: Final = "ConfigMap, Secret or certificates.k8s.io ClusterTrustBundle"
SYSTEM: Final = LocalObjectReference("lasthop.dev", "WellKnownCACertificates", "System")
"""No object: the system store, where it must stand in a list. Means the same as `wellKnownCACertificates: System`."""


class BadRef(msgspec.Struct, frozen=True):
    reason: str
    message: str


class RefState(msgspec.Struct, frozen=True):
    """What a policy needs to know of a CA reference besides its bytes, so that a rotation does not wake its status."""

    problem: BadRef | None = None
    warnings: tuple[str, ...] = ()


def system_store(g: Graph) -> SystemStore | None:
    return cast("SystemStore | None", g.input(SYSTEM_STORE))


def bundle(g: Graph, namespace: str, ref: LocalObjectReference) -> Bundle | BadRef:
    """The anchors that a reference gives, all of them; expiry is looked at in `ref_state`."""
    where, pem = _content(g, namespace, ref)
    if pem is None:
        return BadRef(reasons.INVALID_CA_CERTIFICATE_REF, where)
    try:
        return parse_bundle(pem)
    except BadCertificate as error:
        return BadRef(reasons.INVALID_CA_CERTIFICATE_REF, f"{where} {error}")


def _content(g: Graph, namespace: str, ref: LocalObjectReference) -> tuple[str, bytes | None]:
    """(what is read, its bytes), or (what is wrong, None). From a Secret only ca.crt is ever read."""
    if ref.kind == "ClusterTrustBundle":
        trust_bundle = read(g, Key(ref.kind, "", ref.name), ClusterTrustBundle)
        if trust_bundle is None:
            return f"ClusterTrustBundle {ref.name} does not exist", None
        return f"spec.trustBundle of ClusterTrustBundle {ref.name}", trust_bundle.spec.trust_bundle.encode()
    place = f"{ref.kind} {namespace}/{ref.name}"
    content: bytes | None = None
    if ref.kind == "Secret":
        secret = read(g, Key(ref.kind, namespace, ref.name), Secret)
        found, content = secret is not None, secret.data.get(CA_KEY) if secret else None
    else:
        config_map = read(g, Key(ref.kind, namespace, ref.name), ConfigMap)
        found = config_map is not None
        text = dict(config_map.data).get(CA_KEY) if config_map else None
        content = text.encode() if text is not None else None
    if not found:
        return f"{place} does not exist", None
    if content is None:
        return f"{place} has no key {CA_KEY}", None
    return f"{CA_KEY} of {place}", content


def ref_state(g: Graph, namespace: str, ref: LocalObjectReference) -> RefState:
    found = g(bundle, namespace, ref)
    if isinstance(found, BadRef):
        return RefState(found)
    expired, warnings = dates(g, found.anchors, f"{ref.kind} {ref.name}", "CA")
    return RefState(BadRef(reasons.EXPIRED_CERTIFICATE, expired) if expired else None, warnings)


def dates(g: Graph, anchors: tuple[Anchor, ...], place: str, what: str) -> tuple[str, tuple[str, ...]]:
    """That all of them have expired, or nothing; and what to say of some."""
    expired = [a for a in anchors if not g.before(a.not_after)]
    if len(expired) == len(anchors):
        last = max(expired, key=lambda a: a.not_after)
        return f"every certificate of {place} has expired, the last ({last.subject}) on {day(last.not_after)}", ()
    warnings = [f"{what} {a.subject} in {place} expired on {day(a.not_after)}" for a in expired]
    for anchor in anchors:
        if anchor not in expired and not g.before(anchor.not_after - SOON.total_seconds()):
            warnings.append(f"{what} {anchor.subject} in {place} expires on {day(anchor.not_after)}")
    return "", tuple(warnings)


def day(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d")
