"""The options of a BackendTLSPolicy (`spec.options`) as a table that validation, `explain`, `probe` and the reference read.

A new option is a field and a row here, and its setting in outputs/envoy/tls.py. Envoy 1.40 supports every accepted value, so
that it never refuses one."""

from __future__ import annotations

from typing import Final

import msgspec

VERSIONS: Final = ("1.0", "1.1", "1.2", "1.3")
LOWEST: Final = "1.2"

CIPHER_SUITES: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
)
"""Up to TLS 1.2. Those of TLS 1.3 are not configurable in Envoy."""

ED25519: Final = "ed25519"
SIGNATURES: Final = (
    "ecdsa_secp256r1_sha256",
    "ecdsa_secp384r1_sha384",
    "ecdsa_secp521r1_sha512",
    ED25519,
    "rsa_pss_rsae_sha256",
    "rsa_pss_rsae_sha384",
    "rsa_pss_rsae_sha512",
    "rsa_pkcs1_sha256",
    "rsa_pkcs1_sha384",
    "rsa_pkcs1_sha512",
)
"""Signature algorithms for a backend's handshake. Envoy's default list lacks Ed25519 and P-521."""


class TLSOptions(msgspec.Struct, frozen=True):
    min_version: str | None = None
    """None: not set, so that a GatewayProfile may raise it."""
    max_version: str = VERSIONS[-1]
    cipher_suites: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    alpn: tuple[str, ...] = ()
    signature_algorithms: tuple[str, ...] = ()
    client_certificate: str = ""
    """The name of a Secret in the policy's namespace. `resolve` decides whether the policy may use it."""
    session_reuse: str = "true"

    @property
    def lowest(self) -> str:
        return self.min_version or LOWEST

    def __str__(self) -> str:
        """Describes the options that differ from their defaults; empty if none does."""
        listed = [(option.label, getattr(self, option.field)) for option in OPTIONS if option.label]
        lists = "".join(f"; {label} {', '.join(values)}" for label, values in listed if values)
        lists += "; TLS sessions are not reused" if self.session_reuse == "false" else ""
        versions = (self.lowest, self.max_version)
        return f"TLS {' to '.join(versions)}{lists}" if lists or versions != (LOWEST, VERSIONS[-1]) else ""


class Option(msgspec.Struct, frozen=True):
    name: str
    """After `lasthop.dev/`."""
    field: str
    """The field of TLSOptions: a tuple of `values` for options with a label, otherwise one value."""
    values: tuple[str, ...]
    """Permitted values; empty: the name of an object."""
    label: str = ""
    """Name for a list of values in texts."""
    default: str = "Envoy's"
    probed: bool = False
    """Whether `lasthop probe` applies it to its handshakes."""


OPTIONS: Final = (
    Option("min-tls-version", "min_version", VERSIONS, default=LOWEST, probed=True),
    Option("max-tls-version", "max_version", VERSIONS, default=VERSIONS[-1], probed=True),
    Option("cipher-suites", "cipher_suites", CIPHER_SUITES, "ciphers", probed=True),
    Option("curves", "curves", ("X25519MLKEM768", "MLKEM1024", "X25519", "P-256", "P-384", "P-521"), "curves"),
    Option("alpn", "alpn", ("h2", "http/1.1"), "ALPN", "both; the backend picks", probed=True),
    Option("signature-algorithms", "signature_algorithms", SIGNATURES, "signatures", probed=True),
    Option("client-certificate", "client_certificate", (), default="the Gateway's own, if it has one", probed=True),
    Option("session-reuse", "session_reuse", ("true", "false"), default="true", probed=True),
)
