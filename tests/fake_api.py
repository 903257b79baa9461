"""An API server for tests: real list and watch semantics over HTTP, and faults on demand.

One counter gives every write its resourceVersion; each resource keeps its history, so a watch from an old version replays what
came after it and a version before `compact()` is answered with 410, as an event or as an HTTP status.
"""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from lasthop.base.api.bundle import BUNDLE_VERSION
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.credentials import Headers, bearer
from tests.backends import PATIENCE

Json = dict[str, Any]
Name = tuple[str, str]

GATEWAY = "gateway.networking.k8s.io"
CORE = (("", "v1", name) for name in ("namespaces", "services", "configmaps", "secrets"))
RESOURCES: tuple[tuple[str, str, str], ...] = (
    *CORE,
    ("discovery.k8s.io", "v1", "endpointslices"),
    *((GATEWAY, "v1", name) for name in ("gatewayclasses", "gateways", "httproutes", "referencegrants", "backendtlspolicies")),
    *((GATEWAY, "v1", name) for name in ("listenersets", "grpcroutes", "tlsroutes", "tcproutes", "udproutes")),
    *(("lasthop.dev", "v1alpha1", name) for name in ("gatewayprofiles", "pinsets", "verificationwaivers")),
    ("coordination.k8s.io", "v1", "leases"),
    ("events.k8s.io", "v1", "events"),
)
KINDS = {
    "namespaces": "Namespace",
    "services": "Service",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "endpointslices": "EndpointSlice",
    "gatewayclasses": "GatewayClass",
    "gateways": "Gateway",
    "httproutes": "HTTPRoute",
    "referencegrants": "ReferenceGrant",
    "backendtlspolicies": "BackendTLSPolicy",
    "listenersets": "ListenerSet",
    "grpcroutes": "GRPCRoute",
    "tlsroutes": "TLSRoute",
    "tcproutes": "TCPRoute",
    "udproutes": "UDPRoute",
    "gatewayprofiles": "GatewayProfile",
    "pinsets": "PinSet",
    "verificationwaivers": "VerificationWaiver",
    "leases": "Lease",
    "events": "Event",
    "clustertrustbundles": "ClusterTrustBundle",
    "xbackends": "XBackend",
    "pods": "Pod",
}


class Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str = "") -> None:
        self.status, self.reason, self.message = status, reason, message or reason

    @property
    def body(self) -> Json:
        status = {"code": self.status, "reason": self.reason, "message": self.message}
        return {"kind": "Status", "apiVersion": "v1", "status": "Failure", **status}


class Access:
    """Stands in for `config.Access`: one address, one token, and how often it was renewed."""

    namespace, name, ssl, server_hostname, proxy = "default", "the test", None, None, None

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self.token, self.renewed = url, token, 0
        self.next_token = token

    def for_other_loop(self) -> Access:
        return self

    async def headers(self) -> Headers:
        return bearer(self.token) if self.token else ()

    async def renew(self, refused: Headers) -> bool:
        self.renewed += 1
        changed, self.token = self.token != self.next_token, self.next_token
        return changed


class FakeApi:
    def __init__(self) -> None:
        self.version = 100
        self.served: set[tuple[str, str, str]] = set(RESOURCES)
        self.kinds = dict(KINDS)
        """By plural."""
        self.objects: dict[str, dict[Name, Json]] = {}
        self.history: dict[str, list[tuple[int, str, Json]]] = {}
        self.compacted = 0
        self.streaming = True
        """Whether sendInitialEvents is supported."""
        self.gone_as_status = False
        """410 as an HTTP status; else as an event in the stream."""
        self.token = ""
        """Required if set."""
        self.faults: dict[tuple[str, str], list[Refusal | str]] = {}
        """By (verb, plural): what happens to the next such requests. "*" in front of the list: for ever."""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """(verb, plural, query)"""
        self.in_flight = self.most_in_flight = 0
        self.slow = 0.0
        """Seconds that every write takes."""
        self.lag = 0
        """The age of lists, in revisions."""
        self.streams: dict[str, set[asyncio.Queue[Any]]] = {}
        self.beginning: Callable[[list[Any]], list[Any]] = lambda events: events
        """Replaces the first events of a watch."""
        self.late: dict[str, list[Any]] = {}
        """By plural: events that its watches have not been sent yet."""
        self.forbidden: set[tuple[str, str]] = set()
        """(plural, namespace) that may not be read."""
        self.gates: dict[tuple[str, str], asyncio.Event] = {}
        """By (verb, plural): answers that are made at once, and sent when the event is set."""
        self.accepted: dict[tuple[str, str], set[str]] = {}
        """Requested content types by (verb, plural)."""
        self.overlooked: set[tuple[str, str, str]] = set()
        """Resources that the next discovery misses."""
        self.discoveries = 0
        self.url = ""

    # --- what a test does --------------------------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        return Access(self.url, self.token or None)

    def put(self, plural: str, obj: Json) -> Json:
        """Creates or replaces, as a user would."""
        meta = obj.setdefault("metadata", {})
        name = (meta.get("namespace", ""), meta["name"])
        old = self.objects.setdefault(plural, {}).get(name)
        self.version += 1
        meta.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self.version}")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        generation = old["metadata"].get("generation", 1) if old else 1
        if old and old.get("spec") != obj.get("spec"):
            generation += 1
        meta["generation"], meta["resourceVersion"] = generation, str(self.version)
        self.objects[plural][name] = obj
        self._tell(plural, "MODIFIED" if old else "ADDED", obj)
        return obj

    def delete(self, plural: str, name: str, namespace: str = "", *, silently: bool = False) -> None:
        obj = self.objects[plural].pop((namespace, name))
        self.version += 1
        last = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if not silently:
            self._tell(plural, "DELETED", last)

    def get(self, plural: str, name: str, namespace: str = "") -> Json:
        return self.objects[plural][(namespace, name)]

    @property
    def events(self) -> list[Json]:
        return list(self.objects.get("events", {}).values())

    def compact(self) -> None:
        """Forgets all history."""
        self.compacted = self.version
        self.history.clear()

    def bookmark(self, plural: str) -> None:
        self._send(plural, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def say(self, plural: str, event: Json) -> None:
        """An event out of order, or one that means nothing."""
        self._send(plural, event)

    def end(self, plural: str) -> None:
        """Ends the open watches cleanly."""
        self._send(plural, None)

    def reset(self, plural: str) -> None:
        """Cuts the connections of the open watches in the middle of a line."""
        self._send(plural, "reset")

    def delay(self, plural: str) -> None:
        """Holds back the events of a kind, as if its watches were slower than the others."""
        self.late.setdefault(plural, [])

    def deliver(self, plural: str, count: int | None = None) -> None:
        """Sends the first of the events that were held back, or all, and then no longer holds any back."""
        held = self.late.pop(plural, [])
        for event in held[:count]:
            self._send(plural, event)
        if count is not None:
            self.late[plural] = held[count:]

    def fail(self, verb: str, plural: str, *faults: Refusal | str) -> None:
        self.faults[(verb, plural)] = list(faults)

    def asked(self, verb: str, plural: str) -> list[dict[str, str]]:
        return [query for v, p, query in self.requests if (v, p) == (verb, plural)]

    def watching(self, plural: str) -> int:
        return len(self.streams.get(plural, ()))

    # --- underneath --------------------------------------------------------------------------------------------------

    def _tell(self, plural: str, type: str, obj: Json) -> None:
        frozen = copy.deepcopy(obj)
        self.history.setdefault(plural, []).append((self.version, type, frozen))
        self._send(plural, {"type": type, "object": frozen})

    def _send(self, plural: str, event: Any) -> None:
        if plural in self.late:
            self.late[plural].append(event)
            return
        for queue in self.streams.get(plural, ()):
            queue.put_nowait(event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise Refusal(401, "Unauthorized")
            return await self._route(request)
        except Refusal as refusal:
            headers = {"Retry-After": "1"} if refusal.status == 429 else {}
            return web.json_response(refusal.body, status=refusal.status, headers=headers)

    async def _route(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts == ["apis"]:
            self.discoveries += 1
            await self._fault("get", "apis", request)
            return web.json_response({"groups": self._groups()})
        if parts == ["readyz"]:
            return web.Response(text="ok")
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        if not rest:
            await self._fault("get", f"{group}/{version}", request)
            resources = {(g, v, p) for g, v, p in self.served if (g, v) == (group, version)}
            names = [{"name": plural} for *_, plural in sorted(resources - self.overlooked)]
            self.overlooked -= resources
            if not names:
                raise Refusal(404, "NotFound")
            return web.json_response({"resources": names})
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "")[:3]
        verb = self._verb(request, name)
        self.requests.append((verb, plural, dict(request.query)))
        self.accepted.setdefault((verb, plural), set()).add(request.headers.get("Accept", ""))
        await self._fault(verb, plural, request)
        if (plural, namespace) in self.forbidden:
            raise Refusal(403, "Forbidden", f"{plural} in {namespace}")
        if plural == "customresourcedefinitions" and verb == "get":
            return web.json_response(self._crd(name))
        if (group, version, plural) not in self.served:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        match verb:
            case "list":
                answer = self._list(plural, namespace, request)
                if gate := self.gates.get((verb, plural)):
                    await gate.wait()
                return answer
            case "watch":
                return await self._watch(plural, namespace, request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.slow)
            body = await request.json() if request.can_read_body else {}
            return web.json_response(self._object(verb, plural, (namespace, name), sub, body))
        finally:
            self.in_flight -= 1

    @staticmethod
    def _verb(request: web.Request, name: str) -> str:
        if request.method == "GET":
            return "get" if name else "watch" if request.query.get("watch") else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]

    def _groups(self) -> list[Json]:
        groups: dict[str, set[str]] = {}
        for group, version, _ in self.served:
            if group:
                groups.setdefault(group, set()).add(version)
        return [{"name": g, "versions": [{"version": v} for v in sorted(versions)]} for g, versions in groups.items()]

    async def _fault(self, verb: str, plural: str, request: web.Request) -> None:
        script = self.faults.get((verb, plural)) or self.faults.get((verb, "*"))
        if not script:
            return
        fault = script[1] if script[0] == "*" else script.pop(0)
        match fault:
            case Refusal():
                raise fault
            case "reset":
                assert request.transport is not None
                request.transport.abort()
                await asyncio.sleep(0.01)  # it takes effect with the loop's next turn
            case "silence":
                await asyncio.sleep(60)
            case "none":
                pass  # this one goes well, and perhaps not the next

    # --- verbs -------------------------------------------------------------------------------------------------------

    def _kind(self, plural: str, obj: Json) -> Json:
        group, version = next(((g, v) for g, v, p in sorted(self.served) if p == plural), ("", "v1"))
        return {"apiVersion": f"{group}/{version}" if group else version, "kind": self.kinds.get(plural, plural), **obj}

    def _crd(self, name: str) -> Json:
        """Returns the CRD of the test, or one for the served kind."""
        if crd := self.objects.get("customresourcedefinitions", {}).get(("", name)):
            return crd
        versions = sorted(version for group, version, plural in self.served if f"{plural}.{group}" == name)
        if not versions:
            raise Refusal(404, "NotFound", f"customresourcedefinitions {name} not found")
        annotations = {BUNDLE_VERSION: "v1.7.0"} if name.endswith(GATEWAY) else {}
        return {"metadata": {"name": name, "resourceVersion": ".".join(versions), "annotations": annotations}}

    def _items(self, plural: str, namespace: str) -> list[Json]:
        objects = self.objects.get(plural, {})
        return [self._kind(plural, obj) for (ns, _), obj in sorted(objects.items()) if not namespace or ns == namespace]

    def _list(self, plural: str, namespace: str, request: web.Request) -> web.Response:
        at, start = str(self.version - self.lag), 0
        if token := request.query.get("continue"):
            at, _, place = token.partition("/")
            start = int(place)
            if int(at) < self.compacted:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
        items, limit = self._items(plural, namespace), int(request.query.get("limit") or 0)
        if selector := request.query.get("labelSelector"):
            wanted = dict(pair.split("=") for pair in selector.split(","))
            items = [item for item in items if wanted.items() <= (item["metadata"].get("labels") or {}).items()]
        page = items[start : start + limit] if limit else items
        more = f"{at}/{start + limit}" if limit and start + limit < len(items) else ""
        if self.lag:
            page = [item for item in page if int(item["metadata"]["resourceVersion"]) <= int(at)]
        return web.json_response({"metadata": {"resourceVersion": at, "continue": more}, "items": page})

    async def _watch(self, plural: str, namespace: str, request: web.Request) -> web.StreamResponse:
        query = request.query
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streaming:
            message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden unless the WatchList feature gate is on"
            raise Refusal(422, "Invalid", message)
        expired = not initial and int(query.get("resourceVersion") or 0) < self.compacted
        if expired and self.gone_as_status:
            raise Refusal(410, "Expired", "too old resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for event in self.beginning(self._events(plural, namespace, request, initial, expired)):
            queue.put_nowait(event)
        self.streams.setdefault(plural, set()).add(queue)
        try:
            while (event := await queue.get()) is not None:
                if event == "reset":
                    await response.write(b'{"type": "MODIFIED", "obj')
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                seen = event["object"].get("metadata", {}).get("namespace", "")
                if namespace and seen and seen != namespace:
                    continue
                await response.write(json.dumps(event).encode() + b"\n")
            return response
        finally:
            self.streams[plural].discard(queue)

    def _events(self, plural: str, namespace: str, request: web.Request, initial: bool, expired: bool) -> list[Any]:
        if expired:
            return [{"type": "ERROR", "object": Refusal(410, "Expired", "too old resource version").body}, None]
        if initial:
            items = [{"type": "ADDED", "object": item} for item in copy.deepcopy(self._items(plural, namespace))]
            meta = {"resourceVersion": str(self.version), "annotations": {"k8s.io/initial-events-end": "true"}}
            return [*items, {"type": "BOOKMARK", "object": self._kind(plural, {"metadata": meta})}]
        since = int(request.query.get("resourceVersion") or 0)
        past = self.history.get(plural, ())
        return [{"type": type, "object": obj} for version, type, obj in past if version > since]

    def _object(self, verb: str, plural: str, name: Name, sub: str, body: Json) -> Json:
        objects = self.objects.setdefault(plural, {})
        if verb == "create":
            name = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
            if name in objects:
                raise Refusal(409, "AlreadyExists")
            return self.put(plural, body)
        if name not in objects and not (verb == "patch" and body.get("kind")):  # an apply has a kind, and creates
            raise Refusal(404, "NotFound", f"{plural} {name[1]} not found")
        old = objects.get(name, {})
        match verb:
            case "get":
                return self._kind(plural, old)
            case "delete":
                self.delete(plural, name[1], name[0])
                return {}
            case "update":
                sent = body["metadata"].get("resourceVersion")
                if sent and sent != old["metadata"]["resourceVersion"]:
                    raise Refusal(
                        409, "Conflict", "the object has been modified; please apply your changes to the latest version"
                    )
                new = {**copy.deepcopy(old), "status": body.get("status")} if sub == "status" else copy.deepcopy(body)
            case _:
                new = {
                    **copy.deepcopy(old),
                    **copy.deepcopy(body),
                    "metadata": {**old.get("metadata", {}), **body.get("metadata", {})},
                }
        new["metadata"] = {**old.get("metadata", {}), **new["metadata"]}
        return copy.deepcopy(self.put(plural, new))


@asynccontextmanager
async def serving(api: FakeApi, port: int = 0) -> AsyncIterator[FakeApi]:
    app = web.Application(client_max_size=2**23)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.05)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    assert site._server is not None
    api.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    try:
        yield api
    finally:
        for queues in api.streams.values():
            for queue in queues:
                queue.put_nowait(None)
        await runner.cleanup()


@asynccontextmanager
async def client_of(api: FakeApi, way: Access | None = None) -> AsyncIterator[Client]:
    """`way`: how the client reaches the server, if not directly."""
    async with Client(way or api.access, timeout=5.0) as client:  # type: ignore[arg-type]
        yield client


async def until(condition: Any, within: float = PATIENCE) -> None:
    """Waits for something to become true."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        await asyncio.sleep(0.002)
