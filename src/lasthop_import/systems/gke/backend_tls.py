"""Determines how Google's load balancers verify a backend: not at all without a BackendTLSPolicy."""

from __future__ import annotations

import json
from typing import Any, Final

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs, PortOfService
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, ServiceBackend
from lasthop_import.rule_hops import unseen_service

APP_PROTOCOLS: Final = ("service.alpha.kubernetes.io/app-protocols", "cloud.google.com/app-protocols")
"""The first annotation that exists counts [ingress-gce pkg/annotations/service.go]."""
H2: Final = TLSOptions(alpn=("h2",))


def ingress_tls(inputs: Inputs, backend: ServiceBackend) -> HopTLS | None:
    """Returns the TLS from an Ingress to a Service, which an annotation of the Service sets."""
    if unseen := unseen_service(inputs, backend, "its annotations"):
        return unseen
    annotations = inputs.annotations("Service", backend.namespace, backend.name)
    port = inputs.port(backend.namespace, backend.name, backend.port) or PortOfService(0)
    key = next((annotation for annotation in APP_PROTOCOLS if annotations.get(annotation)), "")
    if key:
        label = f"annotation {key} of Service {backend.namespace}/{backend.name}"
        return _annotated(annotations[key], label, port.name, str(port.number or backend.port))
    if port.app_protocol.upper() in ("HTTPS", "HTTP2"):
        why = f"appProtocol {port.app_protocol} is for Gateways; for an Ingress only {APP_PROTOCOLS[1]} counts"
        return HopTLS(OldLevel.PLAINTEXT, why, OldLevel.UNVERIFIED, "app-protocol-ignored")
    return None


def _annotated(text: str, label: str, name: str, number: str) -> HopTLS | None:
    """Returns the TLS that an annotation sets for a port. An annotation that uses the port's number has no effect."""
    protocols = _protocols(text)
    if protocols is None:
        why = f"{label} is not JSON of names and HTTP, HTTPS or HTTP2, so the load balancer was not set up"
        return HopTLS(OldLevel.BROKEN, why)
    protocol = protocols.get(name) if name else None
    if protocol in ("HTTPS", "HTTP2"):
        why = f"{protocol} by {label}: a load balancer accepts any certificate"
        return HopTLS(OldLevel.UNVERIFIED, why, options=H2 if protocol == "HTTP2" else TLSOptions())
    if protocol is None and protocols.get(number) in ("HTTPS", "HTTP2"):
        why = f"{label} names the port by number, which is not read; it must be the port's name"
        return HopTLS(OldLevel.PLAINTEXT, why, OldLevel.UNVERIFIED, "app-protocols-by-number")
    return None


def _protocols(text: str) -> dict[str, str] | None:
    try:
        decoded: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    valid = isinstance(decoded, dict) and all(protocol in ("HTTP", "HTTPS", "HTTP2") for protocol in decoded.values())
    return decoded if valid else None


def gateway_tls(inputs: Inputs, backend: ServiceBackend) -> HopTLS | None:
    """Returns the TLS from a Gateway to a Service's port without a policy, which the port's appProtocol sets."""
    if unseen := unseen_service(inputs, backend, "its appProtocol"):
        return unseen
    port = inputs.port(backend.namespace, backend.name, backend.port)
    app_protocol = port.app_protocol if port else ""
    if app_protocol.upper() not in ("HTTPS", "HTTP2"):
        return None
    why = f"appProtocol {app_protocol} without a BackendTLSPolicy: a load balancer accepts any certificate"
    return HopTLS(OldLevel.UNVERIFIED, why, options=H2 if app_protocol.upper() == "HTTP2" else TLSOptions())
