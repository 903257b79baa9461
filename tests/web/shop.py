"""A controller without proxies whose hops are in every state that the page can show, as the proxies would have reported it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from lasthop.api.meta import Key, Object
from lasthop.cluster import ClusterRuntime
from lasthop.infra.kubernetes.desired import Site
from lasthop.plan.infrastructure import Infrastructure
from lasthop.plan.observation import EndpointSeen, Failure, Health, HopSeen, HopState, LeafCertificate, Traffic
from lasthop.plan.proxy import ProxyState
from lasthop.plan.upstream import Hop, Protocol
from lasthop.proxy.entry import AccessLogEntry
from lasthop.resolve.settings import INFRASTRUCTURE, OBSERVED, PROXY
from lasthop.sources.source import Batch
from lasthop.web.app import serving
from lasthop.web.controller_view import ControllerView
from tests import world
from tests.fake_api import FakeApi, client_of
from tests.fake_api import serving as serving_api
from tests.ports import free_port

WEB, INTERNAL = Key("Gateway", "edge", "web"), Key("Gateway", "edge", "internal")
ALL = {"namespaces": {"from": "All"}}
DAY = 86400.0


class Seen:
    """Figures that the test has made up."""

    def __init__(self) -> None:
        self.hops: dict[Hop, HopSeen] = {}
        self.rates: dict[Hop | Key, tuple[float, float]] = {}

    def seen(self, hop: Hop) -> HopSeen | None:
        return self.hops.get(hop)

    def route(self, key: Key) -> Traffic | None:
        return None

    def rate(self, key: Hop | Key) -> tuple[float, float]:
        return self.rates.get(key, (0.0, 0.0))


class ShopRuntime(ClusterRuntime):
    """There is nothing to wait for: no proxy is to come."""

    def unready(self) -> list[str]:
        return []


class ShopView(ControllerView):
    def __init__(self, runtime: ClusterRuntime, seen: Seen) -> None:
        super().__init__(runtime, where="folder shop")
        self._seen = seen

    @property
    def figures(self) -> Seen:
        return self._seen


def backend(namespace: str, name: str, policy: bool = True, gateway: Key = WEB, host: str = "") -> list[Object]:
    path = f"{namespace}/{name}"
    found = [
        world.mk_service(path),
        world.mk_slice(f"{path}-1", name, ["10.20.0.7", "10.20.0.8", "10.20.0.9"], 8443),
        world.mk_route(path, gateway.path, [{"name": name, "port": 443}], [host or f"{name}.example"]),
    ]
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
    now = time.time()
    return LeafCertificate(f"CN={name}", f"CN={issuer}", (name,), now - 30 * DAY, now + days * DAY)


def working(name: str, days: float = 61) -> HopState:
    return HopState(Health.WORKING, time.time() - 3600, (), 3, (leaf(name, days),), ("TLSv1.3",))


def observe(runtime: ClusterRuntime, seen: Seen) -> None:
    now = time.time()
    graph = runtime.controller.engine.graph

    def put(path: str, state: HopState | None, rate: float = 0.0, errors: float = 0.0, *endpoints: EndpointSeen) -> None:
        namespace, _, name = path.partition("/")
        gateway, port, protocol = (INTERNAL, 5432, Protocol.TCP) if name == "postgres" else (WEB, 443, Protocol.AUTO)
        hop = Hop(gateway, Key("Service", namespace, name), port, protocol)
        OBSERVED.set(graph, state, *hop)
        if state is None:
            return
        good = int(rate * 3000 * (1 - errors))
        bad = int(rate * 3000 * errors)
        last = now - 2 if state.health is not Health.FAILING else 0.0
        latency = ((0.005, good // 2), (0.025, good * 9 // 10), (0.1, good), (float("inf"), good))
        traffic = Traffic((0, good, 0, 0, bad), latency, good * 0.01)
        counted = HopSeen(good // 50, bad, bad, last, now - 4 if bad else 0.0, endpoints, traffic)
        seen.hops[hop] = counted
        seen.rates[hop] = (rate, errors)
        seen.rates[Key("HTTPRoute", namespace, name)] = (rate, errors)

    put("shop/api", working("api.internal"), 180.0)
    put("shop/cart", working("cart.internal", 12), 42.0)
    put("shop/search", working("search.internal"), 0.4)
    put("shop/images", HopState(Health.WORKING, now - 60, (), 3), 900.0)
    put("shop/erp", HopState(Health.WORKING, now - 60, (), 1, (leaf("erp", -3, "erp"),), ("TLSv1.2",)), 3.0)
    wrong = "certificate is for old.example, policy billing/invoices wants invoices.internal"
    put(
        "billing/invoices",
        HopState(Health.FAILING, now - 720, (Failure(wrong, ("10.20.0.7:8443",)),), 1, (leaf("old.example", 200),)),
        12.0,
        1.0,
        EndpointSeen("10.20.0.7:8443", 4031, wrong, now - 3),
    )
    expired = "certificate has expired"
    put(
        "billing/payments",
        HopState(
            Health.PARTLY_FAILING,
            now - 7200,
            (Failure(expired, ("10.20.0.7:8443", "10.20.0.8:8443")),),
            3,
            (leaf("payments.internal", -1), leaf("payments.internal", 88)),
        ),
        25.0,
        0.66,
        EndpointSeen("10.20.0.7:8443", 211, expired, now - 9, certificate=leaf("payments.internal", -1)),
        EndpointSeen("10.20.0.8:8443", 198, expired, now - 11),
        EndpointSeen(
            "10.20.0.9:8443", 0, "", 0.0, now - 1, leaf("payments.internal", 88), "TLSv1.3", "TLS_AES_256_GCM_SHA384"
        ),
    )
    put("data/postgres", working("postgres.internal", 300), 2.0)


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
async def opened(objects: Sequence[Object], socket: Path) -> AsyncIterator[tuple[ShopView, Seen, int]]:
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
        seen = Seen()
        view, port = ShopView(runtime, seen), free_port()
        async with serving(view, f"127.0.0.1:{port}", socket):
            yield view, seen, port
