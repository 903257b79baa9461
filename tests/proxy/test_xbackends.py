"""XBackends with a real Envoy and real backends: a name outside, TLS and a certificate of its own, and no way around."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from tests.backends import Backend, until
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, CLIENT, OTHER_CA, SECOND_CLIENT, asking
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked

GROUP = "gateway.networking.x-k8s.io"


def xbackend(name: str, port: int, tls: Document | None = None, **spec: Any) -> Document:
    kind: Document = {"type": "ExternalHostname", "externalHostname": {"hostname": "localhost"}}
    body = {**kind, "port": {"number": port}, **({"tls": tls} if tls else {}), **spec}
    return docs.obj(f"{GROUP}/v1alpha1", "XBackend", name, spec=body)


def verified(*cas: str | Document, mode: str = "ServerOnly", **more: Any) -> Document:
    refs = [docs.ref(ca) if isinstance(ca, str) else ca for ca in cas]
    return {"mode": mode, "validation": {"hostname": "api.example", "caCertificateRefs": refs}, **more}


def to(name: str) -> Document:
    return {"group": GROUP, "kind": "XBackend", "name": name}


def test_a_name_outside_is_verified_with_its_own_tls_and_fails_closed(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    context = asking(ssl.CERT_OPTIONAL)
    context.set_alpn_protocols(["h2", "http/1.1"])
    served, plain = serve(context, name="api"), serve(None, name="plain")
    lasthop, tcp = own(), free_port()
    listeners = docs.http(lasthop.port), docs.listener("tcp", "TCP", tcp)
    lasthop.write("gateway.yaml", docs.gateway_class(), docs.namespace("shop"), docs.gateway("web", *listeners))
    lasthop.write("cas.yaml", docs.config_map("ca", CA.pem), docs.config_map("other-ca", OTHER_CA.pem))
    lasthop.write("own.yaml", docs.key_pair("client", CLIENT), docs.waiver("all", "All"))
    lasthop.write("routes.yaml", docs.route("api", to("api")), docs.route("plain", to("plain")))
    lasthop.write("stream.yaml", docs.stream_route("TCPRoute", "api", to("api"), listener="tcp"))
    lasthop.write("plain-backend.yaml", xbackend("plain", plain.port))
    lasthop.write("api.yaml", xbackend("api", served.port, verified("ca")))
    lasthop.start()
    lasthop.until_status("api", 200)
    assert lasthop.get("plain") == (200, "plain")
    assert (served.last.sni, served.last.client, served.last.alpn) == ("api.example", None, "h2")
    assert lasthop.conditions("XBackend", "api")["Accepted"][0] == "True"
    assert asked(tcp) == "api"

    # The certificate of its own, over the protocol of its own.
    mutual = verified("ca", mode="ClientAndServer", clientCertificateRef={"name": "client"})
    lasthop.write("api.yaml", xbackend("api", served.port, mutual, protocol="HTTP11"))
    until(lambda: lasthop.get("api").status == 200 and served.last.client == "gateway web")
    assert served.last.alpn == "http/1.1"

    # Somebody else's certificate; a CA that is not there; a waiver that nobody allows; a key that does not fit.
    lasthop.write("api.yaml", xbackend("api", served.port, verified("other-ca")))
    lasthop.until_status("api", 503)
    for tls in (verified("missing"), verified(docs.own("all", "VerificationWaiver")), mutual):
        lasthop.write("own.yaml", docs.key_pair("client", CLIENT, SECOND_CLIENT), docs.waiver("all", "All"))
        lasthop.write("api.yaml", xbackend("api", served.port, verified("ca")))
        lasthop.until_status("api", 200)
        lasthop.write("api.yaml", xbackend("api", served.port, tls))
        lasthop.until_status("api", 500)
        connections = len(served.connections)
        assert asked(tcp) == ""
        assert lasthop.get("api").status == 500
        assert len(served.connections) == connections
        assert lasthop.conditions("XBackend", "api")["Accepted"][0] == "False"
        assert lasthop.conditions("HTTPRoute", "api")["ResolvedRefs"][:2] == ("False", "InvalidBackendTLS")
    assert lasthop.get("plain") == (200, "plain")
