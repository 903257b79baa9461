"""Creates the folder for `lasthop run`: one Gateway and N policy sets, a file each, and edits one of them.

gateway.yaml        GatewayClass, Namespace, Gateway
shared-ca.yaml      the ConfigMap with the CA of all sets but the edited ones
sets/00042.yaml     Service, EndpointSlice, HTTPRoute with its own hostname, BackendTLSPolicy
sets/00042-ca.yaml  the edited sets' own CAs
"""

from __future__ import annotations

import dataclasses
import textwrap
import time
from pathlib import Path

NAMESPACE = "bench"
SHARED = "shared-ca"
TARGETS = 5
"""Sets that are edited, spread over all."""

GATEWAY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata:
  name: lasthop
spec:
  controllerName: lasthop.dev/gateway-controller
---
apiVersion: v1
kind: Namespace
metadata:
  name: bench
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: web
  namespace: bench
spec:
  gatewayClassName: lasthop
  addresses:
  - type: IPAddress
    value: 127.0.0.1
  listeners:
  - name: http
    protocol: HTTP
    port: {port}
    allowedRoutes:
      namespaces:
        from: All
"""

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: bench
data:
  ca.crt: |
{pem}
"""

SET = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: bench
spec:
  ports:
  - name: https
    port: 443
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}
  namespace: bench
  labels:
    kubernetes.io/service-name: {name}
addressType: IPv4
endpoints:
- addresses:
  - 127.0.0.1
ports:
- name: https
  port: {port}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {name}
  namespace: bench
spec:
  parentRefs:
  - name: web
  hostnames:
  - {host}
  rules:
  - matches:
    - path:
        type: PathPrefix
        value: {path}
    backendRefs:
    - name: {name}
      port: 443
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata:
  name: {name}
  namespace: bench
spec:
  targetRefs:
  - group: ""
    kind: Service
    name: {name}
  validation:
    hostname: {sni}
    caCertificateRefs:
    - group: ""
      kind: ConfigMap
      name: {ca}
"""


@dataclasses.dataclass(frozen=True)
class PolicySet:
    number: int
    port: int
    ca: str = SHARED
    edition: int = 0
    path: str = "/"

    @property
    def name(self) -> str:
        return f"s{self.number:05}"

    @property
    def host(self) -> str:
        """The hostname of clients' requests."""
        return f"{self.name}.example"

    @property
    def sni(self) -> str:
        """The name that the policy requires; the certificate has `*.bench.example`."""
        return f"{self.name}-{self.edition}.bench.example"

    def text(self) -> str:
        return SET.format(name=self.name, port=self.port, host=self.host, path=self.path, sni=self.sni, ca=self.ca)


def own_ca(number: int) -> str:
    return f"own-ca-{number:05}"


def config_map(name: str, pem: str) -> str:
    return CONFIG_MAP.format(name=name, pem=textwrap.indent(pem.strip(), "    "))


def save(path: Path, text: str) -> float:
    """As careful editors do: the new text beside the old, then renamed over it. Returns the time before all that."""
    start = time.perf_counter()
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.rename(path)
    return start


class Folder:
    def __init__(self, path: Path, size: int, listen: int, backend: int, pem: str) -> None:
        """`listen` is the Gateway's port, `backend` the port of every endpoint, `pem` the content of every CA ConfigMap."""
        self.path = path
        targets = {size * (2 * n + 1) // (2 * TARGETS) for n in range(TARGETS)}
        self.sets = [PolicySet(number, backend) for number in range(size)]
        for number in targets:
            self.sets[number] = PolicySet(number, backend, own_ca(number), path="/x")
        self.targets = sorted(targets)
        (path / "sets").mkdir(parents=True)
        (path / "gateway.yaml").write_text(GATEWAY.format(port=listen))
        (path / "shared-ca.yaml").write_text(config_map(SHARED, pem))
        for number in targets:
            self.ca_file(number).write_text(config_map(own_ca(number), pem))
        for policy_set in self.sets:
            self.file(policy_set.number).write_text(policy_set.text())

    def file(self, number: int) -> Path:
        return self.path / "sets" / f"{number:05}.yaml"

    def ca_file(self, number: int) -> Path:
        return self.path / "sets" / f"{number:05}-ca.yaml"

    def edit(self, new: PolicySet, *, in_place: bool = False) -> float:
        """Saves it and returns when that began."""
        self.sets[new.number] = new
        if not in_place:
            return save(self.file(new.number), new.text())
        start = time.perf_counter()
        self.file(new.number).write_text(new.text())
        return start

    def edit_ca(self, number: int, pem: str) -> float:
        return save(self.ca_file(number), config_map(own_ca(number), pem))

    def edit_shared_ca(self, pem: str) -> float:
        return save(self.path / "shared-ca.yaml", config_map(SHARED, pem))
