"""Files that were never valid: their possible policies are never replaced by plaintext."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop


@pytest.fixture
def lasthop(own: Callable[..., Lasthop]) -> Lasthop:
    lasthop = own()
    lasthop.standard()
    lasthop.write("ca.yaml", docs.config_map("ca", CA.pem))
    return lasthop


MISTAKES = {
    "misspelt": ("hostname:", "hostnme:"),
    "malformed": ("hostname: api.example", "hostname: 'not a name'"),
    "mistyped": ("kind: ConfigMap", "kind: 7"),
    "unheard-of": ("  validation:", "  mode: Lenient\n  validation:"),
}


def test_a_policy_that_fails_admission_fails_its_target_closed(lasthop: Lasthop, serve: Callable[..., Backend]) -> None:
    backends = {name: serve(issued(), name=name) for name in MISTAKES}
    other = serve(None, name="other")
    lasthop.write("other.yaml", *docs.hop("other", other.port))
    good = {}
    for name, (old, new) in MISTAKES.items():
        lasthop.write(f"{name}-hop.yaml", *docs.hop(name, backends[name].port))
        lasthop.write(f"{name}.yaml", docs.policy(name, "api.example", "ca"))
        good[name] = (lasthop.folder / f"{name}.yaml").read_text()
        assert old in good[name]
        (lasthop.folder / f"{name}.yaml").write_text(good[name].replace(old, new))
    lasthop.start()
    assert lasthop.get("other") == (200, "other"), "a Service that no policy names is not its business"
    for name in MISTAKES:
        assert lasthop.get(name) == (500, BACKEND_FAILURE)
        assert backends[name].connections == []
        assert lasthop.conditions("HTTPRoute", name)["ResolvedRefs"][:2] == ("False", "InvalidBackendTLS")
        assert f"/{name}.yaml:" in lasthop.log
        (lasthop.folder / f"{name}.yaml").write_text(good[name])
        lasthop.until_status(name, 200)


def test_an_unreadable_file_withholds_new_plaintext_until_it_is_mended(
    lasthop: Lasthop, serve: Callable[..., Backend]
) -> None:
    plain, secure = serve(None, name="plain"), serve(issued(), name="secure")
    lasthop.write("hop.yaml", *docs.hop("plain", plain.port), *docs.hop("secure", secure.port))
    lasthop.write("policy.yaml", docs.policy("secure", "api.example", "ca"))
    (lasthop.folder / "unknown.yaml").write_text("apiVersion: [\n")
    lasthop.start()
    assert lasthop.get("secure") == (200, "secure")
    assert lasthop.get("plain") == (500, BACKEND_FAILURE), "the file may hold its policy"
    assert plain.connections == []
    message = lasthop.conditions("HTTPRoute", "plain")["ResolvedRefs"][2]
    assert "an unread BackendTLSPolicy may target this port" in message and "unknown.yaml:" in message
    lasthop.write("unknown.yaml", docs.config_map("harmless", ""))
    lasthop.until_status("plain", 200)
    # Hops that are plaintext by now stay plaintext: a typo elsewhere must not close them.
    (lasthop.folder / "another.yaml").write_text("apiVersion: [\n")
    until(lambda: "another.yaml:" in lasthop.log)
    lasthop.settle()
    assert lasthop.get("plain") == (200, "plain")


def test_a_restart_leaves_what_envoy_serves_in_plaintext_and_opens_nothing_else(
    lasthop: Lasthop, serve: Callable[..., Backend]
) -> None:
    plain, secure, new = serve(None, name="plain"), serve(issued(), name="secure"), serve(None, name="new")
    lasthop.write("hop.yaml", *docs.hop("plain", plain.port), *docs.hop("secure", secure.port))
    lasthop.write("policy.yaml", docs.policy("secure", "api.example", "ca"))
    lasthop.start()
    assert (lasthop.get("plain").status, lasthop.get("secure").status) == (200, 200)
    lasthop.kill()
    (lasthop.folder / "policy.yaml").rename(lasthop.folder / "other.yaml")
    (lasthop.folder / "other.yaml").write_text("apiVersion: [\n")
    lasthop.write("new.yaml", *docs.hop("new", new.port))
    lasthop.start()
    assert lasthop.get("plain") == (200, "plain")
    assert lasthop.get("secure") == (500, BACKEND_FAILURE)
    assert lasthop.get("new") == (500, BACKEND_FAILURE)
    assert not secure.saw_plaintext and new.connections == []
    # Without an Envoy that has served on, nothing is known of the past.
    lasthop.stop()
    lasthop.start()
    assert lasthop.get("plain") == (500, BACKEND_FAILURE)


def test_the_same_object_in_two_files_is_refused_and_both_are_named(lasthop: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    lasthop.write("hop.yaml", *docs.hop("api", served.port, docs.policy("api", "api.example", "ca")))
    lasthop.start()
    assert lasthop.get("api").status == 200
    lasthop.write("twin.yaml", docs.policy("api", "wrong.example", "ca"))
    until(lambda: [f for f in lasthop.findings() if "hop.yaml" in str(f) and "twin.yaml" in str(f)])
    lasthop.settle()
    assert lasthop.get("api").status in (200, 500), "the first stays in force, or neither is"
    assert not served.saw_plaintext
    (lasthop.folder / "twin.yaml").unlink()
    lasthop.until_status("api", 200)
