"""Reads trust anchors: the objects that `caCertificateRefs` may name, and the system store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from lasthop.base.api.core import CA_KEY, CRL_KEY, ClusterTrustBundle, ConfigMap, Secret
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.base.pki.parse import Anchor
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid_ca_certificate_ref, lacking, not_found
from lasthop.engine.resolve.trust.certificates import (
    SOON,
    BadCertificate,
    BadRevocationList,
    Bundle,
    KeyPair,
    key_pair,
    parse_bundle,
)
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

SHOWN: Final = 3
"""CAs that a message names."""
CRL_SOON: Final = 2 * 86400.0
"""Warning period before a revocation list's next update. Most CAs issue lists weekly or daily."""
CA_KINDS: Final = {("", "ConfigMap"), ("", "Secret"), ("certificates.k8s.io", "ClusterTrustBundle")}
KNOWN_CA_KINDS: Final = "ConfigMap, Secret or certificates.k8s.io ClusterTrustBundle"
SYSTEM: Final = LocalObjectReference("lasthop.dev", "WellKnownCACertificates", "System")
"""A virtual reference to the system store, equivalent to `wellKnownCACertificates: System`."""

OUT_OF_DATE: Final = frozenset({reasons.EXPIRED_CERTIFICATE, reasons.NOT_YET_VALID_CERTIFICATE})
"""Problems that a waiver of Expiry waives."""


class RefState(msgspec.Struct, frozen=True):
    """The problem and the warnings of a CA reference."""

    problem: Problem | None = None
    warnings: tuple[str, ...] = ()


FINE: Final = RefState()


@query
def bundle(g: Graph, namespace: str, ref: LocalObjectReference) -> Bundle | Problem:
    """Returns all anchors of a reference; `ref_state` checks their dates."""
    content = _content(g, namespace, ref)
    if isinstance(content, Problem):
        return content
    field, key, pem, crl = content
    try:
        return parse_bundle(pem, crl)
    except BadRevocationList as error:
        remedy = f"put the CA's current CRL there as PEM, or remove the key {CRL_KEY}"
        return Problem(reasons.INVALID_REVOCATION_LIST, f"{CRL_KEY} of {key} {error}", remedy=remedy, about=(key,))
    except BadCertificate as error:
        return invalid_ca_certificate_ref(f"{field} of {key} {error}", key)


def _content(g: Graph, namespace: str, ref: LocalObjectReference) -> tuple[str, Key, bytes, bytes | None] | Problem:
    """Returns (field, object, certificates, revocation lists), or the problem. Only ca.crt and ca.crl of a Secret are read."""
    if ref.kind == "ClusterTrustBundle":
        key = Key(ref.kind, "", ref.name)
        trust_bundle = read(g, key, ClusterTrustBundle)
        if trust_bundle is None:
            return not_found(reasons.INVALID_CA_CERTIFICATE_REF, key)
        return "spec.trustBundle", key, trust_bundle.spec.trust_bundle.encode(), None
    key = Key(ref.kind, namespace, ref.name)
    content = crl = None
    if ref.kind == "Secret":
        secret = read(g, key, Secret)
        exists = secret is not None
        content, crl = (secret.data.get(CA_KEY), secret.data.get(CRL_KEY)) if secret else (None, None)
    else:
        config_map = read(g, key, ConfigMap)
        exists = config_map is not None
        texts = dict(config_map.data) if config_map else {}
        content, crl = (texts[key].encode() if key in texts else None for key in (CA_KEY, CRL_KEY))
    if not exists:
        return not_found(reasons.INVALID_CA_CERTIFICATE_REF, key)
    if content is None:
        return lacking(reasons.INVALID_CA_CERTIFICATE_REF, key, f"key {CA_KEY}")
    return CA_KEY, key, content, crl


def revokes(g: Graph, namespace: str, ref: LocalObjectReference) -> bool:
    """Returns whether a reference has a revocation list, even an invalid one. Such a reference is never omitted, because
    another reference may contain the same CA without a list."""
    key = Key(ref.kind, namespace, ref.name)
    match ref.kind:
        case "ConfigMap":
            config_map = read(g, key, ConfigMap)
            return config_map is not None and CRL_KEY in dict(config_map.data)
        case "Secret":
            secret = read(g, key, Secret)
            return secret is not None and secret.data.get(CRL_KEY) is not None
    return False


def ref_state(g: Graph, namespace: str, ref: LocalObjectReference) -> RefState:
    """Returns the problem and the warnings of a reference."""
    ca_bundle = bundle(g, namespace, ref)
    if isinstance(ca_bundle, Problem):
        return RefState(ca_bundle)
    # Most bundles are valid for long, so two deadlines suffice, without a query per policy.
    needs_details = ca_bundle.crls or ca_bundle.weak or ca_bundle.leaf
    if not needs_details and not g.before(ca_bundle.begin) and g.before(ca_bundle.end - SOON.total_seconds()):
        return FINE
    return _detailed_ref_state(g, namespace, ref)


@query
def _detailed_ref_state(g: Graph, namespace: str, ref: LocalObjectReference) -> RefState:
    """Returns the state of a reference by the dates of each of its certificates and lists."""
    ca_bundle = bundle(g, namespace, ref)
    if isinstance(ca_bundle, Problem):
        return RefState(ca_bundle)
    place = f"{ref.kind} {ref.name}"
    list_problem, soon = _list_dates(g, ca_bundle, place)
    problem, warnings = dates(g, ca_bundle.anchors, place, "CA")
    if ca_bundle.leaf:
        fault = f"{ca_bundle.leaf} in {place} is a server's own certificate, not a CA's, so its renewal will fail"
        warnings = (*warnings, f"{fault}; put the certificate of its CA there, or pin it with a PinSet (lasthop pin)")
    return RefState(list_problem or problem, (*warnings, *soon))


def _list_dates(g: Graph, ca_bundle: Bundle, place: str) -> tuple[Problem | None, list[str]]:
    """Returns the problem of a revocation list, and warnings about others. Only the latest list of each issuer counts."""
    latest = {crl.name: crl for crl in sorted(ca_bundle.crls, key=lambda crl: crl.this_update)}
    warnings = []
    if ca_bundle.uncovered:
        more = f" and {len(ca_bundle.uncovered) - SHOWN} more" if len(ca_bundle.uncovered) > SHOWN else ""
        names = f"{', '.join(ca_bundle.uncovered[:SHOWN])}{more}"
        warnings.append(f"CA {names} in {place} has no revocation list there, so its certificates are refused")
    for crl in latest.values():
        subject = f"the revocation list of {crl.issuer} in {place}"
        if g.before(crl.this_update):
            message = f"{subject} is not valid before {minute(crl.this_update)}"
            return Problem(reasons.REVOCATION_LIST_NOT_CURRENT, message, remedy="use one that is valid now"), []
        if crl.next_update is None:
            warnings.append(f"{subject} has no nextUpdate, so it is never out of date")
        elif not g.before(crl.next_update):
            message = f"{subject} is out of date: the next list was due on {minute(crl.next_update)}"
            return Problem(reasons.REVOCATION_LIST_NOT_CURRENT, message, remedy="replace it with the current one"), []
        elif not g.before(crl.next_update - CRL_SOON):
            warnings.append(f"{subject} is out of date from {minute(crl.next_update)} on")
    return None, warnings


def dates(g: Graph, anchors: tuple[Anchor, ...], place: str, kind: str) -> tuple[Problem | None, tuple[str, ...]]:
    """Returns the problem if no anchor is currently valid, and warnings about some. Envoy checks both dates of every
    certificate in a chain, including the anchor."""
    expired = [a for a in anchors if not g.before(a.not_after)]
    early = [a for a in anchors if a not in expired and g.before(a.not_before)]
    if len(expired) == len(anchors):
        last = max(expired, key=lambda a: a.not_after)
        message = f"every certificate of {place} has expired, the last ({last.subject}) on {day(last.not_after)}"
        return Problem(reasons.EXPIRED_CERTIFICATE, message), ()
    if len(expired) + len(early) == len(anchors):
        first = min(early, key=lambda a: a.not_before)
        begin = minute(first.not_before)
        message = f"no certificate of {place} is valid now, the next ({first.subject}) is not valid before {begin}"
        return Problem(reasons.NOT_YET_VALID_CERTIFICATE, message), ()
    warnings = [f"{kind} {a.subject} in {place} expired on {day(a.not_after)}" for a in expired]
    warnings += [f"{kind} {a.subject} in {place} is not valid before {minute(a.not_before)}" for a in early]
    warnings += [f"{kind} {a.subject} in {place} has a {a.weakness}, which is too weak today" for a in anchors if a.weakness][
        :SHOWN
    ]
    for anchor in anchors:
        if anchor not in expired and not g.before(anchor.not_after - SOON.total_seconds()):
            warnings.append(f"{kind} {anchor.subject} in {place} expires on {day(anchor.not_after)}")
    return None, tuple(warnings)


def pair_dates(g: Graph, secret: Key) -> str:
    """Returns the current or upcoming problem of a key pair's dates; empty if there is none."""
    pair = key_pair(g, secret)
    if not isinstance(pair, KeyPair):
        return ""
    if problem := pair_out_of_date(g, secret):
        return problem.text
    soon = not g.before(pair.not_after - SOON.total_seconds())
    return f"{_named(pair, secret)} expires on {day(pair.not_after)}; renew it" if soon else ""


def pair_out_of_date(g: Graph, secret: Key) -> Problem | None:
    """Returns why a key pair is not currently valid."""
    pair = key_pair(g, secret)
    if not isinstance(pair, KeyPair):
        return None
    if not g.before(pair.not_after):
        message = f"{_named(pair, secret)} expired on {day(pair.not_after)}"
        return Problem(reasons.EXPIRED_CERTIFICATE, message, remedy="renew it", about=(secret,))
    if g.before(pair.not_before):
        message = f"{_named(pair, secret)} is not valid before {minute(pair.not_before)}"
        return Problem(reasons.NOT_YET_VALID_CERTIFICATE, message, remedy="use one that is valid now", about=(secret,))
    return None


def _named(pair: KeyPair, secret: Key) -> str:
    return f"certificate {pair.subject} of Secret {secret.path}"


def day(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d")


def minute(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")
