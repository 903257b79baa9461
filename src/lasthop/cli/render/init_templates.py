"""The objects of `lasthop init` and `lasthop run --to`, with comments that explain them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Sequence

import msgspec

from lasthop.base.api.addresses import with_port

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "client.crt", "client.key"


class Starter(msgspec.Struct, frozen=True):
    """One backend."""

    name: str
    host: str
    """A DNS name or an IP address."""
    port: int
    hostname: str
    """The name to verify, or only to send as SNI; empty: plaintext."""
    ca: str = ""
    """PEM; empty: the system's CAs, or the pins."""
    pins: str = ""
    """The `spec` of a PinSet, as YAML."""
    options: tuple[tuple[str, str], ...] = ()
    client_certificate: str = ""
    client_key: str = ""
    """PEM."""
    host_match: str = ""
    path: str = "/"
    sends_host: str = ""
    """The Host header that the backend gets; empty: the client's."""

    @property
    def port_name(self) -> str:
        return "https" if self.hostname else "http"

    @property
    def service_port(self) -> int:
        return 443 if self.hostname else 80


class Listen(msgspec.Struct, frozen=True):
    address: str
    port: int

    @property
    def url(self) -> str:
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)
        return f"http://{with_port(shown, self.port)}/"


def files(listen: Listen, starters: Sequence[Starter]) -> dict[str, str]:
    """Returns contents by file name; certificates and keys have separate files."""
    by_file = {"gateway.yaml": _documents((_gateway(listen, starters), *_routes(starters)))}
    for starter in starters:
        alone = len(starters) == 1
        prefix = "" if alone else f"{starter.name}-"
        by_file[f"{starter.name}.yaml"] = _documents(_backend(starter))
        if starter.hostname:
            by_file[f"{prefix}policy.yaml"] = _documents(_policy(starter, prefix))
        contents = (starter.ca, starter.client_certificate, starter.client_key)
        names = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
        by_file |= {f"{prefix}{name}": content for name, content in zip(names, contents, strict=True) if content}
    return by_file


def manifest(listen: Listen, starters: Sequence[Starter]) -> str:
    """Returns all objects as one text, certificates and keys included."""
    backends = (document for starter in starters for document in (*_backend(starter), *_policy(starter, None)))
    return _documents((_gateway(listen, starters), *_routes(starters), *backends))


def _documents(texts: Iterable[str]) -> str:
    return "---\n".join(filter(None, texts))


def _gateway(listen: Listen, starters: Sequence[Starter]) -> str:
    only = ", on loopback only" if ipaddress.ip_address(listen.address).is_loopback else ""
    return f"""\
# Lasthop serves the Gateways of this class.
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata:
  name: lasthop
spec:
  controllerName: lasthop.dev/gateway-controller
---
# Where clients connect: one HTTP listener{only}.
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: gateway
spec:
  gatewayClassName: lasthop
  addresses:
  - type: IPAddress
    value: "{listen.address}"
  listeners:
  - name: http
    protocol: HTTP
    port: {listen.port}
{_profile(starters)}"""


def _profile(starters: Sequence[Starter]) -> str:
    """Denies plaintext: beside a policy, it can only result from a mistake, such as a deleted policy or a mistyped target."""
    if not any(starter.hostname for starter in starters):
        return ""
    if all(starter.hostname for starter in starters):
        value, text = "Deny", "Deny: no connection to a backend without a BackendTLSPolicy, instead of plaintext."
    else:
        value, text = "Declared", "Declared: plaintext only to ports with appProtocol http; all others need a policy."
    return f"""\
  infrastructure:
    parametersRef: {{group: lasthop.dev, kind: GatewayProfile, name: gateway}}
---
# The operator's permissions for the Gateway. {text}
apiVersion: lasthop.dev/v1alpha1
kind: GatewayProfile
metadata:
  name: gateway
spec:
  backendTLS:
    plaintextBackends: {value}
"""


def _routes(starters: Sequence[Starter]) -> Iterable[str]:
    """Yields a route for each host and path; backends of the same share its requests."""
    groups: dict[tuple[str, str], list[Starter]] = {}
    for starter in starters:
        groups.setdefault((starter.host_match, starter.path), []).append(starter)
    for (host, path), group in groups.items():
        yield _route(host, path, group)


def _route(host: str, path: str, starters: Sequence[Starter]) -> str:
    which = f"requests for {host}" if host else "requests"
    which += f" below {path}" if path != "/" else ""
    lead = f"Routes {which}" if which != "requests" else "Routes every request on that Gateway"
    to = " and ".join(f"port {starter.service_port} of the Service `{starter.name}`" for starter in starters)
    hostnames = f'  hostnames: ["{host}"]\n' if host else ""
    return f"""\
# {lead} to {to}.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {starters[0].name}
spec:
  parentRefs:
  - name: gateway
{hostnames}  rules:
  - matches:
    - path: {{type: PathPrefix, value: {json.dumps(path)}}}
    backendRefs:
{"".join(map(_backend_ref, starters))}"""


def _backend_ref(starter: Starter) -> str:
    if not starter.sends_host:
        return f"    - {{name: {starter.name}, port: {starter.service_port}}}\n"
    return f"""\
    - name: {starter.name}
      port: {starter.service_port}
      filters:
      # The backend gets this as Host, not the client's. Remove the filter to keep the client's.
      - type: URLRewrite
        urlRewrite: {{hostname: "{starter.sends_host}"}}
"""


def _backend(starter: Starter) -> Iterable[str]:
    address = _address(starter.host)
    protocol = "" if starter.hostname else ", appProtocol: http"
    if address is None:
        yield f"""\
# Names the backend for routes and policies. ExternalName: resolved by DNS.
apiVersion: v1
kind: Service
metadata:
  name: {starter.name}
spec:
  type: ExternalName
  externalName: "{starter.host}"
  ports:
  - {{name: {starter.port_name}, port: {starter.service_port}, targetPort: {starter.port}{protocol}}}
"""
        return
    yield f"""\
# Names the backend for routes and policies.
apiVersion: v1
kind: Service
metadata:
  name: {starter.name}
spec:
  ports:
  - {{name: {starter.port_name}, port: {starter.service_port}{protocol}}}
"""
    yield f"""\
# The endpoints of the Service that the label names. Add addresses to balance load between them.
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {starter.name}
  labels:
    kubernetes.io/service-name: {starter.name}
addressType: IPv{address.version}
endpoints:
- addresses: ["{address}"]
ports:
- {{name: {starter.port_name}, port: {starter.port}}}
"""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


_SYSTEM_CAS = """\
    # The CAs that this system trusts. For a CA of your own: caCertificateRefs, with a ConfigMap.
    wellKnownCACertificates: System
"""


def _policy(starter: Starter, prefix: str | None) -> Iterable[str]:
    """Yields the policy and the objects that it refers to. `prefix` begins the certificates' file names; None: the objects
    contain the certificates."""
    if not starter.hostname:
        return
    yield f"""\
# How the Gateway connects to the backend: over TLS, verified as specified here, or not at all.
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata:
  name: {starter.name}
spec:
  targetRefs:
  - {{group: "", kind: Service, name: {starter.name}, sectionName: https}}
{_options(starter)}  validation:
    # Sent as SNI; must match a name in the backend's certificate{", unless only its hash is pinned" if starter.pins else ""}.
    hostname: "{starter.hostname}"
{_trust(starter)}"""
    if starter.ca:
        yield _config_map(starter, prefix)
    if starter.pins:
        yield _pin_set(starter)
    if starter.client_certificate:
        yield _secret(starter, prefix)


def _options(starter: Starter) -> str:
    options = ((("client-certificate", f"{starter.name}-client"),) if starter.client_certificate else ()) + starter.options
    return (
        "  options:\n" + "".join(f"    lasthop.dev/{name}: {json.dumps(value)}\n" for name, value in options)
        if options
        else ""
    )


def _trust(starter: Starter) -> str:
    if starter.pins:
        return f"""\
    # Only the certificates or keys in this PinSet are trusted, regardless of their issuer.
    caCertificateRefs:
    - {{group: lasthop.dev, kind: PinSet, name: {starter.name}}}
"""
    if not starter.ca:
        return _SYSTEM_CAS
    return f"""\
    # The certificate must be issued by a CA in this ConfigMap.
    caCertificateRefs:
    - {{group: "", kind: ConfigMap, name: {starter.name}-ca}}
"""


def _config_map(starter: Starter, prefix: str | None) -> str:
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {starter.name}-ca\n"
    if prefix is None:
        return f"{head}data:\n{_block('ca.crt', starter.ca)}"
    return f"""\
# `ca.crt` of this ConfigMap is the file beside this one. When the file changes, new connections are verified against it.
{head}  annotations:
    lasthop.dev/file.ca.crt: {prefix}{CA_FILE}
"""


def _pin_set(starter: Starter) -> str:
    indented = "".join(f"  {line}\n" for line in starter.pins.splitlines())
    return f"apiVersion: lasthop.dev/v1alpha1\nkind: PinSet\nmetadata:\n  name: {starter.name}\nspec:\n{indented}"


def _secret(starter: Starter, prefix: str | None) -> str:
    head = f"""\
# The Gateway presents this certificate to a backend that requests one.
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata:
  name: {starter.name}-client
"""
    if prefix is None:
        return f"{head}stringData:\n{_block('tls.crt', starter.client_certificate)}{_block('tls.key', starter.client_key)}"
    return f"""\
{head}  annotations:
    lasthop.dev/file.tls.crt: {prefix}{CERTIFICATE_FILE}
    lasthop.dev/file.tls.key: {prefix}{KEY_FILE}
"""


def _block(key: str, text: str) -> str:
    return f"  {key}: |\n" + "".join(f"    {line}\n" for line in text.splitlines())
