"""Folders of objects to try the commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from lasthop.cli.main import main
from tests.certificates import DAY, NOW, Certificate

BASE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: lasthop}
spec: {controllerName: lasthop.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: lasthop
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: api, namespace: shop}
spec:
  parentRefs: [{name: web}]
  hostnames: [shop.example]
  rules:
  - backendRefs: [{name: api, port: 443}]
  - matches: [{path: {value: /plain}}]
    backendRefs: [{name: api, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec:
  ports: [{name: https, port: 443}, {name: plain, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: https, port: 8443}, {name: plain, port: 8080}]
"""
CA = Certificate("corp CA", ca=True, valid=(NOW - DAY, NOW + 365 * DAY))


def policy(name: str = "api", service: str = "api", section: str = "https", ca: str = "corp-ca", **validation: Any) -> str:
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: {name}, namespace: shop}}
spec:
  targetRefs:
  - {{group: "", kind: Service, name: {service}{f", sectionName: {section}" if section else ""}}}
  validation:
    hostname: api.internal
    caCertificateRefs:
    - {{group: "", kind: ConfigMap, name: {ca}}}
"""


def config_map(name: str = "corp-ca", pem: str = CA.pem) -> str:
    indented = "".join(f"    {line}\n" for line in pem.splitlines())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\ndata:\n  ca.crt: |\n{indented}"


def route(name: str, backend: str, gateway: str = "web") -> str:
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: shop}}
spec:
  parentRefs: [{{name: {gateway}}}]
  rules:
  - backendRefs:
    - {backend}
"""


def write(folder: Path, **files: str) -> Path:
    """`base.yaml` and what else is given, by name without its ending."""
    folder.mkdir(exist_ok=True)
    for name, content in {"base": BASE, **files}.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder


def good_folder(folder: Path) -> Path:
    return write(folder, policy=policy(), ca=config_map())


def lasthop(*args: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], env=env)
