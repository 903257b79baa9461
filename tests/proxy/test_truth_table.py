"""After real traffic to working and failing backends, condition, status, finding, audit, metric, explanation and page agree
with the clients' results, row by row."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.backends import PATIENCE
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG
from tests.proxy.lasthop import Lasthop
from tests.proxy.truth_accounts import Accounts, disagreements
from tests.proxy.truth_rows import ROWS, Fate, How

AT_ONCE = 16


class World(NamedTuple):
    lasthop: Lasthop
    wrong: dict[str, list[str]]
    """By row, every report that differs from its clients' results."""


def write(lasthop: Lasthop, listeners: dict[str, int]) -> None:
    hosts = [f"{name}.test" for name, row in ROWS.items() if row.how is How.TLS]
    own = Certificate("gateway", CA, sans=dns(*hosts), valid=LONG)
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.namespace("shop"),
        docs.gateway(
            "web",
            docs.http(lasthop.port),
            docs.listener("ends", "TLS", listeners["ends"], "*.test", "own"),
            docs.listener("pass", "TLS", listeners["pass"], "*.pass.test"),
            *(docs.listener(name, "TCP", listeners[name]) for name, row in ROWS.items() if row.how is How.TCP),
            **docs.with_profile("lenient"),
        ),
        docs.key_pair("own", own),
        docs.profile("lenient", waivers="Allow"),
        docs.config_map("ca", CA.pem),
        docs.waiver("all", "All"),
        docs.waiver("names", "Names"),
        docs.waiver("expiry", "Expiry", expires=f"{NOW + 20 * DAY:%FT%TZ}", created=f"{NOW - DAY:%FT%TZ}"),
    )


def asked(lasthop: Lasthop, listeners: dict[str, int]) -> dict[str, Counter[Fate]]:
    """Sends the traffic, many rows at once, and returns what clients saw."""

    def ask(name: str) -> Counter[Fate]:
        row = ROWS[name]
        listener = {How.TLS: "ends", How.PASSTHROUGH: "pass", How.TCP: name}.get(row.how, "")
        return Counter(row.ask(lasthop, name, listeners.get(listener, 0)) for _ in range(row.requests))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(ROWS, pool.map(ask, ROWS), strict=True))


@pytest.fixture(scope="module")
def world(module_own: Callable[..., Lasthop]) -> Iterator[World]:
    lasthop = module_own()
    names = ("ends", "pass", *(name for name, row in ROWS.items() if row.how is How.TCP))
    listeners = {name: free_port() for name in names}
    write(lasthop, listeners)
    with contextlib.ExitStack() as stack:
        ports = {}
        for name, row in ROWS.items():
            served = row.serves(stack, name)
            ports[name] = served[0] if row.xbackend else 443
            lasthop.write(f"{name}.yaml", *row.documents(name, served))
        lasthop.start()
        lasthop.settle()
        answers = asked(lasthop, listeners)
        wrong = told(lasthop, ports, answers)
        deadline = time.monotonic() + PATIENCE
        while any(wrong.values()) and time.monotonic() < deadline:
            wrong = told(lasthop, ports, answers)
        yield World(lasthop, wrong)


def told(lasthop: Lasthop, ports: dict[str, int], answers: dict[str, Counter[Fate]]) -> dict[str, list[str]]:
    said = Accounts(lasthop)
    return {name: list(disagreements(said, name, row, ports[name], answers[name])) for name, row in ROWS.items()}


@pytest.mark.parametrize("name", ROWS)
def test_every_report_matches_the_clients_results(world: World, name: str) -> None:
    assert not world.wrong[name], "\n".join(world.wrong[name])


def test_the_gateway_is_not_ready_and_reports_the_first_failure(world: World) -> None:
    shown = world.lasthop.command("status", "--no-headers", "backendtlspolicy", "--exit-code")
    ready = [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("backendtlspolicy/")]
    policies = [row for row in ROWS.values() if row.refs is not None and not row.xbackend]
    assert shown.returncode == 1 and ready == sorted(ready)
    assert Counter(ready) == {"False": sum(row.bad for row in policies), "True": sum(not row.bad for row in policies)}
