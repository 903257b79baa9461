"""What a broken document still says about BackendTLSPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.api.policies import PolicyTargetReference
from lasthop.sources.files.salvage import SalvageResult, salvage

WEB = PolicyTargetReference("", "Service", "web")


def read(spec: Any, kind: Any = "BackendTLSPolicy", metadata: Any = None) -> SalvageResult:
    return salvage({"kind": kind, "metadata": metadata or {"name": "p", "namespace": "shop"}, "spec": spec}, "doc-1", "why")


def targets(salvaged: SalvageResult) -> tuple[PolicyTargetReference, ...]:
    assert salvaged.policy is not None
    return salvaged.policy.targets


def test_a_policy_is_known_by_its_targets_whatever_else_is_wrong() -> None:
    salvaged = read({"targetRefs": [{"group": "", "kind": "Service", "name": "web"}], "validation": 5})
    assert targets(salvaged) == (WEB,)
    assert not salvaged.opaque


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
    assert read(spec) == SalvageResult(None, opaque=True)


def test_an_unreadable_namespace_is_opaque() -> None:
    assert read({"targetRefs": [{"name": "web"}]}, metadata={"name": "p", "namespace": 5}) == SalvageResult(None, opaque=True)


def test_a_misspelt_kind_is_still_a_policy() -> None:
    assert targets(read({"targetRefs": [{"name": "web"}]}, kind="BackendTlsPolcy")) == (WEB,)


def test_a_document_of_another_kind_is_none() -> None:
    for kind in ("Service", "HTTPRoute", "Deployment", "XBackendTrafficPolicy"):
        assert read({"targetRefs": [{"name": "web"}]}, kind=kind) == SalvageResult()


def test_what_does_not_say_its_kind_may_be_anything() -> None:
    assert salvage("text", "doc-1", "why").opaque
    assert salvage({"metadata": {}}, "doc-1", "why").opaque
    assert salvage({"kind": "List", "items": 5}, "doc-1", "why").opaque


def test_a_policy_without_name_is_named_after_its_place() -> None:
    salvaged = read({"targetRefs": [{"name": "web"}]}, metadata={"namespace": "shop"})
    assert salvaged.policy is not None
    assert (salvaged.policy.metadata.namespace, salvaged.policy.metadata.name) == ("shop", "doc-1")
