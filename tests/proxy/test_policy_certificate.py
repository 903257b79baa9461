"""The certificate that a BackendTLSPolicy has its backends shown: option `lasthop.dev/client-certificate`."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Callable

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.base.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.plan import probe, targets
from tests.backends import Backend, until
from tests.certificates import Certificate
from tests.proxy import documents as docs
from tests.proxy.certs import CA, CLIENT, OTHER_CA, asking
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

OWN = Certificate("of the policy", OTHER_CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
RENEWED = Certificate("of the policy, renewed", OTHER_CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
OPTION = "lasthop.dev/client-certificate"


def hop(name: str, port: int, secret: str = "own") -> list[Document]:
    policy = docs.policy(name, "api.example", "ca", options={OPTION: secret} if secret else {})
    return docs.hop(name, port, policy)


def started(lasthop: Lasthop, first: str = "", gateway_has_one: bool = True) -> Lasthop:
    tls = {"tls": {"backend": {"clientCertificateRef": {"name": "client"}}}} if gateway_has_one else {}
    lasthop.standard(**tls, **docs.with_profile("word"))
    lasthop.write(
        "more.yaml", docs.config_map("ca", CA.pem), docs.profile("word", **({"clientCertificate": first} if first else {}))
    )
    lasthop.write("client.yaml", docs.key_pair("client", CLIENT))
    lasthop.write("own.yaml", docs.key_pair("own", OWN))
    return lasthop


@pytest.mark.parametrize(
    ("first", "gateway_has_one", "shown"),
    [
        ("", True, "of the policy"),
        ("PolicyFirst", True, "of the policy"),
        ("GatewayFirst", True, "gateway web"),
        ("GatewayFirst", False, "of the policy"),
    ],
)
def test_the_operator_says_whose_certificate_goes_first(
    own: Callable[..., Lasthop], serve: Callable[..., Backend], first: str, gateway_has_one: bool, shown: str
) -> None:
    lasthop = started(own(), first, gateway_has_one)
    with_own, without = serve(asking(ssl.CERT_REQUIRED), name="own"), serve(asking(ssl.CERT_OPTIONAL), name="without")
    lasthop.write("hops.yaml", *hop("own", with_own.port), *hop("without", without.port, ""))
    lasthop.start()
    assert lasthop.get("own").status == lasthop.get("without").status == 200
    assert with_own.last.client == shown
    assert without.last.client == ("gateway web" if gateway_has_one else None)
    policy = Key("BackendTLSPolicy", "shop", "own")
    (target,) = probe(policy, targets(FolderView(lasthop.folder).engine, policy, None)).targets
    assert target.passes
    assert with_own.last.client == shown
    assert OWN.key_pem.splitlines()[1] not in lasthop.log


def test_a_renewed_certificate_is_shown_without_a_failed_request_and_old_connections_end(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    lasthop, served = started(own()), serve(asking(ssl.CERT_REQUIRED), name="own")
    lasthop.write("hop.yaml", *hop("own", served.port))
    lasthop.start()
    assert lasthop.get("own").status == 200
    (old,) = [connection for connection in served.connections if connection.established]
    lasthop.write("own.yaml", docs.key_pair("own", RENEWED))
    statuses: list[int] = []

    def renewed() -> bool:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", lasthop.port, timeout=10)) as connection:
            connection.request("GET", "/", headers={"Host": "own.test"})
            statuses.append(connection.getresponse().status)
        return served.last.client == "of the policy, renewed"

    until(renewed)
    assert set(statuses) == {200}
    until(lambda: old.ended)


def test_a_secret_that_cannot_be_used_fails_closed_and_the_gateways_own_does_not_take_its_place(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    lasthop, served = started(own()), serve(asking(ssl.CERT_OPTIONAL), name="own")
    lasthop.write("vault.yaml", docs.namespace("vault"), docs.key_pair("vault/secret", OWN))
    lasthop.write("hop.yaml", *hop("own", served.port, "missing"))
    lasthop.start()
    said = lasthop.conditions("BackendTLSPolicy", "own")
    assert lasthop.get("own").status == 500
    assert said["ResolvedRefs"][:2] == ("False", "InvalidClientCertificateRef")
    assert said["Accepted"][:2] == ("False", "Invalid")
    # Nothing of another namespace can be named.
    for name in ("vault/secret", "../vault/secret"):
        lasthop.load("hop.yaml", *hop("own", served.port, name))
        assert lasthop.get("own").status == 500
        assert "name of a Secret" in lasthop.conditions("BackendTLSPolicy", "own")["Accepted"][2]
    assert served.connections == []
    lasthop.write("hop.yaml", *hop("own", served.port))
    lasthop.until_status("own", 200)
    lasthop.write("own.yaml", docs.key_pair("own", OWN, CLIENT))
    lasthop.until_status("own", 500)
