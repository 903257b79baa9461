"""Admission reviews: what is answered, and what one that asks too much gets."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any

import aiohttp
import pytest

from lasthop.api.kinds import KINDS, document
from lasthop.api.meta import Object
from lasthop.engine import Engine
from lasthop.pki import authority as ca
from lasthop.rehearsal import Rehearsal
from lasthop.resolve.settings import IN_CLUSTER
from lasthop.web import reviews as module
from lasthop.web.reviews import NotJudged, Reviews
from lasthop.web.webhook import LARGEST, serving
from tests.ports import free_port
from tests.unit.test_rehearsal import POLICY, REFUSING, world
from tests.world import NOW, key, keyed, mk_policy, mk_route, mk_service, mk_slice


def review(obj: Object, operation: str = "UPDATE", **request: Any) -> bytes:
    kind, name = KINDS[key(obj).kind], key(obj)
    written = document(kind.kind, obj)
    asked = {
        "uid": "u-1",
        "kind": {"group": kind.group, "version": kind.versions[0], "kind": kind.kind},
        "operation": operation,
        "name": name.name,
        "namespace": name.namespace,
        "object": None if operation == "DELETE" else written,
        "oldObject": written,
        **request,
    }
    return json.dumps({"apiVersion": module.API_VERSION, "kind": "AdmissionReview", "request": asked}).encode()


def judges(*objects: Object, namespaces: tuple[str, ...] = ()) -> Reviews:
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*objects))
    return Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, namespaces, NOW.timestamp)


async def answered(reviews: Reviews, body: bytes) -> dict[str, Any]:
    found = await reviews.answer(body)
    assert (found["apiVersion"], found["kind"], found["response"]["uid"]) == (module.API_VERSION, "AdmissionReview", "u-1")
    response: dict[str, Any] = found["response"]
    return response


async def test_an_edit_in_order_is_allowed_without_a_word() -> None:
    assert await answered(judges(*world()), review(POLICY)) == {"uid": "u-1", "allowed": True}


async def test_a_missing_ca_is_a_warning() -> None:
    response = await answered(judges(*world()), review(mk_policy("shop/api", "api", "api.example", ["no-ca"])))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("lasthop: BackendTLSPolicy shop/api, spec.validation.caCertificateRefs[0]: ")


async def test_a_deletion_that_leaves_plaintext_is_a_warning_and_refused_where_an_operator_says_so() -> None:
    response = await answered(judges(*world()), review(POLICY, "DELETE"))
    assert response["allowed"]
    assert response["warnings"][0].startswith("lasthop: Gateway shop/web to Service shop/api:443 would be plaintext")
    response = await answered(judges(*world(**REFUSING)), review(POLICY, "DELETE"))
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    assert "would be plaintext" in response["status"]["message"]


async def test_what_is_not_ours_to_judge_is_allowed() -> None:
    reviews = judges(*world(), namespaces=("blog",))
    assert await answered(reviews, review(POLICY, "DELETE")) == {"uid": "u-1", "allowed": True}
    other = {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert await answered(judges(), review(POLICY, kind=other)) == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"request": {"uid": 1}}',
        review(POLICY, object=[1]),
        review(POLICY, object={"metadata": {"name": "other", "namespace": "shop"}}),
    ],
)
async def test_what_cannot_be_read_is_an_error_that_says_so(body: bytes) -> None:
    with pytest.raises(NotJudged):
        await judges(*world()).answer(body)


async def test_a_policy_that_this_version_cannot_read_is_judged_as_rejected() -> None:
    newer = json.loads(review(POLICY))
    newer["request"]["object"]["spec"]["validation"]["onlyOnSundays"] = True
    response = await answered(judges(*world()), json.dumps(newer).encode())
    assert response["allowed"] and "BackendTLSPolicy shop/api" in response["warnings"][0]


async def test_warnings_are_few_short_and_printable() -> None:
    name = "x\x1b[31m\u202e\n" * 100
    rules = [{"backendRefs": [{"name": f"no-{number}", "port": 443}]} for number in range(14)]
    route = mk_route("shop/new", "shop/web", [], rules=rules, hostnames=["a.example"])
    response = await answered(judges(*world()), review(route, "CREATE"))
    assert len(response["warnings"]) == module.MAX_WARNINGS
    assert "5 more" in response["warnings"][-1]
    odd = mk_policy("shop/api", "api", "api.example", [{"group": name, "kind": name, "name": name}])
    for warning in (await answered(judges(*world()), review(odd)))["warnings"]:
        assert warning.isprintable() and len(warning) <= module.LONGEST


async def test_what_takes_too_long_is_not_judged_and_the_next_review_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = judges(*world())
    await reviews.warm_up()
    monkeypatch.setattr(module, "WITHIN", 0.0)
    with pytest.raises(NotJudged, match="could not be judged within"):
        await reviews.answer(review(POLICY, "DELETE"))
    monkeypatch.undo()
    assert await answered(reviews, review(POLICY)) == {"uid": "u-1", "allowed": True}


async def test_more_than_a_few_at_a_time_are_turned_away_and_all_others_are_answered() -> None:
    reviews = judges(*world())
    asked = [asyncio.ensure_future(reviews.answer(review(POLICY))) for _ in range(3 * module.WAITING)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, dict) for each in found) == module.WAITING
    assert sum(isinstance(each, NotJudged) for each in found) == 2 * module.WAITING


async def test_the_event_loop_is_given_back_often_while_an_edit_concerns_hundreds_of_hops() -> None:
    """An edit of the CA that all policies share; what a step takes is what others wait."""
    names = [f"s{number}" for number in range(300)]
    objects = [obj for obj in world() if obj is not POLICY]
    for name in names:
        objects += [
            mk_service(f"shop/{name}"),
            mk_slice(f"shop/{name}-1", name, ["10.0.0.1"]),
            mk_policy(f"shop/{name}", name, f"{name}.example", ["ca"]),
            mk_route(f"shop/{name}", "shop/web", [{"name": name, "port": 443}], hostnames=[f"{name}.example"]),
        ]
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*objects))
    steps, spent = rehearsal.edit(key(objects[6]), None), []
    while True:
        begun = time.thread_time()
        if next(steps, "the end") == "the end":
            break
        spent.append(time.thread_time() - begun)
    assert len(spent) > 50
    spent.sort()
    assert spent[-1] < 0.25 and spent[len(spent) * 95 // 100] < 0.05, spent[-5:]


async def test_it_is_served_over_tls_with_our_own_certificate_which_is_replaced_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lasthop.web.webhook.LOOK", 0.05)
    authority = ca.renewed(None, time.time())
    name, port, ready = "lasthop-webhook.gateways.svc", free_port(), asyncio.Event()
    pairs = [ca.server_pair(authority, (name,), time.time())]
    trusting = ssl.create_default_context(cadata=authority.bundle.decode())

    async def serial(session: aiohttp.ClientSession) -> Any:
        url = f"https://127.0.0.1:{port}/validate"
        async with session.post(url, data=review(POLICY), ssl=trusting, server_hostname=name) as response:
            assert (await response.json())["response"]["allowed"]
            assert response.connection and response.connection.transport
            return response.connection.transport.get_extra_info("peercert")["serialNumber"]

    async with serving(judges(*world()), f"127.0.0.1:{port}", lambda: pairs[-1], ready):
        ready.set()
        connector = aiohttp.TCPConnector(force_close=True)
        async with asyncio.timeout(60), aiohttp.ClientSession(connector=connector) as session:
            while True:
                try:
                    first = await serial(session)
                    break
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.02)
            pairs.append(ca.server_pair(authority, (name,), time.time()))
            while await serial(session) == first:
                pass
            for body, status in ((b"x" * (LARGEST + 1), 413), (b"{", 503)):
                url = f"https://127.0.0.1:{port}/validate"
                async with session.post(url, data=body, ssl=trusting, server_hostname=name) as response:
                    assert response.status == status
