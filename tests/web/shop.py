"""A controller without proxies whose hops are in every state that the page can show, as the proxies would have reported it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from lasthop.base.api.meta import Key, Object
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.engine.plan.observation import LATENCY_BOUNDS, EndpointSeen, HopSeen, LeafCertificate, ProxyReport, Traffic
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.settings import INFRASTRUCTURE, PROXY
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.controller import Controller
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.app import serving
from lasthop.web.controller_view import ControllerView
from tests import world
from tests.fake_api import FakeApi, client_of
from tests.fake_api import serving as serving_api
from tests.observed import of_now
from tests.ports import free_port

WEB, INTERNAL = Key("Gateway", "edge", "web"), Key("Gateway", "edge", "internal")
ALL = {"namespaces": {"from": "All"}}
DAY = 86400.0
TODAY = time.time()


class ShopRuntime(ClusterRuntime):
    """There is nothing to wait for: no proxy is to come."""

    def unready(self) -> list[str]:
        return []


def backend(
    namespace: str, name: str, gateway: Key = WEB, host: str = "", *, policy: bool = True, slices: bool = True
) -> list[Object]:
    path = f"{namespace}/{name}"
    found = [
        world.mk_service(path),
        world.mk_route(path, gateway.path, [{"name": name, "port": 443}], [host or f"{name}.example"]),
    ]
    if slices:
        found.append(world.mk_slice(f"{path}-1", name, ["10.20.0.7", "10.20.0.8", "10.20.0.9"], 8443))
    if policy:
        found.append(world.mk_policy(path, name, f"{name}.internal", ["ca"]))
    return found


def listener(name: str, port: int, protocol: str, hostname: str = "", secret: str = "") -> dict[str, object]:
    found: dict[str, object] = {"name": name, "port": port, "protocol": protocol, "allowedRoutes": ALL}
    if hostname:
        found["hostname"] = hostname
    if secret:
        found["tls"] = {"certificateRefs": [{"name": secret}]}
    return found


def shop() -> list[Object]:
    certificate, key = world.key_pair("shop.example")
    soon = world._certificate("partners.example", 14)
    listeners = [
        listener("https", 443, "HTTPS", "*.example", "shop-tls"),
        listener("partners", 443, "HTTPS", "partners.example", "partners-tls"),
        listener("http", 80, "HTTP"),
    ]
    found = [
        world.mk_class(),
        world.mk_profile("edge/prod", backendTLS={"waivers": "Allow"}),
        world.mk_gateway(WEB.path, listeners, infrastructure={"parametersRef": world.profile_ref("prod")}),
        world.mk_gateway(INTERNAL.path, [listener("tcp", 5432, "TCP"), listener("http", 8080, "HTTP")]),
        world.mk_secret("edge/shop-tls", certificate, key),
        world.mk_secret("edge/partners-tls", *soon),
        world.mk_config_map("shop/ca", world.ca_pem("Shop internal CA")),
        world.mk_config_map("billing/ca", world.ca_pem("Billing CA")),
        *backend("shop", "api"),
        *backend("shop", "cart"),
        *backend("shop", "search", host="shop.example"),
        *backend("shop", "images", policy=False),
        *backend("billing", "invoices"),
        *backend("billing", "ledger"),
        *backend("billing", "payments", host="partners.example"),
        *backend("billing", "tax"),
        world.mk_service("shop/erp"),
        world.mk_slice("shop/erp-1", "erp", ["10.30.1.4"], 8443),
        world.mk_policy("shop/erp", "erp", "erp.internal", [world.own_ref("VerificationWaiver", "legacy-erp")]),
        world.mk_waiver("shop/legacy-erp", "All", "2027-01-31T00:00:00Z"),
        world.mk_route(
            "shop/checkout", WEB.path, [{"name": "cart", "port": 443}, {"name": "erp", "port": 443}], ["shop.example"]
        ),
        world.mk_service("data/postgres", [{"name": "pg", "port": 5432}]),
        world.mk_slice("data/postgres-1", "postgres", ["10.40.0.2"], 5432, "pg"),
        world.mk_policy("data/postgres", "postgres", "postgres.internal", ["ca"]),
        world.mk_config_map("data/ca", world.ca_pem("Data CA")),
        world.mk_stream_route("TCPRoute", "data/postgres", INTERNAL.path, [{"name": "postgres", "port": 5432}], section="tcp"),
        world.mk_policy("billing/tax", "tax", "tax.internal", ["missing-ca"]),
    ]
    return found


def leaf(name: str, days: float, issuer: str = "Shop internal CA") -> LeafCertificate:
    return LeafCertificate(f"CN={name}", f"CN={issuer}", (name,), TODAY - 30 * DAY, TODAY + days * DAY)


class Wire:
    """What a proxy of each Gateway has seen; `tell` reports it as it would, over ten seconds."""

    def __init__(self) -> None:
        self.hops: dict[Hop, HopSeen] = {}
        self.routes: dict[Key, Traffic] = {}
        self.led: dict[Key, Key] = {}
        """The Gateway of each route."""

    def saw(self, hop: Hop, rate: float, errors: float, *endpoints: EndpointSeen, route: Key | None = None) -> None:
        now = time.time()
        bad = round(rate * errors * 10)
        good = round(rate * 10) - bad
        latency = tuple((bound, int(good * min(1.0, bound * 20))) for bound in LATENCY_BOUNDS)
        traffic = Traffic((0, good, 0, 0, bad), latency if good else ())
        fails = [each for each in endpoints if each.in_a_row]
        self.hops[hop] = HopSeen(
            good // 5,
            bad,
            bad,
            last_success=now - 2 if len(fails) < len(endpoints) else 0.0,
            last_failure=now - 3 if fails else 0.0,
            endpoints=endpoints,
            traffic=traffic,
        )
        key = route or Key("HTTPRoute", hop.backend.namespace, hop.backend.name)
        self.routes[key], self.led[key] = traffic, hop.gateway

    def tell(self, controller: Controller) -> None:
        now = time.time()
        for gateway in {hop.gateway for hop in self.hops}:
            graph = controller.engine.graph
            hops = {hop: of_now(graph, hop, seen) for hop, seen in self.hops.items() if hop.gateway == gateway}
            before = {hop: msgspec.structs.replace(seen, traffic=Traffic()) for hop, seen in hops.items()}
            controller.observations.heard(ProxyReport(gateway, "", now - 3600, now - 10, before), now - 10)
            routes = {key: traffic for key, traffic in self.routes.items() if self.led[key] == gateway}
            controller.seen(ProxyReport(gateway, "", now - 3600, now, hops, routes))
        controller.settle()


def good(address: str, leaf: LeafCertificate | None, version: str = "TLSv1.3") -> EndpointSeen:
    cipher = "TLS_AES_256_GCM_SHA384" if leaf else ""
    return EndpointSeen(
        address, last_success=time.time() - 2, certificate=leaf, tls_version=version if leaf else "", cipher=cipher
    )


def bad(address: str, words: str, count: int, leaf: LeafCertificate | None = None) -> EndpointSeen:
    now = time.time()
    return EndpointSeen(address, count, words, True, count, now - 720, now - 3, certificate=leaf)


def service_hop(path: str, gateway: Key = WEB, port: int = 443, protocol: Protocol = Protocol.AUTO) -> Hop:
    namespace, _, name = path.partition("/")
    return Hop(gateway, Key("Service", namespace, name), port, protocol)


def traffic(wire: Wire) -> None:
    first, second, third = "10.20.0.7:8443", "10.20.0.8:8443", "10.20.0.9:8443"

    def works(path: str, rate: float, leaf: LeafCertificate | None, version: str = "TLSv1.3") -> None:
        wire.saw(service_hop(path), rate, 0.0, *(good(each, leaf, version) for each in (first, second, third)))

    works("shop/api", 180.0, leaf("api.internal", 61))
    works("shop/cart", 42.0, leaf("cart.internal", 12))
    works("shop/search", 0.4, leaf("search.internal", 61))
    works("shop/images", 900.0, None)
    works("shop/erp", 3.0, leaf("erp", -3, "erp"), "TLSv1.2")
    wrong = "certificate is for old.example, policy billing/invoices wants invoices.internal"
    wire.saw(service_hop("billing/invoices"), 12.0, 1.0, bad(first, wrong, 4031, leaf("old.example", 200)))
    expired = "certificate has expired"
    wire.saw(
        service_hop("billing/payments"),
        25.0,
        0.66,
        bad(first, expired, 211, leaf("payments.internal", -1)),
        bad(second, expired, 198, leaf("payments.internal", -1)),
        good(third, leaf("payments.internal", 88)),
    )
    postgres = service_hop("data/postgres", INTERNAL, 5432, Protocol.TCP)
    wire.saw(
        postgres, 2.0, 0.0, good("10.40.0.2:5432", leaf("postgres.internal", 300)), route=Key("TCPRoute", "data", "postgres")
    )


def failing(view: ControllerView) -> None:
    entry = AccessLogEntry(
        authority="invoices.example",
        method="GET",
        path="/2026/11",
        status=503,
        flags="UF",
        route="HTTPRoute billing/invoices",
        upstream_cluster=Hop(WEB, Key("Service", "billing", "invoices"), 443, Protocol.AUTO).name,
        upstream_host="10.20.0.7:8443",
        why="certificate is for old.example, policy billing/invoices wants invoices.internal",
    )
    for _ in range(37):
        view.failed(entry)


@contextlib.asynccontextmanager
async def opened(objects: Sequence[Object], socket: Path) -> AsyncIterator[tuple[ControllerView, int]]:
    """Serves the page of a controller that has these objects and proxies that have acknowledged everything."""
    async with serving_api(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ShopRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        controller = runtime.controller
        controller.take(Batch(world.keyed(*objects)))
        controller.engine.advance(time.time())
        for key, state in controller.fleet.gateways.items():
            INFRASTRUCTURE.set(controller.engine.graph, Infrastructure((("IPAddress", "192.0.2.10"),)), key)
            PROXY.set(controller.engine.graph, ProxyState.serving(state.gateway.listeners), key)
        controller.settle()
        view, port = ControllerView(runtime, where="folder shop"), free_port()
        async with serving(view, f"127.0.0.1:{port}", socket):
            yield view, port
