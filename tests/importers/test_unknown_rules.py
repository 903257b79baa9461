"""Settings outside the input may restrict access or require TLS: its routes stay closed, and its hops fail closed."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.engine.plan.strength import Strength
from lasthop_import.decisions import Decisions
from lasthop_import.documents import SourceText, read_texts
from lasthop_import.levels import HopOutcome, OldLevel
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


@pytest.mark.parametrize("change", [lambda kind: kind[:-1], str.lower], ids=("shortened", "lowered"))
@pytest.mark.parametrize(
    ("system", "kind"),
    [
        pytest.param(system.name, kind, id=f"{system.name}-{kind.kind}")
        for system in SYSTEMS.values()
        for kind in system.kinds
        if system.name in ROUTES and kind.group in {*system.groups, "gateway.networking.k8s.io"}
    ],
)
def test_misspelt_kind_closes_routes_without_tls(system: str, kind: Any, change: Any) -> None:
    outcome = _import(system, _object(change(kind.kind), kind.group, kind.versions[0]))
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}
    assert outcome.result.exit_code() == 3


def test_misspelt_group_closes_routes_without_tls() -> None:
    outcome = _import("istio", _object("DestinationRule", "networking.istio.oi", "v1", spec="{host: web}"))
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize("kind", ["RequestGuard", "TokenCheck"])
def test_unknown_kind_of_the_systems_own_group_that_looks_like_a_restriction_closes_routes(kind: str) -> None:
    assert set(_outcomes(_import("istio", _object(kind, "security.istio.io", "v1"))).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize("system", [each.name for each in SYSTEMS.values() if each.gateway_controller])
@pytest.mark.parametrize("named", [True, False], ids=("by class", "by controller"))
def test_gateway_of_gateway_api_that_the_old_system_served_is_lost(system: str, named: bool) -> None:
    controller = SYSTEMS[system].gateway_controller
    spec = f"{{controllerName: {controller}}}"
    text = _object("GatewayClass", "gateway.networking.k8s.io", "v1", spec=spec, name="x")
    outcome = _import(system, (GATEWAY_API % system) if named else f"{GATEWAY_API % 'x'}{text}")
    assert "gateway-api" in {note.reason for note in outcome.result.open()}
    assert _import(system, GATEWAY_API % "other").result.exit_code() == 0


@pytest.mark.parametrize(
    ("field", "outcome"),
    [
        ("hosts: [web], trafficPolicy: {tls: {mode: SIMPLE}}", HopOutcome.TODO),
        ("host: web, trafficpolicy: {tls: {mode: SIMPLE}}", HopOutcome.CLOSED),
        ("host: web, novelty: {inner: [{jwt: x}]}", HopOutcome.CLOSED),
    ],
    ids=("no host", "TLS in an unknown field", "a restriction in an unknown field"),
)
def test_misspelt_field_of_a_destination_rule_leaves_no_plaintext(field: str, outcome: HopOutcome) -> None:
    extra = _object("DestinationRule", "networking.istio.io", "v1", spec=f"{{{field}}}")
    assert set(_outcomes(_import("istio", extra)).values()) == {outcome}


@pytest.mark.parametrize(
    "spec",
    [
        "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}",
        "{selector: {matchLabels: {app: web}}, portLevelMtls: {80: {mode: STRICT}}}",
    ],
)
def test_strict_peer_authentication_of_some_pods_shows_a_mesh(spec: str) -> None:
    outcome = _import("istio", _object("PeerAuthentication", "security.istio.io", "v1", spec=spec))
    assert {row.old for row in outcome.result.rows} == {OldLevel.MESH}


@pytest.mark.parametrize(
    ("percentage", "closed"), [("", True), (", percentage: {value: 100}", True), (", percentage: {value: 1}", False)]
)
def test_fault_that_aborts_all_requests_closes_its_route(percentage: str, closed: bool) -> None:
    fault = f"[{{fault: {{abort: {{httpStatus: 403{percentage}}}}}, route"
    outcome = run_text("istio", f"{ROUTES['istio'].replace('[{route', fault)}{SERVICE}", flags={"istio-outside-mesh": ["all"]})
    assert (HopOutcome.CLOSED in _outcomes(outcome).values()) == closed


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


FIELDS = {
    "contour": "virtualhost: {fqdn: shop.example.org},",
    "emissary": "prefix: /,",
    "ingress-nginx": "",
    "istio": "gateways: [edge/edge],",
    "nginx": "host: shop.example.org,",
    "traefik": "entryPoints: [web],",
}
"""Text of the object with the routes, behind which a field may stand."""
ANNOTATIONS = {
    "contour": "projectcontour.io",
    "ingress-nginx": "nginx.ingress.kubernetes.io",
}


def _with_unknown(system: str, name: str) -> Outcome:
    """Imports the routes with an unknown field, or annotation where Ingresses are configured by these."""
    if system in ANNOTATIONS:
        old, new = "name: shop,", f'name: shop, annotations: {{{ANNOTATIONS[system]}/{name}: "x"}},'
    else:
        old, new = FIELDS[system], f"{FIELDS[system]} {name}: x,"
    assert old in ROUTES[system]
    return run_text(system, f"{ROUTES[system].replace(old, new, 1)}{SERVICE}", flags={"istio-outside-mesh": ["all"]})


@pytest.mark.parametrize("system", sorted(FIELDS))
def test_unknown_setting_is_never_exit_0(system: str) -> None:
    outcome = _with_unknown(system, "novelty")
    assert outcome.result.exit_code() == 3
    assert HopOutcome.CLOSED not in _outcomes(outcome).values()


@pytest.mark.parametrize("name", ["newAuthPolicy", "ip-blocklist", "jwt_realm", "internalOnly", "allowedCIDRs", "snippet"])
@pytest.mark.parametrize("system", sorted(FIELDS))
def test_unknown_setting_whose_name_looks_like_a_restriction_closes_its_route(system: str, name: str) -> None:
    assert set(_outcomes(_with_unknown(system, name)).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    ("system", "old", "new"),
    [
        ("contour", "[{services", "[{conditions: [{port: 5}], services"),
        ("istio", "[{route", "[{match: [{novelty: x}], route"),
        ("gke", "[{backendRefs", "[{matches: [{novelty: x}], backendRefs"),
    ],
)
def test_unknown_condition_of_a_match_closes_its_route(system: str, old: str, new: str) -> None:
    """The route without the condition would take more requests."""
    text = ROUTES[system].replace(old, new, 1)
    outcome = run_text(system, f"{text}{SERVICE}", flags={"istio-outside-mesh": ["all"]})
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


def test_unknown_annotation_of_another_program_is_a_warning() -> None:
    routes = ROUTES["ingress-nginx"].replace("name: shop,", "name: shop, annotations: {cert-manager.io/auth: x},", 1)
    assert run_text("ingress-nginx", f"{routes}{SERVICE}").result.exit_code() == 0


@pytest.mark.parametrize("kind", ["AuthPolicy", "RateLimitPolicy"])
@pytest.mark.parametrize("target", ["HTTPRoute, name: shop", "Gateway, name: edge, namespace: edge"])
def test_policy_of_another_program_about_a_route_closes_it(kind: str, target: str) -> None:
    extra = _object(kind, "kuadrant.io", "v1", spec=f"{{targetRef: {{group: gateway.networking.k8s.io, kind: {target}}}}}")
    outcome = _import("envoy-gateway", extra)
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}
    assert outcome.result.exit_code() == 3


def test_each_object_of_an_unread_restricting_kind_closes_its_own_targets() -> None:
    second = GATEWAY_API.partition("---")[2].replace("name: shop,", "name: second,", 1).replace("shop.example", "two.example")
    extra = "".join(
        _object("AuthPolicy", "kuadrant.io", "v1", spec=f"{{targetRef: {{kind: HTTPRoute, name: {name}}}}}", name=name)
        for name in ("shop", "second")
    )
    outcome = _import("envoy-gateway", f"{second}{extra}")
    assert len(outcome.result.closed) == 2


def test_policy_about_one_route_closes_no_other_route_to_a_service_of_its_name() -> None:
    """The Service web has the name of the route, and route shop leads there, too."""
    web = GATEWAY_API.partition("---")[2].replace("name: shop,", "name: web,", 1).replace("shop.example", "web.example")
    spec = "{targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}], basicAuth: {}}"
    extra = _object("SecurityPolicy", "gateway.envoyproxy.io", "v1alpha1", spec=spec)
    outcome = _import("envoy-gateway", f"{web}{extra}")
    assert [each.port for each in outcome.result.closed] == ["HTTPRoute shop/web"]


@pytest.mark.parametrize(
    ("system", "old", "new", "extra"),
    [
        ("ingress-nginx", "name: shop,", "name: shop, annotations: {nginx.ingress.kubernetes.io/auth-tls-secret: a/b},", ""),
        ("nginx", "action:", "policies: [{name: extra}], action:",
         _object("Policy", "k8s.nginx.org", "v1", spec="{ingressMTLS: {clientCertSecret: ca}}")),
        ("nginx", "host: shop", "internalRoute: true, host: shop", ""),
    ],
    ids=("without TLS", "in a route", "mesh only"),
)  # fmt: skip
def test_restriction_of_clients_that_has_no_listener_closes_its_route(system: str, old: str, new: str, extra: str) -> None:
    outcome = run_text(system, f"{ROUTES[system].replace(old, new, 1)}{SERVICE}{extra}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    ("system", "extra"),
    [
        ("emissary", _object("Module", "getambassador.io", "v3alpha1", spec="{config: {lua_scripts: x}}", name="ambassador")),
        ("istio", _object("ServiceRoleBinding", "rbac.istio.io", "v1alpha1", "shop")),
        ("istio", _object("Policy", "authentication.istio.io", "v1alpha1", "shop")),
        ("ingress-nginx", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: edge}\n"
         "data: {novel-auth: x}\n"),
    ],
)  # fmt: skip
def test_setting_of_the_whole_gateway_that_may_restrict_closes_routes(system: str, extra: str) -> None:
    assert set(_outcomes(_import(system, extra)).values()) == {HopOutcome.CLOSED}


AUTHORIZED = "virtualhost: {fqdn: shop.example.org, tls: {secretName: s}, authorization: {extensionRef: {name: extra}%s}}"
EXTENSION = _object(
    "ExtensionService", "projectcontour.io", "v1alpha1", spec="{protocol: h2c, services: [{name: web, port: 80}]}"
)


@pytest.mark.parametrize(
    ("system", "old", "new", "extra"),
    [
        ("contour", "virtualhost: {fqdn: shop.example.org}", AUTHORIZED % ", authPolicy: {context: {tier: gold}}", EXTENSION),
        ("contour", "virtualhost: {fqdn: shop.example.org}, routes: [{",
         f"{AUTHORIZED % ''}, routes: [{{authPolicy: {{context: {{tier: gold}}}}, ", EXTENSION),
        ("emissary", "prefix: /,", "prefix: /, auth_context_extensions: {tier: gold},", ""),
        ("envoy-gateway", "", "", _object("SecurityPolicy", "gateway.envoyproxy.io", "v1alpha1", spec=
         "{targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}],"
         " extAuth: {contextExtensions: [{name: tier, value: gold}], grpc: {backendRefs: [{name: web, port: 80}]}}}")),
    ],
    ids=("contour host", "contour route", "emissary", "envoy-gateway"),
)  # fmt: skip
def test_lost_data_for_an_authorization_server_closes_its_routes(system: str, old: str, new: str, extra: str) -> None:
    outcome = run_text(system, f"{ROUTES[system].replace(old, new, 1)}{SERVICE}{extra}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


CONTOUR_FILE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: contour, namespace: edge}\ndata: {contour.yaml: %s}\n"


@pytest.mark.parametrize("content", ["'{ broken: ['", "'- a'", "'newAuth: {a: b}'"])
def test_configuration_of_contour_that_cannot_be_read_closes_routes(content: str) -> None:
    assert set(_outcomes(_import("contour", CONTOUR_FILE % content)).values()) == {HopOutcome.CLOSED}


@pytest.mark.parametrize(
    ("system", "extra"),
    [
        ("contour", CONTOUR_FILE % "'novelty: 1'"),
        ("contour", _object("ContourConfiguration", "projectcontour.io", "v1alpha1", spec="{novelty: 1}")),
        ("contour", _object("ContourConfiguration", "projectcontour.io", "v1alpha1", spec="{envoy: {novelty: 1}}")),
        ("emissary", _object("Module", "getambassador.io", "v3alpha1", spec="{config: {novelty: 1}}", name="ambassador")),
        ("envoy-gateway", _object("ClientTrafficPolicy", "gateway.envoyproxy.io", "v1alpha1", spec="{tls: {novelty: 1}}")),
    ],
)
def test_unknown_setting_of_the_whole_gateway_is_never_exit_0(system: str, extra: str) -> None:
    assert _import(system, extra).result.exit_code() == 3


def test_settings_of_contour_that_restrict_nothing_close_nothing() -> None:
    assert _import("contour", CONTOUR_FILE % "'accesslog-format: json'").result.exit_code() == 0


def test_service_with_the_annotations_of_an_old_contour_is_never_plaintext() -> None:
    service = SERVICE.replace("name: web,", 'name: web, annotations: {contour.heptio.com/upstream-protocol.tls: "80"},')
    outcome = run_text("contour", f"{ROUTES['contour']}{service}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.TODO}


def test_hosts_that_two_proxies_of_contour_have_were_not_served() -> None:
    other = ROUTES["contour"].replace("name: shop, namespace: shop", "name: other, namespace: other")
    outcome = _import("contour", other)
    assert outcome.result.rows == ()
    assert {note.reason for note in outcome.result.open()} == {"fqdn-conflict"}


def test_harmless_settings_of_the_ingress_nginx_config_map_close_nothing() -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: edge}\n"
    outcome = _import("ingress-nginx", f"{config}data: {{allow-snippet-annotations: 'true', server-tokens: 'false'}}\n")
    assert HopOutcome.CLOSED not in _outcomes(outcome).values()


def test_client_certificates_of_an_openshift_router_close_routes() -> None:
    route = "apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: shop, namespace: shop}\n"
    spec = "spec: {host: shop.example.org, to: {kind: Service, name: web}}\n---\n"
    router = _object("IngressController", "operator.openshift.io", "v1", "edge", "{clientTLS: {clientCA: {name: ca}}}")
    outcome = run_text("openshift", f"{route}{spec}{SERVICE}{router}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


def test_client_validation_of_contour_without_a_ca_is_open_work() -> None:
    secure = "virtualhost: {fqdn: shop.example.org, tls: {secretName: site, clientValidation: {}}}"
    text = ROUTES["contour"].replace("virtualhost: {fqdn: shop.example.org}", secure)
    assert "client-ca-missing" in {note.reason for note in run_text("contour", f"{text}{SERVICE}").result.open()}


@pytest.mark.parametrize("spec", ["{}", "{compress: {}, stripPrefix: {prefixes: [/a]}}"])
def test_route_with_a_middleware_that_traefik_refuses_is_left_out(spec: str) -> None:
    routes = ROUTES["traefik"].replace("kind: Rule,", "kind: Rule, middlewares: [{name: extra}],")
    outcome = run_text("traefik", f"{routes}{SERVICE}{_object('Middleware', 'traefik.io', 'v1alpha1', spec=spec)}")
    assert set(_outcomes(outcome).values()) == {HopOutcome.DROPPED}


@pytest.mark.parametrize("system", sorted(ROUTES))
def test_routes_that_are_not_chosen_are_left_out_and_need_no_decision(system: str) -> None:
    text = f"{ROUTES[system]}{ROUTES[system].replace('name: shop,', 'name: other,').replace('shop.example', 'other.example')}"
    outcome = run_text(system, f"{text}{SERVICE}", only=["shop/shop"], flags={"istio-outside-mesh": ["all"]})
    assert {row.source.document.bare_name for row in outcome.result.rows} == {"shop"}
    assert outcome.result.exit_code() == 0


@pytest.mark.parametrize(
    ("system", "extra"),
    [
        ("istio", _object("DestinationRule", "networking.istio.io", "v1", spec=
         "{host: web, trafficPolicy: {tls: {mode: SIMPLE}}}")),
        ("envoy-gateway", _object("BackendTLSPolicy", "gateway.networking.k8s.io", "v1", spec=
         "{targetRefs: [{group: '', kind: Service, name: web}], validation: {hostname: w, wellKnownCACertificates: System}}")),
    ],
)  # fmt: skip
def test_policies_of_a_chosen_route_need_not_be_chosen(system: str, extra: str) -> None:
    text = f"{ROUTES[system]}{SERVICE}{extra}"
    outcome = run_text(system, text, only=["shop/shop"], flags={"istio-outside-mesh": ["all"]})
    assert set(_outcomes(outcome).values()) == {Strength.VERIFIED}


def _twice(system: str, old: str, first: str, second: str) -> Outcome:
    """Imports the routes in two classes, each with a host of its own."""
    other = ROUTES[system].replace("name: shop,", "name: other,", 1).replace("shop.example", "other.example")
    return run_text(system, f"{ROUTES[system].replace(old, first, 1)}{other.replace(old, second, 1)}{SERVICE}")


@pytest.mark.parametrize(
    ("system", "old", "new"),
    [
        ("ingress-nginx", "spec:", "spec:\n  ingressClassName: %s"),
        ("nginx", "host:", "ingressClassName: %s, host:"),
        ("envoy-gateway", "gatewayClassName: eg", "gatewayClassName: %s"),
    ],
)
def test_objects_of_several_unknown_classes_are_a_question(system: str, old: str, new: str) -> None:
    if system == "envoy-gateway":
        gateway = (GATEWAY_API % "one").replace("name: shop", "name: other").replace("name: edge", "name: second")
        outcome = run_text(system, f"{GATEWAY_API % 'two'}{gateway}{SERVICE}")
    else:
        outcome = _twice(system, old, new % "public", new % "internal")
    assert {note.reason for note in outcome.result.open()} == {"class-unknown"}
    assert outcome.result.exit_code() == 3
    assert outcome.result.rows == ()


def test_virtual_server_of_another_class_than_the_ingresses_is_a_question() -> None:
    ingress = ROUTES["ingress-nginx"].replace("shop.example", "other.example").replace("spec:", "spec:\n  ingressClassName: a")
    server = ROUTES["nginx"].replace("host:", "ingressClassName: b, host:")
    outcome = run_text("nginx", f"{ingress}{server}{SERVICE}")
    assert {note.reason for note in outcome.result.open()} == {"class-unknown"}


def test_ingress_route_of_another_class_is_skipped() -> None:
    outcome = _twice("traefik", "namespace: shop}", "namespace: shop}",
                     "namespace: shop, annotations: {kubernetes.io/ingress.class: internal}}")  # fmt: skip
    assert [row.source.object for row in outcome.result.rows] == ["IngressRoute shop/shop"]


def test_internal_load_balancer_of_gke_is_never_published_beside_a_public_one() -> None:
    classed = "name: {0}, annotations: {{kubernetes.io/ingress.class: {1}}},"
    texts = [
        ROUTES["ingress-nginx"].replace("name: shop,", classed.format(name, name)).replace("shop.example", f"{name}.example")
        for name in ("gce", "gce-internal")
    ]
    outcome = run_text("gke", f"{''.join(texts)}{SERVICE}")
    assert [row.source.object for row in outcome.result.rows] == ["Ingress shop/gce"]
    assert outcome.result.exit_code() == 3
    alone = run_text("gke", f"{texts[1]}{SERVICE}")
    assert [row.source.object for row in alone.result.rows] == ["Ingress shop/gce-internal"]
    assert {note.reason for note in alone.result.open()} == {"internal-load-balancer"}


def test_two_systems_that_serve_the_same_requests_are_open_work() -> None:
    both = f"{ROUTES['contour']}{ROUTES['traefik']}{SERVICE}"
    assert {note.reason for note in run_text("auto", both).result.open()} == {"systems-conflict"}
    apart = f"{ROUTES['contour']}{ROUTES['traefik'].replace('shop.example', 'other.example')}{SERVICE}"
    assert run_text("auto", apart).result.exit_code() == 0


@pytest.mark.parametrize("tls", ['{enable: "true"}', "true", "{enabled: true}"])
def test_hop_whose_tls_cannot_be_read_is_never_plaintext(tls: str) -> None:
    text = f"{ROUTES['nginx'].replace('port: 80}', f'port: 80, tls: {tls}}}')}{SERVICE}"
    outcome = run_text("nginx", text)
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}
    assert outcome.result.exit_code() == 3


def test_condition_of_the_wrong_type_closes_its_route() -> None:
    routes = ROUTES["istio"].replace("http: [{route", "http: [{match: [{uri: /admin}], route")
    outcome = run_text("istio", f"{routes}{SERVICE}", flags={"istio-outside-mesh": ["all"]})
    assert set(_outcomes(outcome).values()) == {HopOutcome.CLOSED}


def test_unknown_field_of_a_backend_tls_policy_is_never_plaintext() -> None:
    extra = _object("BackendTLSPolicy", "gateway.networking.k8s.io", "v1", spec="{targetSelectors: [{kind: Service}]}")
    assert set(_outcomes(_import("envoy-gateway", extra)).values()) == {HopOutcome.TODO}


@pytest.mark.parametrize("spec", ["{targetRefs: []}", "null"])
@pytest.mark.parametrize("system", ["envoy-gateway", "gke"])
def test_policy_without_a_target_leaves_no_hop_of_its_namespace_in_plaintext(system: str, spec: str) -> None:
    outcome = _import(system, _object("BackendTLSPolicy", "gateway.networking.k8s.io", "v1", spec=spec))
    assert set(_outcomes(outcome).values()) == {HopOutcome.TODO}
    assert outcome.result.exit_code() == 3


@pytest.mark.parametrize("system", ["ingress-nginx", "traefik", "contour", "nginx", "emissary"])
def test_policy_that_only_the_new_gateway_obeys_is_named(system: str) -> None:
    spec = "{targetRefs: [{group: '', kind: Service, name: web}]}"
    outcome = _import(system, _object("BackendTLSPolicy", "gateway.networking.k8s.io", "v1", spec=spec))
    assert "policy-beside" in {note.reason for note in outcome.result.open()}


@pytest.mark.parametrize("system", ["envoy-gateway", "gke"])
def test_policy_for_a_port_that_its_service_does_not_have_is_named(system: str) -> None:
    targets = "{targetRefs: [{group: '', kind: Service, name: web, sectionName: htttps}], "
    validation = "validation: {hostname: web.example, wellKnownCACertificates: System}}"
    outcome = _import(system, _object("BackendTLSPolicy", "gateway.networking.k8s.io", "v1", spec=targets + validation))
    assert {note.reason for note in outcome.result.open()} == {"port-missing"}
