"""XBackends with a real Envoy and real backends: a name outside, TLS and a certificate of its own, and no way around."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tests.backends import Backend, until
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, CLIENT, OTHER_CA, SECOND_CLIENT, asking
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked


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
    lasthop.write("routes.yaml", docs.route("api", docs.to_xbackend("api")), docs.route("plain", docs.to_xbackend("plain")))
    lasthop.write("stream.yaml", docs.stream_route("TCPRoute", "api", docs.to_xbackend("api"), listener="tcp"))
    lasthop.write("plain-backend.yaml", docs.xbackend("plain", plain.port))
    lasthop.write("api.yaml", docs.xbackend("api", served.port, docs.verified("ca")))
    lasthop.start()
    lasthop.until_status("api", 200)
    assert lasthop.get("plain") == (200, "plain")
    assert (served.last.sni, served.last.client, served.last.alpn) == ("api.example", None, "h2")
    assert lasthop.conditions("XBackend", "api")["Accepted"][0] == "True"
    assert asked(tcp) == "api"

    # Its own certificate, over its own protocol.
    mutual = docs.verified("ca", mode="ClientAndServer", clientCertificateRef={"name": "client"})
    lasthop.write("api.yaml", docs.xbackend("api", served.port, mutual, protocol="HTTP11"))
    until(lambda: lasthop.get("api").status == 200 and served.last.client == "gateway web")
    assert served.last.alpn == "http/1.1"

    # Another namespace's certificate; a missing CA; a waiver that no profile allows; a key that does not fit.
    lasthop.write("api.yaml", docs.xbackend("api", served.port, docs.verified("other-ca")))
    lasthop.until_status("api", 503)
    for tls in (docs.verified("missing"), docs.verified(docs.own("all", "VerificationWaiver")), mutual):
        lasthop.write("own.yaml", docs.key_pair("client", CLIENT, SECOND_CLIENT), docs.waiver("all", "All"))
        lasthop.write("api.yaml", docs.xbackend("api", served.port, docs.verified("ca")))
        lasthop.until_status("api", 200)
        lasthop.write("api.yaml", docs.xbackend("api", served.port, tls))
        lasthop.until_status("api", 500)
        connections = len(served.connections)
        assert asked(tcp) == ""
        assert lasthop.get("api").status == 500
        assert len(served.connections) == connections
        assert lasthop.conditions("XBackend", "api")["Accepted"][0] == "False"
        assert lasthop.conditions("HTTPRoute", "api")["ResolvedRefs"][:2] == ("False", "InvalidBackendTLS")
    assert lasthop.get("plain") == (200, "plain")
