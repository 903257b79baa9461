"""Documents of other programs are left out; misspelt ones of ours are not."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.edge.admission.foreign import UNTYPED, foreign_kind


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Deployment", "apps/v1"),
        ("Ingress", "networking.k8s.io/v1"),
        ("IngressClass", "networking.k8s.io/v1"),
        ("Kustomization", "kustomize.config.k8s.io/v1beta1"),
        ("Gateway", "networking.istio.io/v1"),
        ("Service", "serving.knative.dev/v1"),
        ("Endpoints", "v1"),
        ("Pod", "v1"),
        ("BackendTrafficPolicy", "gateway.envoyproxy.io/v1alpha1"),
        ("ServiceMonitor", "monitoring.coreos.com/v1"),
        ("SecretStore", "external-secrets.io/v1"),
    ],
)
def test_kinds_of_others_are_left_out(kind: str, version: str) -> None:
    assert foreign_kind({"kind": kind, "apiVersion": version}) == f"{kind} ({version})"


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Servce", "v1"),
        ("Service", "v2"),
        ("Service", "core/v1"),
        ("HTTPRout", "gateway.networking.k8s.io/v1"),
        ("HTTPRoute", "networking.k8s.io/v1"),
        ("HTTPRoute", "gateway.networking.k8s.i/v1"),
        ("HTTPRoute", "v1"),
        ("BackendTLSPolicy", "example.com/v1"),
        ("BackendTLSPolicies", "example.com/v1"),
        ("BackendTlsPolcy", "gateway.networking.k8s.io/v1"),
        ("PinSets", "lasthop.dev/v1"),
    ],
)
def test_documents_that_are_probably_ours_are_not_left_out(kind: str, version: str) -> None:
    assert foreign_kind({"kind": kind, "apiVersion": version}) == ""


@pytest.mark.parametrize("document", [{"replicaCount": 1}, [{"hosts": "all"}], ["a"], []])
def test_files_of_other_programs_are_no_objects(document: Any) -> None:
    assert foreign_kind(document) == UNTYPED


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": {"name": "x"}},
        {"spec": {}},
        {"kind": "HTTPRoute"},
        {"targetrefs": []},
        {"Kind": "X"},
        [{"kind": "HTTPRoute"}],
        {},
        "text",
        None,
    ],
)
def test_an_object_that_lacks_something_is_still_one(document: Any) -> None:
    assert foreign_kind(document) == ""
