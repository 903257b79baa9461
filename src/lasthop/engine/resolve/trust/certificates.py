"""Parses PEM certificates and key pairs, and reports their problems.

Content that Envoy would refuse is refused here first, because a refused update would leave the old one in force.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from lasthop.base.api.core import Secret
from lasthop.base.api.meta import Key
from lasthop.base.pki import parse, revocation
from lasthop.base.pki.parse import RSA_PSS, Anchor, Certificate, PrivateKey, Unreadable
from lasthop.base.pki.revocation import RevocationList
from lasthop.engine.plan import reasons
from lasthop.engine.plan.limits import Limits, over
from lasthop.engine.plan.problem import Problem, invalid_certificate_ref, lacking, not_found
from lasthop.engine.plan.tls import Anchors, TrustedCA
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Input
from lasthop.engine.store.store import read

SOON: Final = timedelta(days=30)
"""Warning period before a certificate expires."""

MIN_RSA_BITS: Final = 2048
MAX_EXPONENT_BITS: Final = 33
KEYS: Final = frozenset({"EC secp256r1", "EC secp384r1", "EC secp521r1", "Ed25519"})
"""Key types that Envoy accepts for its own certificate, besides RSA within these limits."""
KNOWN_KEYS: Final = "RSA, EC on the curve P-256, P-384 or P-521, or Ed25519"


class BadCertificate(ValueError):
    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class BadRevocationList(BadCertificate):
    pass


def anchor(certificate: Certificate) -> Anchor:
    return Anchor(
        certificate.common_name, certificate.not_before, certificate.not_after, certificate.sha256, certificate.weakness
    )


class Bundle(msgspec.Struct, frozen=True, weakref=True):
    """CA certificates without duplicates and surrounding text."""

    pem: bytes
    anchors: tuple[Anchor, ...]
    cas: tuple[TrustedCA, ...]
    """The anchors' names, computed once because thousands of policies may use one bundle."""
    begin: float
    """All anchors are valid between `begin` and `end`."""
    end: float
    weak: str = ""
    """Describes the first weak anchor (see `weakest`)."""
    crls: tuple[RevocationList, ...] = ()
    roots: frozenset[bytes] = frozenset()
    """Names of issuers of `crls` that are roots in this bundle."""
    leaf: str = ""
    """The first anchor that is a server's own certificate."""
    uncovered: tuple[str, ...] = ()
    """The CAs without a revocation list, if the bundle has any lists."""


def parse_bundle(pem: bytes, crl: bytes | None = None) -> Bundle:
    """Raises `BadCertificate`, or `BadRevocationList`."""
    if crl is None and (cached := _BUNDLES.get((pem,))) is not None:
        return cached
    by_pem = parse.anchors(pem)
    if isinstance(by_pem, Unreadable):
        raise BadCertificate(by_pem.message)
    anchors = tuple(by_pem.values())
    begin, end = max(ca.not_before for ca in anchors), min(ca.not_after for ca in anchors)
    bundle = Bundle(b"".join(by_pem), anchors, trusted(anchors), begin, end, weakest(anchors), leaf=_leaf(anchors))
    if crl is not None:
        bundle = _with_lists(bundle, crl)
    return _BUNDLES.setdefault((bundle.pem, *(revocation_list.pem for revocation_list in bundle.crls)), bundle)


def _with_lists(bundle: Bundle, crl: bytes) -> Bundle:
    certificates, lists = parse.certificates(bundle.pem), revocation.revocation_lists(crl)
    if isinstance(certificates, Unreadable):
        raise BadCertificate(certificates.message)
    if isinstance(lists, Unreadable):
        raise BadRevocationList(lists.message)
    roots: set[bytes] = set()
    covered: set[Certificate] = set()
    for revocation_list in lists:
        issuers = _issuers(revocation_list, certificates)
        covered.update(issuers)
        roots |= {revocation_list.name for issuer in issuers if issuer.self_issued}
    uncovered = tuple(certificate.common_name for certificate in certificates if certificate not in covered)
    return msgspec.structs.replace(bundle, crls=lists, roots=frozenset(roots), uncovered=uncovered)


def _issuers(revocation_list: RevocationList, certificates: Sequence[Certificate]) -> Sequence[Certificate]:
    issuers = revocation.issuers(revocation_list, certificates)
    if issuers and not any(revocation.signed_by(revocation_list, issuer) for issuer in issuers):
        raise BadRevocationList(f"has a list that {revocation_list.issuer} has not signed")
    return issuers


_BUNDLES: weakref.WeakValueDictionary[tuple[bytes, ...], Bundle] = weakref.WeakValueDictionary()
"""Bundles in use by the PEM of certificates and lists. Users copy the same CAs into many namespaces; this keeps one copy in
memory and parses it once."""


def union(bundles: Iterable[Bundle]) -> Anchors:
    """Joins bundles without duplicate certificates."""
    distinct = tuple(bundles)
    if len(distinct) > 1:
        distinct = tuple(dict.fromkeys(distinct))
    lists = dict.fromkeys(revocation_list.pem for bundle in distinct for revocation_list in bundle.crls)
    crl, of_leaf = b"".join(lists), bool(lists) and not any(bundle.roots for bundle in distinct)
    weak = next((bundle.weak for bundle in distinct if bundle.weak), "")
    if len(distinct) == 1:
        return Anchors(distinct[0].pem, distinct[0].cas, crl, of_leaf, weak)
    pem_by_ca = {ca: piece for bundle in distinct for ca, piece in zip(bundle.cas, bundle.pem.split(_END)[:-1], strict=True)}
    return Anchors(b"".join(piece + _END for piece in pem_by_ca.values()), tuple(pem_by_ca), crl, of_leaf, weak)


def _leaf(anchors: Iterable[Anchor]) -> str:
    return next((ca.subject for ca in anchors if ca.leaf), "")


def trusted(anchors: Iterable[Anchor]) -> tuple[TrustedCA, ...]:
    return tuple([TrustedCA(ca.subject, ca.sha256.hex()) for ca in anchors])


def weakest(anchors: Iterable[Anchor]) -> str:
    """Describes the first anchor with a weak key or signature; empty if there is none."""
    return next((f"{ca.subject} has a {ca.weakness}" for ca in anchors if ca.weakness), "")


_END: Final = b"-----END CERTIFICATE-----\n"
"""The end of each certificate in a bundle, which `parse_bundle` normalizes."""


def too_large(anchors: Anchors, limits: Limits) -> str:
    """Returns a message for anchors above the limits; empty if they are within them."""
    if (size := len(anchors.pem) + len(anchors.crl)) > limits.ca_bundle_bytes:
        subject = "CA certificates and their revocation lists" if anchors.crl else "CA certificates"
        return f"its {subject} have {size:,} bytes; {over(limits, 'ca_bundle_bytes')}"
    if len(anchors.cas) > limits.ca_certificates:
        return f"it refers to {len(anchors.cas):,} CA certificates; {over(limits, 'ca_certificates')}"
    return ""


class KeyPair(msgspec.Struct, frozen=True):
    """A usable tls.crt and tls.key, without the key itself."""

    subject: str
    not_before: float
    not_after: float
    must_staple: bool = False
    sha256: str = ""
    """Fingerprint of the certificate, in hexadecimal digits."""


@query
def key_pair(g: Graph, secret: Key) -> KeyPair | Problem:
    """Returns the key pair in a Secret, or its problem."""
    obj = read(g, secret, Secret)
    if obj is None:
        return not_found(reasons.INVALID_CERTIFICATE_REF, secret)
    chain, key = obj.data.get("tls.crt"), obj.data.get("tls.key")
    if not chain or not key:
        missing = " and ".join(name for name, value in (("tls.crt", chain), ("tls.key", key)) if not value)
        remedy = "it needs both, as in type kubernetes.io/tls"
        return lacking(reasons.INVALID_CERTIFICATE_REF, secret, missing, remedy)
    try:
        return _check_pair(chain, key)
    except BadCertificate as error:
        return invalid_certificate_ref(f"{secret}: {error}", secret, remedy=error.remedy)


def _check_pair(chain: bytes, key: bytes) -> KeyPair:
    certificates, private = parse.certificates(chain), parse.private_key(key)
    if isinstance(certificates, Unreadable):
        raise BadCertificate(f"tls.crt {certificates.message}")
    if isinstance(private, Unreadable):
        raise BadCertificate(f"tls.key {private.message}")
    leaf = certificates[0]
    if private.spki != leaf.spki:
        raise BadCertificate("tls.key does not belong to the first certificate of tls.crt")
    _check_kind(private)
    if leaf.key.startswith(RSA_PSS):
        message = f"the key in tls.crt is of the kind {RSA_PSS}, which the proxy does not accept"
        raise BadCertificate(message, f"use {KNOWN_KEYS}")
    if not leaf.signs and private.key.startswith("EC "):
        message = "the keyUsage of tls.crt has no digitalSignature, without which its key cannot sign a handshake"
        raise BadCertificate(message, "use a certificate that is made for servers or clients")
    return KeyPair(leaf.common_name, leaf.not_before, leaf.not_after, leaf.must_staple, leaf.sha256.hex())


def _check_kind(key: PrivateKey) -> None:
    if key.bits:
        if key.bits < MIN_RSA_BITS:
            raise BadCertificate(f"tls.key is an RSA key of {key.bits} bits; at least {MIN_RSA_BITS} are needed")
        if key.exponent.bit_length() > MAX_EXPONENT_BITS:
            raise BadCertificate("tls.key is an RSA key with an exponent that is too large", "use the usual one, 65537")
    elif key.key not in KEYS:
        raise BadCertificate(f"tls.key is a key of the kind {key.key}, which the proxy does not accept", f"use {KNOWN_KEYS}")


def normal_pair(chain: bytes, key: bytes) -> tuple[bytes, bytes]:
    """Returns a valid pair as Envoy gets it: certificates and key without duplicates and surrounding text."""
    certificates = parse.certificates(chain)
    readable = () if isinstance(certificates, Unreadable) else certificates
    return b"".join(certificate.pem for certificate in readable), parse.normal_key(key)


def pair_part(gateway: Key, secret: Key) -> str:
    """Names a Secret at one Gateway, because a refusal by one Gateway's proxy does not affect others."""
    return f"{gateway.path}#{secret.path}"


def pair_digest(secret: Secret) -> str:
    """Hashes the certificate and its key, so that a refusal does not apply to a new pair."""
    hashed = hashlib.blake2b(digest_size=12)
    for value in (secret.data.get("tls.crt"), secret.data.get("tls.key")):
        hashed.update(len(value or b"").to_bytes(8, "big") + (value or b""))
    return hashed.hexdigest()


REFUSED_PAIR: Final = Input[str, str, str]("refused-pair")
"""Envoy's reason for refusing a certificate, by part and digest."""


def refused_pair(g: Graph, gateway: Key, secret: Key) -> Problem | None:
    """Returns the refusal of a Secret's current content by this Gateway's Envoy."""
    obj = read(g, secret, Secret)
    reason = REFUSED_PAIR.of(g, pair_part(gateway, secret), pair_digest(obj)) if obj else None
    if reason is None:
        return None
    return invalid_certificate_ref(f"Envoy refused the certificate of {secret}: {reason or 'no reason given'}", secret)
