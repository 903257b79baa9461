"""ServiceImports with a real Envoy: reached by EndpointSlices of their own, verified by a policy that names them."""

from __future__ import annotations

from collections.abc import Callable

from tests.backends import Backend
from tests.proxy import documents as docs
from tests.proxy.certs import CA, HOSTNAME, OTHER_CA, issued
from tests.proxy.lasthop import Lasthop


def test_a_service_of_other_clusters_is_verified_by_the_policy_that_names_it_and_fails_closed(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    served, local = serve(issued(), name="far"), serve(None, name="here")
    lasthop = own()
    lasthop.standard()
    lasthop.write("cas.yaml", docs.config_map("ca", CA.pem), docs.config_map("other-ca", OTHER_CA.pem))
    lasthop.write("here.yaml", docs.service("api"), *docs.endpoints("api", local.port), docs.route("here", docs.to("api")))
    lasthop.write("far.yaml", docs.service_import("api"), *docs.imported_endpoints("api", served.port))
    lasthop.write("route.yaml", docs.route("far", docs.to_import("api")))
    lasthop.write("policy.yaml", docs.policy("api", HOSTNAME, "ca", imported=True))
    lasthop.start()
    assert lasthop.until_status("far", 200).body == "far"
    assert served.last.sni == HOSTNAME
    assert lasthop.get("here") == (200, "here"), "the Service of the same name is another backend"
    assert lasthop.conditions("BackendTLSPolicy", "api")["Accepted"][0] == "True"

    lasthop.write("policy.yaml", docs.policy("api", HOSTNAME, "other-ca", imported=True))
    lasthop.until_status("far", 503)
    lasthop.write("policy.yaml", docs.policy("api", HOSTNAME, "missing", imported=True))
    lasthop.until_status("far", 500)
    connections = len(served.connections)
    assert lasthop.get("far").status == 500
    assert len(served.connections) == connections
    assert lasthop.get("here") == (200, "here")
