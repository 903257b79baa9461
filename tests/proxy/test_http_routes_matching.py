"""Random routes with real Envoy: the rule that the spec selects serves every request, and `explain request` names it."""

from __future__ import annotations

import contextlib
import http.client
import random
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.proxy import documents as docs
from tests.proxy.echo import redirect
from tests.proxy.lasthop import Lasthop
from tests.route_oracle import HOSTNAMES, REGEXES, SEGMENTS, Document, Request, chosen

REQUESTS = 150
LISTENERS = {"abc.example.com": "abc.example.com", "*.example.net": "xyz.example.net", "": "free.example.org"}
"""A listener's hostname, and a host under which all that it takes is served."""


def path(random: random.Random, shortest: int = 0) -> str:
    parts = random.choices(SEGMENTS, k=random.randint(shortest, 3))
    return "/" + "/".join(parts) + ("/" if parts and random.random() < 0.2 else "")


def match(random: random.Random, regex: float) -> Document:
    if random.random() < regex:
        conditions: Document = {"path": {"type": "RegularExpression", "value": random.choice(REGEXES)}}
    else:
        conditions = {"path": {"type": random.choice(["Exact", "PathPrefix", "PathPrefix"]), "value": path(random, 1)}}
    if random.random() < 0.25:
        conditions["method"] = random.choice(["GET", "POST"])
    for field, names in (("headers", ["x-a", "x-b"]), ("queryParams", ["q", "r"])):
        if random.random() < 0.25:
            listed = random.sample(names, random.randint(1, 2))
            kinds = [random.choice([("Exact", "1"), ("Exact", "2"), ("RegularExpression", "[12]")]) for _ in listed]
            conditions[field] = [
                {"name": n, "type": kind, "value": value} for n, (kind, value) in zip(listed, kinds, strict=True)
            ]
    return conditions


def request(random: random.Random) -> Request:
    query = "&".join(f"{name}={random.choice('123')}" for name in ("q", "r") if random.random() < 0.4)
    headers = tuple((name, random.choice("123")) for name in ("x-a", "x-b") if random.random() < 0.4)
    target = path(random) + random.choice(["", "", "", "x", "/v1"]) + (f"?{query}" if query else "")
    return Request(target, random.choice(["GET", "POST"]), headers)


def world(seed: int, hostname: str, count: int, regex: float) -> list[Document]:
    """HTTPRoutes of several ages, namespaces and hostnames; every match redirects to a host with the name of its rule."""
    chance = random.Random(seed)
    own = [[h.replace("example.com", hostname.removeprefix("*.")).replace("*.com", "*.net") for h in hs] for hs in HOSTNAMES]
    names = {"abc.example.com": list(HOSTNAMES), "*.example.net": own[1:], "": [["free.example.org"]]}[hostname]
    routes: list[Document] = []
    left = count
    while left:
        size = min(left, chance.randint(1, 12))
        left -= size
        name = f"m{seed}-{len(routes)}"
        rules = [{"name": f"{name}-{n}", "matches": [match(chance, regex)]} for n in range(size)]
        document = docs.route(f"{chance.choice(['shop', 'a', 'a-b'])}/{name}")
        document["metadata"]["creationTimestamp"] = f"2026-01-0{chance.randint(1, 3)}T00:00:00Z"
        document["spec"] |= {"hostnames": chance.choice(names), "rules": rules}
        routes.append(document)
    return routes


def redirecting(route: Document) -> Document:
    rules = [{**rule, "filters": [redirect(hostname=f"{rule['name']}.rule")]} for rule in route["spec"]["rules"]]
    return {**route, "spec": {**route["spec"], "rules": rules}}


@pytest.fixture(scope="module")
def running(module_own: Callable[..., Lasthop]) -> Iterator[Lasthop]:
    lasthop = module_own()
    listeners = []
    for number, hostname in enumerate(LISTENERS):
        listener = docs.http(lasthop.port, f"l{number}")
        listeners.append({**listener, "hostname": hostname} if hostname else listener)
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        *(docs.namespace(name) for name in ("shop", "a", "a-b")),
        docs.gateway("web", *listeners),
        *docs.hop("first", 9),
    )
    lasthop.start()
    yield lasthop
    assert "refused configuration" not in lasthop.log


def _told(running: Lasthop, asked: Request, host: str) -> tuple[int, str]:
    """Returns the status and the rule's name from `explain request`."""
    url = f"http://127.0.0.1:{running.port}{asked.target}"
    answer = running.explained(asked.method, url, f"Host: {host}", *(f"{name}: {value}" for name, value in asked.headers))
    return answer.get("status", 0), answer.get("rule_name", "")


# Many routes are a tree; of those with many regular expressions only the list is left, as of few routes.
SIZES = [(60, 0.03), (60, 0.4), (20, 0.1)]


@pytest.mark.parametrize("hostname", LISTENERS)
@pytest.mark.parametrize("count, regex", SIZES)
def test_envoy_chooses_the_rule_that_the_spec_chooses(running: Lasthop, hostname: str, count: int, regex: float) -> None:
    seed = count + round(100 * regex) + 7 * list(LISTENERS).index(hostname)
    routes = world(seed, hostname, count, regex)
    running.load("routes.yaml", *map(redirecting, routes))
    assert all(d["status"]["parents"] for d in running.objects("HTTPRoute").values())
    chance, hits = random.Random(seed), set()
    wrong: list[tuple[object, ...]] = []
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=15)) as connection:
        for _ in range(REQUESTS):
            asked = request(chance)
            connection.request(asked.method, asked.target, headers={"Host": LISTENERS[hostname], **dict(asked.headers)})
            response = connection.getresponse()
            response.read()
            location = urlsplit(response.headers["location"] or "").hostname
            chosen_rule = location.removesuffix(".rule") if location else None
            expected = chosen(routes, asked, LISTENERS[hostname])
            hits.add(expected)
            if chosen_rule != expected:
                wrong.append((asked, chosen_rule, expected))
            if (told := _told(running, asked, LISTENERS[hostname])) != (response.status, chosen_rule or ""):
                wrong.append((asked, told, chosen_rule))
    assert not wrong, wrong[:3]
    assert len(hits) > 6
