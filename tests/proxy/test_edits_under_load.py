"""Edits while requests go on: each takes effect at once and for all, and no other request fails."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.backends import Backend, backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued, with_alpn
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop
from tests.proxy.load import Load

FAILURE = (503, BACKEND_FAILURE)
REFUSED = (500, BACKEND_FAILURE)
OK = (200, "backend")

ALPNS = pytest.mark.parametrize("alpn", ["h2", "http/1.1"])


@pytest.fixture(scope="module")
def running(module_own: Callable[..., Lasthop]) -> Iterator[Lasthop]:
    """With two worker threads: each has its own connections and clusters."""
    lasthop = module_own("--concurrency", "2")
    lasthop.standard()
    lasthop.start()
    yield lasthop
    assert lasthop.envoys() and "internal error" not in lasthop.log
    assert "refused configuration" not in lasthop.log


@pytest.fixture
def edited(running: Lasthop) -> Lasthop:
    """As it was before the other tests."""
    for name in ("hop.yaml", "policy.yaml"):
        (running.folder / name).unlink(missing_ok=True)
    running.load("ca.yaml", docs.config_map("ca", CA.pem))
    return running


def hop(lasthop: Lasthop, *ports: int) -> None:
    """Written after its policy: until there is one, plaintext is right."""
    lasthop.write("hop.yaml", docs.service("api"), *docs.endpoints("api", *ports), docs.route("api", docs.to("api")))


def policy(lasthop: Lasthop, hostname: str = "api.example", **settings) -> None:  # type: ignore[no-untyped-def]
    lasthop.write("policy.yaml", docs.policy("api", hostname, "ca", **settings))


@ALPNS
def test_a_wrong_hostname_stops_the_traffic_at_once_and_the_right_one_starts_it_again(
    edited: Lasthop, serve: Callable[..., Backend], alpn: str
) -> None:
    served = serve(with_alpn(issued("api.example", "other.example"), alpn))
    policy(edited)
    hop(edited, served.port)
    edited.until_status("api", 200)
    with Load(edited, "api") as load:
        took = []
        for _ in range(2):
            took.append(load.change(lambda: policy(edited, "wrong.example"), FAILURE))
            reached = len(served.requests)
            load.more()
            assert len(served.requests) == reached, "a pooled connection outlived its policy"
            took.append(load.change(lambda: policy(edited), OK))
        # Tens of milliseconds on an idle machine; a cluster that waits for its endpoints would take a second each time.
        assert min(took) < 0.5
        load.no_change(lambda: policy(edited, "other.example"))
        until(lambda: served.last.sni == "other.example")
    assert load.seen() == {OK, FAILURE}


@ALPNS
def test_a_narrowed_and_a_replaced_ca_hold_at_once(edited: Lasthop, serve: Callable[..., Backend], alpn: str) -> None:
    served = serve(with_alpn(issued(), alpn))
    policy(edited)
    hop(edited, served.port)
    edited.until_status("api", 200)
    with Load(edited, "api") as load:
        load.no_change(lambda: edited.write("ca.yaml", docs.config_map("ca", CA.pem + OTHER_CA.pem)))
        load.change(lambda: edited.write("ca.yaml", docs.config_map("ca", OTHER_CA.pem)), FAILURE)
        load.change(lambda: edited.write("ca.yaml", docs.config_map("ca", "no longer a certificate")), REFUSED)
        load.change(lambda: edited.write("ca.yaml", docs.config_map("ca", CA.pem)), OK)


def test_a_ca_is_rotated_without_a_failed_request(edited: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    policy(edited)
    hop(edited, served.port)
    edited.until_status("api", 200)
    with Load(edited, "api") as load:
        load.no_change(lambda: edited.load("ca.yaml", docs.config_map("ca", CA.pem + OTHER_CA.pem)))
        served.context = issued(issuer=OTHER_CA)
        load.no_change(lambda: edited.load("ca.yaml", docs.config_map("ca", OTHER_CA.pem)))
    assert load.seen() == {OK}


def test_a_deleted_policy_means_plaintext_and_a_new_one_tls_again(edited: Lasthop, serve: Callable[..., Backend]) -> None:
    """The one case in which plaintext is right: no policy requires anything else any more."""
    served = serve(issued(), plaintext_too=True)
    policy(edited)
    hop(edited, served.port)
    edited.until_status("api", 200)
    with Load(edited, "api") as load:
        assert not served.saw_plaintext
        load.no_change(lambda: (edited.folder / "policy.yaml").unlink())
        until(lambda: served.last.plaintext)
        load.no_change(lambda: policy(edited))
        until(lambda: not served.last.plaintext)
        load.change(lambda: policy(edited, "wrong.example"), FAILURE)
        again = len([c for c in served.connections if c.plaintext])
        load.more()
        assert len([c for c in served.connections if c.plaintext]) == again
    assert load.seen() == {OK, FAILURE}


def reported(lasthop: Lasthop, words: str) -> bool:
    """In the findings with file and line, and on the log."""
    findings = [f for f in lasthop.findings() if f["file"].endswith("policy.yaml") and f["line"] and words in str(f)]
    return bool(findings) and f"policy.yaml:{findings[0]['line']}: " in lasthop.log and words in lasthop.log


def test_a_broken_file_changes_nothing_and_says_where_it_is_broken(edited: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    policy(edited)
    hop(edited, served.port)
    edited.until_status("api", 200)
    good = (edited.folder / "policy.yaml").read_text()
    with Load(edited, "api") as load:
        for broken, words in (
            (good + "  nonsense: [\n", "not YAML"),
            (good.replace("hostname: api.example", "hostnme: wrong.example"), "hostnme"),
            (good.replace("hostname: api.example", "hostname: 'not a name'"), "hostname"),
        ):
            load.no_change(functools.partial((edited.folder / "policy.yaml").write_text, broken))
            until(functools.partial(reported, edited, words), words)
            load.more()
        load.change(lambda: policy(edited, "wrong.example"), FAILURE)
        assert not [f for f in edited.findings() if f["file"].endswith("policy.yaml")]
        load.change(lambda: policy(edited), OK)
    assert load.seen() == {OK, FAILURE}
    assert not served.saw_plaintext


def test_endpoints_move_without_a_failed_request(edited: Lasthop, serve: Callable[..., Backend]) -> None:
    old, new = serve(issued(), name="old"), serve(issued(), name="new")
    policy(edited)
    hop(edited, old.port)
    edited.until_status("api", 200)
    with Load(edited, "api") as load:
        hop(edited, old.port, new.port)
        until(lambda: {(200, "old"), (200, "new")} <= load.seen())
        load.change(lambda: hop(edited, new.port), (200, "new"))
        load.change(lambda: hop(edited), FAILURE)
        load.change(lambda: hop(edited, old.port), (200, "old"))
    assert load.seen() == {(200, "old"), (200, "new"), FAILURE}


def test_many_edits_on_each_others_heels_end_in_the_last_one(edited: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    policy(edited)
    hop(edited, served.port)
    edited.until_status("api", 200)
    with Load(edited, "api") as load:
        for number in range(30):
            policy(edited, "api.example" if number % 2 else "wrong.example")
            time.sleep(0.01)
        edited.settle()
        load.more()
        load.change(lambda: policy(edited, "wrong.example"), FAILURE)
        load.change(lambda: policy(edited), OK)
    assert load.seen() == {OK, FAILURE}


def test_a_new_policy_on_a_plaintext_backend_ends_the_plaintext_at_once(edited: Lasthop) -> None:
    with backend(None) as plain:
        hop(edited, plain.port)
        edited.until_status("api", 200)
        with Load(edited, "api") as load:
            load.change(lambda: policy(edited), FAILURE)
            requests = len(plain.requests)
            load.more()
            assert len(plain.requests) == requests
        assert load.seen() == {OK, FAILURE}
