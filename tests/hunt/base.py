"""The objects of every history: a Gateway, and hops to four Services in two namespaces. Texts of histories refer to
them by tokens, so that a history stays short."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.hunt.history import Edit
from tests.hunt.texts import Policy

GATEWAY: Final = """\
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
  addresses: [{type: IPAddress, value: 127.0.0.1}]
  listeners:
  - {name: http, protocol: HTTP, port: @LISTENER@, allowedRoutes: {namespaces: {from: All}}}
"""
_CA = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca, namespace: {}}}\ndata:\n  ca.crt: |\n@CA@"
CAS: Final = _CA.format("shop") + "---\n" + _CA.format("default")


def hop_text(service: str, port: int) -> str:
    namespace, _, name = service.partition("/")
    return f"""\
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{ports: [{{name: https, port: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1]}}]
ports: [{{name: https, port: @{name.upper()}@}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  parentRefs: [{{name: web, namespace: shop}}]
  hostnames: [{name}.test]
  rules: [{{backendRefs: [{{name: {name}, port: {port}}}]}}]
"""


def hop_file(service: str) -> str:
    return f"hop-{service.partition('/')[2]}.yaml"


BASE: Final = (Edit("gateway.yaml", "@GATEWAY@\n", gateway=True), Edit("ca.yaml", "@CAS@\n"))
"""What every history begins with."""


def expanded(text: str, tokens: Mapping[str, str]) -> str:
    """Returns the text with the objects and numbers that its tokens stand for: `@GATEWAY@`, `@CAS@`, `@HOP shop/alpha:443@`,
    `@POLICY shop/alpha@`."""
    text = text.replace("@GATEWAY@\n", GATEWAY).replace("@CAS@\n", CAS)
    text = re.sub(r"@HOP ([a-z/]+):([0-9]+)@\n", lambda match: hop_text(match[1], int(match[2])), text)
    text = re.sub(r"@POLICY ([a-z]+)/([a-z]+)@\n", lambda match: Policy(f"p-{match[2]}", match[1], (match[2],)).text, text)
    for token, real in tokens.items():
        text = text.replace(f"@{token}@", real)
    return text
