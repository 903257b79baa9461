"""XBackendTrafficPolicy: retry budgets, and sessions that a backend configures."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.proxy import documents as docs
from tests.proxy.documents import Document
from tests.proxy.echo import Echo, ask, echo, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

CLIENTS = 8
NONE_BUT_ONE: Document = {"budget": {"percent": 0}, "minRetryRate": {"count": 1, "interval": "1s"}}
HALF: Document = {"budget": {"percent": 50, "interval": "1h"}, "minRetryRate": {"count": 1, "interval": "1s"}}
numbers = itertools.count()


@pytest.fixture(scope="module")
def three(gateway: Lasthop) -> Iterator[list[Echo]]:
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(echo(f"endpoint-{n}")) for n in range(3)]
        gateway.load("traffic-services.yaml", *service("traffic", *(e.port for e in running)))
        yield running


def tries(gateway: Lasthop, backend: Echo, host: str) -> tuple[int, set[int]]:
    """Returns the number of tries at a backend for simultaneous clients, and their responses, if each first try fails."""
    before = len(backend.seen)

    def one(number: int) -> int:
        return ask(gateway, host, headers={"x-plan": "500:400 200:400", "x-id": f"{host}-{number}"}).status

    with ThreadPoolExecutor(CLIENTS) as clients:
        statuses = set(clients.map(one, itertools.islice(numbers, CLIENTS)))
    return len(backend.seen) - before, statuses


def test_a_budget_bounds_the_retries_of_all_clients_together_and_can_be_taken_back(gateway: Lasthop) -> None:
    with echo("budget") as backend:
        retried = rules("budget", rule("/", to=[to("budget")], retry={"codes": [500], "attempts": 1}))
        gateway.load("budget.yaml", *service("budget", backend.port), retried)
        assert tries(gateway, backend, "budget.test") == (2 * CLIENTS, {200})
        gateway.load("budget-policy.yaml", docs.traffic_policy("budget", retryConstraint=NONE_BUT_ONE))
        assert gateway.conditions("XBackendTrafficPolicy", "budget")["Accepted"][0] == "True"
        tried, statuses = tries(gateway, backend, "budget.test")
        # Without a retry the client gets the backend's response.
        assert CLIENTS < tried <= CLIENTS + 2 and statuses == {200, 500}
        (gateway.folder / "budget-policy.yaml").unlink()
        gateway.settle()
        assert tries(gateway, backend, "budget.test") == (2 * CLIENTS, {200})


def test_a_budget_counts_the_requests_of_its_interval_and_not_only_those_under_way(gateway: Lasthop) -> None:
    with echo("interval") as backend:
        retried = rules("interval", rule("/", to=[to("interval")], retry={"codes": [500], "attempts": 1}))
        policy = docs.traffic_policy("interval", retryConstraint=HALF)
        gateway.load("interval.yaml", *service("interval", backend.port), retried, policy)
        tried, _ = tries(gateway, backend, "interval.test")
        assert tried < 2 * CLIENTS
        for _ in range(2 * CLIENTS):
            assert ask(gateway, "interval.test").status == 200
        assert tries(gateway, backend, "interval.test") == (2 * CLIENTS, {200})
    assert "refused configuration" not in gateway.log


def test_sessions_of_a_policy_are_kept_for_every_rule_by_itself(gateway: Lasthop, three: list[Echo]) -> None:
    own = {"type": "Header", "header": {"name": "x-own"}}
    gateway.load(
        "traffic.yaml",
        docs.traffic_policy("traffic", sessionPersistence={"type": "Cookie", "cookie": {"path": "/"}}),
        rules(
            "traffic",
            rule("/a", to=[to("traffic")]),
            rule("/b", to=[to("traffic")]),
            rule("/own", to=[to("traffic")], sessionPersistence=own),
        ),
    )
    cookies = {}
    for path in ("/a", "/b"):
        first = ask(gateway, "traffic.test", path)
        cookies[path] = first.headers["set-cookie"].split("; ")[0]
        again = {ask(gateway, "traffic.test", path, headers={"cookie": cookies[path]}).seen["backend"] for _ in range(15)}
        assert again == {first.seen["backend"]}
    names = {cookie.partition("=")[0] for cookie in cookies.values()}
    assert len(names) == 2
    # A cookie of one rule means nothing to the other, which begins a new session.
    assert "set-cookie" in ask(gateway, "traffic.test", "/b", headers={"cookie": cookies["/a"]}).headers
    of_rule = ask(gateway, "traffic.test", "/own").headers
    assert "x-own" in of_rule and "set-cookie" not in of_rule


def test_the_older_of_two_policies_applies_until_it_is_deleted(gateway: Lasthop, three: list[Echo]) -> None:
    def session(name: str, created: str) -> Document:
        wanted = {"type": "Header", "header": {"name": name}}
        return docs.traffic_policy(name, "traffic", created=created, sessionPersistence=wanted)

    gateway.load("traffic.yaml", rules("traffic", rule("/", to=[to("traffic")])), session("x-late", "2026-01-02T00:00:00Z"))
    assert "x-late" in ask(gateway, "traffic.test").headers
    gateway.load("traffic-early.yaml", session("x-early", "2026-01-01T00:00:00Z"))
    said = ask(gateway, "traffic.test").headers
    assert "x-early" in said and "x-late" not in said
    assert gateway.conditions("XBackendTrafficPolicy", "x-late")["Accepted"][:2] == ("False", "Conflicted")
    (gateway.folder / "traffic-early.yaml").unlink()
    gateway.settle()
    assert "x-late" in ask(gateway, "traffic.test").headers
    assert gateway.conditions("XBackendTrafficPolicy", "x-late")["Accepted"][0] == "True"
