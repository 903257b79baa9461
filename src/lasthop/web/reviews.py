"""Answers the API server's admission reviews: warnings from a rehearsal of the edit, or a refusal if the operator requires
one.

Every step is bounded, because anyone who reaches the port can send reviews:

    arrives ──> its caller's queue ──> body read ──> its turn ──> decoded and judged in a thread ──> answer
                unread, a few          a few at once             one at a time

All of that takes at most two seconds. A review that is not judged in time is an error, so that the webhook's `failurePolicy`
decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
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
from lasthop.engine.what_if import NO_CONSEQUENCES, OPERATORS, Consequences, Rehearsal, hop_words

T = TypeVar("T")
WITHIN: Final = 2.0
"""Seconds for a review, including its wait; the API server waits for 5."""
READ: Final = 8
"""Reviews whose bodies are in memory."""
READ_EACH: Final = 2
"""The same for one caller."""
WAITING: Final = 8
"""Unread reviews of one caller."""
LAG: Final = 0.3
"""Seconds by which watches may lag behind writes: `kubectl apply -f` creates a Service and, some milliseconds later, the route
to it."""
MAX_WARNINGS: Final = 10
LONGEST: Final = 300
"""Characters of a warning: ten of them stay below the API server's limit."""
API_VERSION: Final = "admission.k8s.io/v1"
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a review: it contains an object twice, before and after, and the API server accepts 3 MiB."""
LARGEST_OBJECT: Final = 3 * 1024 * 1024
REFUSED_ELSEWHERE: Final = "a GatewayProfile forbids the effects of this edit in other namespaces; see lasthop check"
Name = Annotated[str, msgspec.Meta(max_length=253)]


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: Name
    kind: GroupVersionKind
    operation: str
    name: Name = ""
    namespace: Name = ""
    object: msgspec.Raw = msgspec.Raw()


class Review(msgspec.Struct, frozen=True):
    request: AdmissionRequest


class NotJudged(Exception):
    """A review has no answer; the text is the reason."""


class BadReview(NotJudged):
    """The request is not a valid review; the text is the reason."""


class Reviews:
    def __init__(
        self,
        rehearsal: Rehearsal,
        live: Graph,
        namespaces: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`live` is the graph of the serving engine, whose inputs alone are read; `namespaces` are the watched ones."""
        self._rehearsal, self._live, self._namespaces, self._clock = rehearsal, live, namespaces, clock
        # One thread, because rehearsals take turns and must not block the event loop.
        self._thread = ThreadPoolExecutor(1, "rehearsal")
        self._reading, self._judging = CallerTurns(READ, READ_EACH, WAITING), CallerTurns(1, 1, READ_EACH)

    async def warm_up(self) -> None:
        """Processes all existing objects before the first review."""
        await self._run(self._rehearsal.catch_up(), math.inf)

    async def answer(self, caller: str, read: Callable[[], Awaitable[bytes]]) -> Json:
        """Answers an AdmissionReview. `read` returns the review, and is called when it is its caller's turn. Raises
        NotJudged."""
        end = time.monotonic() + WITHIN
        try:
            async with asyncio.timeout(WITHIN), self._reading.turn(caller):
                return await self._judge(caller, await read(), end)
        except Full as full:
            raise NotJudged(f"{full}; try again") from None
        except TimeoutError:
            raise NotJudged(
                f"the edit could not be judged within {WITHIN:g} s: it affects too many objects, or too many objects change"
            ) from None

    async def _judge(self, caller: str, body: bytes, end: float) -> Json:
        async with self._judging.turn(caller):
            request = await self._in_thread(partial(_decoded, body))
            key = self._concerned(request)
            if key is None:
                return _answer(request.uid)
            obj = await self._in_thread(partial(_candidate, request, key)) if request.operation != "DELETE" else None
            verdict = await self._run(self._rehearsal.edit(key, obj), end)
        if verdict != NO_CONSEQUENCES:
            await asyncio.sleep(LAG)
            if self._rehearsal.behind:
                async with self._judging.turn(caller):
                    verdict = await self._run(self._rehearsal.edit(key, obj), end)
        if verdict.not_judged and not verdict.refused and key.kind not in OPERATORS:
            raise NotJudged(f"the edit may reduce verification: {_not_compared(verdict)}")
        return _judged(request.uid, key, verdict)

    def _concerned(self, request: AdmissionRequest) -> Key | None:
        """Returns the object of a request; None if its kind or namespace is not watched."""
        kind = KINDS.get(request.kind.kind)
        watched = not self._namespaces or not request.namespace or request.namespace in self._namespaces
        if kind is None or kind.group != request.kind.group or not watched or not request.name:
            return None
        return Key(request.kind.kind, request.namespace if kind.namespaced else "", request.name)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self, steps: Generator[None, None, T], end: float) -> T:
        """Runs steps in the thread. After the timeout it stops with the current step and reverts the candidate."""

        def run() -> T:
            with contextlib.closing(steps):
                if time.monotonic() < end:
                    self._rehearsal.follow(self._live, self._clock())
                while time.monotonic() < end:
                    try:
                        next(steps)
                    except StopIteration as done:
                        result: T = done.value
                        return result
            raise TimeoutError

        return await self._in_thread(run)


def _decoded(body: bytes) -> AdmissionRequest:
    try:
        return msgspec.json.decode(body, type=Review).request
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReview(f"not an AdmissionReview of {API_VERSION}: {error}") from None


def _candidate(request: AdmissionRequest, key: Key) -> Object | None:
    if (size := len(bytes(request.object))) > LARGEST_OBJECT:
        raise BadReview(f"the object has {size} bytes, more than the API server accepts")
    try:
        decoded = read_object(key.kind, request.object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReview(f"the object cannot be read: {error}") from None
    if decoded.key != key:
        raise BadReview(f"the object is {decoded.key}, but the request names {key}")
    return decoded.object


def _judged(uid: str, key: Key, verdict: Consequences) -> Json:
    """Returns the consequences in the namespace of the edit. Any client that reaches the port can send reviews, so answers
    contain only counts of other namespaces."""
    texts = list(_concerning(verdict, key.namespace))
    if hidden := len(verdict.weaker) + len(verdict.other_trust) + len(verdict.introduced) - len(texts):
        texts.append(f"{hidden} more in other namespaces; see lasthop check")
    if verdict.not_judged:
        texts.append(_not_compared(verdict))
    refused = verdict.refused if key.namespace else verdict.refused and (REFUSED_ELSEWHERE,)
    return _answer(uid, [f"lasthop: {text}" for text in texts], refused)


def _concerning(verdict: Consequences, namespace: str) -> Iterator[str]:
    """Yields the consequences in a namespace or for cluster-scoped objects."""
    for hop in (*verdict.weaker, *verdict.other_trust):
        if namespace in (hop.gateway.namespace, hop.backend.namespace):
            yield hop_words(hop)
    for finding in verdict.introduced:
        if finding.object is None or finding.object.namespace in ("", namespace):
            yield str(finding)


def _not_compared(verdict: Consequences) -> str:
    return f"{len(verdict.not_judged)} of the affected hops could not be compared; see lasthop check --against"


def _answer(uid: str, warnings: list[str] | None = None, refused: tuple[str, ...] = ()) -> Json:
    shown = [_short(text) for text in warnings or ()]
    if len(shown) > MAX_WARNINGS:
        shown[MAX_WARNINGS - 1 :] = [f"lasthop: and {len(shown) - MAX_WARNINGS + 1} more; see lasthop check"]
    response: dict[str, Any] = {"uid": uid, "allowed": not refused}
    if shown:
        response["warnings"] = shown
    if refused:
        reason = _short("; ".join(refused), 4 * LONGEST)
        response["status"] = {"code": 403, "reason": "Forbidden", "message": f"lasthop: {reason}"}
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _short(text: str, longest: int = LONGEST) -> str:
    """Returns a text as one line, because it becomes a header of the API server's response."""
    line = " ".join(clean(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


class Full(Exception):
    """A caller has reached its limit of waiting requests; the text contains the limit."""


class CallerTurns:
    """Limits concurrent work: each caller has a queue of its own, and callers take turns."""

    def __init__(self, at_once: int, per_caller: int, waiting: int) -> None:
        """`at_once`: concurrent requests; `per_caller`: of one caller; `waiting`: waiting requests of one caller."""
        self._at_once, self._per_caller, self._most = at_once, per_caller, waiting
        self._working: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Non-empty queues by caller, the next in turn first."""

    def __repr__(self) -> str:
        return f"<CallerTurns: {self._working.total()} working, {sum(map(len, self._queues.values()))} waiting>"

    @contextlib.asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Waits for a turn. A caller that gives up (a timeout) leaves the queue. Raises Full."""
        queue = self._queues.setdefault(caller, deque())
        if len(queue) >= self._most:
            raise Full(f"{self._most} requests of this caller already wait, which is the limit")
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        self._admit()
        try:
            await place
            yield
        finally:
            if place.done() and not place.cancelled():
                self._working[caller] -= 1
            else:
                self._leave(caller, place)
            self._working += Counter()  # removes callers without any
            self._admit()

    def _admit(self) -> None:
        while self._working.total() < self._at_once:
            caller = next((caller for caller in self._queues if self._working[caller] < self._per_caller), None)
            if caller is None:
                return
            place = self._queues[caller][0]
            self._leave(caller, place)
            if not place.cancelled():  # its task has not had its turn to leave
                self._working[caller] += 1
                place.set_result(None)

    def _leave(self, caller: str, place: asyncio.Future[None]) -> None:
        queue = self._queues.pop(caller, deque())
        with contextlib.suppress(ValueError):  # it has already left
            queue.remove(place)
        if queue:
            self._queues[caller] = queue
