"""Clusters with older bundles of the Gateway API: Lasthop reads the kinds that they serve, in a known version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from lasthop.base.api.gateway import ReferenceGrant
from lasthop.base.api.kinds import KINDS, decode
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.routes import HTTPRoute, HTTPRouteRule
from lasthop.edge.sources.kubernetes.discovery import Served, choose
from lasthop.edge.sources.kubernetes.source import KubernetesSource
from lasthop.engine.plan.limits import Limits
from lasthop.engine.resolve.routing.refusals import judge
from tests.api_objects import mk_policy, mk_route
from tests.fake_api import GATEWAY, FakeApi, client_of, until
from tests.unit.sources.kubernetes.reflecting import FAST

STANDARD_1_4: Final = {
    "gatewayclasses": ("v1", "v1beta1"),
    "gateways": ("v1", "v1beta1"),
    "httproutes": ("v1", "v1beta1"),
    "grpcroutes": ("v1",),
    "referencegrants": ("v1beta1",),
    "backendtlspolicies": ("v1",),
}
STANDARD_1_5: Final = {**STANDARD_1_4, "referencegrants": ("v1", "v1beta1"), "listenersets": ("v1",), "tlsroutes": ("v1",)}
STANDARD_1_6: Final = {**STANDARD_1_5, "tcproutes": ("v1",), "udproutes": ("v1",)}
ALPHA: Final = {"tlsroutes": ("v1alpha2", "v1alpha3"), "tcproutes": ("v1alpha2",), "udproutes": ("v1alpha2",)}
EXPERIMENTAL_1_4: Final = {**STANDARD_1_4, **ALPHA, "backendtlspolicies": ("v1", "v1alpha3")}
EXPERIMENTAL_1_5: Final = {**EXPERIMENTAL_1_4, **STANDARD_1_5, **ALPHA, "tlsroutes": ("v1", "v1alpha2", "v1alpha3")}
BUNDLES: Final = {
    "v1.4 standard": STANDARD_1_4,
    "v1.4 experimental": EXPERIMENTAL_1_4,
    "v1.5 standard": STANDARD_1_5,
    "v1.5 experimental": EXPERIMENTAL_1_5,
    "v1.6 and v1.7 standard": STANDARD_1_6,
}
"""As the CRDs of those releases say: the versions that are served."""
OLDER: Final = {
    "v1.4 standard": {"ReferenceGrant": "v1beta1"},
    "v1.4 experimental": {
        "ReferenceGrant": "v1beta1",
        "TLSRoute": "v1alpha3",
        "TCPRoute": "v1alpha2",
        "UDPRoute": "v1alpha2",
    },
    "v1.5 experimental": {"TCPRoute": "v1alpha2", "UDPRoute": "v1alpha2"},
}
"""What is read in another version than v1."""


def served_by(bundle: dict[str, tuple[str, ...]]) -> Served:
    return frozenset((GATEWAY, version, plural) for plural, versions in bundle.items() for version in versions)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_every_kind_of_a_bundle_is_read_in_the_newest_version_that_it_serves(bundle: str) -> None:
    versions = choose(KINDS.values(), served_by(BUNDLES[bundle]))
    names = {kind.plural: kind.kind for kind in KINDS.values() if kind.group == GATEWAY}
    assert versions == {names[plural]: OLDER.get(bundle, {}).get(names[plural], "v1") for plural in BUNDLES[bundle]}


class Reader:
    def __init__(self, source: KubernetesSource) -> None:
        self.source = source
        self.objects: dict[Key, Object | None] = {}

    async def run(self) -> None:
        async for batch in self.source.batches():
            self.objects.update(batch.changes)


GRANT: Final = {
    "from": [{"group": GATEWAY, "kind": "HTTPRoute", "namespace": "edge"}],
    "to": [{"group": "", "kind": "Service"}],
}


@asynccontextmanager
async def reading(api: FakeApi, bundle: dict[str, tuple[str, ...]]) -> AsyncIterator[Reader]:
    api.served = {resource for resource in api.served if resource[0] != GATEWAY} | served_by(bundle)
    api.put("httproutes", mk_route("r"))
    api.put("backendtlspolicies", mk_policy("p"))
    api.put("referencegrants", {"metadata": {"name": "g", "namespace": "shop"}, "spec": GRANT})
    async with client_of(api) as client:
        reader = Reader(KubernetesSource(client, timing=FAST, discovery_interval=0.02, settle=0.002))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(reader.run())
            yield reader
            task.cancel()


async def test_a_cluster_at_v1_4_is_read_whole_although_it_lacks_kinds(api: FakeApi) -> None:
    async with reading(api, STANDARD_1_4) as reader:
        await until(lambda: reader.objects)
        assert reader.source.complete
        assert {str(key) for key, obj in reader.objects.items() if obj} == {
            "HTTPRoute shop/r",
            "BackendTLSPolicy shop/p",
            "ReferenceGrant shop/g",
        }
        grant = reader.objects[Key("ReferenceGrant", "shop", "g")]
        assert isinstance(grant, ReferenceGrant)
        assert [source.namespace for source in grant.spec.from_] == ["edge"]
        assert "ListenerSet" not in reader.source.observed.versions


async def test_listener_sets_are_read_once_the_bundle_is_upgraded(api: FakeApi) -> None:
    async with reading(api, STANDARD_1_4) as reader:
        await until(lambda: reader.objects)
        api.served |= served_by(STANDARD_1_5)
        spec = {"parentRef": {"name": "gw"}, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
        api.put("listenersets", {"metadata": {"name": "s", "namespace": "shop"}, "spec": spec})
        await until(lambda: reader.objects.get(Key("ListenerSet", "shop", "s")))
        await until(lambda: reader.source.observed.versions["ReferenceGrant"] == "v1")
        assert reader.objects[Key("ReferenceGrant", "shop", "g")] is not None


def mk_rule(**session: Any) -> HTTPRouteRule:
    rule = {"backendRefs": [{"name": "api", "port": 80}], "sessionPersistence": session}
    route = decode("HTTPRoute", {"metadata": {"name": "r"}, "spec": {"rules": [rule]}})
    assert isinstance(route, HTTPRoute)
    return route.spec.rules[0]


def test_a_session_is_understood_in_the_words_of_older_bundles() -> None:
    old = mk_rule(sessionName="s", absoluteTimeout="1h", cookieConfig={"lifetimeType": "Permanent"}).session_persistence
    new = mk_rule(absoluteTimeout="1h", cookie={"name": "s", "lifetimeType": "Permanent"}).session_persistence
    header = mk_rule(type="Header", sessionName="x-s").session_persistence
    assert old and new and header
    assert (old.cookie, old.absolute_timeout) == (new.cookie, new.absolute_timeout)
    assert header.header.name == "x-s"
    [problem] = judge([mk_rule(idleTimeout="1m")], Limits()).rules[0].problems
    assert problem.field == "spec.rules[0].sessionPersistence.idleTimeout"
