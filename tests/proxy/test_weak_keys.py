"""Keys and signatures below today's floor that a backend shows: Envoy accepts them, and `probe` warns of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from lasthop.base.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.plan import probe, targets
from lasthop.edge.probe.result import CheckOutcome
from tests.backends import Backend
from tests.certificates import Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG
from tests.proxy.lasthop import Lasthop

SHOWN = {
    "strong": (Certificate("strong", CA, sans=dns("api.example"), valid=LONG), ""),
    "rsa-1024": (
        Certificate("small", CA, sans=dns("api.example"), valid=LONG, key=rsa.generate_private_key(65537, 1024)),
        "small has a 1024-bit RSA key",
    ),
    "sha-1": (
        Certificate("signed weakly", CA, sans=dns("api.example"), valid=LONG, sha1=True),
        "signed weakly has a SHA-1 signature",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_envoy_accepts_a_weak_certificate_and_probe_warns_of_it(
    gateway: Lasthop, serve: Callable[..., Backend], name: str
) -> None:
    (shown, warning), host = SHOWN[name], f"weak-{name}"
    served = serve(shown.server_context())
    ca = docs.config_map(host, CA.pem)
    gateway.load(f"{host}.yaml", ca, *docs.hop(host, served.port, docs.policy(host, "api.example", host)))
    assert gateway.get(host).status == 200
    policy = Key("BackendTLSPolicy", "shop", host)
    (target,) = probe(policy, targets(FolderView(gateway.folder).engine, policy, None)).targets
    assert target.passes
    said = [
        check.found for check in target.endpoints[0].checks if check.name == "strength" and check.state is CheckOutcome.WARN
    ]
    assert [warning_text.partition(",")[0] for warning_text in said] == ([warning] if warning else [])
