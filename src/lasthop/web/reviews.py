"""Answers the API server's admission reviews: warnings from a rehearsal of the edit; a refusal where an operator wants one.

Bounded in every way, because whoever reaches the port may ask: one review at a time, a few waiting, two seconds each, in a
thread of its own beside the event loop. What is not judged in time is an error, so that the webhook's `failurePolicy`
decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec

from lasthop.api.documents import Json
from lasthop.api.kinds import KINDS
from lasthop.api.meta import Key, Object
from lasthop.kubernetes.objects import read_object
from lasthop.printable import clean
from lasthop.rehearsal import IN_ORDER, OPERATORS, Rehearsal, Verdict, hop_words
from lasthop.store.graph import Graph

T = TypeVar("T")
WITHIN: Final = 2.0
"""Seconds for a review, its turn included; the API server waits for 5."""
WAITING: Final = 8
"""Reviews at a time, the one under way included."""
LAG: Final = 0.3
"""Seconds by which watches may be behind what was written: `kubectl apply -f` creates a Service and, some milliseconds later,
the route to it."""
MAX_WARNINGS: Final = 10
MAX_REASONS: Final = 3
"""Why an edit is not judged, that are named."""
LONGEST: Final = 300
"""Characters of a warning: with ten of them, less than the API server begins to cut at."""
API_VERSION: Final = "admission.k8s.io/v1"


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    kind: GroupVersionKind
    operation: str
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw()


class Review(msgspec.Struct, frozen=True):
    request: Request


class NotJudged(Exception):
    """A review has no answer; the text says why."""


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
        self._asked = 0

    async def warm_up(self) -> None:
        """Takes in everything there is, before anybody waits for an answer."""
        await self._run(self._rehearsal.catch_up(), math.inf)

    async def answer(self, body: bytes) -> Json:
        """Returns the AdmissionReview that answers one. Raises NotJudged."""
        try:
            request = msgspec.json.decode(body, type=Review).request
        except msgspec.DecodeError as error:
            raise NotJudged(f"this is no AdmissionReview of {API_VERSION}: {error}") from None
        kind = KINDS.get(request.kind.kind)
        watched = not self._namespaces or not request.namespace or request.namespace in self._namespaces
        if kind is None or kind.group != request.kind.group or not watched or not request.name:
            return _answer(request.uid)
        if self._asked >= WAITING:
            raise NotJudged(f"{WAITING} edits are being judged already; try again")
        key = Key(request.kind.kind, request.namespace if kind.namespaced else "", request.name)
        obj = self._candidate(request, key) if request.operation != "DELETE" else None
        self._asked += 1
        try:
            async with asyncio.timeout(WITHIN):
                end = time.monotonic() + WITHIN
                verdict = await self._run(self._rehearsal.edit(key, obj), end)
                if verdict != IN_ORDER:
                    await asyncio.sleep(LAG)
                    if self._rehearsal.behind:
                        verdict = await self._run(self._rehearsal.edit(key, obj), end)
                if verdict.not_judged and not verdict.refused and key.kind not in OPERATORS:
                    raise NotJudged(f"it may verify less: {'; '.join(verdict.not_judged[:MAX_REASONS])}")
                return self._judged(request.uid, verdict)
        except TimeoutError:
            raise NotJudged(f"it could not be judged within {WITHIN:g} s: it concerns too much, or too much changes") from None
        finally:
            self._asked -= 1

    async def _run(self, steps: Generator[None, None, T], end: float) -> T:
        """Runs steps in the thread. Once nobody waits any more it stops after the one under way, candidate taken back."""

        def run() -> T:
            with contextlib.closing(steps):
                self._rehearsal.follow(self._live, self._clock())
                while time.monotonic() < end:
                    try:
                        next(steps)
                    except StopIteration as done:
                        found: T = done.value
                        return found
            raise TimeoutError

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _candidate(self, request: Request, key: Key) -> Object | None:
        try:
            decoded = read_object(key.kind, request.object)
        except msgspec.DecodeError as error:
            raise NotJudged(f"the object cannot be read: {error}") from None
        if decoded.key != key:
            raise NotJudged(f"the object is {decoded.key}, and the request is about {key}")
        return decoded.object

    def _judged(self, uid: str, verdict: Verdict) -> Json:
        texts = (*map(hop_words, (*verdict.weaker, *verdict.other_trust)), *verdict.not_judged, *map(str, verdict.introduced))
        return _answer(uid, [f"lasthop: {text}" for text in texts], verdict.refused)


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
