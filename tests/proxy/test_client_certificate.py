"""The certificate that a Gateway shows to its backends: `spec.tls.backend.clientCertificateRef`."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from lasthop.base.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.plan import probe, targets
from tests.backends import Backend, until
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, CLIENT, SECOND_CLIENT, asking
from tests.proxy.documents import Document
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop


def shown(name: str = "client", namespace: str = "") -> Document:
    return {"backend": {"clientCertificateRef": {"name": name, **({"namespace": namespace} if namespace else {})}}}


@pytest.fixture
def second_port() -> int:
    return free_port()


@pytest.fixture
def two(own: Callable[..., Lasthop], second_port: int) -> Lasthop:
    """Two Gateways; only `web` has a client certificate."""
    lasthop = own()
    lasthop.standard(tls=shown())
    lasthop.write("second.yaml", docs.gateway("second", docs.http(second_port)))
    lasthop.write("client.yaml", docs.key_pair("client", CLIENT))
    lasthop.write("ca.yaml", docs.config_map("ca", CA.pem))
    return lasthop


def both(path: str, port: int, *policies: Document) -> list[Document]:
    documents = docs.hop(path, port, *policies)
    for document in documents:
        if document["kind"] == "HTTPRoute":
            document["spec"]["parentRefs"].append({"name": "second", "namespace": docs.NAMESPACE})
    return documents


def seen_by(lasthop: Lasthop, backend: Backend) -> str | None:
    """The client certificate on a new connection."""
    backend.drop()
    assert lasthop.get(backend.name).status == 200
    return backend.last.client


def test_a_backend_sees_the_client_certificate_of_the_gateway_that_has_one_and_of_no_other(
    two: Lasthop, serve: Callable[..., Backend], second_port: int
) -> None:
    required, optional = serve(asking(ssl.CERT_REQUIRED), name="required"), serve(asking(ssl.CERT_OPTIONAL), name="optional")
    older = serve(asking(ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2), name="older")
    plain = serve(None, name="plain")
    for name, backend in (("required", required), ("optional", optional), ("older", older)):
        two.write(f"{name}.yaml", *both(name, backend.port, docs.policy(name, "api.example", "ca")))
    two.write("plain.yaml", *both("plain", plain.port))
    two.start()
    for name in ("required", "optional", "older", "plain"):
        assert two.get(name) == (200, name)
    assert {backend.last.client for backend in (required, optional, older)} == {"gateway web"}

    assert two.get("optional", port=second_port) == (200, "optional")
    assert optional.last.client is None
    for name in ("required", "older"):
        answer = two.get(name, port=second_port)
        assert answer.status == 503
        assert "certificate" not in answer.body.lower()
    assert {c.client for c in required.connections if c.established} == {"gateway web"}
    assert two.conditions("Gateway", "web")["ResolvedRefs"][0] == "True"

    # `lasthop probe` knows it as well.
    engine = FolderView(two.folder).engine
    for name, without in (("required", False), ("optional", True), ("older", False)):
        policy = Key("BackendTLSPolicy", "shop", name)
        passes = {target.gateway: target.passes for target in probe(policy, targets(engine, policy, None)).targets}
        assert passes == {"shop/web": True, "shop/second": without}, name

    # Renewed: the next connection has it.
    two.write("client.yaml", docs.key_pair("client", SECOND_CLIENT))
    until(lambda: seen_by(two, optional) == "gateway web, renewed")

    # Broken: no TLS leg of this Gateway goes on; plaintext ones and the other Gateway's do.
    for broken, reason in (
        (docs.key_pair("client", CLIENT, SECOND_CLIENT), "InvalidClientCertificateRef"),
        (docs.secret("client", tls_crt="garbage", tls_key=CLIENT.key_pem), "InvalidClientCertificateRef"),
    ):
        two.write("client.yaml", broken)
        connections = len(required.connections)
        two.until_status("required", 500)
        assert two.get("optional") == (500, BACKEND_FAILURE)
        assert len(required.connections) <= connections + 1
        assert two.conditions("Gateway", "web")["ResolvedRefs"][:2] == ("False", reason)
        route = two.conditions("HTTPRoute", "optional")["ResolvedRefs"]
        assert route[:2] == ("False", "InvalidBackendTLS")
        assert "client certificate of Gateway shop/web" in route[2]
        said = until(lambda: [line["why"] for line in two.entries("optional")])
        assert all("client certificate of Gateway shop/web" in why for why in said)
        assert two.get("plain").status == 200
        assert two.get("optional", port=second_port).status == 200
        assert two.conditions("HTTPRoute", "optional", "second")["ResolvedRefs"][0] == "True"
        two.write("client.yaml", docs.key_pair("client", CLIENT))
        two.until_status("required", 200)
    (two.folder / "client.yaml").unlink()
    two.until_status("required", 500)
    assert CLIENT.key_pem.splitlines()[1] not in two.log


def test_a_client_certificate_in_another_namespace_needs_a_grant(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    served = serve(asking(ssl.CERT_REQUIRED))
    lasthop = own()
    lasthop.standard(tls=shown(namespace="vault"))
    lasthop.write(
        "client.yaml", docs.namespace("vault"), docs.key_pair("vault/client", CLIENT), docs.key_pair("client", SECOND_CLIENT)
    )
    ca = docs.config_map("ca", CA.pem)
    lasthop.write("hop.yaml", ca, *docs.hop("api", served.port, docs.policy("api", "api.example", "ca")))
    lasthop.start()
    assert lasthop.get("api") == (500, BACKEND_FAILURE)
    assert served.connections == []
    assert lasthop.conditions("Gateway", "web")["ResolvedRefs"][:2] == ("False", "RefNotPermitted")
    lasthop.write("grant.yaml", docs.grant("vault/gateways", "Gateway", "shop", "Secret"))
    lasthop.until_status("api", 200)
    assert served.last.client == "gateway web"
