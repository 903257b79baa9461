"""Timeouts and retries."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from tests.ports import free_port
from tests.proxy.documents import Document
from tests.proxy.echo import Echo, Said, ask, echo, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

HOST = "retries.test"
CODES = [500, 502, 503, 504]
RULES: dict[str, Document] = {
    "/plain": {},
    "/request": {"timeouts": {"request": "300ms"}},
    "/backend": {"timeouts": {"backendRequest": "300ms"}},
    "/zero": {"timeouts": {"request": "0s", "backendRequest": "0s"}},
    "/shorter": {"timeouts": {"request": "5s", "backendRequest": "300ms"}},
    "/three": {"retry": {"codes": [500], "attempts": 3}},
    "/codes": {"retry": {"codes": CODES, "attempts": 2}},
    "/never": {"retry": {"codes": CODES, "attempts": 0}, "timeouts": {"backendRequest": "300ms"}},
    "/default": {"retry": {"codes": [503]}},
    "/both": {"retry": {"codes": [500], "attempts": 5}, "timeouts": {"request": "500ms"}},
    "/tries": {"retry": {"codes": [500], "attempts": 2, "backoff": "10ms"}, "timeouts": {"backendRequest": "300ms"}},
    "/longest": {"retry": {"attempts": 1, "backoff": "99999h99999h"}, "timeouts": {"request": "99999h"}},
}
numbers = itertools.count()


@pytest.fixture(scope="module")
def backend(gateway: Lasthop) -> Iterator[Echo]:
    with echo("retried") as running:
        listed = [rule(path, to=[to("retried")], **more) for path, more in RULES.items()]
        listed.append(rule("/refusing", to=[to("refusing")], retry={"attempts": 100}))
        # A separate backend, so that no other test has had its bad endpoint ejected.
        listed.append(rule("/unretried", to=[to("unretried")], retry={"attempts": 0}))
        gateway.load(
            "retries.yaml",
            *service("retried", running.port),
            *service("refusing", running.port, free_port()),
            *service("unretried", running.port, free_port()),
            rules("retries", *listed),
        )
        yield running


def planned(gateway: Lasthop, backend: Echo, path: str, plan: str) -> tuple[Said, int]:
    """The answer to a request for which the backend has this plan, and how often it was tried."""
    name = f"{path}-{next(numbers)}"
    answer = ask(gateway, HOST, path, headers={"x-plan": plan, "x-id": name})
    return answer, len([seen for seen in backend.seen if seen["headers"].get("x-id") == name])


@pytest.mark.parametrize(
    "path, plan, status, tries",
    [
        ("/plain", "500 200", 500, 1),
        ("/plain", "200:500", 200, 1),
        ("/request", "200:100", 200, 1),
        ("/request", "200:20000", 504, 1),
        ("/backend", "200:100", 200, 1),
        ("/backend", "200:20000", 504, 1),
        ("/shorter", "200:20000", 504, 1),
        ("/zero", "200:500", 200, 1),
        ("/three", "500 500 500 200", 200, 4),
        ("/three", "500 500 500 500 200", 500, 4),
        ("/three", "503 200", 503, 1),
        ("/codes", "502 504 200", 200, 3),
        ("/codes", "502 503 504 200", 504, 3),
        ("/codes", "501 200", 501, 1),
        ("/never", "500 200", 500, 1),
        ("/never", "200:20000", 504, 1),
        ("/default", "503 200", 200, 2),
        ("/default", "503 503 200", 503, 2),
        ("/both", "500:50 200", 200, 2),
        ("/both", "500:300 500:300 200", 504, 2),
        ("/tries", "200:20000 200", 200, 2),
        ("/tries", "200:20000 500 200", 200, 3),
        ("/longest", "200", 200, 1),
    ],
)
def test_a_request_ends_as_its_rule_says(
    gateway: Lasthop, backend: Echo, path: str, plan: str, status: int, tries: int
) -> None:
    began = time.monotonic()
    answer, tried = planned(gateway, backend, path, plan)
    assert (answer.status, tried) == (status, tries)
    assert time.monotonic() - began < 19, "whoever was too slow has been waited for"


def test_a_refused_connection_is_retried_elsewhere_without_any_codes_unless_the_rule_forbids_it(
    gateway: Lasthop, backend: Echo
) -> None:
    assert [ask(gateway, HOST, "/refusing").status for _ in range(20)] == [200] * 20
    assert 503 in {ask(gateway, HOST, "/unretried").status for _ in range(20)}
