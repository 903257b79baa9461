"""The certificates that the tests here share."""

from __future__ import annotations

import base64
import hashlib
import ssl
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.certificates import DAY, NOW, Certificate, dns

LONG = (NOW - DAY, NOW + 365 * DAY)
CA = Certificate("the policy's CA", ca=True, valid=LONG)
OTHER_CA = Certificate("another CA", ca=True, valid=LONG)
HOSTNAME = "api.example"
CLIENT = Certificate("gateway web", OTHER_CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
SECOND_CLIENT = Certificate("gateway web, renewed", OTHER_CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH)


def issued(*names: str, issuer: Certificate | None = CA, **settings: Any) -> ssl.SSLContext:
    """A server's context with a certificate for these DNS names (without any: for `api.example`)."""
    return Certificate("backend", issuer, sans=dns(*(names or (HOSTNAME,))), **settings).server_context()


def with_sans(*sans: x509.GeneralName, cn: str = "backend", issuer: Certificate = CA) -> ssl.SSLContext:
    return Certificate(cn, issuer, sans=sans).server_context()


def with_alpn(context: ssl.SSLContext, *protocols: str) -> ssl.SSLContext:
    context.set_alpn_protocols(list(protocols))
    return context


def asking(mode: ssl.VerifyMode, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """Makes a server's context that requests a client certificate of OTHER_CA."""
    context = issued()
    context.verify_mode = mode
    context.maximum_version = version
    context.load_verify_locations(cadata=OTHER_CA.pem)
    return context


def key_pin(certificate: Certificate) -> tuple[str, str]:
    """The pin of its key, as a PinSet has it."""
    spki = certificate.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "SPKI", base64.b64encode(hashlib.sha256(spki).digest()).decode()
