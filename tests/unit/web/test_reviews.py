"""Admission reviews: their answers, and the limits of a caller."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from lasthop.base.api.kinds import KINDS, document
from lasthop.base.api.meta import Key, Object
from lasthop.base.pki import authority as ca
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.comparison import HopChange
from lasthop.engine.plan.verification_change import ChangeKind, VerificationChange
from lasthop.engine.resolve.settings import IN_CLUSTER
from lasthop.engine.store.graph import Graph
from lasthop.engine.what_if import Consequences, Rehearsal
from lasthop.web import reviews as module
from lasthop.web.reviews import LARGEST, LARGEST_OBJECT, BadReview, NotJudged, Reviews
from lasthop.web.webhook import ConnectionLimiter, application, serving
from tests.ports import free_port
from tests.rehearsed import POLICY, REFUSING, world
from tests.world import NOW, ca_pem, key, keyed, mk_class, mk_config_map, mk_policy, mk_profile, mk_route, mk_service


def review(obj: Object, operation: str = "UPDATE", **request: Any) -> bytes:
    kind, name = KINDS[key(obj).kind], key(obj)
    written = document(kind.kind, obj)
    admission_request = {
        "uid": "u-1",
        "kind": {"group": kind.group, "version": kind.versions[0], "kind": kind.kind},
        "operation": operation,
        "name": name.name,
        "namespace": name.namespace,
        "object": None if operation == "DELETE" else written,
        "oldObject": written,
        **request,
    }
    return json.dumps({"apiVersion": module.API_VERSION, "kind": "AdmissionReview", "request": admission_request}).encode()


def judges(*objects: Object, namespaces: tuple[str, ...] = ()) -> Reviews:
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*objects))
    return Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, namespaces, NOW.timestamp)


async def ask(reviews: Reviews, body: bytes, caller: str = "192.0.2.1") -> dict[str, Any]:
    async def read() -> bytes:
        return body

    return await reviews.answer(caller, read)


async def answered(reviews: Reviews, body: bytes) -> dict[str, Any]:
    reviewed = await ask(reviews, body)
    assert (reviewed["apiVersion"], reviewed["kind"], reviewed["response"]["uid"]) == (
        module.API_VERSION,
        "AdmissionReview",
        "u-1",
    )
    response: dict[str, Any] = reviewed["response"]
    return response


async def test_an_edit_in_order_is_allowed_without_a_word() -> None:
    assert await answered(judges(*world()), review(POLICY)) == {"uid": "u-1", "allowed": True}


async def test_a_missing_ca_is_a_warning() -> None:
    response = await answered(judges(*world()), review(mk_policy("shop/api", "api", "api.example", ["no-ca"])))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("lasthop: BackendTLSPolicy shop/api, spec.validation.caCertificateRefs[0]: ")


async def test_an_object_written_just_before_is_not_reported_as_missing() -> None:
    """`kubectl apply -f` of a file: the watch delivers the Service, and the API server sends the review of the route before
    that."""
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*world()))
    reviews = Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, (), NOW.timestamp)
    route = mk_route("shop/new", "shop/web", [{"name": "new", "port": 80}])
    written = keyed(mk_service("shop/new", [{"name": "http", "port": 80}]))
    asyncio.get_running_loop().call_later(module.LAG / 2, rehearsal.changed, written)
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


async def test_a_deletion_that_leaves_plaintext_is_a_warning_or_refused_by_an_operators_rule() -> None:
    response = await answered(judges(*world()), review(POLICY, "DELETE"))
    assert response["allowed"]
    assert response["warnings"][0].startswith("lasthop: Gateway shop/web to Service shop/api:443 would be plaintext")
    response = await answered(judges(*world(**REFUSING)), review(POLICY, "DELETE"))
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    assert "would be plaintext" in response["status"]["message"]


async def test_reviews_of_other_objects_are_allowed() -> None:
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
async def test_unreadable_input_is_a_clear_error(body: bytes) -> None:
    with pytest.raises(NotJudged):
        await ask(judges(*world()), body)


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


async def test_a_slow_review_is_not_judged_and_the_next_one_is_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = judges(*world())
    await reviews.warm_up()
    monkeypatch.setattr(module, "WITHIN", 0.0)
    with pytest.raises(NotJudged, match="could not be judged within"):
        await ask(reviews, review(POLICY, "DELETE"))
    monkeypatch.undo()
    assert await answered(reviews, review(POLICY)) == {"uid": "u-1", "allowed": True}


async def test_more_than_a_few_of_one_caller_are_turned_away_and_all_others_are_answered() -> None:
    reviews, most = judges(*world()), module.WAITING + module.READ_EACH
    requests = [asyncio.ensure_future(ask(reviews, review(POLICY))) for _ in range(3 * most)]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(isinstance(answer, dict) for answer in answers) == most
    assert sum(isinstance(answer, NotJudged) for answer in answers) == 2 * most


class Bodies:
    """Bodies that end on the test's signal."""

    def __init__(self, content: bytes) -> None:
        self.read = 0
        self.arrive = asyncio.Event()
        self._content = content

    async def __call__(self) -> bytes:
        self.read += 1
        await self.arrive.wait()
        return self._content


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_waiting_reviews_are_not_read_and_a_flood_leaves_room_for_others() -> None:
    """Counts bodies in memory: 24 connections had 24 of them."""
    reviews, flood, legitimate = judges(*world()), Bodies(review(POLICY)), Bodies(review(POLICY))
    legitimate.arrive.set()
    requests = [asyncio.ensure_future(reviews.answer("192.0.2.66", flood)) for _ in range(24)]
    await settle()
    assert flood.read == module.READ_EACH
    assert (await reviews.answer("192.0.2.1", legitimate))["response"]["allowed"]
    many = [asyncio.ensure_future(reviews.answer(f"198.51.100.{number}", flood)) for number in range(24)]
    await settle()
    assert flood.read == module.READ, "whatever addresses they come from"
    for task in (*requests, *many):
        task.cancel()
    await asyncio.gather(*requests, *many, return_exceptions=True)
    assert (await reviews.answer("192.0.2.1", legitimate))["response"]["allowed"], "they have left their places"


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN", 0.05)
    reviews = judges(*world())
    requests = [asyncio.ensure_future(reviews.answer("192.0.2.66", Bodies(b""))) for _ in range(4)]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(answer) for answer in answers] == [NotJudged] * 4
    assert "0 working, 0 waiting" in repr(reviews._reading)


class Counting(Rehearsal):
    """Counts its calls."""

    followed = 0

    def follow(self, live: Graph, now: float) -> None:
        self.followed += 1
        super().follow(live, now)


async def test_reviews_that_timed_out_in_the_queue_cost_nothing() -> None:
    rehearsal = Counting(IN_CLUSTER, NOW.timestamp())
    reviews = Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    with pytest.raises(TimeoutError):
        await reviews._run(rehearsal.catch_up(), time.monotonic() - 1)
    assert rehearsal.followed == 0


async def test_decoding_is_not_for_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noting(real: Callable[..., Any], *args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return real(*args)

    for name in ("_decoded", "_candidate"):
        monkeypatch.setattr(module, name, partial(noting, getattr(module, name)))
    await answered(judges(*world()), review(POLICY))
    assert len(threads) == 2 and all(thread.startswith("rehearsal") for thread in threads)


async def test_reviews_of_all_callers_take_turns_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    real = module._decoded

    def noting(body: bytes) -> module.AdmissionRequest:
        decoded.append(body)
        return real(body)

    monkeypatch.setattr(module, "_decoded", noting)
    reviews = judges(*world())
    async with reviews._judging.turn("192.0.2.66"):
        request = asyncio.ensure_future(ask(reviews, review(POLICY)))
        await settle()
        assert not decoded
    await request
    assert decoded == [review(POLICY)]


async def test_a_review_with_too_large_a_declared_length_is_refused_at_once() -> None:
    async with TestServer(application(judges(*world()))) as server:
        assert server.port
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGEST + 1}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"413"
        writer.close()


def nested(depth: int, key: str = "spec") -> bytes:
    written = review(POLICY).decode()
    deep = "[" * depth + "]" * depth
    return written.replace(f'"{key}": {{', f'"{key}": {{"deep": {deep}, ', 1).encode()


@pytest.mark.parametrize("depth", [2_000, 100_000, 1_000_000])
@pytest.mark.parametrize("key", ["spec", "request", "metadata"])
async def test_deep_nesting_is_a_bad_review_and_no_crash(depth: int, key: str) -> None:
    with pytest.raises(BadReview):
        await ask(judges(*world()), nested(depth, key))


async def test_an_object_larger_than_the_api_server_takes_is_a_bad_review() -> None:
    large = json.loads(review(POLICY))
    large["request"]["object"]["metadata"]["annotations"] = {"x": "y" * LARGEST_OBJECT}
    with pytest.raises(BadReview, match="bytes"):
        await ask(judges(*world()), json.dumps(large).encode())
    for field in ("uid", "name", "namespace"):
        with pytest.raises(BadReview):
            await ask(judges(*world()), review(POLICY, **{field: "x" * 254}))


async def test_an_edit_without_a_namespace_reveals_nothing_about_namespaced_objects() -> None:
    """Anybody who reaches the port may ask what would follow if the GatewayClass were deleted."""
    response = await answered(judges(*world()), review(mk_class(), "DELETE"))
    assert response["allowed"]
    warnings = " ".join(response["warnings"])
    assert "shop" not in warnings and "more in other namespaces" in warnings


async def test_a_refusal_of_an_edit_without_a_namespace_names_nothing() -> None:
    weaker = VerificationChange(ChangeKind.WEAKER)
    hop = HopChange(Key("Gateway", "shop", "web"), Key("Service", "shop", "api"), 443, "verified", "plaintext", weaker)
    verdict = Consequences((), (hop,), ("Gateway shop/web to Service shop/api:443 would be plaintext",))
    for edited, named in ((Key("Namespace", "", "shop"), False), (Key("Service", "shop", "api"), True)):
        response: dict[str, Any] = module._judged("u-1", edited, verdict)["response"]
        assert not response["allowed"] and ("shop" in str(response)) is named
    elsewhere = module._judged("u-1", Key("Service", "blog", "api"), Consequences((), (hop,)))["response"]
    assert elsewhere["warnings"] == ["lasthop: 1 more in other namespaces; see lasthop check"]


class Transport(asyncio.Transport):
    def __init__(self, peer: str) -> None:
        super().__init__({"peername": (peer, 1)})
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Served(asyncio.Protocol):
    def __init__(self) -> None:
        self.log: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.log.append("made")

    def data_received(self, data: bytes) -> None:
        self.log.append(data)

    def eof_received(self) -> bool:
        self.log.append("eof")
        return True

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.log.append("lost")


def test_so_many_connections_are_let_in_of_one_address_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lasthop.web.webhook.CONNECTIONS", 3)
    monkeypatch.setattr("lasthop.web.webhook.CONNECTIONS_EACH", 2)
    served: list[Served] = []

    def serve() -> Served:
        served.append(Served())
        return served[-1]

    door = ConnectionLimiter(serve)

    def connect(peer: str) -> tuple[asyncio.Protocol, bool]:
        connection, transport = door(), Transport(peer)
        connection.connection_made(transport)
        return connection, not transport.closed

    hostile = [connect("192.0.2.66") for _ in range(5)]
    assert [let_in for _, let_in in hostile] == [True, True, False, False, False]
    assert connect("192.0.2.1")[1] and not connect("192.0.2.2")[1]
    hostile[-1][0].connection_lost(None)
    assert not connect("192.0.2.2")[1], "one that was not let in frees no place"
    first = hostile[0][0]
    first.data_received(b"x")
    assert first.eof_received()
    first.pause_writing()
    first.resume_writing()
    first.connection_lost(None)
    assert served[0].log == ["made", b"x", "eof", "pause", "resume", "lost"]
    assert connect("192.0.2.2")[1] and door.open == {"192.0.2.66": 1, "192.0.2.1": 1, "192.0.2.2": 1}


class Blind(Rehearsal):
    """One that could not compare everything."""

    refused: tuple[str, ...] = ()

    def edit(self, key: Key, obj: Object | None) -> Generator[None, None, Consequences]:
        yield
        return Consequences((), (), self.refused, not_judged=("Lasthop failed in x",))


async def test_an_incomplete_comparison_is_an_error_so_that_the_failure_policy_decides() -> None:
    blind = Blind(IN_CLUSTER, NOW.timestamp())
    reviews = Reviews(blind, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    with pytest.raises(NotJudged, match="the edit may reduce verification: 1 of the affected hops"):
        await ask(reviews, review(POLICY))
    blind.refused = ("it is weaker",)
    assert not (await answered(reviews, review(POLICY)))["allowed"], "enough is known to refuse it"


async def test_an_operator_is_warned_of_what_was_not_compared_and_never_locked_out() -> None:
    reviews = Reviews(Blind(IN_CLUSTER, NOW.timestamp()), Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    profile = mk_profile("shop/rules", **REFUSING)
    assert await answered(reviews, review(profile)) == {
        "uid": "u-1",
        "allowed": True,
        "warnings": ["lasthop: 1 of the affected hops could not be compared; see lasthop check --against"],
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

    def edit(self, key: Key, obj: Object | None) -> Generator[None, None, Consequences]:
        end = time.monotonic() + 60
        while self.turns < 100 and time.monotonic() < end:
            pass
        yield
        return Consequences((), ())


async def test_the_event_loop_has_its_turns_however_long_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN", 120.0)
    slow = Slow(IN_CLUSTER, NOW.timestamp())
    request = asyncio.ensure_future(
        ask(Reviews(slow, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp), review(POLICY))
    )
    while not request.done():
        slow.turns += 1
        await asyncio.sleep(0)
    assert (await request)["response"]["allowed"]
    assert slow.turns >= 100


async def test_objects_that_change_while_an_edit_is_judged_are_not_lost() -> None:
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsal.changed(keyed(*world()))
    reviews = Reviews(rehearsal, Engine(IN_CLUSTER, NOW.timestamp()).graph, clock=NOW.timestamp)
    request = asyncio.ensure_future(ask(reviews, review(POLICY)))
    number = 0
    while not request.done():
        number += 1
        rehearsal.changed(keyed(mk_service(f"shop/s{number % 50}")))
        await asyncio.sleep(0)
    await request
    assert number > 1
    rehearsal.changed({key(POLICY): None})
    assert "warnings" not in await answered(reviews, review(POLICY, "DELETE")), "it is gone already"


async def test_it_is_served_over_tls_with_our_own_certificate_which_is_replaced_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lasthop.web.webhook.CERTIFICATE_CHECK_SECONDS", 0.05)
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
            for body, status in ((reviewed, 200), (b"x" * (LARGEST + 1), 413), (b"{", 400), (nested(100_000), 400)):
                async with session.post(url, data=io.BytesIO(body), ssl=trusting, server_hostname=name) as response:
                    assert response.status == status
