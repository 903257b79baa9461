"""Determines how Google's load balancers verify a backend: not at all, unless a BackendTLSPolicy is in force."""

from __future__ import annotations

import json
from typing import Any, Final

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs, PortOfService
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, ServiceBackend
from lasthop_import.rule_hops import unseen_service

APP_PROTOCOLS: Final = ("service.alpha.kubernetes.io/app-protocols", "cloud.google.com/app-protocols")
"""The first that is there counts [ingress-gce pkg/annotations/service.go]."""
H2: Final = TLSOptions(alpn=("h2",))


def ingress_tls(inputs: Inputs, backend: ServiceBackend) -> HopTLS | None:
    """Returns the TLS from an Ingress to a Service, which goes by an annotation of the Service."""
    if unseen := unseen_service(inputs, backend, "its annotations"):
        return unseen
    annotations = inputs.annotations("Service", backend.namespace, backend.name)
    port = inputs.port(backend.namespace, backend.name, backend.port) or PortOfService(0)
    key = next((each for each in APP_PROTOCOLS if annotations.get(each)), "")
    if key:
        where = f"annotation {key} of Service {backend.namespace}/{backend.name}"
        return _annotated(annotations[key], where, port.name, str(port.number or backend.port))
    if port.app_protocol.upper() in ("HTTPS", "HTTP2"):
        why = f"appProtocol {port.app_protocol} is for Gateways; for an Ingress only {APP_PROTOCOLS[1]} counts"
        return HopTLS(OldLevel.PLAINTEXT, why, OldLevel.UNVERIFIED, "app-protocol-ignored")
    return None


def _annotated(text: str, where: str, name: str, number: str) -> HopTLS | None:
    """Returns the TLS that an annotation gives the port of this name; by its number it gives none."""
    protocols = _protocols(text)
    if protocols is None:
        why = f"{where} is not JSON of names and HTTP, HTTPS or HTTP2, so the load balancer was not set up"
        return HopTLS(OldLevel.BROKEN, why)
    found = protocols.get(name) if name else None
    if found in ("HTTPS", "HTTP2"):
        why = f"{found} by {where}: a load balancer accepts any certificate"
        return HopTLS(OldLevel.UNVERIFIED, why, options=H2 if found == "HTTP2" else TLSOptions())
    if found is None and protocols.get(number) in ("HTTPS", "HTTP2"):
        why = f"{where} names the port by number, which is not read; it must be the port's name"
        return HopTLS(OldLevel.PLAINTEXT, why, OldLevel.UNVERIFIED, "app-protocols-by-number")
    return None


def _protocols(text: str) -> dict[str, str] | None:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    valid = isinstance(found, dict) and all(each in ("HTTP", "HTTPS", "HTTP2") for each in found.values())
    return found if valid else None


def gateway_tls(inputs: Inputs, backend: ServiceBackend) -> HopTLS | None:
    """Returns the TLS from a Gateway to a Service's port without a policy, which goes by its appProtocol."""
    if unseen := unseen_service(inputs, backend, "its appProtocol"):
        return unseen
    port = inputs.port(backend.namespace, backend.name, backend.port)
    spoken = port.app_protocol if port else ""
    if spoken.upper() not in ("HTTPS", "HTTP2"):
        return None
    why = f"appProtocol {spoken} without a BackendTLSPolicy: a load balancer accepts any certificate"
    return HopTLS(OldLevel.UNVERIFIED, why, options=H2 if spoken.upper() == "HTTP2" else TLSOptions())
