"""Admission reviews: what is answered, and what one that asks too much gets."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import time
from collections.abc import Generator
from typing import Any

import aiohttp
import pytest

from lasthop.api.kinds import KINDS, document
from lasthop.api.meta import Key, Object
from lasthop.engine import Engine
from lasthop.pki import authority as ca
from lasthop.rehearsal import Rehearsal, Verdict
from lasthop.resolve.settings import IN_CLUSTER
from lasthop.web import reviews as module
from lasthop.web.reviews import NotJudged, Reviews
from lasthop.web.webhook import LARGEST, serving
from tests.ports import free_port
from tests.rehearsed import POLICY, REFUSING, world
from tests.world import NOW, ca_pem, key, keyed, mk_config_map, mk_policy, mk_profile, mk_route, mk_service


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


async def test_what_was_written_a_moment_before_is_not_said_to_be_missing() -> None:
    """`kubectl apply -f` of a file: the watch brings the Service, the API server asks about the route before that."""
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*world()))
    reviews = Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, (), NOW.timestamp)
    route = mk_route("shop/new", "shop/web", [{"name": "new", "port": 443}])
    asyncio.get_running_loop().call_later(module.LAG / 2, rehearsal.changed, keyed(mk_service("shop/new")))
    assert await answered(reviews, review(route, "CREATE")) == {"uid": "u-1", "allowed": True}


async def test_a_policy_written_a_moment_before_keeps_a_route_from_being_refused() -> None:
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    objects = world(**REFUSING, backendTLS={"plaintextBackends": "Deny"})
    first = key(mk_route("shop/api", "shop/web", []))
    (route,) = (obj for obj in objects if key(obj) == first)
    rehearsal.changed(keyed(*(obj for obj in objects if obj is not POLICY and obj is not route)))
    reviews = Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, (), NOW.timestamp)
    assert not (await answered(reviews, review(route, "CREATE")))["allowed"]
    asyncio.get_running_loop().call_later(module.LAG / 2, rehearsal.changed, keyed(POLICY))
    assert (await answered(reviews, review(route, "CREATE")))["allowed"]


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


class Blind(Rehearsal):
    """One that could not compare everything."""

    refused: tuple[str, ...] = ()

    def edit(self, key: Key, obj: Object | None) -> Generator[None, None, Verdict]:
        yield
        return Verdict((), (), self.refused, not_judged=("Lasthop failed in x",))


async def test_what_was_not_compared_is_an_error_so_that_the_failure_policy_decides() -> None:
    blind = Blind(IN_CLUSTER, NOW.timestamp())
    reviews = Reviews(blind, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    with pytest.raises(NotJudged, match="it may verify less: Lasthop failed in x"):
        await reviews.answer(review(POLICY))
    blind.refused = ("it is weaker",)
    assert not (await answered(reviews, review(POLICY)))["allowed"], "enough is known to refuse it"


async def test_an_operator_is_warned_of_what_was_not_compared_and_never_locked_out() -> None:
    reviews = Reviews(Blind(IN_CLUSTER, NOW.timestamp()), Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    profile = mk_profile("shop/rules", **REFUSING)
    assert await answered(reviews, review(profile)) == {
        "uid": "u-1",
        "allowed": True,
        "warnings": ["lasthop: Lasthop failed in x"],
    }


async def test_other_cas_are_a_warning_that_names_them() -> None:
    more = mk_config_map("shop/more", ca_pem("stranger"))
    response = await answered(judges(*world(**REFUSING), more), review(mk_policy("shop/api", "api", "api.example", ["more"])))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert "trusts CA stranger (SHA-256 " in warning


class Slow(Rehearsal):
    """One whose only step takes until the event loop has had many turns, or for ever if it gets none."""

    turns = 0

    def edit(self, key: Key, obj: Object | None) -> Generator[None, None, Verdict]:
        end = time.monotonic() + 60
        while self.turns < 100 and time.monotonic() < end:
            pass
        yield
        return Verdict((), ())


async def test_the_event_loop_has_its_turns_however_long_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN", 120.0)
    slow = Slow(IN_CLUSTER, NOW.timestamp())
    asked = asyncio.ensure_future(
        Reviews(slow, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp).answer(review(POLICY))
    )
    while not asked.done():
        slow.turns += 1
        await asyncio.sleep(0)
    assert (await asked)["response"]["allowed"]
    assert slow.turns >= 100


async def test_objects_that_change_while_an_edit_is_judged_are_not_lost() -> None:
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*world()))
    reviews = Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    asked = asyncio.ensure_future(reviews.answer(review(POLICY)))
    number = 0
    while not asked.done():
        number += 1
        rehearsal.changed(keyed(mk_service(f"shop/s{number % 50}")))
        await asyncio.sleep(0)
    await asked
    assert number > 1
    rehearsal.changed({key(POLICY): None})
    assert "warnings" not in await answered(reviews, review(POLICY, "DELETE")), "it is gone already"


async def test_it_is_served_over_tls_with_our_own_certificate_which_is_replaced_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lasthop.web.webhook.LOOK", 0.05)
    authority = ca.renewed(None, time.time())
    name, port, ready = "lasthop-webhook.gateways.svc", free_port(), asyncio.Event()
    pairs = [ca.server_pair(authority, (name,), time.time())]
    trusting = ssl.create_default_context(cadata=authority.bundle.decode())

    async def serial() -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)
        shown: str = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        await writer.wait_closed()
        return shown

    async def listening() -> bool:
        try:
            return bool(await serial())
        except ConnectionRefusedError:
            return False

    url, reviewed = f"https://127.0.0.1:{port}/validate", review(POLICY)
    async with serving(judges(*world()), f"127.0.0.1:{port}", lambda: pairs[-1], ready), asyncio.timeout(60):
        ready.set()
        while not await listening():
            pass
        first = await serial()
        pairs.append(ca.server_pair(authority, (name,), time.time()))
        while await serial() == first:
            pass
        async with aiohttp.ClientSession() as session:
            for body, status in ((reviewed, 200), (b"x" * (LARGEST + 1), 413), (b"{", 503)):
                async with session.post(url, data=io.BytesIO(body), ssl=trusting, server_hostname=name) as response:
                    assert response.status == status
