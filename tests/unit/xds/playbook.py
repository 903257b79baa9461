"""Runs a dialogue with a session: `>>` is its input, `<<` its output.

    Playbook() >> update(clusters("a=1")) >> subscribe(CLUSTER) << sends(CLUSTER, "a=1") >> ack(CLUSTER)

A resource is written `name=version`, a removal `-name`. `<< nothing` means that there is nothing to send, for now.
"""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec
from envoy.service.discovery.v3 import discovery_pb2

from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.response import Response
from lasthop.edge.xds.session import Acked, Nacked, SessionEvent, XdsSession
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, Changes, Resource, Withdrawal

START: Final = 1_000_000.0


def mk(type_url: str, text: str, **fields: Any) -> Resource:
    name, _, version = text.partition("=")
    return Resource(type_url, name, version.encode(), version, {name: version}, **fields)


def resources(type_url: str, *texts: str, **fields: Any) -> Changes:
    return {type_url: {r.name: r for r in (mk(type_url, text, **fields) for text in texts)}}


def clusters(*texts: str, **fields: Any) -> Changes:
    return resources(CLUSTER, *texts, **fields)


def endpoints(*texts: str) -> Changes:
    return resources(ENDPOINTS, *texts)


def secrets(*texts: str) -> Changes:
    return resources(SECRET, *texts)


def listeners(*texts: str) -> Changes:
    return resources(LISTENER, *texts)


def routes(*texts: str) -> Changes:
    return resources(ROUTES, *texts)


def withdrawn(type_url: str, *names: str, urgent: bool = False) -> Changes:
    return {type_url: {name: Withdrawal(urgent) for name in names}}


class Update(msgspec.Struct, frozen=True):
    changes: Changes


def update(*changes: Changes) -> Update:
    merged: dict[str, dict[str, Any]] = {}
    for change in changes:
        for type_url, named in change.items():
            merged.setdefault(type_url, {}).update(named)
    return Update(merged)


class subscribe(msgspec.Struct, frozen=True):
    type_url: str
    names: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()


class ack(msgspec.Struct, frozen=True):
    """Of the oldest response of the type that is not answered yet; may carry a subscription, as Envoy's do."""

    type_url: str
    names: tuple[str, ...] = ()


class nack(msgspec.Struct, frozen=True):
    type_url: str
    detail: str = "no"


class wait(msgspec.Struct, frozen=True):
    seconds: float


class Sends(msgspec.Struct, frozen=True):
    type_url: str
    texts: tuple[str, ...]


def sends(type_url: str, *texts: str) -> Sends:
    return Sends(type_url, texts)


nothing: Final = None


def acked(type_url: str, *texts: str) -> Acked:
    added = [mk(type_url, text) for text in texts if not text.startswith("-")]
    return Acked(type_url, {r.name: r for r in added}, frozenset(t[1:] for t in texts if t.startswith("-")))


def nacked(type_url: str, *texts: str, detail: str = "no") -> Nacked:
    return Nacked(type_url, {r.name: r for r in (mk(type_url, text) for text in texts)}, detail)


def said(response: Response) -> Sends:
    return sends(
        response.type_url,
        *(f"{r.name}={r.version}" for r in response.resources),
        *(f"-{name}" for name in response.removed),
    )


class Playbook:
    def __init__(self, cache: Cache | None = None) -> None:
        self.now = START
        self.cache = cache or Cache()
        self.session = XdsSession(self.cache)
        self.events: list[SessionEvent] = []
        self.responses: list[Response] = []
        self._open: list[Response] = []

    def __rshift__(self, step: Update | subscribe | ack | nack | wait) -> Self:
        match step:
            case Update():
                self.cache.apply(step.changes)
            case wait():
                self.now += step.seconds
            case subscribe():
                self._receive(step.type_url, step.names, has=step.has, drops=step.drops)
            case ack():
                self._receive(step.type_url, step.names, nonce=self._oldest(step.type_url))
            case nack():
                self._receive(step.type_url, nonce=self._oldest(step.type_url), detail=step.detail)
        return self

    def __lshift__(self, expected: Sends | SessionEvent | None) -> Self:
        if isinstance(expected, Acked | Nacked):
            assert self.events.pop(0) == expected
            return self
        response = self.poll()
        assert (said(response) if response else nothing) == expected
        return self

    def poll(self) -> Response | None:
        response = self.session.poll(self.now)
        if response is not None:
            self._open.append(response)
            self.responses.append(response)
        return response

    def _oldest(self, type_url: str) -> str:
        response = next(r for r in self._open if r.type_url == type_url)
        self._open.remove(response)
        return response.nonce

    def _receive(
        self,
        type_url: str,
        names: tuple[str, ...] = (),
        has: tuple[str, ...] = (),
        drops: tuple[str, ...] = (),
        nonce: str = "",
        detail: str = "",
    ) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=type_url,
            resource_names_subscribe=names,
            resource_names_unsubscribe=drops,
            initial_resource_versions=dict(text.split("=") for text in has),
            response_nonce=nonce,
        )
        if detail:
            request.error_detail.message = detail
        self.events += self.session.receive(request, self.now)


def connected(*changes: Changes) -> Playbook:
    """A client that has all of these and has confirmed them."""
    play = Playbook() >> update(*changes) >> subscribe(CLUSTER)
    drain(play)
    eds = tuple(play.cache.names(ENDPOINTS))
    if eds:
        play >> subscribe(ENDPOINTS, eds)
    play >> subscribe(LISTENER) >> subscribe(ROUTES, tuple(play.cache.names(ROUTES)))
    drain(play)
    play.events.clear()
    play.responses.clear()
    assert play.session.synced
    return play >> wait(1)


def drain(play: Playbook) -> None:
    while response := play.poll():
        play >> ack(response.type_url)
