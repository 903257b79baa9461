"""BackendTLSPolicies that can be salvaged from a broken document."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.policies import PolicyTargetReference
from lasthop.edge.sources.files.salvage import SalvageResult, salvage

WEB = PolicyTargetReference("", "Service", "web")


def read(spec: Any, kind: Any = "BackendTLSPolicy", metadata: Any = None) -> SalvageResult:
    return salvage({"kind": kind, "metadata": metadata or {"name": "p", "namespace": "shop"}, "spec": spec}, "doc-1", "why")


def targets(salvaged: SalvageResult) -> tuple[PolicyTargetReference, ...]:
    assert salvaged.policy is not None
    return salvaged.policy.targets


def test_a_policy_is_known_by_its_targets_despite_any_other_error() -> None:
    salvaged = read({"targetRefs": [{"group": "", "kind": "Service", "name": "web"}], "validation": 5})
    assert targets(salvaged) == (WEB,)
    assert salvaged.opaque is None


@pytest.mark.parametrize(
    "ref",
    [{"name": "web"}, {"name": "web", "kind": "service"}, {"name": "web", "kind": 5}, {"name": "web", "sectionName": []}],
)
def test_a_careless_target_means_the_whole_service(ref: dict[str, Any]) -> None:
    assert targets(read({"targetRefs": [ref]})) == (WEB,)


@pytest.mark.parametrize("kind", ["ServiceImport", "serviceimports", "svcim"])
def test_a_careless_target_may_mean_a_service_import(kind: str) -> None:
    wanted = PolicyTargetReference("multicluster.x-k8s.io", "ServiceImport", "web")
    assert targets(read({"targetRefs": [{"name": "web", "kind": kind}]})) == (wanted,)


def test_a_section_name_is_kept() -> None:
    ref = {"group": "", "kind": "Service", "name": "web", "sectionName": "https"}
    assert targets(read({"targetRefs": [ref]}))[0].section_name == "https"


def test_a_single_target_and_the_old_spelling_are_understood() -> None:
    assert targets(read({"targetRefs": {"name": "web"}})) == (WEB,)
    assert targets(read({"targetRef": {"name": "web"}})) == (WEB,)


def test_an_unreadable_target_among_readable_ones_is_not_forgotten() -> None:
    salvaged = read({"targetRefs": [{"name": "web"}, {"nmae": "other"}]})
    assert targets(salvaged) == (WEB,)
    assert salvaged.opaque


@pytest.mark.parametrize("spec", [None, {}, {"targetRefs": []}, {"targetRefs": "web"}, []])
def test_a_policy_without_readable_targets_is_opaque(spec: Any) -> None:
    assert read(spec) == SalvageResult(None, opaque="shop")


def test_an_unreadable_namespace_is_opaque() -> None:
    assert read({"targetRefs": [{"name": "web"}]}, metadata={"name": "p", "namespace": 5}) == SalvageResult(None, opaque="")


def test_a_misspelt_kind_is_still_a_policy() -> None:
    assert targets(read({"targetRefs": [{"name": "web"}]}, kind="BackendTlsPolcy")) == (WEB,)


def test_a_document_of_another_kind_is_none() -> None:
    for kind in ("Service", "HTTPRoute", "Deployment", "XBackendTrafficPolicy"):
        assert read({"targetRefs": [{"name": "web"}]}, kind=kind) == SalvageResult()


def test_a_document_without_a_kind_may_be_anything() -> None:
    assert salvage("text", "doc-1", "why").opaque == ""
    assert salvage({"metadata": {}}, "doc-1", "why").opaque == "default"
    assert salvage({}, "doc-1", "why").opaque == ""
    assert salvage({"kind": "List", "items": 5}, "doc-1", "why").opaque == ""


@pytest.mark.parametrize(
    "metadata",
    [{"name": "p", "namspace": "shop"}, {"name": "p", "Namespace": "shop"}, {"name": "p", "namespace": "Shop!"}, "p", ["p"]],
)
def test_a_namespace_that_may_be_another_one_is_every_namespace(metadata: Any) -> None:
    assert read({"targetRefs": [{"name": "web"}]}, metadata=metadata) == SalvageResult(None, opaque="")


@pytest.mark.parametrize("more", [{"namespace": "shop"}, {"Metadata": {"namespace": "shop"}}, {"targetRefs": []}])
def test_a_field_beside_metadata_may_have_been_meant_to_be_inside(more: Any) -> None:
    document = {"kind": "BackendTLSPolicy", "metadata": {"name": "p"}, "spec": {"targetRefs": [{"name": "web"}]}, **more}
    assert salvage(document, "doc-1", "why") == SalvageResult(None, opaque="")


def test_a_policy_without_namespace_is_in_the_default_one() -> None:
    salvaged = read({"targetRefs": [{"name": "web"}]}, metadata={"name": "p", "labels": {}, "uid": "x"})
    assert salvaged.policy is not None and salvaged.opaque is None
    assert salvaged.policy.metadata.namespace == "default"


@pytest.mark.parametrize("name", ["targetrefs", "TargetRefs", "targetsRef", "targetref"])
def test_mistyped_targets_beside_readable_ones_are_not_forgotten(name: str) -> None:
    salvaged = read({"targetRefs": [{"name": "web"}], name: [{"name": "other"}]})
    assert targets(salvaged) == (WEB,) and salvaged.opaque == "shop"


@pytest.mark.parametrize("ref", [{"name": "web,"}, {"name": "web", "kind": "Servce"}, {"name": "Web"}, {"kind": "Service"}])
def test_a_target_that_may_name_another_service_leaves_the_namespace_open(ref: Any) -> None:
    assert read({"targetRefs": [ref]}) == SalvageResult(None, opaque="shop")


@pytest.mark.parametrize(
    ("others", "opaque"),
    [(("far", "far"), "far"), (("far", "shop"), "far"), (("far", "near"), ""), (("far", 5), ""), ((5,), "")],
)
def test_targets_of_other_namespaces_leave_these_open(others: tuple[Any, ...], opaque: str) -> None:
    refs = [{"name": "web", "namespace": other} for other in others]
    assert read({"targetRefs": [{"name": "web"}, *refs]}).opaque == opaque


@pytest.mark.parametrize(("created", "age"), [(None, "none"), ("2027-01-31T00:00:00Z", "2027-01-31T00:00:00Z"), ("soon", "")])
def test_a_policy_with_an_unreadable_date_is_the_oldest(created: Any, age: str) -> None:
    metadata = {"name": "p", "namespace": "shop", "creationTimestamp": created}
    salvaged = read({"targetRefs": [{"name": "web"}]}, metadata=metadata)
    assert salvaged.policy is not None and salvaged.policy.age[0] == age


def test_an_unknown_kind_of_the_gateway_api_may_be_a_policy() -> None:
    document = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TransportPolicy", "metadata": {"name": "p"}}
    assert salvage(document, "doc-1", "why").opaque == ""
    assert salvage({**document, "apiVersion": "v1"}, "doc-1", "why").opaque is None


def test_a_refused_document_that_mentions_the_kind_may_be_a_policy() -> None:
    swapped = {"apiVersion": "BackendTLSPolicy", "kind": "gateway.networking.k8s.io/v1", "metadata": {"name": "p"}}
    assert salvage(swapped, "doc-1", "why").opaque == ""


def test_a_policy_without_name_is_named_after_its_place() -> None:
    salvaged = read({"targetRefs": [{"name": "web"}]}, metadata={"namespace": "shop"})
    assert salvaged.policy is not None
    assert (salvaged.policy.metadata.namespace, salvaged.policy.metadata.name) == ("shop", "doc-1")


@pytest.mark.parametrize(
    ("document", "opaque"),
    [
        ({"kind": "BackendTLSPolicy", "metadata": {"name": "p", "namespace": "shop"}}, ""),
        ({"metadata": {"name": "p", "namespace": "shop"}, "kind": "BackendTLSPolicy"}, "shop"),
        ({"metadata": {"namespace": "shop"}, "kind": "BackendTLSPolicy", "spec": {"targetRefs": [{"name": "web"}]}}, "shop"),
        ({"metadata": {"namespace": "shop"}, "spec": {"targetRefs": [{"name": "web"}], "validation": {}}}, None),
        ({"metadata": {"namespace": "shop"}, "spec": {"targetRefs": [{"name": "web"}]}, "kind": "BackendTLSPolicy"}, None),
    ],
)
def test_the_end_of_the_last_document_may_have_been_cut_off(document: Any, opaque: str | None) -> None:
    assert salvage(document, "doc-1", "why", last=True).opaque == opaque
