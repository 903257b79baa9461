"""Names in a policy that bypassed admission: a name that Envoy would refuse, or never match, invalidates only this policy."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.resource import CLUSTER
from tests.snapshot import settled
from tests.world import ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service, mk_slice

POLICY = Key("BackendTLSPolicy", "a", "p")


def served(hostname: str, sans: list[dict[str, Any]]) -> tuple[bool, str]:
    """Returns whether there is a cluster, and the policy's status."""
    policy = mk_policy("a/p", "s", hostname, ["ca"], validation={"subjectAltNames": sans})
    hop = (mk_service("a/s"), mk_slice("a/s-1", "s", ["10.0.0.1"]), mk_route("a/r", "a/g", [{"name": "s", "port": 443}]))
    engine, snapshot = settled(keyed(mk_class(), mk_gateway("a/g"), *hop, mk_config_map("a/ca", ca_pem("good")), policy))
    assert engine.graph.crashes == {}
    return any(type_url == CLUSTER for _, type_url, _ in snapshot.xds), repr(snapshot.status[POLICY])


@pytest.mark.parametrize(
    ("hostname", "sans", "words"),
    [
        ("a" * 254, [], "is not a DNS name"),
        ("a\x00.example", [], "is not a DNS name"),
        ("*.example", [], "is not a DNS name"),
        ("", [], "is not a DNS name"),
        ("10.0.0.1", [], "is an IP address"),
        ("api.example", [{"type": "Hostname", "hostname": "a..example"}], "subjectAltNames[0].hostname"),
        ("api.example", [{"type": "URI", "uri": "spiffe://a/\x00"}], "subjectAltNames[0].uri"),
        ("api.example", [{"type": "URI", "uri": ""}], "is not a URI"),
        ("api.example", [{"type": "Email", "hostname": "api.example"}], "use Hostname or URI"),
        ("api.example", [{"type": "URI", "uri": "spiffe://a"}] * 33, "at most 32"),
    ],
)
def test_a_name_that_cannot_be_checked_fails_the_policy(hostname: str, sans: list[dict[str, Any]], words: str) -> None:
    there, message = served(hostname, sans)
    assert not there and words in message


def test_names_as_they_should_be_are_served() -> None:
    sans = [{"type": "Hostname", "hostname": "*.Example"}, {"type": "URI", "uri": "spiffe://a/b?c=%20"}]
    assert served("API.example", sans)[0]
