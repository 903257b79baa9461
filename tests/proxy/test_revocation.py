"""Revocation lists beside CAs, with a real Envoy and real backends: refused certificates, and the same result from `probe`."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.base.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.plan import probe, targets
from lasthop.edge.proxy.entry import parse
from tests.backends import Backend, backend, until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG, OTHER_CA, key_pin
from tests.proxy.clients import visit
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

ROOT = Certificate("root", ca=True, valid=LONG)
ISSUING = Certificate("issuing", ROOT, ca=True, valid=LONG)
GOOD = Certificate("good", CA, sans=dns("api.example"), valid=LONG)
STOLEN = Certificate("stolen", CA, sans=dns("api.example"), valid=LONG)
OTHER = Certificate("of another CA", OTHER_CA, sans=dns("api.example"), valid=LONG)
DEEP = Certificate("deep", ISSUING, sans=dns("api.example"), valid=LONG)
PAST, FUTURE = (NOW - 9 * DAY, NOW - DAY), (NOW + DAY, NOW + 9 * DAY)
EXPIRY = docs.own("expiry", "VerificationWaiver")
GARBAGE = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"


@dataclasses.dataclass(frozen=True)
class Row:
    shows: tuple[Certificate, ...]
    status: int
    """200; 503: the handshake fails; 500: the policy is refused and nobody connects."""
    cas: tuple[tuple[str, str | None], ...]
    """ca.crt and ca.crl of each ConfigMap."""
    reason: str = "ResolvedRefs"
    refs: tuple[Document, ...] = ()
    pin: Certificate | None = None


ROWS = {
    "nothing-revoked": Row((GOOD,), 200, ((CA.pem, CA.crl()),)),
    "another-one-revoked": Row((GOOD,), 200, ((CA.pem, CA.crl(STOLEN)),)),
    "revoked": Row((STOLEN,), 503, ((CA.pem, CA.crl(STOLEN)),)),
    "revoked-in-the-newer-of-two": Row((STOLEN,), 503, ((CA.pem, CA.crl(valid=PAST) + CA.crl(STOLEN)),)),
    "revoked-and-pinned": Row((STOLEN,), 503, ((CA.pem, CA.crl(STOLEN)),), pin=STOLEN),
    "pinned-and-not-revoked": Row((GOOD,), 200, ((CA.pem, CA.crl(STOLEN)),), pin=GOOD),
    "expired": Row((GOOD,), 500, ((CA.pem, CA.crl(valid=PAST)),), "RevocationListNotCurrent"),
    "expired-and-expiry-waived": Row((GOOD,), 500, ((CA.pem, CA.crl(valid=PAST)),), "RevocationListNotCurrent", (EXPIRY,)),
    "not-yet": Row((GOOD,), 500, ((CA.pem, CA.crl(valid=FUTURE)),), "RevocationListNotCurrent"),
    "garbage": Row((GOOD,), 500, ((CA.pem, GARBAGE),), "InvalidRevocationList"),
    "empty": Row((GOOD,), 500, ((CA.pem, ""),), "InvalidRevocationList"),
    "of-an-impostor": Row((GOOD,), 500, ((CA.pem, Certificate("the policy's CA", ca=True).crl()),), "InvalidRevocationList"),
    # The same CA without a list must not take its place.
    "expired-beside-the-same-ca": Row(
        (STOLEN,), 500, ((CA.pem, CA.crl(STOLEN, valid=PAST)), (CA.pem, None)), "RevocationListNotCurrent"
    ),
    "revoked-beside-the-same-ca": Row((STOLEN,), 503, ((CA.pem, CA.crl(STOLEN)), (CA.pem, None))),
    "of-a-ca-without-a-list": Row((OTHER,), 503, ((CA.pem, CA.crl()), (OTHER_CA.pem, None))),
    "of-a-ca-with-a-list-of-its-own": Row((OTHER,), 200, ((CA.pem, CA.crl()), (OTHER_CA.pem, OTHER_CA.crl()))),
    "whole-chain": Row((DEEP, ISSUING), 200, ((ROOT.pem, ROOT.crl() + ISSUING.crl()),)),
    "whole-chain-revoked-above": Row((DEEP, ISSUING), 503, ((ROOT.pem, ROOT.crl(ISSUING) + ISSUING.crl()),)),
    "whole-chain-revoked-below": Row((DEEP, ISSUING), 503, ((ROOT.pem, ROOT.crl() + ISSUING.crl(DEEP)),)),
    "only-the-root's-list": Row((DEEP, ISSUING), 503, ((ROOT.pem, ROOT.crl()),)),
    "only-the-issuing-ca's-list": Row((DEEP, ISSUING), 200, ((ROOT.pem, ISSUING.crl()),)),
    "only-the-issuing-ca's-list-revoked": Row((DEEP, ISSUING), 503, ((ROOT.pem, ISSUING.crl(DEEP)),)),
    "an-intermediate-as-anchor": Row((DEEP,), 200, ((ISSUING.pem, ISSUING.crl()),)),
    "an-intermediate-as-anchor-revoked": Row((DEEP,), 503, ((ISSUING.pem, ISSUING.crl(DEEP)),)),
}
NAMES = {name: name.replace("'", "") for name in ROWS}


def hop(row: Row, name: str, port: int) -> list[Document]:
    maps = [docs.config_map(f"{name}-{number}", pem, crl) for number, (pem, crl) in enumerate(row.cas)]
    refs = [docs.ref(config_map["metadata"]["name"]) for config_map in maps]
    more = []
    if row.pin:
        more = [docs.pin_set(name, key_pin(row.pin), caCertificateRefs=refs)]
        refs = [docs.own(name, "PinSet")]
    return [*maps, *more, *docs.hop(name, port, docs.policy(name, "api.example", *refs, *row.refs))]


@dataclasses.dataclass
class World:
    lasthop: Lasthop
    backends: dict[str, Backend]


@pytest.fixture(scope="module")
def world(module_own: Callable[..., Lasthop]) -> Iterator[World]:
    lasthop = module_own()
    lasthop.standard(**docs.with_profile("lenient"))
    lasthop.write("more.yaml", docs.profile("lenient", waivers="Allow"), docs.waiver("expiry", "Expiry"))
    with contextlib.ExitStack() as stack:
        contexts = {name: row.shows[0].server_context(*row.shows[1:]) for name, row in ROWS.items()}
        backends = {name: stack.enter_context(backend(context, name=name)) for name, context in contexts.items()}
        for name, row in ROWS.items():
            lasthop.write(f"{NAMES[name]}.yaml", *hop(row, NAMES[name], backends[name].port))
        lasthop.start()
        yield World(lasthop, backends)
        assert not [name for name, server in backends.items() if server.saw_plaintext]


@pytest.mark.parametrize("name", ROWS)
def test_revoked_certificates_are_refused_and_an_unusable_list_fails_closed(world: World, name: str) -> None:
    row = ROWS[name]
    assert world.lasthop.get(NAMES[name]).status == row.status
    assert bool(world.backends[name].connections) == (row.status != 500)
    assert world.lasthop.conditions("BackendTLSPolicy", NAMES[name])["ResolvedRefs"][1] == row.reason


WITHOUT_LIST = ("of-a-ca-without-a-list", "only-the-root's-list")


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.status == 503])
def test_a_revoked_certificate_and_a_missing_list_have_different_messages(world: World, name: str) -> None:
    words = "has no revocation list" if name in WITHOUT_LIST else "revoked"
    world.lasthop.get(NAMES[name])

    def told() -> bool:
        entries = map(parse, (world.lasthop.root / "out").read_bytes().splitlines())
        return any(words in (entry.why or "") for entry in entries if entry and entry.policy == f"shop/{NAMES[name]}")

    until(told)


def test_probe_agrees_with_envoy(world: World) -> None:
    engine, differing = FolderView(world.lasthop.folder).engine, []
    for name, row in ROWS.items():
        policy = Key("BackendTLSPolicy", "shop", NAMES[name])
        (target,) = probe(policy, targets(engine, policy, None)).targets
        if target.passes != (row.status == 200):
            differing.append(name)
    assert not differing


def test_the_next_update_is_in_audit_and_metrics_and_the_reason_in_the_log(world: World) -> None:
    lasthop = world.lasthop
    metrics = lasthop.ask("/metrics")[1].decode()
    name = "lasthop_revocation_list_next_update_timestamp_seconds"
    assert f'{name}{{issuer="CN=the policy\'s CA",kind="ConfigMap",name="revoked-0",namespace="shop"}}' in metrics
    assert "revoked" in lasthop.command("explain", "backendtlspolicy/shop/revoked", "--dir", str(lasthop.folder)).stdout
    until(lambda: "certificate_revoked" in (lasthop.root / "out").read_text() or "revoked" in lasthop.log)


def test_a_list_that_comes_ends_what_rests_on_the_certificate_and_its_end_closes_the_hop(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    served, name = serve(STOLEN.server_context()), "revoked-later"
    policy = docs.policy(name, "api.example", name)
    gateway.load(f"{name}.yaml", docs.config_map(name, CA.pem), *docs.hop(name, served.port, policy))
    assert gateway.get(name).status == 200
    gateway.write(f"{name}.yaml", docs.config_map(name, CA.pem, CA.crl(STOLEN)), *docs.hop(name, served.port, policy))
    gateway.until_status(name, 503)
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=4)
    crl = CA.crl(valid=(NOW - DAY, end))
    gateway.write(f"{name}.yaml", docs.config_map(name, CA.pem, crl), *docs.hop(name, served.port, policy))
    gateway.until_status(name, 200)
    gateway.until_status(name, 500)
    assert datetime.datetime.now(datetime.UTC) >= end - datetime.timedelta(seconds=1)


def test_clients_whose_certificate_is_revoked_do_not_come_in(own: Callable[..., Lasthop]) -> None:
    clients = Certificate("CA of clients", ca=True, valid=LONG)
    alice, eve = (Certificate(name, clients, usage=ExtendedKeyUsageOID.CLIENT_AUTH) for name in ("alice", "eve"))
    lasthop, port = own(), free_port()
    asked = {"default": {"validation": {"caCertificateRefs": [docs.ref("clients")], "mode": "AllowValidOnly"}}}
    gateway = docs.gateway("web", docs.http(lasthop.port), docs.https(port, "own"), tls={"frontend": asked})
    site = docs.key_pair("own", Certificate("site", CA, sans=dns("site.test")))
    lasthop.write("gateway.yaml", docs.gateway_class(), docs.namespace("shop"), gateway, site)
    lasthop.write("clients.yaml", docs.config_map("clients", clients.pem, clients.crl(eve)))
    lasthop.start()
    until(lambda: visit(port, alice) == 404)
    assert visit(port, eve) is None
    lasthop.write("clients.yaml", docs.config_map("clients", clients.pem, clients.crl(valid=PAST)))
    until(lambda: visit(port, alice) is None)
    accepted = lasthop.object("Gateway", "web")["status"]["listeners"][1]["conditions"]
    assert "RevocationListNotCurrent" in {finding["reason"] for finding in accepted}
