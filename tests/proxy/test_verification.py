"""Pins and waivers with a real Envoy and real backends: the table of GEP-4152 row by row, at five Gateways. Their operators
allow waivers, allow them for 30 days, deny them, have no rule, or deny pins alone and undeclared plaintext.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from lasthop.base.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.plan import probe, targets
from tests.backends import Backend, backend, until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG, OTHER_CA, key_pin
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked

GOOD = Certificate("good", CA, sans=dns("api.example"), valid=LONG)
WRONG_NAME = Certificate("wrong name", CA, sans=dns("other.example"), valid=LONG)
FOREIGN = Certificate("foreign", OTHER_CA, sans=dns("other.example"), valid=LONG)
EXPIRED = Certificate("expired", CA, sans=dns("api.example"), valid=(NOW - 9 * DAY, NOW - DAY))
EXPIRED_WRONG_NAME = Certificate("expired, wrong name", CA, sans=dns("other.example"), valid=(NOW - 9 * DAY, NOW - DAY))
NOT_YET = Certificate("not yet", CA, sans=dns("api.example"), valid=(NOW + DAY, NOW + 9 * DAY))
FUTURE_CA = Certificate("a CA from tomorrow on", ca=True, valid=(NOW + DAY, NOW + 9 * DAY))
OF_FUTURE_CA = Certificate("good, but for its CA", FUTURE_CA, sans=dns("api.example"), valid=LONG)
SELF_SIGNED = Certificate("self-signed", sans=dns("api.example"), valid=LONG)
NAMELESS = Certificate("nameless", valid=LONG)


def hash_pin(certificate: Certificate) -> tuple[str, str]:
    digest = hashlib.sha256(certificate.certificate.public_bytes(Encoding.DER)).hexdigest().upper()
    return "Certificate", ":".join(digest[i : i + 2] for i in range(0, 64, 2))


@dataclasses.dataclass(frozen=True)
class Row:
    shows: Certificate
    """What the backend has."""
    status: int
    """200; 503: the handshake fails; 500: the policy is refused and nobody connects."""
    refs: tuple[str | Document, ...] = ()
    pins: Document | None = None
    """The PinSet of the row, which is then named first."""
    sans: tuple[str, ...] = ()

    @property
    def waived(self) -> bool:
        return any(isinstance(ref, dict) and ref["kind"] == "VerificationWaiver" for ref in self.refs)


ALL, NAMES, EXPIRY = (docs.own(name, "VerificationWaiver") for name in ("all", "names", "expiry"))
SYSTEM = docs.own("System", "WellKnownCACertificates")


def pinned(*pins: tuple[str, str], **spec: object) -> Document:
    return docs.pin_set("row", *pins, **spec)


WITH_CA, WITH_OTHER_CA = ({"caCertificateRefs": [docs.ref(name)]} for name in ("ca", "other-ca"))
ROWS = {
    "ca": Row(GOOD, 200, ("ca",)),
    "right-key": Row(GOOD, 200, pins=pinned(key_pin(GOOD))),
    "right-certificate": Row(GOOD, 200, pins=pinned(hash_pin(GOOD))),
    "wrong-pin": Row(GOOD, 503, pins=pinned(key_pin(WRONG_NAME), hash_pin(WRONG_NAME))),
    "second-pin": Row(GOOD, 200, pins=pinned(key_pin(WRONG_NAME), key_pin(GOOD))),
    "pin-of-the-issuer": Row(GOOD, 503, pins=pinned(key_pin(CA))),
    "pin-of-a-self-signed-one": Row(NAMELESS, 200, pins=pinned(key_pin(NAMELESS))),
    "pins-only-look-at-no-dates": Row(EXPIRED, 200, pins=pinned(key_pin(EXPIRED))),
    "exact": Row(SELF_SIGNED, 200, pins=pinned(certificates=[SELF_SIGNED.pem])),
    "exact-second": Row(GOOD, 200, pins=pinned(certificates=[SELF_SIGNED.pem, GOOD.pem])),
    "exact-other": Row(GOOD, 503, pins=pinned(certificates=[SELF_SIGNED.pem])),
    "exact-wrong-name": Row(WRONG_NAME, 503, pins=pinned(certificates=[WRONG_NAME.pem])),
    "exact-wrong-name-waived": Row(WRONG_NAME, 200, (NAMES,), pinned(certificates=[WRONG_NAME.pem])),
    "exact-expired": Row(EXPIRED, 500, pins=pinned(certificates=[EXPIRED.pem])),
    "exact-expired-beside-another": Row(EXPIRED, 503, pins=pinned(certificates=[EXPIRED.pem, GOOD.pem])),
    "exact-expired-waived": Row(EXPIRED, 200, (EXPIRY,), pinned(certificates=[EXPIRED.pem])),
    "narrow": Row(GOOD, 200, pins=pinned(key_pin(GOOD), **WITH_CA)),
    "narrow-wrong-ca": Row(GOOD, 503, pins=pinned(key_pin(GOOD), **WITH_OTHER_CA)),
    "narrow-wrong-pin": Row(GOOD, 503, pins=pinned(key_pin(NAMELESS), **WITH_CA)),
    "narrow-wrong-name": Row(WRONG_NAME, 503, pins=pinned(key_pin(WRONG_NAME), **WITH_CA)),
    "narrow-system": Row(GOOD, 200, pins=pinned(key_pin(GOOD), wellKnownCACertificates="System")),
    "narrow-expired-waived": Row(EXPIRED, 200, (EXPIRY,), pinned(key_pin(EXPIRED), **WITH_CA)),
    "pins-beside-a-ca": Row(GOOD, 500, ("ca",), pinned(key_pin(GOOD))),
    "names-with-pins-only": Row(GOOD, 500, pins=pinned(key_pin(GOOD)), sans=("api.example",)),
    "unknown-kind-beside-a-ca": Row(GOOD, 500, ("ca", docs.ref("x", "Bundle", "trust.example"))),
    "expired": Row(EXPIRED, 503, ("ca",)),
    "expired-waived": Row(EXPIRED, 200, ("ca", EXPIRY)),
    "not-yet-waived": Row(NOT_YET, 200, ("ca", EXPIRY)),
    "exact-not-yet": Row(NOT_YET, 500, pins=pinned(certificates=[NOT_YET.pem])),
    "exact-not-yet-waived": Row(NOT_YET, 200, (EXPIRY,), pinned(certificates=[NOT_YET.pem])),
    "ca-not-yet": Row(OF_FUTURE_CA, 500, ("future-ca",)),
    "ca-not-yet-beside-another": Row(OF_FUTURE_CA, 503, ("future-ca", "ca")),
    "ca-not-yet-waived": Row(OF_FUTURE_CA, 200, ("future-ca", EXPIRY)),
    "expired-waived-and-wrong-name": Row(EXPIRED_WRONG_NAME, 503, ("ca", EXPIRY)),
    "wrong-name": Row(WRONG_NAME, 503, ("ca",)),
    "wrong-name-waived": Row(WRONG_NAME, 200, ("ca", NAMES)),
    "wrong-name-waived-in-the-system-store": Row(WRONG_NAME, 200, (SYSTEM, NAMES)),
    "wrong-name-waived-and-foreign": Row(FOREIGN, 503, ("ca", NAMES)),
    "wrong-name-waived-and-expired": Row(EXPIRED_WRONG_NAME, 503, ("ca", NAMES)),
    "self-signed": Row(NAMELESS, 503, ("ca",)),
    "self-signed-waived": Row(NAMELESS, 200, (ALL,)),
    "waiver-that-is-not-there": Row(NAMELESS, 500, (docs.own("nowhere", "VerificationWaiver"),)),
}
GATEWAYS = ("limited", "denied", "silent", "named")
"""Besides `web`, whose operator allows waivers."""


CONNECTIONS = {"right-key": True, "exact": True, "expired-waived": True, "wrong-pin": False, "self-signed-waived": False}
"""Rows that a TCPRoute of `limited` reaches as well, and whether connections come through."""


@dataclasses.dataclass
class World:
    lasthop: Lasthop
    ports: dict[str, int]
    """By Gateway, and by row for connections."""
    backends: dict[str, Backend]


def hop(name: str, row: Row, port: int) -> list[Document]:
    """The row behind the host NAME.test of every Gateway."""
    refs: list[str | Document] = list(row.refs)
    more = []
    if row.pins:
        more = [{**row.pins, "metadata": {**row.pins["metadata"], "name": name}}]
        refs.insert(0, docs.own(name, "PinSet"))
    policy = docs.policy(name, "api.example", *refs, sans=[docs.san(san) for san in row.sans])
    documents = docs.hop(name, port, policy)
    route = next(document for document in documents if document["kind"] == "HTTPRoute")
    route["spec"]["parentRefs"] += [{"name": gateway} for gateway in GATEWAYS]
    return [*documents, *more]


@pytest.fixture(scope="module")
def world(module_own: Callable[..., Lasthop]) -> Iterator[World]:
    lasthop = module_own()
    store = lasthop.root / "store.pem"
    store.write_text(CA.pem)
    lasthop.env["SSL_CERT_FILE"] = str(store)
    ports = {name: free_port() for name in (*GATEWAYS, *CONNECTIONS)}
    lasthop.standard(**docs.with_profile("lenient"))
    lasthop.write(
        "gateways.yaml",
        docs.gateway(
            "limited",
            docs.http(ports["limited"]),
            *(docs.listener(name, "TCP", ports[name]) for name in CONNECTIONS),
            **docs.with_profile("limited"),
        ),
        *(docs.stream_route("TCPRoute", name, docs.to(name), listener=name, gateway="limited") for name in CONNECTIONS),
        docs.gateway("denied", docs.http(ports["denied"]), **docs.with_profile("strict")),
        docs.gateway("silent", docs.http(ports["silent"])),
        docs.profile("lenient", waivers="Allow"),
        docs.profile("limited", waivers="Allow", maxWaiverDays=30),
        docs.gateway("named", docs.http(ports["named"]), **docs.with_profile("named")),
        docs.profile("strict", waivers="Deny"),
        docs.profile("named", waivers="Allow", pinnedOnly="Deny", plaintextBackends="Declared"),
        docs.config_map("ca", CA.pem),
        docs.config_map("other-ca", OTHER_CA.pem),
        docs.config_map("future-ca", FUTURE_CA.pem),
        docs.waiver("all", "All"),
        docs.waiver("names", "Names"),
        docs.waiver("expiry", "Expiry", expires=f"{NOW + 20 * DAY:%FT%TZ}", created=f"{NOW - DAY:%FT%TZ}"),
    )
    with contextlib.ExitStack() as stack:
        backends = {name: stack.enter_context(backend(row.shows.server_context(), name=name)) for name, row in ROWS.items()}
        for name, row in ROWS.items():
            lasthop.write(f"{name}.yaml", *hop(name, row, backends[name].port))
        lasthop.start()
        yield World(lasthop, ports, backends)
        assert not [name for name, server in backends.items() if server.saw_plaintext]


@pytest.mark.parametrize("name", ROWS)
def test_certificate_checks_match_the_table(world: World, name: str) -> None:
    row, served = ROWS[name], world.backends[name]
    assert world.lasthop.get(name).status == row.status
    if row.status == 500:
        assert served.connections == []
    else:
        assert {connection.sni for connection in served.connections} == {"api.example"}


def test_probe_says_what_each_gateway_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", world.lasthop.env["SSL_CERT_FILE"])
    engine = FolderView(world.lasthop.folder).engine
    planned = {key: targets(engine, key, None) for key in (Key("BackendTLSPolicy", "shop", name) for name in ROWS)}
    ports = {"web": world.lasthop.port, **{name: world.ports[name] for name in GATEWAYS}}

    def differing(policy: Key) -> list[str]:
        passes = {target.gateway: target.passes for target in probe(policy, planned[policy]).targets}
        return [
            gateway
            for gateway, port in ports.items()
            if passes[f"shop/{gateway}"] != (world.lasthop.get(policy.name, port=port).status == 200)
        ]

    # A handshake of TLS 1.3 waits for the backend's verdict on the client: in parallel, they wait together.
    with ThreadPoolExecutor(8) as threads:
        differences = dict(zip(ROWS, threads.map(differing, planned), strict=True))
    assert not {name: gateways for name, gateways in differences.items() if gateways}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.waived])
def test_a_waiver_holds_only_where_the_operator_allows_it(world: World, name: str) -> None:
    row = ROWS[name]
    before = len(world.backends[name].connections)
    for gateway in ("denied", "silent"):
        assert world.lasthop.get(name, port=world.ports[gateway]).status == 500
    assert len(world.backends[name].connections) == before
    # Only the waiver of Expiry ends, and in time.
    in_time = EXPIRY in row.refs
    assert world.lasthop.get(name, port=world.ports["limited"]).status == (row.status if in_time else 500)


def test_a_policy_without_a_waiver_is_the_same_at_every_gateway(world: World) -> None:
    for name in ("ca", "right-key", "exact", "narrow", "wrong-pin", "expired"):
        for gateway in GATEWAYS:
            if gateway != "named" or name not in ("right-key", "wrong-pin"):
                assert world.lasthop.get(name, port=world.ports[gateway]).status == ROWS[name].status


@pytest.mark.parametrize("name", ["right-key", "right-certificate", "pins-only-look-at-no-dates", "wrong-pin"])
def test_pins_alone_hold_only_where_the_operator_does_not_deny_them(world: World, name: str) -> None:
    before = len(world.backends[name].connections)
    assert world.lasthop.get(name, port=world.ports["named"]).status == 500
    assert len(world.backends[name].connections) == before
    said = world.lasthop.conditions("BackendTLSPolicy", name, "named")
    assert said["Accepted"][:2] == ("False", "PinnedOnlyNotPermitted")


@pytest.mark.parametrize(("protocol", "status"), [("", 500), ("HTTP", 200), ("grpc", 500)])
def test_plaintext_goes_only_to_ports_that_declare_it(
    world: World, serve: Callable[..., Backend], protocol: str, status: int
) -> None:
    name, served = f"says-{len(protocol)}", serve(None)
    says = {"appProtocol": protocol} if protocol else {}
    documents = [docs.service(name, {"name": "https", "port": 443, **says}), *docs.endpoints(name, served.port)]
    world.lasthop.load(f"{name}.yaml", *documents, docs.route(name, docs.to(name), gateway="named"))
    assert world.lasthop.get(name, port=world.ports["named"]).status == status
    assert bool(served.connections) == (status != 500)


@pytest.mark.parametrize("name", CONNECTIONS)
def test_connections_without_http_are_verified_the_same_way(world: World, name: str) -> None:
    assert asked(world.ports[name]) == (name if CONNECTIONS[name] else "")


def test_each_gateway_has_its_own_word_in_the_status(world: World) -> None:
    def said(gateway: str, name: str = "self-signed-waived") -> dict[str, tuple[str, str, str]]:
        return world.lasthop.conditions("BackendTLSPolicy", name, gateway)

    assert said("web")["Accepted"][0] == "True"
    assert said("web")["VerificationDegraded"][:2] == ("True", "WaivedAll")
    assert "the test wants it" in said("web")["VerificationDegraded"][2]
    for gateway, words in (("limited", "30 days"), ("denied", "shop/strict"), ("silent", "no GatewayProfile")):
        assert said(gateway)["Accepted"][:2] == ("False", "WaiverNotPermitted")
        assert words in said(gateway)["Accepted"][2]
        assert "VerificationDegraded" not in said(gateway)
    assert said("limited", "expired-waived")["VerificationDegraded"][:2] == ("True", "WaivedExpiry")


def test_everybody_can_see_where_verification_is_degraded(world: World) -> None:
    lasthop = world.lasthop
    in_effect = [name for name, row in ROWS.items() if row.waived and row.status != 500]
    insecure = lasthop.conditions("Gateway", "web")["InsecureBackendVerification"]
    assert (insecure[0], insecure[2].split()[0]) == ("True", str(len(in_effect)))
    assert "InsecureBackendVerification" not in lasthop.conditions("Gateway", "denied")
    metrics = lasthop.ask("/metrics")[1].decode()
    labels = 'gateway="shop/{}",kind="Service",mode="{}",namespace="shop",port="443",service="{}"'
    for gateway, mode, name in (
        ("web", "WaivedAll", "self-signed-waived"),
        ("web", "WaivedNames", "wrong-name-waived"),
        ("web", "PinnedOnly", "right-key"),
        ("web", "Verified", "exact"),
        ("denied", "FailingClosed", "self-signed-waived"),
    ):
        assert f"lasthop_backend_tls_verification{{{labels.format(gateway, mode, name)}}} 1.0" in metrics
    assert 'lasthop_waiver_expiry_timestamp_seconds{namespace="shop",waiver="expiry"}' in metrics
    measured = {tuple(re.findall(r'(\w+)="([^"]*)"', line)) for line in metrics.splitlines() if "tls_verification{" in line}
    audited = json.loads(lasthop.command("audit", "-o", "json").stdout)["hops"]
    assert {frozenset(labels) for labels in measured} == {
        frozenset(
            {
                ("gateway", hop["gateway"]),
                ("kind", hop["kind"]),
                ("namespace", hop["service"].split("/")[0]),
                ("service", hop["service"].split("/")[1]),
                ("port", str(hop["port"])),
                ("mode", hop["mode"]),
            }
        )
        for hop in audited
    }
    ends = {hop["waiver"]["name"] for hop in audited if hop["waiver"] and hop["waiver"]["expires"]}
    assert ends == {"shop/expiry"} and metrics.count("lasthop_waiver_expiry_timestamp_seconds{") == 1
    degraded = {f["object"] for f in lasthop.findings() if f["reason"] == "VerificationDegraded"}
    assert degraded == {f"BackendTLSPolicy shop/{name}" for name in in_effect}
    assert "the backend's certificate is not checked" in lasthop.log


def test_a_pin_that_is_taken_away_ends_connections_that_rest_on_it(world: World) -> None:
    lasthop, served, name = world.lasthop, world.backends["right-key"], "right-key"
    assert lasthop.get(name).status == 200
    lasthop.write(f"{name}.yaml", *hop(name, dataclasses.replace(ROWS[name], pins=pinned(key_pin(CA))), served.port))
    lasthop.until_status(name, 503)
    lasthop.write(f"{name}.yaml", *hop(name, ROWS[name], served.port))
    lasthop.until_status(name, 200)


def test_a_waiver_ends_at_its_second_even_if_the_controller_is_dead(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    """Envoy itself forgets the cluster (the ttl of the resource)."""
    served = serve(NAMELESS.server_context())
    lasthop = own()
    lasthop.standard(**docs.with_profile("lenient"))
    policy = docs.policy("api", "api.example", docs.own("brief", "VerificationWaiver"))
    lasthop.write("hop.yaml", docs.profile("lenient", waivers="Allow"), *docs.hop("api", served.port, policy))
    lasthop.start()
    assert lasthop.get("api").status == 500  # the waiver is not there yet
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    lasthop.write("waiver.yaml", docs.waiver("brief", "All", expires=f"{end:%FT%T.%fZ}"))
    lasthop.until_status("api", 200)
    lasthop.kill()
    assert lasthop.get("api").status == 200
    until(lambda: lasthop.get("api").status != 200)
    assert time.time() >= end.timestamp()
    assert lasthop.get("api").status == 500
