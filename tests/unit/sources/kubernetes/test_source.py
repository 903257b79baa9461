"""The watched kinds, the time of the first batch, and errors that prevent it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lasthop.base.api.bundle import BUNDLE_VERSION
from lasthop.base.api.core import Pod, Secret
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.edge.sources.kubernetes.source import KubernetesSource
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan.finding import Finding
from tests.api_objects import mk_config_map, mk_pod, mk_policy, mk_route, mk_selector
from tests.clock import Clock
from tests.fake_api import GATEWAY, FakeApi, Refusal, client_of, serving, until
from tests.metrics import count
from tests.unit.sources.kubernetes.reflecting import FAST

POLICIES = (GATEWAY, "v1", "backendtlspolicies")
FORBIDDEN = Refusal(403, "Forbidden", 'backendtlspolicies.gateway.networking.k8s.io is forbidden: User "x" cannot list')


class Reader:
    """Takes batches as the controller does."""

    def __init__(self, source: KubernetesSource) -> None:
        self.source = source
        self.batches: list[Batch] = []
        self.objects: dict[Key, Object] = {}

    async def run(self) -> None:
        async for batch in self.source.batches():
            self.batches.append(batch)
            for key, obj in batch.changes.items():
                if obj is None:
                    self.objects.pop(key, None)
                else:
                    self.objects[key] = obj

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.batches[-1].findings if self.batches else self.source.findings()

    def names(self, kind: str) -> list[str]:
        return sorted(key.name for key in self.objects if key.kind == kind)


@asynccontextmanager
async def reading(api: FakeApi, **options: Any) -> AsyncIterator[Reader]:
    async with client_of(api) as client:
        options = {"timing": FAST, "discovery_interval": 0.02, "settle": 0.002, **options}
        reader = Reader(KubernetesSource(client, **options))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(reader.run())
            yield reader
            task.cancel()


def tried_again(api: FakeApi) -> bool:
    """All other kinds are being watched, and policies have been requested several times."""
    return bool(api.watching("httproutes")) and len(api.asked("watch", "backendtlspolicies")) > 3


async def test_the_first_batch_holds_everything(api: FakeApi) -> None:
    api.put("httproutes", mk_route("a"))
    api.put("backendtlspolicies", mk_policy("p"))
    api.put("namespaces", {"metadata": {"name": "shop", "labels": {"team": "erp"}}})
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        first = reader.batches[0]
        assert {str(key) for key in first.changes if first.changes[key]} == {
            "HTTPRoute shop/a",
            "BackendTLSPolicy shop/p",
            "Namespace shop",
        }
        assert not first.unknown and not first.findings


async def test_events_are_coalesced_into_one_batch(api: FakeApi) -> None:
    async with reading(api, settle=0.05) as reader:
        await until(lambda: reader.batches)
        for number in range(20):
            api.put("httproutes", mk_route(f"r{number}"))
        await until(lambda: len(reader.names("HTTPRoute")) == 20)
        assert len([batch for batch in reader.batches if batch.changes]) <= 2, "the first may be taken at once"


async def test_a_single_edit_waits_for_no_others_and_the_next_for_the_rest_of_the_interval(api: FakeApi) -> None:
    interval, clock = 3600.0, Clock()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))

    timing = msgspec.structs.replace(FAST, sleep=sleep, clock=clock)
    async with reading(api, settle=interval, timing=timing, discovery_interval=interval) as reader:
        await until(lambda: 0.0 in waits and api.watching("httproutes"))  # it has looked for changes after the first batch
        clock.now = interval
        waits.clear()
        api.put("httproutes", mk_route("a"))
        await until(lambda: reader.names("HTTPRoute") == ["a"])
        assert not any(waits)
        clock.now += 1
        api.put("httproutes", mk_route("b"))
        await until(lambda: reader.names("HTTPRoute") == ["a", "b"])
        assert interval - 1 in waits


async def test_403_on_backendtlspolicies_means_no_first_batch_until_allowed(api: FakeApi) -> None:
    api.put("httproutes", mk_route("a"))
    api.put("backendtlspolicies", mk_policy("p"))
    for verb in ("list", "watch"):
        api.fail(verb, "backendtlspolicies", "*", FORBIDDEN)
    async with reading(api) as reader:
        await until(lambda: reader.source.findings() and tried_again(api))
        assert not reader.batches and not reader.source.complete
        [finding] = reader.source.findings()
        assert finding.reason == "Forbidden"
        assert "list and watch backendtlspolicies.gateway.networking.k8s.io" in finding.message
        assert "nothing is programmed until they have been read" in finding.message
        assert "get, list and watch" in finding.remedy and "RBAC" in finding.remedy
        api.faults.clear()
        await until(lambda: reader.batches)
        assert Key("BackendTLSPolicy", "shop", "p") in reader.batches[0].changes
        assert not reader.batches[0].findings


@pytest.mark.parametrize(
    "fault", [Refusal(401, "Unauthorized"), Refusal(503, "ServiceUnavailable"), Refusal(500, "InternalError"), "reset"]
)
async def test_no_answer_on_backendtlspolicies_means_no_first_batch(api: FakeApi, fault: Refusal | str) -> None:
    for verb in ("list", "watch"):
        api.fail(verb, "backendtlspolicies", "*", fault)
    async with reading(api) as reader:
        await until(lambda: reader.source.findings() and tried_again(api))
        assert not reader.batches
        api.faults.clear()
        await until(lambda: reader.batches)


async def test_silence_on_backendtlspolicies_means_no_first_batch(api: FakeApi) -> None:
    for verb in ("list", "watch"):
        api.fail(verb, "backendtlspolicies", "*", "silence")
    async with reading(api, settle=0.0) as reader:
        await until(lambda: api.watching("httproutes"))
        for name in ("a", "b"):  # objects of other kinds are not passed on
            api.put("httproutes", mk_route(name))
            await until(lambda name=name: reader.source.observed.get(Key("HTTPRoute", "shop", name)))
        assert not reader.batches and not reader.source.complete


async def test_discovery_that_fails_is_not_a_cluster_without_kinds(api: FakeApi) -> None:
    api.fail("get", f"{GATEWAY}/v1", "*", Refusal(503, "ServiceUnavailable"))
    async with reading(api) as reader:
        await until(lambda: reader.source.findings())
        assert not reader.batches
        assert "nothing is programmed until then" in reader.source.findings()[0].message
        api.faults.clear()
        await until(lambda: reader.batches)


async def test_403_after_the_start_keeps_the_last_state(api: FakeApi) -> None:
    api.put("backendtlspolicies", mk_policy("p"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        for verb in ("list", "watch"):
            api.fail(verb, "backendtlspolicies", "*", FORBIDDEN)
        api.end("backendtlspolicies")
        await until(lambda: reader.findings)
        assert "the last known state is kept, and no further backend becomes plaintext" in reader.findings[0].message
        assert reader.names("BackendTLSPolicy") == ["p"]
        api.faults.clear()
        await until(lambda: not reader.findings)


async def test_a_missing_crd_is_normal(api: FakeApi) -> None:
    api.served = {resource for resource in api.served if resource[0] != GATEWAY}
    api.put("configmaps", mk_config_map("ca", **{"ca.crt": "x"}))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert reader.names("ConfigMap") == ["ca"] and not reader.findings


async def test_which_kinds_are_absent_comes_with_the_batches(api: FakeApi) -> None:
    imports = ("multicluster.x-k8s.io", "v1alpha1", "serviceimports")
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert "ServiceImport" in reader.batches[0].absent_kinds and "HTTPRoute" not in reader.batches[0].absent_kinds
        api.served.add(imports)
        await until(lambda: "ServiceImport" not in reader.batches[-1].absent_kinds)
        await until(lambda: api.watching("serviceimports"))


async def test_a_crd_installed_later_is_picked_up_whole(api: FakeApi) -> None:
    api.served.discard(POLICIES)
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        api.put("backendtlspolicies", mk_policy("p"))
        api.put("backendtlspolicies", mk_policy("q"))
        api.served.add(POLICIES)
        await until(lambda: reader.names("BackendTLSPolicy"))
        assert reader.names("BackendTLSPolicy") == ["p", "q"]
        assert {key.name for batch in reader.batches[1:] for key in batch.changes if key.kind == "BackendTLSPolicy"} == {
            "p",
            "q",
        }


async def test_a_removed_crd_takes_its_objects_along(api: FakeApi) -> None:
    api.put("httproutes", mk_route("a"))
    async with reading(api) as reader:
        await until(lambda: reader.names("HTTPRoute"))
        api.served.discard((GATEWAY, "v1", "httproutes"))
        api.end("httproutes")
        await until(lambda: not reader.names("HTTPRoute"))
        assert "HTTPRoute" not in reader.source.observed.versions


async def test_a_kind_that_discovery_misses_once_keeps_its_objects(api: FakeApi) -> None:
    """A starting server may list its CRDs one after the other."""
    api.put("backendtlspolicies", mk_policy("p"))
    async with reading(api) as reader:
        await until(lambda: reader.names("BackendTLSPolicy") and api.watching("backendtlspolicies"))
        watches = len(api.asked("watch", "backendtlspolicies"))
        api.overlooked.add(POLICIES)
        await until(lambda: not api.overlooked)
        discoveries = api.discoveries
        await until(lambda: api.discoveries > discoveries + 2)
        assert reader.names("BackendTLSPolicy") == ["p"]
        assert len(api.asked("watch", "backendtlspolicies")) == watches, "it was not even begun anew"


async def test_404_of_a_kind_that_discovery_still_shows_keeps_the_last_state(api: FakeApi) -> None:
    api.put("httproutes", mk_route("a"))
    async with reading(api) as reader:
        await until(lambda: reader.names("HTTPRoute"))
        api.fail("watch", "httproutes", "*", Refusal(404, "NotFound"))
        api.end("httproutes")
        await until(lambda: reader.findings)
        discoveries = api.discoveries
        await until(lambda: api.discoveries > discoveries + 2)
        assert reader.names("HTTPRoute") == ["a"]


async def test_backendtlspolicy_only_as_v1alpha3_is_read(api: FakeApi) -> None:
    api.served.discard(POLICIES)
    api.served.add((GATEWAY, "v1alpha3", "backendtlspolicies"))
    api.put("backendtlspolicies", mk_policy("p"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert reader.names("BackendTLSPolicy") == ["p"]
        assert reader.source.observed.versions["BackendTLSPolicy"] == "v1alpha3"


async def test_a_newer_version_that_appears_is_used_and_nothing_is_forgotten(api: FakeApi) -> None:
    api.served.discard(POLICIES)
    api.served.add((GATEWAY, "v1alpha3", "backendtlspolicies"))
    api.put("backendtlspolicies", mk_policy("stays"))
    api.put("backendtlspolicies", mk_policy("goes"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        api.delete("backendtlspolicies", "goes", "shop", silently=True)
        api.served.add(POLICIES)
        await until(lambda: reader.source.observed.versions["BackendTLSPolicy"] == "v1")
        await until(lambda: reader.names("BackendTLSPolicy") == ["stays"])


@pytest.mark.parametrize(
    ("group", "version", "plural"),
    [("certificates.k8s.io", "v1beta1", "clustertrustbundles"), ("multicluster.x-k8s.io", "v1alpha1", "serviceimports")],
)
async def test_an_optional_kind_that_may_not_be_read_is_a_warning(api: FakeApi, group: str, version: str, plural: str) -> None:
    """As after an upgrade without the new RBAC rules: references to it are invalid, which fails closed."""
    api.served.add((group, version, plural))
    for verb in ("list", "watch"):
        api.fail(verb, plural, "*", Refusal(403, "Forbidden"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        [finding] = reader.findings
        assert finding.severity == "warning" and f"{plural}.{group}" in finding.message


async def test_a_policy_with_an_unknown_field_is_rejected_by_name(api: FakeApi) -> None:
    key = Key("BackendTLSPolicy", "shop", "p")
    api.put("backendtlspolicies", mk_policy("p", mode="Pin"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        rejected = reader.objects[key]
        assert isinstance(rejected, RejectedPolicy) and [t.name for t in rejected.targets] == ["erp"]
        assert "mode" in rejected.message and not reader.batches[0].unknown
        assert "mode" in reader.findings[0].message
        api.put("backendtlspolicies", mk_policy("p"))
        await until(lambda: isinstance(reader.objects[key], BackendTLSPolicy))
        assert not reader.findings
        api.put("backendtlspolicies", mk_policy("p", mode="Pin"))
        await until(lambda: isinstance(reader.objects[key], RejectedPolicy))
        again = reader.objects[key]
        assert isinstance(again, RejectedPolicy) and again.last_good is None
        api.delete("backendtlspolicies", "p", "shop")
        await until(lambda: key not in reader.objects)


@pytest.mark.parametrize("field", ["targetSelectors", "selector", "additionalTargets"])
@pytest.mark.parametrize("kept", [(), ("targetRefs",)], ids=str)
async def test_a_policy_whose_targets_cannot_be_read_makes_policies_unknown(
    api: FakeApi, field: str, kept: Sequence[str]
) -> None:
    policy = mk_policy("p")
    targets = {name: value for name, value in policy["spec"].items() if name in ("validation", *kept)}
    policy["spec"] = {**targets, field: [{"matchLabels": {}}]}
    api.put("backendtlspolicies", policy)
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        [unknown] = reader.batches[0].unknown
        assert (unknown.namespace, unknown.provable) == ("shop", False)
        api.delete("backendtlspolicies", "p", "shop")
        await until(lambda: [unknown_part.namespace for unknown_part in reader.batches[-1].unknown] == [""])


async def test_unused_objects_are_not_kept(api: FakeApi) -> None:
    noise = {
        "managedFields": [{"manager": "x"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "secret"},
    }
    data = {"tls.crt": "Yw==", "tls.key": "aw==", "password": "cA=="}
    meta = {"name": "cert", "namespace": "shop", **noise}
    api.put("secrets", {"metadata": dict(meta), "type": "kubernetes.io/tls", "data": data})
    api.put("secrets", {"metadata": {**meta, "name": "db"}, "type": "Opaque", "data": {"password": "cA=="}})
    api.put("backendtlspolicies", {**mk_policy("p"), "metadata": {**meta, "name": "p"}})
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        secret, other = (reader.objects[Key("Secret", "shop", name)] for name in ("cert", "db"))
        assert isinstance(secret, Secret) and dict(secret.data) == {"tls.crt": b"c", "tls.key": b"k"}
        assert isinstance(other, Secret) and not other.data
        policy = reader.objects[Key("BackendTLSPolicy", "shop", "p")]
        assert isinstance(policy, BackendTLSPolicy) and not policy.metadata.annotations and not secret.metadata.annotations
    assert api.asked("watch", "secrets")[0]["fieldSelector"] == "type!=helm.sh/release.v1"


PODS, XBACKENDS = ("", "v1", "pods"), ("gateway.networking.x-k8s.io", "v1alpha1", "xbackends")


async def test_pods_are_read_with_the_first_batch_where_an_xbackend_selects_some_and_nowhere_else(api: FakeApi) -> None:
    api.served |= {PODS, XBACKENDS}
    api.put("xbackends", mk_selector("x", "shop", app="x"))
    for namespace in ("shop", "other"):
        api.put("pods", mk_pod("p", "10.0.0.1", namespace))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert [str(key) for key in reader.batches[0].changes if key.kind == "Pod"] == ["Pod shop/p"]
        api.put("xbackends", mk_selector("x", "other", app="x"))
        await until(lambda: len([key for key in reader.objects if key.kind == "Pod"]) == 2)
        api.delete("xbackends", "x", "shop")
        await until(lambda: [key for key in reader.objects if key.kind == "Pod"] == [Key("Pod", "other", "p")])
        assert not reader.findings


async def test_without_a_selector_no_pod_is_requested(api: FakeApi) -> None:
    api.served |= {PODS, XBACKENDS}
    named = {"type": "ExternalHostname", "port": {"number": 1}, "externalHostname": {"hostname": "a.example"}}
    api.put("xbackends", {"metadata": {"name": "x", "namespace": "shop"}, "spec": named})
    async with reading(api) as reader:
        await until(lambda: reader.names("XBackend"))
        assert not api.asked("list", "pods") and not api.asked("watch", "pods")


async def test_only_labels_and_address_of_a_pod_are_kept_and_other_writes_are_ignored(api: FakeApi) -> None:
    api.served |= {PODS, XBACKENDS}
    api.put("xbackends", mk_selector("x", app="x"))
    api.put("pods", mk_pod("p", "10.0.0.1"))
    async with reading(api) as reader:
        await until(lambda: reader.names("Pod"))
        (pod,) = (obj for key, obj in reader.objects.items() if key.kind == "Pod")
        assert isinstance(pod, Pod) and (pod.address, dict(pod.metadata.labels)) == ("10.0.0.1", {"app": "x"})
        assert not pod.metadata.annotations and not pod.metadata.uid
        busy = mk_pod("p", "10.0.0.1")
        busy["status"]["conditions"].append({"type": "PodScheduled", "status": "True"})
        busy["metadata"]["annotations"] = {"c": "d"}
        api.put("pods", busy)
        api.put("pods", mk_pod("q", "10.0.0.2"))
        await until(lambda: len(reader.names("Pod")) == 2)
        assert reader.objects[Key("Pod", "shop", "p")] == pod


async def test_our_own_entries_in_the_status_of_a_policy_are_no_news_and_those_of_others_are(api: FakeApi) -> None:
    key = Key("BackendTLSPolicy", "shop", "p")

    def entry(controller: str) -> dict[str, Any]:
        return {"ancestorRef": {"name": "gw"}, "controllerName": controller, "conditions": []}

    api.put("backendtlspolicies", mk_policy("p"))
    async with reading(api) as reader:
        await until(lambda: key in reader.objects)
        bare = reader.objects[key]
        api.put("backendtlspolicies", mk_policy("p") | {"status": {"ancestors": [entry(CONTROLLER_NAME)]}})
        await until(lambda: len(reader.batches) == 2)
        assert reader.objects[key] == bare
        api.put("backendtlspolicies", mk_policy("p") | {"status": {"ancestors": [entry(CONTROLLER_NAME), entry("other/x")]}})
        await until(lambda: reader.objects[key] != bare)
        policy = reader.objects[key]
        assert isinstance(policy, BackendTLSPolicy)
        assert [ancestor.controller_name for ancestor in policy.status.ancestors] == ["other/x"]


async def test_pods_that_may_not_be_read_are_a_warning(api: FakeApi) -> None:
    api.served |= {PODS, XBACKENDS}
    api.put("xbackends", mk_selector("x", app="x"))
    for verb in ("list", "watch"):
        api.fail(verb, "pods", "*", Refusal(403, "Forbidden"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        [finding] = reader.findings
        assert finding.severity == "warning" and "list and watch pods" in finding.message


async def test_null_fields_are_absent_fields(api: FakeApi) -> None:
    api.put("endpointslices", {"metadata": {"name": "s", "namespace": "shop"}, "endpoints": None, "ports": None})
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert reader.names("EndpointSlice") == ["s"] and not reader.findings


async def test_an_object_that_cannot_be_read_is_a_finding_and_not_the_end(api: FakeApi) -> None:
    api.put("httproutes", {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"hostnames": 7}})
    api.put("httproutes", mk_route("good"))
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert reader.names("HTTPRoute") == ["good"]
        assert reader.findings[0].object == Key("HTTPRoute", "shop", "odd")


async def test_an_absent_api_server_keeps_everything_and_is_reported() -> None:
    api = FakeApi()
    api.put("httproutes", mk_route("a"))
    async with serving(api):
        port = int(api.url.rpartition(":")[2])
        stack = reading(api)
        reader = await stack.__aenter__()
        await until(lambda: reader.batches)
    await until(lambda: reader.findings)
    [finding] = reader.findings
    assert finding.reason == "APIServerUnavailable" and "last known state is kept" in finding.message
    assert reader.names("HTTPRoute") == ["a"]
    await until(lambda: count(reader.source.restarts, "HTTPRoute", "unreachable"))
    said = len(reader.batches)
    async with serving(api, port):
        await until(lambda: not reader.findings)
        changes = [batch.changes for batch in reader.batches[said:]]
        assert not any(changes)  # nothing is new, so nothing is passed on again
        await stack.__aexit__(None, None, None)


async def test_only_the_requested_namespaces_are_read(api: FakeApi) -> None:
    for namespace in ("one", "two", "three"):
        api.put("httproutes", mk_route("r", namespace))
    async with reading(api, namespaces=("one", "two")) as reader:
        await until(lambda: reader.batches)
        assert sorted(key.namespace for key in reader.objects if key.kind == "HTTPRoute") == ["one", "two"]
        api.put("httproutes", mk_route("new", "three"))
        api.put("httproutes", mk_route("new", "two"))
        await until(lambda: Key("HTTPRoute", "two", "new") in reader.objects)
        assert Key("HTTPRoute", "three", "new") not in reader.objects


async def test_the_release_of_the_crds_comes_with_the_first_batch_and_whenever_it_changes(api: FakeApi) -> None:
    def install(version: str) -> None:
        metadata = {"name": f"gateways.{GATEWAY}", "annotations": {BUNDLE_VERSION: version}}
        api.put("customresourcedefinitions", {"metadata": metadata})

    api.served.add(("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    install("v1.7.0")
    async with reading(api) as reader:
        await until(lambda: reader.batches)
        assert dict(reader.batches[0].crd_versions)[f"gateways.{GATEWAY}"].release == "v1.7.0"
        install("v1.8.0")
        await until(lambda: dict(reader.batches[-1].crd_versions)[f"gateways.{GATEWAY}"].release == "v1.8.0")
        assert not reader.batches[-1].changes
