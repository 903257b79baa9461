"""Implements the controller's own CA, whose certificates identify each Gateway's proxies. Pure; `infra/kubernetes` stores it.

         SETTLE             CLIENT_LIFE
old  ────────────┤signs no more ──────────┤gone
new  ├───────────┤signs ─────────────────────────────────────>
     trusted from here on

The certificates' own dates decide everything, so that a new leader continues where the last one stopped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from cryptography import x509

from lasthop.base.pki import certificates
from lasthop.base.pki.certificates import PemKeyPair

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

CA_LIFE: Final = 365 * DAY
CLIENT_LIFE: Final = 3 * DAY
"""Short, because client certificates are never revoked; but proxies must survive a day without the API server."""
SERVER_LIFE: Final = 3 * DAY
RENEW_AT: Final = 2 / 3
"""The fraction of a certificate's lifetime after which it is renewed."""
SETTLE: Final = 1 * HOUR
"""Seconds for which a new CA is trusted everywhere before it signs: kubelets update a mounted Secret within minutes."""

IDENTITY: Final = "lasthop://gateway/"
REPLICA: Final = "lasthop://controller/"

CA_CERTIFICATES: Final = "ca.crt"
CA_KEYS: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
PRIVATE_KEY: Final = "tls.key"

_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class Authority(msgspec.Struct, frozen=True):
    issuers: tuple[PemKeyPair, ...]
    """Oldest first; two during a rotation."""

    @property
    def bundle(self) -> bytes:
        return b"".join(issuer.certificate for issuer in self.issuers)

    def signer(self, now: float) -> PemKeyPair:
        return next((ca for ca in reversed(self.issuers) if _age(ca, now) >= SETTLE), self.issuers[0])


def renewed(authority: Authority | None, now: float) -> Authority:
    """Returns the current CA: creates it if missing, adds a successor in time, and removes expired ones."""
    issuers = authority.issuers if authority else ()
    while len(issuers) > 1 and _age(issuers[1], now) >= SETTLE + CLIENT_LIFE:
        issuers = issuers[1:]
    issuers = tuple(ca for ca in issuers if certificates.spent(ca.certificate, now) < 1)
    if not issuers or certificates.spent(issuers[-1].certificate, now) >= RENEW_AT:
        issuers = (*issuers, certificates.make_ca("Lasthop xDS", now, CA_LIFE))
    return authority if authority and authority.issuers == issuers else Authority(issuers)


def stored(authority: Authority) -> dict[str, bytes]:
    """Returns the content of a Secret."""
    return {CA_CERTIFICATES: authority.bundle, CA_KEYS: b"".join(ca.private_key for ca in authority.issuers)}


def restored(data: Mapping[str, bytes]) -> Authority:
    """Parses the output of `stored`. Raises ValueError for other content."""
    pems, keys = (_pieces(data.get(key, b"")) for key in (CA_CERTIFICATES, CA_KEYS))
    if not pems or len(pems) != len(keys):
        raise ValueError(f"{CA_CERTIFICATES} and {CA_KEYS} must hold as many certificates as keys, and at least one")
    issuers = tuple(PemKeyPair(*pair) for pair in zip(pems, keys, strict=True))
    if not all(certificates.belongs(pair) for pair in issuers):
        raise ValueError(f"each certificate of {CA_CERTIFICATES} needs its elliptic curve key at the same place of {CA_KEYS}")
    return Authority(issuers)


def client_secret(authority: Authority, uid: str, now: float) -> dict[str, bytes]:
    """Returns the certificate that a Gateway's proxies present to the controller, and the CAs that they trust."""
    identity = x509.UniformResourceIdentifier(IDENTITY + uid)
    pair = certificates.issue(authority.signer(now), "Lasthop proxy", (identity,), server=False, now=now, life=CLIENT_LIFE)
    return {CERTIFICATE: pair.certificate, PRIVATE_KEY: pair.private_key, CA_CERTIFICATES: authority.bundle}


def client_secret_due(authority: Authority, uid: str, data: Mapping[str, bytes], now: float) -> bool:
    pair = PemKeyPair(data.get(CERTIFICATE, b""), data.get(PRIVATE_KEY, b""))
    if data.get(CA_CERTIFICATES) != authority.bundle or not certificates.belongs(pair):
        return True
    pem = pair.certificate
    if certificates.uris(pem) != (IDENTITY + uid,) or certificates.spent(pem, now) >= RENEW_AT:
        return True
    return not certificates.issued_by(certificates.loaded(pem), authority.signer(now).certificate)


def server_pair(authority: Authority, names: tuple[str, ...], now: float) -> PemKeyPair:
    """Issues the certificate that the controller presents to proxies; each replica issues its own."""
    sans = certificates.host_names(names)
    return certificates.issue(authority.signer(now), "Lasthop xDS", sans, server=True, now=now, life=SERVER_LIFE)


def replica_pair(authority: Authority, replica: str, now: float) -> PemKeyPair:
    identity = x509.UniformResourceIdentifier(REPLICA + quote(replica, safe=""))
    return certificates.issue(
        authority.signer(now), "Lasthop controller", (identity,), server=False, now=now, life=SERVER_LIFE
    )


def server_pair_due(authority: Authority, pair: PemKeyPair, now: float) -> bool:
    certificate = certificates.loaded(pair.certificate)
    return certificates.spent(pair.certificate, now) >= RENEW_AT or not certificates.issued_by(
        certificate, authority.signer(now).certificate
    )


def gateway_uid(identities: tuple[str, ...]) -> str:
    """Returns the UID of the Gateway in a verified certificate's URIs; empty if there is none, or more than one URI."""
    return _only(identities, IDENTITY)


def replica_name(identities: tuple[str, ...]) -> str:
    """Returns the name of the controller replica in the URIs; empty if there is none, or more than one URI."""
    return unquote(_only(identities, REPLICA))


def _only(identities: tuple[str, ...], prefix: str) -> str:
    return identities[0].removeprefix(prefix) if len(identities) == 1 and identities[0].startswith(prefix) else ""


def _age(ca: PemKeyPair, now: float) -> float:
    return now - certificates.read(ca.certificate).not_before - certificates.BACKDATED.total_seconds()


def _pieces(pem: bytes) -> list[bytes]:
    return [match[0] if match[0].endswith(b"\n") else match[0] + b"\n" for match in _PEM.finditer(pem)]
