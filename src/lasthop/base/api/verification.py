"""PinSet and VerificationWaiver: how a BackendTLSPolicy requires more or less than a chain to a CA (GEP-4152).

A policy names them in `caCertificateRefs`. Like the policy's own structs they reject unknown fields: a field of a newer
version might narrow what they permit, so such an object counts as unreadable, and the policy fails closed."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Object
from lasthop.base.api.policies import LocalObjectReference, Strict

CERTIFICATE = "Certificate"


class Pin(Strict, frozen=True):
    type: str
    value: str
    """SHA-256, as base64 or as hex with or without colons."""
    algorithm: str = "SHA256"


class PinSetSpec(Strict, frozen=True):
    pins: tuple[Pin, ...] = ()
    certificates: tuple[str, ...] = ()
    """PEM, one certificate each."""
    ca_certificate_refs: tuple[LocalObjectReference, ...] = ()
    well_known_ca_certificates: str = msgspec.field(default="", name="wellKnownCACertificates")


class PinSet(Object, frozen=True):
    spec: PinSetSpec = PinSetSpec()


class VerificationWaiverSpec(Strict, frozen=True):
    waives: str
    reason: str
    owner: str = ""
    expires: str = ""
    """RFC 3339; empty without an end."""


class VerificationWaiver(Object, frozen=True):
    spec: VerificationWaiverSpec = VerificationWaiverSpec(waives="", reason="")
