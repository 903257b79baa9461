"""PinSets: the certificates or keys that a backend may present, and CAs that must have issued them."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.base.api.verification import CERTIFICATE, Pin, PinSet
from lasthop.base.pki import parse
from lasthop.base.pki.parse import Anchor, Unreadable
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid_ca_certificate_ref, not_found
from lasthop.engine.plan.tls import Pins
from lasthop.engine.resolve.trust.certificates import anchor
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

DIGEST: Final = 32
_HEX = re.compile(r"[0-9A-Fa-f]{64}|([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}")


class PinnedTrust(msgspec.Struct, frozen=True):
    """The content of a PinSet. `cas` and `system` are CAs that must also verify the chain. `leaves` are whole certificates,
    which are their own anchors without CAs."""

    pins: Pins
    leaves: bytes = b""
    anchors: tuple[Anchor, ...] = ()
    """The leaves as anchors, with their dates."""
    cas: tuple[LocalObjectReference, ...] = ()
    system: bool = False

    @property
    def only(self) -> bool:
        """The PinSet contains only hashes, so neither names nor dates can be checked."""
        return not (self.leaves or self.cas or self.system)


@query
def pinned(g: Graph, key: Key) -> PinnedTrust | Problem:
    obj = read(g, key, PinSet)
    if obj is None:
        return not_found(reasons.INVALID_CA_CERTIFICATE_REF, key, "create it in the policy's own namespace")
    spec = obj.spec
    keys: set[bytes] = set()
    certificates: set[bytes] = set()
    for number, pin in enumerate(spec.pins):
        digest = digest_of(pin)
        if digest is None:
            return _bad(key, f": pins[{number}] is not a SHA-256 hash; `lasthop pin` prints one")
        (certificates if pin.type == CERTIFICATE else keys).add(digest)
    leaves: list[bytes] = []
    anchors: list[Anchor] = []
    for number, pem in enumerate(spec.certificates):
        parsed = parse.certificates(pem.encode())
        if isinstance(parsed, Unreadable):
            return _bad(key, f": certificates[{number}] {parsed.message}")
        if len(parsed) != 1:
            return _bad(key, f": certificates[{number}] contains {len(parsed)}", "use only the backend's own")
        leaves.append(parsed[0].pem)
        anchors.append(anchor(parsed[0]))
        certificates.add(parsed[0].sha256)
    pins = Pins(frozenset(keys), frozenset(certificates))
    system, cas = bool(spec.well_known_ca_certificates), spec.ca_certificate_refs
    # Repeats checks of admission, because an API server may store objects that are older than the CRD.
    if not pins:
        return _bad(key, " pins nothing", "add pins or certificates")
    if system and cas:
        return _bad(key, ": caCertificateRefs and wellKnownCACertificates exclude each other", "remove one")
    if spec.pins and leaves and not (system or cas):
        return _bad(key, ": pins and certificates together need CAs", "use one of the two")
    return PinnedTrust(pins, b"".join(leaves), tuple(anchors), cas, system)


def digest_of(pin: Pin) -> bytes | None:
    """Returns the hash of a pin, from base64 or hexadecimal digits."""
    if pin.algorithm != "SHA256":
        return None
    try:
        if _HEX.fullmatch(pin.value):
            return bytes.fromhex(pin.value.replace(":", ""))
        digest = base64.b64decode(pin.value, validate=True)
    except (ValueError, binascii.Error):
        return None
    return digest if len(digest) == DIGEST else None


def _bad(key: Key, fault: str, remedy: str = "") -> Problem:
    return invalid_ca_certificate_ref(f"{key}{fault}", key, remedy=remedy)
