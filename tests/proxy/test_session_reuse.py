"""Resumption of TLS sessions with backends: option `lasthop.dev/session-reuse` of a policy."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable

import pytest

from tests.backends import Backend
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop


@pytest.mark.parametrize(("reuse", "resumed"), [("", True), ("true", True), ("false", False)])
def test_sessions_are_reused_unless_the_policy_forbids_it(
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
