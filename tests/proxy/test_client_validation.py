"""Listeners that request client certificates (GEP-91): the admitted clients, and none with an unreadable CA."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.backends import until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG
from tests.proxy.clients import visit
from tests.proxy.grpc_echo import call, route, rule, server
from tests.proxy.lasthop import Lasthop

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
CLIENTS = Certificate("CA of clients", ca=True, valid=LONG)
PARTNERS = Certificate("CA of partners", ca=True, valid=LONG)
ALICE = Certificate("alice", CLIENTS, usage=CLIENT)
BOB = Certificate("bob", PARTNERS, usage=CLIENT)
OLD = Certificate("old alice", CLIENTS, usage=CLIENT, valid=(NOW - 9 * DAY, NOW - DAY))
SELF_SIGNED = Certificate("alice", usage=CLIENT)
SITE = Certificate("site", CA, sans=dns("site.test", "calls.test"))


def asked(*refs: str, mode: str = "AllowValidOnly") -> docs.Document:
    return {"validation": {"caCertificateRefs": [docs.ref(name) for name in refs], "mode": mode}}


Site = tuple[Lasthop, dict[str, int]]


@pytest.fixture(scope="module")
def site(module_own: Callable[..., Lasthop]) -> Iterator[Site]:
    lasthop = module_own()
    ports = {name: free_port() for name in ("default", "partners", "insecure", "missing", "silent")}
    frontend = {
        "default": asked("clients"),
        "perPort": [
            {"port": ports["partners"], "tls": asked("partners")},
            {"port": ports["insecure"], "tls": asked("clients", mode="AllowInsecureFallback")},
            {"port": ports["missing"], "tls": asked("not-there")},
            {"port": ports["silent"], "tls": {}},
        ],
    }
    listeners = [{**docs.https(port, "site"), "name": name} for name, port in ports.items()]
    gateway = docs.gateway("web", docs.http(lasthop.port), *listeners, tls={"frontend": frontend})
    with server("calls") as calls:
        lasthop.write("gateway.yaml", docs.gateway_class(), docs.namespace("shop"), gateway)
        lasthop.write("site.yaml", docs.key_pair("site", SITE), docs.route("site"))
        lasthop.write("clients.yaml", docs.config_map("clients", CLIENTS.pem))
        lasthop.write("partners.yaml", docs.config_map("partners", PARTNERS.pem))
        lasthop.write(
            "calls.yaml", docs.service("calls"), *docs.endpoints("calls", calls.port), route("calls", rule(docs.to("calls")))
        )
        lasthop.start()
        until(lambda: visit(ports["silent"], None), "the ports are served")
        yield lasthop, ports


# The route has no backend, so admitted clients get 500.
@pytest.mark.parametrize(
    "port, let_in",
    [("default", {"alice"}), ("partners", {"bob"}), ("missing", set()), ("insecure", "all"), ("silent", "all")],
)
def test_the_admitted_clients(site: Site, port: str, let_in: set[str] | str) -> None:
    clients = {"alice": ALICE, "bob": BOB, "expired": OLD, "self-signed": SELF_SIGNED, "nothing": None}
    refused = {name for name, own in clients.items() if visit(site[1][port], own) == 500}
    assert refused == (set(clients) if let_in == "all" else let_in)


def test_the_status_says_what_is_closed_and_what_is_insecure(site: Site) -> None:
    lasthop, _ = site
    gateway = lasthop.object("Gateway", "web")
    assert lasthop.conditions("Gateway", "web")["InsecureFrontendValidationMode"][:2] == ("True", "ConfigurationChanged")
    of = {listener["name"]: {c["type"]: c for c in listener["conditions"]} for listener in gateway["status"]["listeners"]}
    assert of["default"]["Programmed"]["status"] == of["http"]["Programmed"]["status"] == "True"
    assert (of["missing"]["Accepted"]["status"], of["missing"]["Accepted"]["reason"]) == ("False", "NoValidCACertificate")
    assert of["missing"]["ResolvedRefs"]["reason"] == "InvalidCACertificateRef"
    assert of["missing"]["Programmed"]["status"] == "False"


def test_grpc_over_tls_with_a_client_certificate(site: Site) -> None:
    lasthop, ports = site
    mine = grpc.ssl_channel_credentials(CA.pem.encode(), ALICE.key_pem.encode(), ALICE.pem.encode())
    assert call(lasthop, "calls.test", port=ports["default"], tls=mine).answer["name"] == "calls"
    nobody = grpc.ssl_channel_credentials(CA.pem.encode())
    assert call(lasthop, "calls.test", port=ports["default"], tls=nobody).code is grpc.StatusCode.UNAVAILABLE


def test_another_ca_applies_to_the_next_client_and_without_one_the_port_closes(site: Site) -> None:
    lasthop, ports = site
    lasthop.write("clients.yaml", docs.config_map("clients", PARTNERS.pem))
    until(lambda: (visit(ports["default"], ALICE), visit(ports["default"], BOB)) == (None, 500), "the new CA holds")
    lasthop.write("clients.yaml", docs.config_map("clients", ""))
    until(lambda: visit(ports["default"], BOB) is None, "the port is closed")
    assert visit(ports["partners"], BOB) == 500
    lasthop.write("clients.yaml", docs.config_map("clients", CLIENTS.pem))
    until(lambda: visit(ports["default"], ALICE) == 500, "the port is open again")
    assert visit(ports["default"], None) is None
