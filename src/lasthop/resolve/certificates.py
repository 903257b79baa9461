"""Certificates as content: PEM in, facts or a sentence about what is wrong out.

Everything that Envoy could refuse is refused here first, because a refused update leaves the old one in force.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from lasthop.api.core import Secret
from lasthop.api.meta import Key
from lasthop.pki import parse
from lasthop.pki.parse import Unreadable
from lasthop.store.graph import Graph
from lasthop.store.store import read

SOON: Final = timedelta(days=30)
"""How long before it expires a certificate is worth a warning."""

MIN_RSA_BITS: Final = 2048
"""Envoy refuses smaller keys of its own."""


class BadCertificate(ValueError):
    """The message says what is wrong and, where it can, what to do."""


class Anchor(msgspec.Struct, frozen=True):
    """One CA certificate of a bundle."""

    subject: str
    not_before: float
    not_after: float


class Bundle(msgspec.Struct, frozen=True):
    """CA certificates, and nothing else of what stood around them."""

    pem: bytes
    anchors: tuple[Anchor, ...]


def parse_bundle(pem: bytes) -> Bundle:
    """Raises `BadCertificate`."""
    found = parse.certificates(pem)
    if isinstance(found, Unreadable):
        raise BadCertificate(found.message)
    anchors = tuple(Anchor(each.common_name, each.not_before, each.not_after) for each in found)
    return Bundle(b"".join(each.pem for each in found), anchors)


class KeyPair(msgspec.Struct, frozen=True):
    """A usable tls.crt and tls.key, without the key itself."""

    subject: str
    not_before: float
    not_after: float


def key_pair(g: Graph, secret: Key) -> KeyPair | str:
    """The certificate in a Secret, or what is wrong with it."""
    obj = read(g, secret, Secret)
    if obj is None:
        return f"Secret {secret.path} does not exist"
    chain, key = obj.data.get("tls.crt"), obj.data.get("tls.key")
    if not chain or not key:
        missing = " and ".join(name for name, value in (("tls.crt", chain), ("tls.key", key)) if not value)
        return f"Secret {secret.path} has no {missing}; it needs both, as in type kubernetes.io/tls"
    try:
        return _check_pair(chain, key)
    except BadCertificate as error:
        return f"Secret {secret.path}: {error}"


def _check_pair(chain: bytes, key: bytes) -> KeyPair:
    certificates, private = parse.certificates(chain), parse.private_key(key)
    if isinstance(certificates, Unreadable):
        raise BadCertificate(f"tls.crt {certificates.message}")
    if isinstance(private, Unreadable):
        raise BadCertificate(f"tls.key {private.message}")
    if private.bits and private.bits < MIN_RSA_BITS:
        raise BadCertificate(f"tls.key is an RSA key of {private.bits} bits; at least {MIN_RSA_BITS} are needed")
    leaf = certificates[0]
    if private.spki != leaf.spki:
        raise BadCertificate("tls.key does not belong to the first certificate of tls.crt")
    return KeyPair(leaf.common_name, leaf.not_before, leaf.not_after)
