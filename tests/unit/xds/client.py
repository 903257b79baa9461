"""A delta client with Envoy's bookkeeping (delta_subscription_state.cc): it applies resources separately from the record that
it sends to the next server. A resource whose version starts with `bad` is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2

from lasthop.edge.xds.cache import wire_version
from lasthop.edge.xds.response import Response
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource

TABLE = "http"


class Client:
    def __init__(self) -> None:
        self.applied: dict[str, dict[str, Resource]] = {url: {} for url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES)}
        self.recorded: dict[str, dict[str, str]] = {url: {} for url in self.applied}
        self.inbox: deque[Response] = deque()
        self.outbox: deque[Any] = deque()
        self._subscribed: set[str] = set()

    def connect(self) -> None:
        self.inbox.clear()
        self.outbox.clear()
        self._subscribed.clear()
        self._say(CLUSTER)
        if self._endpoint_names():
            self._say(ENDPOINTS, subscribe=self._endpoint_names())
        self._say(LISTENER)
        if self.applied[LISTENER]:
            self._say(ROUTES, subscribe={TABLE})

    def table(self) -> set[str]:
        """The clusters the routes in service name."""
        table = self.applied[ROUTES].get(TABLE)
        return set(table.body.decode().split()) if table else set()

    def read(self) -> Response:
        response = self.inbox.popleft()
        url = response.type_url
        before = self._endpoint_names()
        bad = [r.name for r in response.resources if r.version.startswith("bad")]
        for resource in response.resources:
            one_by_one = url in (CLUSTER, LISTENER)
            if (resource.name not in bad) if one_by_one else not bad:
                self.applied[url][resource.name] = resource
        if url in (CLUSTER, LISTENER):
            for name in response.removed:
                self.applied[url].pop(name, None)
        if bad:
            named = "Error adding/updating cluster(s) " + ", ".join(f"{name}: no" for name in bad)
            self._say(url, nonce=response.nonce, error=named if url == CLUSTER else "no")
        else:
            self.recorded[url] |= {r.name: wire_version(r) for r in response.resources}
            for name in response.removed:
                self.recorded[url].pop(name, None)
            self._say(url, nonce=response.nonce)
        self._follow(before)
        return response

    def _endpoint_names(self) -> set[str]:
        return {f"{name}@{r.version}" for name, r in self.applied[CLUSTER].items()}

    def _follow(self, before: set[str]) -> None:
        after = self._endpoint_names()
        if before != after:
            for name in before - after:
                self.applied[ENDPOINTS].pop(name, None)
                self.recorded[ENDPOINTS].pop(name, None)
            self._say(ENDPOINTS, subscribe=after - before, unsubscribe=before - after)
        if self.applied[LISTENER] and ROUTES not in self._subscribed:
            self._say(ROUTES, subscribe={TABLE})

    def _say(
        self,
        url: str,
        *,
        subscribe: Iterable[str] = (),
        unsubscribe: Iterable[str] = (),
        nonce: str = "",
        error: str = "",
    ) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=nonce)
        if url not in self._subscribed:
            self._subscribed.add(url)
            subscribe = self._endpoint_names() if url == ENDPOINTS else subscribe
            unsubscribe = ()
            request.initial_resource_versions.update(self.recorded[url])
        request.resource_names_subscribe.extend(sorted(subscribe))
        request.resource_names_unsubscribe.extend(sorted(unsubscribe))
        if error:
            request.error_detail.message = error
        self.outbox.append(request)
