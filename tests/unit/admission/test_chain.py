"""Admission as in an API server: kinds, defaults, unknown fields, schema, list keys, CEL rules, metadata."""

from __future__ import annotations

import pytest

from lasthop.base.api import crds
from lasthop.base.api.kinds import EXPERIMENTAL_API, GATEWAY_API, KINDS
from lasthop.edge.admission.cel import program
from lasthop.edge.admission.chain import admit, admitted
from lasthop.edge.admission.schema import schema_of
from tests.file_texts import policy, refused, route, service, stored


def test_an_unknown_kind_names_the_one_that_was_meant() -> None:
    _, (problem,) = admit({"apiVersion": "v1", "kind": "BackendTlsPolicy"})
    assert problem.message == 'unknown kind "BackendTlsPolicy"'
    assert problem.remedy == "Did you mean BackendTLSPolicy?"


def test_a_version_that_is_not_served_names_those_that_are() -> None:
    _, (problem,) = admit({"apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "BackendTLSPolicy"})
    assert "gateway.networking.k8s.io/v1 or gateway.networking.k8s.io/v1alpha3" in problem.remedy


def test_a_document_without_kind_has_a_clear_error() -> None:
    assert refused("metadata: {name: x}") == [
        ("apiVersion", "required field is missing"),
        ("kind", "required field is missing"),
    ]
    assert refused("just text") == [("", "a document must be a mapping, not a string")]


def test_an_unknown_field_names_the_one_that_was_meant() -> None:
    _, (problem,) = admit(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "x"},
            "spec": {"controllerName": "a.example/b", "controlerName": "x"},
        }
    )
    assert (problem.path, problem.reason) == (("spec", "controlerName"), "UnknownField")
    assert problem.remedy == "Did you mean controllerName?"


def test_schema_defaults_are_applied() -> None:
    spec = stored(route("  - backendRefs:\n    - {name: web, port: 80}\n"))["spec"]
    assert spec["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert spec["rules"][0]["backendRefs"][0] == {"name": "web", "port": 80, "group": "", "kind": "Service", "weight": 1}
    assert spec["parentRefs"][0]["kind"] == "Gateway"


def test_aliased_parts_do_not_share_their_defaults() -> None:
    spec = stored(route("  - backendRefs: &refs\n    - {name: web, port: 80}\n  - backendRefs: *refs\n"))["spec"]
    first, second = (rule["backendRefs"][0] for rule in spec["rules"])
    assert first == second
    assert first is not second


def test_null_is_a_field_left_out() -> None:
    assert "hostnames" not in stored(route().replace("  rules:\n", "  hostnames: null\n"))["spec"]


def test_schema_violations_are_all_reported_with_their_field() -> None:
    text = policy().replace("hostname: web.example", "hostname: 5").replace("kind: Service", "kind: '*'")
    messages = dict(refused(text))
    assert messages["spec.validation.hostname"] == "must be a string, not a number"
    assert "does not match" in messages["spec.targetRefs[0].kind"]


def test_a_cel_rule_that_is_violated_speaks_with_its_own_message() -> None:
    text = policy(more="    caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]\n")
    ((where, message),) = refused(text)
    assert where == "spec.validation"
    assert message == "exactly one of the fields in [caCertificateRefs wellKnownCACertificates] must be set"


def test_cel_rules_see_fields_that_are_cel_keywords() -> None:
    text = route().replace("- name: gateway", "- {name: gateway, namespace: a}\n  - {name: gateway, namespace: b}")
    assert refused(text) == []
    assert any("unique" in message for _, message in refused(text.replace("namespace: b", "namespace: a")))


def test_rules_still_speak_where_the_schema_is_satisfied() -> None:
    text = route("  - backendRefs: [{name: web}]\n").replace("  rules:", "  hostnames: ['a b']\n  rules:")
    assert [where for where, _ in refused(text)] == ["spec.hostnames[0]", "spec.rules[0].backendRefs[0]"]


@pytest.mark.parametrize(
    "hostname, evaluated",
    [("a b", True), ("5", False), ("[a]", False), ("a" * 300, False), ("''", True)],
)
def test_rules_judge_values_that_break_a_pattern_but_not_those_of_a_wrong_type(hostname: str, evaluated: bool) -> None:
    """As an API server: `Invalid` is reported beside the rules; `TypeInvalid` and `TooLong` block them."""
    refs = "    caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]\n"
    problems = refused(policy(more=refs).replace("hostname: web.example", f"hostname: {hostname}"))
    assert "spec.validation.hostname" in dict(problems)
    assert any("exactly one of" in message for _, message in problems) == evaluated


def test_list_keys_are_unique() -> None:
    headers = "  - matches:\n    - headers: [{name: a, value: x}, {name: a, value: y}]\n"
    assert refused(route(headers)) == [
        ("spec.rules[0].matches[0].headers[1]", 'the same name as item 0: {"name":"a"}'),
    ]


def test_status_in_a_file_is_dropped() -> None:
    assert "status" not in stored(policy(more="status: {anything: [goes]}\n"))


def test_every_served_version_of_every_kind_has_a_schema() -> None:
    for kind in KINDS.values():
        for version in kind.versions:
            assert schema_of(kind.kind, version).root.is_object


def test_both_channels_of_the_bundle_are_shipped() -> None:
    for kind in KINDS.values():
        if kind.group == GATEWAY_API:
            assert crds.schema(kind, "v1", "standard")["type"] == "object"
        if kind.group in (GATEWAY_API, EXPERIMENTAL_API):
            crd = crds.load(f"gateway-api/experimental/{kind.group}_{kind.plural}.yaml")
            assert crd["metadata"]["annotations"]["gateway.networking.k8s.io/bundle-version"] == crds.BUNDLE_VERSION
            assert (crd["spec"]["scope"] == "Namespaced") is kind.namespaced
            assert {v["name"] for v in crd["spec"]["versions"] if v["served"]} == set(kind.versions)


def test_named_formats_of_kubernetes_work_in_rules() -> None:
    rule = "self.all(key, !format.qualifiedName().validate(key).hasValue())"
    assert program(rule)({"self": {"a.example/b": 1}}) is True
    assert program(rule)({"self": {"a b": 1}}) is False


@pytest.mark.parametrize(
    ("metadata", "where"),
    [
        ("{namespace: shop}", "metadata.name"),
        ("{name: 'Web'}", "metadata.name"),
        ("{name: 5}", "metadata.name"),
        ("{name: a.b}", "metadata.name"),  # fine for a route, not for a Service
        ("{name: web, namespace: a.b}", "metadata.namespace"),
        ("{name: web, labels: {'a b': x}}", "metadata.labels[a b]"),
        ("{name: web, labels: {a: 'x y'}}", "metadata.labels.a"),
        ("{name: web, labels: {a: 5}}", "metadata.labels.a"),
        ("{name: web, annotations: [a]}", "metadata.annotations"),
        ("{name: web, creationTimestamp: 2027-01-31}", "metadata.creationTimestamp"),
        ("{name: web, creationTimestamp: 2027-02-31T00:00:00Z}", "metadata.creationTimestamp"),
        ("{name: web, nmae: x}", "metadata.nmae"),
        ("5", "metadata"),
    ],
)
def test_bad_metadata_is_refused_at_its_field(metadata: str, where: str) -> None:
    text = service().replace("{name: web, namespace: shop}", metadata)
    assert [place for place, _ in refused(text)] == [where]


def test_fields_of_the_api_server_are_tolerated() -> None:
    extra = "uid: x, resourceVersion: '5', selfLink: /x, managedFields: [{manager: kubectl}], generation: 7"
    kept = stored(service().replace("namespace: shop", f"namespace: shop, {extra}"))
    assert kept["metadata"]["generation"] == 1
    assert kept["metadata"]["uid"] != "x"


def test_a_namespaced_object_without_namespace_goes_to_default() -> None:
    assert stored(service().replace(", namespace: shop", ""))["metadata"]["namespace"] == "default"


def test_a_cluster_scoped_object_with_a_namespace_is_refused() -> None:
    text = "{apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: b}}"
    assert refused(text) == [("metadata.namespace", "a Namespace is not namespaced")]


def test_a_written_creation_time_is_kept_in_utc_and_one_left_out_makes_an_object_the_youngest() -> None:
    text = service().replace("namespace: shop", "namespace: shop, creationTimestamp: '2027-01-31T01:30:00.5+02:00'")
    written, none = admitted(stored(text)).object, admitted(stored(service())).object
    assert written.metadata.creation_timestamp == "2027-01-30T23:30:00Z"
    assert none.metadata.creation_timestamp == "1970-01-01T00:00:00Z"
    assert written.age < none.age


def test_a_uid_depends_on_nothing_but_kind_namespace_and_name() -> None:
    first, same, other = (admitted(stored(service(name, port))).object for name, port in [("a", 1), ("a", 2), ("b", 1)])
    assert first.metadata.uid == same.metadata.uid != other.metadata.uid


def test_a_namespace_carries_its_name_as_label() -> None:
    kept = stored("{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {team: x}}}")
    assert kept["metadata"]["labels"] == {"team": "x", "kubernetes.io/metadata.name": "a"}


REF = "[{group: '', kind: ConfigMap, name: ca}]"


@pytest.mark.parametrize(
    ("refs", "well_known", "admitted"),
    [
        ("[]", "System", True),
        (REF, "''", True),
        (REF, "System", False),
        ("[]", "''", False),
        ("''", "System", False),
        (REF, "[]", False),
        ("{}", "System", False),
    ],
)
def test_an_empty_trust_source_is_one_that_is_left_out(refs: str, well_known: str, admitted: bool) -> None:
    """GEP-1897: "If CACertificateRefs is empty or unspecified", "If WellKnownCACertificates is unspecified or empty"."""
    text = policy().replace(
        "wellKnownCACertificates: System", f"caCertificateRefs: {refs}\n    wellKnownCACertificates: {well_known}"
    )
    assert (refused(text) == []) is admitted
    if admitted:
        left = {"[]": "caCertificateRefs", "''": "wellKnownCACertificates"}
        assert {left.get(refs), left.get(well_known)} & stored(text)["spec"]["validation"].keys() == set()


@pytest.mark.parametrize("place", ["requestHeaderModifier: {set: [ITEM]}", "requestHeaderModifier: {add: [ITEM]}"])
def test_the_value_of_a_header_is_not_quoted(place: str) -> None:
    """It may be a credential, and findings are logged, shown and passed on."""
    item = r'{name: Authorization, value: "Bearer PLANTED\nX: y"}'
    text = (
        "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r, namespace: shop}, spec: {rules: "
        f"[{{filters: [{{type: RequestHeaderModifier, {place.replace('ITEM', item)}}}]}}]}}}}"
    )
    problems = refused(text)
    assert problems and "PLANTED" not in str(problems)
