"""Options of a policy about the chain and about sessions: `lasthop.dev/verify-depth` and `lasthop.dev/session-reuse`."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator

import pytest

from lasthop.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.probe.plan import probe, targets
from tests.backends import Backend, backend
from tests.certificates import Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG, issued, key_pin
from tests.proxy.lasthop import Lasthop

ROOT = Certificate("root", ca=True, valid=LONG)
UPPER = Certificate("upper", ROOT, ca=True, valid=LONG)
LOWER = Certificate("lower", UPPER, ca=True, valid=LONG)
CHAINS = {
    1: (Certificate("by the root", ROOT, sans=dns("api.example")),),
    2: (Certificate("by the upper", UPPER, sans=dns("api.example")), UPPER),
    3: (Certificate("by the lower", LOWER, sans=dns("api.example")), LOWER, UPPER),
}
"""By the number of CAs, the root included."""
ROWS = [(cas, depth) for cas in CHAINS for depth in ("", "1", "2", "3")]


def name(cas: int, depth: str) -> str:
    return f"chain-{cas}-{depth or 'any'}"


@pytest.fixture(scope="module")
def world(module_own: Callable[..., Lasthop]) -> Iterator[Lasthop]:
    lasthop = module_own()
    lasthop.standard()
    lasthop.write("ca.yaml", docs.config_map("ca", ROOT.pem))
    with contextlib.ExitStack() as stack:
        served = {cas: stack.enter_context(backend(leaf.server_context(*above))) for cas, (leaf, *above) in CHAINS.items()}
        for cas, depth in ROWS:
            options = {"lasthop.dev/verify-depth": depth} if depth else {}
            policy = docs.policy(name(cas, depth), "api.example", "ca", options=options)
            lasthop.write(f"{name(cas, depth)}.yaml", *docs.hop(name(cas, depth), served[cas].port, policy))
        lasthop.start()
        yield lasthop


@pytest.mark.parametrize(("cas", "depth"), ROWS)
def test_a_chain_has_at_most_as_many_cas_as_the_policy_says_its_anchor_included(world: Lasthop, cas: int, depth: str) -> None:
    passes = not depth or cas <= int(depth)
    assert world.get(name(cas, depth)).status == (200 if passes else 503)
    policy = Key("BackendTLSPolicy", "shop", name(cas, depth))
    (found,) = probe(policy, targets(FolderView(world.folder).engine, policy, None)).targets
    assert found.passes == passes


def test_a_depth_where_no_chain_is_checked_is_refused(world: Lasthop) -> None:
    pins = docs.pin_set("alone", key_pin(ROOT))
    policy = docs.policy("alone", "api.example", docs.own("alone", "PinSet"), options={"lasthop.dev/verify-depth": "1"})
    world.load("alone.yaml", pins, *docs.hop("alone", 9, policy))
    assert world.get("alone").status == 500
    assert "no chain is" in world.conditions("BackendTLSPolicy", "alone")["Accepted"][2]


@pytest.mark.parametrize(("reuse", "resumed"), [("", True), ("true", True), ("false", False)])
def test_sessions_are_reused_unless_the_policy_says_no(
    gateway: Lasthop, serve: Callable[..., Backend], reuse: str, resumed: bool
) -> None:
    context, host = issued(), f"sessions-{reuse or 'default'}"
    served = serve(context)
    policy = docs.policy(host, "api.example", host, options={"lasthop.dev/session-reuse": reuse} if reuse else {})
    gateway.load(f"{host}.yaml", docs.config_map(host, CA.pem), *docs.hop(host, served.port, policy))
    for _ in range(4):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)) as connection:
            connection.request("GET", "/", headers={"Host": f"{host}.test"})
            assert connection.getresponse().status == 200
        served.drop()
    assert bool(context.session_stats()["hits"]) == resumed
