"""Settings outside the input may restrict access or require TLS: its routes stay closed, and its hops fail closed."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop_import.decisions import Decisions
from lasthop_import.documents import SourceText, read_texts
from lasthop_import.levels import HopOutcome
from lasthop_import.registry import SYSTEMS
from lasthop_import.writer.objects import CLOSED
from tests.importers.harness import Outcome, run_documents, run_text, settings

GATEWAY_API = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec: {parentRefs: [{name: edge, namespace: edge}], hostnames: [shop.example.org],
       rules: [{backendRefs: [{name: web, port: 80}]}]}
---
"""
ROUTES = {
    "contour": """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: shop, namespace: shop}
spec: {virtualhost: {fqdn: shop.example.org}, routes: [{services: [{name: web, port: 80}]}]}
---
""",
    "emissary": """
apiVersion: getambassador.io/v3alpha1
kind: Mapping
metadata: {name: shop, namespace: shop}
spec: {hostname: shop.example.org, prefix: /, service: web}
---
apiVersion: getambassador.io/v3alpha1
kind: Host
metadata: {name: shop, namespace: shop}
spec: {hostname: shop.example.org, requestPolicy: {insecure: {action: Route}}}
---
apiVersion: getambassador.io/v3alpha1
kind: Listener
metadata: {name: http, namespace: shop}
spec: {port: 80, protocol: HTTP, securityModel: XFP, hostBinding: {namespace: {from: ALL}}}
---
""",
    "envoy-gateway": GATEWAY_API % "eg"
    + """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
""",
    "gke": GATEWAY_API % "gke-l7-global-external-managed",
    "ingress-nginx": """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop}
spec:
  rules:
  - host: shop.example.org
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
""",
    "istio": """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: shop}
spec: {hosts: [shop.example.org], gateways: [edge/edge], http: [{route: [{destination: {host: web, port: {number: 80}}}]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
""",
    "nginx": """
apiVersion: k8s.nginx.org/v1
kind: VirtualServer
metadata: {name: shop, namespace: shop}
spec: {host: shop.example.org, upstreams: [{name: web, service: web, port: 80}], routes: [{path: /, action: {pass: web}}]}
---
""",
    "traefik": """
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: shop, namespace: shop}
spec: {entryPoints: [web], routes: [{match: Host(`shop.example.org`), kind: Rule, services: [{name: web, port: 80}]}]}
---
""",
}
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
"""


def _import(system: str, text: str) -> Outcome:
    return run_text(system, f"{ROUTES[system]}{SERVICE}{text}", flags={"istio-outside-mesh": ["all"]})


def _outcomes(outcome: Outcome) -> dict[str, Any]:
    return {row.backend: row.new.how for row in outcome.result.rows}


def _object(kind: str, group: str, version: str, namespace: str = "shop", spec: str = "{}", name: str = "extra") -> str:
    metadata = f"{{name: {name}, namespace: {namespace}}}"
    return f"apiVersion: {group}/{version}\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n---\n"


RESTRICTING = [
    pytest.param(system.name, kind, id=f"{system.name}-{kind.kind}")
    for system in SYSTEMS.values()
    for kind in system.kinds
    if kind.kind in system.restricting
]


@pytest.mark.parametrize("system", sorted(ROUTES))
def test_routes_without_restrictions_are_open(system: str) -> None:
    assert HopOutcome.CLOSED not in _outcomes(_import(system, "")).values()


@pytest.mark.parametrize(("system", "kind"), RESTRICTING)
def test_unread_version_of_a_kind_that_restricts_access_closes_routes(system: str, kind: Any) -> None:
    outcome = _import(system, _object(kind.kind, kind.group, "v9"))
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}
    assert outcome.result.exit_code() == 3


@pytest.mark.parametrize(
    ("system", "group", "kind"),
    [("emissary", "getambassador.io", "FilterPolicy"), ("traefik", "hub.traefik.io", "AccessControlPolicy")],
)
def test_known_restricting_kind_that_is_never_read_closes_routes(system: str, group: str, kind: str) -> None:
    assert set(_outcomes(_import(system, _object(kind, group, "v1"))).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    ("system", "group"),
    [(each.name, group) for each in SYSTEMS.values() if each.name in ROUTES for group in sorted(each.groups)],
)
def test_unknown_kind_of_the_systems_own_group_is_lost_configuration(system: str, group: str) -> None:
    outcome = _import(system, _object("Novelty", group, "v1"))
    assert "other-kind" in {note.reason for note in outcome.result.open()}
    assert outcome.result.exit_code() == 3


def test_kind_of_another_group_is_only_listed() -> None:
    outcome = _import("nginx", _object("Deployment", "apps", "v1"))
    assert "other-kind" not in {note.reason for note in outcome.result.open()}


@pytest.mark.parametrize(
    ("system", "extra"),
    [
        ("ingress-nginx", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: edge}\n"
         "data: {whitelist-source-range: 10.0.0.0/8}\n---\n"),
        ("ingress-nginx", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: edge}\n"
         "data: {location-snippet: deny all;}\n---\n"),
        ("contour", _object("ContourConfiguration", "projectcontour.io", "v1alpha1", "edge", "{globalExtAuth: {}}")),
        ("emissary", _object("Module", "getambassador.io", "v3alpha1", "edge", "{config: {ip_allow: [{peer: 10.0.0.0/8}]}}")),
        ("istio", _object("AuthorizationPolicy", "security.istio.io", "v1", "istio-system")),
        ("istio", _object("EnvoyFilter", "networking.istio.io", "v1alpha3", "edge",
                          "{workloadSelector: {labels: {istio: edge}}}")),
    ],
)  # fmt: skip
def test_restriction_of_the_whole_gateway_closes_routes_of_every_namespace(system: str, extra: str) -> None:
    """A route of the restriction's own namespace must not be taken for the only one."""
    place = "istio-system" if "istio-system" in extra else "edge"
    neighbour = (
        ROUTES[system].replace("namespace: shop", f"namespace: {place}").replace("shop.example.org", "edge.example.org")
    )
    outcome = _import(system, f"{extra}{neighbour}")
    closed = {each.port for each in outcome.result.closed}
    assert any(each.partition(" ")[2].startswith("shop/") for each in closed)
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    ("system", "kind", "group", "version"),
    [("traefik", "Middleware", "traefik.io", "v1alpha1"), ("nginx", "Policy", "k8s.nginx.org", "v1")],
)
def test_unknown_type_of_restriction_closes_routes(system: str, kind: str, group: str, version: str) -> None:
    named = {"traefik": ("kind: Rule,", "kind: Rule, middlewares: [{name: extra}],"),
             "nginx": ("routes:", "policies: [{name: extra}], routes:")}[system]  # fmt: skip
    text = f"{ROUTES[system].replace(*named)}{SERVICE}{_object(kind, group, version, spec='{novelty: {a: b}}')}"
    assert set(_outcomes(run_text(system, text)).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("kind: Rule,", "kind: Rule, middlewares: [{name: extra}],", "middleware-missing"),
        ("entryPoints: [web]", "entryPoints: [websecure], tls: {options: {name: extra}}", "tls-option-missing"),
    ],
)  # fmt: skip
def test_missing_restriction_of_traefik_closes_its_route(old: str, new: str, reason: str) -> None:
    outcome = run_text("traefik", f"{ROUTES['traefik'].replace(old, new)}{SERVICE}")
    assert reason in {note.reason for note in outcome.result.open()}
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    "extra",
    [
        _object("DestinationRule", "networking.istio.io", "v9", spec="{host: web}"),
        _object("DestinationRule", "networking.istio.io", "v9"),
        _object("BackendTLSPolicy", "gateway.networking.k8s.io", "v1", spec="{targetRefs: [{kind: Service, name: web}]}"),
    ],
)
def test_istio_hop_with_an_unread_policy_fails_closed(extra: str) -> None:
    outcome = _import("istio", extra)
    assert set(_outcomes(outcome).values()) == {HopOutcome.TODO}
    assert outcome.result.exit_code() == 3


def test_objects_in_annotations_of_emissary_are_lost_configuration() -> None:
    service = SERVICE.replace("namespace: shop}", 'namespace: shop, annotations: {getambassador.io/config: "kind: Mapping"}}')
    outcome = run_text("emissary", f"{ROUTES['emissary']}{service}")
    assert "in-annotation" in {note.reason for note in outcome.result.open()}


EMISSARY_CONTEXT = _object(
    "TLSContext", "getambassador.io", "v3alpha1", "edge", "{secret: site, ca_secret: clients%s}", "clients"
)
NAMED_BY_HOST = (
    "hostname: shop.example.org, requestPolicy",
    "hostname: shop.example.org, tlsContext: {name: clients}, requestPolicy",
)


@pytest.mark.parametrize(
    ("named", "context"),
    [(True, EMISSARY_CONTEXT % ""), (True, ""), (False, EMISSARY_CONTEXT % ", hosts: [shop.example.org]")],
    ids=("named", "missing", "by host"),
)
def test_client_certificates_of_an_emissary_context_close_routes(named: bool, context: str) -> None:
    routes = ROUTES["emissary"].replace(*NAMED_BY_HOST) if named else ROUTES["emissary"]
    outcome = run_text("emissary", f"{routes}{SERVICE}{context}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


def test_middlewares_of_a_traefik_entry_point_close_routes() -> None:
    static = b'entryPoints: {web: {address: ":80", http: {middlewares: [login@file]}}}'
    wanted = settings(flags={"traefik-static": static})
    texts = read_texts([SourceText("input.yaml", f"{ROUTES['traefik']}{SERVICE}".encode())])
    outcome = run_documents("traefik", texts.documents, wanted, Decisions())
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


def test_snippets_of_the_nginx_config_map_close_routes() -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: any, namespace: edge}\ndata: {server-snippets: deny all;}\n"
    assert set(_outcomes(_import("nginx", config)).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize("system", ["envoy-gateway", "istio"])
def test_closed_route_has_an_annotation_and_no_backend(system: str) -> None:
    extra = {
        "envoy-gateway": _object("SecurityPolicy", "gateway.envoyproxy.io", "v9"),
        "istio": _object("AuthorizationPolicy", "security.istio.io", "v1"),
    }[system]
    routes = [each.document for each in _import(system, extra).result.objects if each.kind == "HTTPRoute"]
    assert routes
    for route in routes:
        assert CLOSED.items() <= route["metadata"]["annotations"].items()
        assert not any("backendRefs" in rule for rule in route["spec"]["rules"])


@pytest.mark.parametrize(
    ("system", "extra"),
    [
        ("nginx", _object("Policy", "k8s.nginx.org", "v1", spec="{basicAuth: {secret: users}}")),
        ("traefik", _object("Middleware", "traefik.io", "v1alpha1", spec="{basicAuth: {secret: users}}")),
        (
            "envoy-gateway",
            _object(
                "SecurityPolicy",
                "gateway.envoyproxy.io",
                "v1alpha1",
                spec="{targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: other}, basicAuth: {}}",
            ),
        ),
    ],
)
def test_restriction_that_no_imported_route_uses_closes_nothing(system: str, extra: str) -> None:
    assert HopOutcome.CLOSED not in _outcomes(_import(system, extra)).values()


def test_hop_of_a_route_that_admission_refuses_is_dropped() -> None:
    refused = ROUTES["ingress-nginx"].replace("shop.example.org", '"${DOMAIN}"')
    outcome = run_text("ingress-nginx", f"{refused}{SERVICE}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.DROPPED}
    assert outcome.result.exit_code() == 1
