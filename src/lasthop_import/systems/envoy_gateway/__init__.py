"""Imports from Envoy Gateway: copies Gateway API objects and translates its own kinds (Backend, policies, EnvoyProxy).

Follows the source of envoyproxy/gateway at d32f2829.

    kinds.py         kinds
    backend_tls.py   verification of backends, from BackendTLSPolicies and the tls of Backends
    backends.py      Backends as XBackends and Services
    proxies.py       EnvoyProxies, and the extensions that are only listed
    policies.py      BackendTrafficPolicy, SecurityPolicy, ClientTrafficPolicy
    classes.py       selection of Envoy Gateway's GatewayClasses
    copies.py        Gateways, ListenerSets and routes
    grants.py        ReferenceGrants
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import Imported
from lasthop_import.settings import ImportSettings, System
from lasthop_import.systems.envoy_gateway import policies
from lasthop_import.systems.envoy_gateway.backend_tls import BackendTLSPolicies
from lasthop_import.systems.envoy_gateway.backends import EnvoyGatewayBackends
from lasthop_import.systems.envoy_gateway.copies import Copies, GatewayPolicies
from lasthop_import.systems.envoy_gateway.kinds import CONTROLLER, GROUP, KINDS, OWN
from lasthop_import.systems.envoy_gateway.proxies import EXTENSIONS, list_others, read_proxies


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    options, certificates = read_proxies(inputs)
    verified = BackendTLSPolicies(inputs)
    backends = EnvoyGatewayBackends(inputs, verified, options)
    policy_effects = GatewayPolicies(
        policies.read_traffic(inputs), policies.read_security(inputs), policies.read_clients(inputs)
    )
    copies = Copies(inputs, settings, backends, policy_effects, certificates)
    copies.copy()
    list_others(inputs)
    verified.skip_unused()
    for document in inputs.of(OWN["Backend"]):
        if not inputs.opened(document):
            inputs.skip(document, "unused", "no route that is imported uses it")
    return Imported(hops=tuple(copies.hops), objects=tuple(copies.objects), gateways=tuple(sorted(copies.gateways)))


def _claims(document: Document) -> bool:
    own_class = document.kind == "GatewayClass" and document.spec.get("controllerName") == CONTROLLER
    return document.group == GROUP or own_class


SYSTEM: Final = System(
    name="envoy-gateway",
    title="Envoy Gateway",
    kinds=KINDS,
    read=read,
    claims=_claims,
    restricting=frozenset(("SecurityPolicy", "ClientTrafficPolicy", *EXTENSIONS)),
    other_groups=("gateway.networking.x-k8s.io",),
    annotations=("gateway.envoyproxy.io/",),
)
