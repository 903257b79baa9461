"""The files that `lasthop init` writes, with comments that explain them."""

from __future__ import annotations

import ipaddress

import msgspec

LOOPBACK = "127.0.0.1"


class Starter(msgspec.Struct, frozen=True):
    host: str
    backend_port: int
    port: int
    hostname: str
    """The name to verify; empty: plaintext."""
    ca: str | None = None
    """PEM; None: the system's CAs."""

    @property
    def port_name(self) -> str:
        return "https" if self.hostname else "http"

    @property
    def service_port(self) -> int:
        return 443 if self.hostname else 80


def files(starter: Starter) -> dict[str, str]:
    """Contents by name."""
    found = {"gateway.yaml": _gateway(starter), "backend.yaml": _backend(starter)}
    if starter.hostname:
        found["policy.yaml"] = _policy(starter)
    if starter.ca is not None:
        found["ca.crt"] = starter.ca
    return found


def _gateway(starter: Starter) -> str:
    return f"""\
# Lasthop serves the Gateways of this class.
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata:
  name: lasthop
spec:
  controllerName: lasthop.dev/gateway-controller
---
# Where clients connect: one HTTP listener, on loopback only.
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: gateway
spec:
  gatewayClassName: lasthop
  addresses:
  - type: IPAddress
    value: 127.0.0.1
  listeners:
  - name: http
    protocol: HTTP
    port: {starter.port}
{_profile(starter)}---
# Routes every request on that Gateway to port {starter.service_port} of the Service `backend`.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: backend
spec:
  parentRefs:
  - name: gateway
  rules:
  - matches:
    - path: {{type: PathPrefix, value: /}}
    backendRefs:
    - {{name: backend, port: {starter.service_port}}}
"""


def _profile(starter: Starter) -> str:
    """Denies plaintext: with a policy in the folder it can only be a mistake: a deleted policy, a mistyped target."""
    if not starter.hostname:
        return ""
    return """\
  infrastructure:
    parametersRef: {group: lasthop.dev, kind: GatewayProfile, name: gateway}
---
# What the operator of the Gateway allows. Deny: no connection to a backend without a BackendTLSPolicy, instead of plaintext.
apiVersion: lasthop.dev/v1alpha1
kind: GatewayProfile
metadata:
  name: gateway
spec:
  backendTLS:
    plaintextBackends: Deny
"""


def _backend(starter: Starter) -> str:
    address = _address(starter.host)
    if address is None:
        return f"""\
# The backend under the name that routes and policies use. ExternalName: resolved by DNS.
apiVersion: v1
kind: Service
metadata:
  name: backend
spec:
  type: ExternalName
  externalName: "{starter.host}"
  ports:
  - {{name: {starter.port_name}, port: {starter.service_port}, targetPort: {starter.backend_port}}}
"""
    return f"""\
# The backend under the name that routes and policies use.
apiVersion: v1
kind: Service
metadata:
  name: backend
spec:
  ports:
  - {{name: {starter.port_name}, port: {starter.service_port}}}
---
# The endpoints of the Service that the label names. Add addresses to balance load between them.
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: backend
  labels:
    kubernetes.io/service-name: backend
addressType: IPv{address.version}
endpoints:
- addresses: ["{address}"]
ports:
- {{name: {starter.port_name}, port: {starter.backend_port}}}
"""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        return None


_SYSTEM_CAS = """\
    # The CAs that this system trusts. For a CA of your own: caCertificateRefs, with a ConfigMap.
    wellKnownCACertificates: System
"""
_OWN_CA = """\
    # The certificate must be issued by a CA in this ConfigMap.
    caCertificateRefs:
    - {group: "", kind: ConfigMap, name: backend-ca}
---
# `ca.crt` of this ConfigMap is the file beside this one. When the file changes, new connections are verified against it.
apiVersion: v1
kind: ConfigMap
metadata:
  name: backend-ca
  annotations:
    lasthop.dev/file.ca.crt: ca.crt
"""


def _policy(starter: Starter) -> str:
    return f"""\
# How the Gateway connects to the backend: over TLS, verified as specified here, or not at all.
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata:
  name: backend
spec:
  targetRefs:
  - {{group: "", kind: Service, name: backend, sectionName: https}}
  validation:
    # Sent as SNI; must match a name in the backend's certificate.
    hostname: "{starter.hostname}"
{_SYSTEM_CAS if starter.ca is None else _OWN_CA}"""
