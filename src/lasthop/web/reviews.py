"""Answers the API server's admission reviews: warnings from a rehearsal of the edit; a refusal where an operator wants one.

Bounded in every way, because whoever reaches the port may ask:

    arrives ──> its caller's queue ──> body read ──> its turn ──> decoded and judged in a thread ──> answer
                unread, a few          a few at once             one at a time

Two seconds for all of that. What is not judged in time is an error, so that the webhook's `failurePolicy` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key, Object
from lasthop.base.text.printable import clean
from lasthop.edge.kubernetes.objects import read_object
from lasthop.engine.store.graph import Graph
from lasthop.engine.what_if import IN_ORDER, OPERATORS, Consequences, Rehearsal, hop_words
from lasthop.web.turns import Full, Turns

T = TypeVar("T")
WITHIN: Final = 2.0
"""Seconds for a review, its turn included; the API server waits for 5."""
READ: Final = 8
"""Reviews whose bodies are in memory."""
READ_EACH: Final = 2
"""Of these, for one caller."""
WAITING: Final = 8
"""Reviews of one caller that wait unread."""
LAG: Final = 0.3
"""Seconds by which watches may be behind what was written: `kubectl apply -f` creates a Service and, some milliseconds later,
the route to it."""
MAX_WARNINGS: Final = 10
LONGEST: Final = 300
"""Characters of a warning: with ten of them, less than the API server begins to cut at."""
API_VERSION: Final = "admission.k8s.io/v1"
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a review: it holds an object twice, before and after, and the API server takes 3 MiB."""
LARGEST_OBJECT: Final = 3 * 1024 * 1024
ELSEWHERE: Final = "a GatewayProfile refuses what would follow in other namespaces; see lasthop check"
Name = Annotated[str, msgspec.Meta(max_length=253)]


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: Name
    kind: GroupVersionKind
    operation: str
    name: Name = ""
    namespace: Name = ""
    object: msgspec.Raw = msgspec.Raw()


class Review(msgspec.Struct, frozen=True):
    request: Request


class NotJudged(Exception):
    """A review has no answer; the text says why."""


class BadReview(NotJudged):
    """What was sent is no review, or one that nobody would send; the text says why."""


class Reviews:
    def __init__(
        self,
        rehearsal: Rehearsal,
        live: Graph,
        namespaces: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`live` is the graph of the engine that serves, of which only inputs are looked at; `namespaces` what it watches."""
        self._rehearsal, self._live, self._namespaces, self._clock = rehearsal, live, namespaces, clock
        # One thread: rehearsals take turns, and the event loop has its own however long one of their steps takes.
        self._thread = ThreadPoolExecutor(1, "rehearsal")
        self._reading, self._judging = Turns(READ, READ_EACH, WAITING), Turns(1, 1, READ_EACH)

    async def warm_up(self) -> None:
        """Takes in everything there is, before anybody waits for an answer."""
        await self._run(self._rehearsal.catch_up(), math.inf)

    async def answer(self, caller: str, read: Callable[[], Awaitable[bytes]]) -> Json:
        """Returns the AdmissionReview that answers one. `read` returns it, and is called when it is its caller's turn. Raises
        NotJudged."""
        end = time.monotonic() + WITHIN
        try:
            async with asyncio.timeout(WITHIN), self._reading.turn(caller):
                return await self._judge(caller, await read(), end)
        except Full as full:
            raise NotJudged(f"{full}; try again") from None
        except TimeoutError:
            raise NotJudged(f"it could not be judged within {WITHIN:g} s: it concerns too much, or too much changes") from None

    async def _judge(self, caller: str, body: bytes, end: float) -> Json:
        async with self._judging.turn(caller):
            request = await self._in_thread(partial(_decoded, body))
            kind = KINDS.get(request.kind.kind)
            watched = not self._namespaces or not request.namespace or request.namespace in self._namespaces
            if kind is None or kind.group != request.kind.group or not watched or not request.name:
                return _answer(request.uid)
            key = Key(request.kind.kind, request.namespace if kind.namespaced else "", request.name)
            obj = await self._in_thread(partial(_candidate, request, key)) if request.operation != "DELETE" else None
            verdict = await self._run(self._rehearsal.edit(key, obj), end)
        if verdict != IN_ORDER:
            await asyncio.sleep(LAG)
            if self._rehearsal.behind:
                async with self._judging.turn(caller):
                    verdict = await self._run(self._rehearsal.edit(key, obj), end)
        if verdict.not_judged and not verdict.refused and key.kind not in OPERATORS:
            raise NotJudged(f"it may verify less: {_not_compared(verdict)}")
        return _judged(request.uid, key, verdict)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self, steps: Generator[None, None, T], end: float) -> T:
        """Runs steps in the thread. Once nobody waits any more it stops after the one under way, candidate taken back."""

        def run() -> T:
            with contextlib.closing(steps):
                if time.monotonic() < end:
                    self._rehearsal.follow(self._live, self._clock())
                while time.monotonic() < end:
                    try:
                        next(steps)
                    except StopIteration as done:
                        found: T = done.value
                        return found
            raise TimeoutError

        return await self._in_thread(run)


def _decoded(body: bytes) -> Request:
    try:
        return msgspec.json.decode(body, type=Review).request
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReview(f"this is no AdmissionReview of {API_VERSION}: {error}") from None


def _candidate(request: Request, key: Key) -> Object | None:
    if (size := len(bytes(request.object))) > LARGEST_OBJECT:
        raise BadReview(f"the object has {size} bytes, more than the API server takes")
    try:
        decoded = read_object(key.kind, request.object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReview(f"the object cannot be read: {error}") from None
    if decoded.key != key:
        raise BadReview(f"the object is {decoded.key}, and the request is about {key}")
    return decoded.object


def _judged(uid: str, key: Key, verdict: Consequences) -> Json:
    """Tells what concerns the namespace of the edit. Whoever reaches the port may ask, so of what is in other namespaces an
    answer says only how much it is."""
    changed = (*verdict.weaker, *verdict.other_trust)
    hops = [each for each in changed if key.namespace in (each.gateway.namespace, each.backend.namespace)]
    found = [each for each in verdict.introduced if each.object is None or each.object.namespace in ("", key.namespace)]
    texts = [*map(hop_words, hops), *map(str, found)]
    if hidden := len(changed) + len(verdict.introduced) - len(texts):
        texts.append(f"{hidden} more in other namespaces; see lasthop check")
    if verdict.not_judged:
        texts.append(_not_compared(verdict))
    refused = verdict.refused if key.namespace else verdict.refused and (ELSEWHERE,)
    return _answer(uid, [f"lasthop: {text}" for text in texts], refused)


def _not_compared(verdict: Consequences) -> str:
    return f"{len(verdict.not_judged)} of the hops that it concerns could not be compared; see lasthop check --against"


def _answer(uid: str, warnings: list[str] | None = None, refused: tuple[str, ...] = ()) -> Json:
    shown = [_short(text) for text in warnings or ()]
    if len(shown) > MAX_WARNINGS:
        shown[MAX_WARNINGS - 1 :] = [f"lasthop: and {len(shown) - MAX_WARNINGS + 1} more; see lasthop check"]
    response: dict[str, Any] = {"uid": uid, "allowed": not refused}
    if shown:
        response["warnings"] = shown
    if refused:
        text = _short("; ".join(refused), 4 * LONGEST)
        response["status"] = {"code": 403, "reason": "Forbidden", "message": f"lasthop: {text}"}
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _short(text: str, longest: int = LONGEST) -> str:
    """Returns a text as one line: it becomes a header of the API server's answer."""
    line = " ".join(clean(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
