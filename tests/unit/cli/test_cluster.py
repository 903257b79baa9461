"""`status`, `check` and `explain` of a cluster: the selected objects, the read kinds, and the output for a user without all
rights."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from lasthop.base.api.kinds import KINDS
from lasthop.cli.main import main
from lasthop.engine.memory import codec
from lasthop.engine.memory.record import Entry
from tests.backends import backend, until
from tests.certificates import Certificate, dns
from tests.fake_api import GATEWAY, FakeApi, Refusal, serving
from tests.folders import BASE, CA, config_map, lasthop, policy, route
from tests.records import mk_record

Json = dict[str, Any]
FOREIGN = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: theirs, namespace: blog}
spec:
  gatewayClassName: other
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""
SECURE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secure, namespace: shop}
spec:
  gatewayClassName: lasthop
  listeners:
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: web-tls}]}}
"""


def forbidden(plural: str) -> Refusal:
    return Refusal(403, "Forbidden", f'{plural} is forbidden: User "dev" cannot list resource "{plural}"')


def put(api: FakeApi, *texts: str) -> None:
    for text in texts:
        for document in yaml.safe_load_all(text):
            api.put(KINDS[document["kind"]].plural, document)


def say(api: FakeApi, plural: str, name: str, status: Json, namespace: str = "shop") -> None:
    api.put(plural, {**api.get(plural, name, namespace), "status": status})


def accepted(status: str = "True", generation: int = 1, message: str = "", **entry: Any) -> Json:
    condition = {"type": "Accepted", "status": status, "reason": "Why", "message": message, "observedGeneration": generation}
    return {**entry, "conditions": [condition]}


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as fake_api:
        contexts = {"dev": "shop", "bare": ""}
        kubeconfig = {
            "clusters": [{"name": "fake", "cluster": {"server": fake_api.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [
                {"name": name, "context": {"cluster": "fake", "user": "me", **({"namespace": ns} if ns else {})}}
                for name, ns in contexts.items()
            ],
            "current-context": "dev",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        put(fake_api, BASE, policy(), config_map(), FOREIGN)
        yield fake_api


async def run(*args: str | Path) -> Result:
    return await asyncio.to_thread(lasthop, *args)


def rows(result: Result) -> dict[str, tuple[str, str]]:
    split = (line.split(maxsplit=2) for line in result.stdout.splitlines()[1:])
    return {name: (ready, why[0] if why else "") for name, ready, *why in split}


# --- status ----------------------------------------------------------------------------------------------------------


async def test_status_says_what_stands_in_the_cluster_and_which_cluster_it_is(api: FakeApi) -> None:
    say(api, "gateways", "web", accepted())
    ours = accepted("False", message="no", parentRef={"name": "web"}, controllerName="lasthop.dev/gateway-controller")
    theirs = accepted("False", message="theirs", parentRef={"name": "x"}, controllerName="example.com/other")
    say(api, "httproutes", "api", {"parents": [theirs, ours]})
    result = await run("status")
    assert "Reading the cluster of context dev of" in result.stderr
    assert "namespace shop" in result.stderr
    table = rows(result)
    assert table["gateway/shop/web"] == ("True", "")
    assert table["httproute/shop/api"] == ("False", "web: Why: no")
    assert table["backendtlspolicy/shop/api"] == ("Unknown", "no Gateway of this controller uses it")
    assert "gateway/blog/theirs" not in table


async def test_all_namespaces_and_what_other_controllers_serve(api: FakeApi) -> None:
    say(api, "gateways", "theirs", accepted(), namespace="blog")
    table = rows(await run("status", "-A"))
    assert table["gateway/blog/theirs"] == table["gatewayclass/other"] == ("-", "served by example.com/other")
    assert rows(await run("status", "gateway", "-A"))["gateway/blog/theirs"] == ("-", "served by example.com/other")
    assert "gatewayclass/other" not in rows(await run("status", "gateway", "-A"))
    assert {name.partition("/")[0] for name in rows(await run("status", "gw,hr", "-A"))} == {"gateway", "httproute"}


async def test_a_route_whose_own_condition_says_that_a_backend_fails_is_not_ready(api: FakeApi) -> None:
    sentences = (
        "1 of 2 endpoints of Service shop/api:80 (10.0.0.1:8080): connection refused: nothing listens on the backend's port",
        "Service other/victim:80: connection refused",
    )
    entry = accepted(parentRef={"name": "web", "namespace": "shop"}, controllerName="lasthop.dev/gateway-controller")
    failing = {"type": "BackendConnected", "status": "False", "reason": "ConnectionFailed", "observedGeneration": 1}
    entry["conditions"].append({**failing, "message": "; ".join(sentences)})
    say(api, "httproutes", "api", {"parents": [entry]})
    why = f"shop/web: ConnectionFailed: {'; '.join(sentences)}"
    for command in (["status"], ["status", "httproute"], ["status", "httproute", "api"]):
        result = await run(*command, "--exit-code", "-o", "wide", "--no-headers")
        (line,) = (line for line in result.stdout.splitlines() if line.startswith("httproute/shop/api"))
        assert line.split()[1] == "False" and line.endswith(why) and result.exit_code == 1
        assert not any(line.startswith("service/") for line in result.stdout.splitlines()), "messages quote what backends say"


async def test_names_in_several_namespaces_are_all_found_and_one_without_is_in_that_of_the_context(api: FakeApi) -> None:
    put(api, FOREIGN, FOREIGN.replace("theirs", "web"))
    result = await run("status", "gw", "web", "blog/theirs", "-o", "name")
    assert (result.exit_code, set(result.stdout.split())) == (0, {"gateway/blog/theirs", "gateway/shop/web"})
    ambiguous = await run("status", "gw", "web", "blog/theirs", "-o", "name", "-A")
    assert (ambiguous.exit_code, ambiguous.stdout.split()) == (1, ["gateway/blog/theirs"])
    assert "Gateway web exists in several namespaces: choose one of blog/web, shop/web" in ambiguous.stderr


async def test_a_status_of_an_older_generation_is_no_news(api: FakeApi) -> None:
    say(api, "gateways", "web", accepted(generation=1))
    api.put("gateways", {**api.get("gateways", "web", "shop"), "spec": {**api.get("gateways", "web", "shop")["spec"], "x": 1}})
    ready, why = rows(await run("status"))["gateway/shop/web"]
    assert (ready, "the object has 2" in why) == ("Unknown", True)


async def test_waiting_for_a_controller_is_not_bad_news(api: FakeApi) -> None:
    say(api, "gateways", "web", accepted("Unknown", 0, "Waiting for controller"))
    assert rows(await run("status"))["gateway/shop/web"] == ("Unknown", "Why: Waiting for controller")


async def test_a_policy_that_cannot_be_read_whole_is_not_ready(api: FakeApi) -> None:
    newer = yaml.safe_load(policy("newer"))
    newer["spec"]["validation"]["mode"] = "Lax"
    api.put("backendtlspolicies", newer)
    ready, why = rows(await run("status"))["backendtlspolicy/shop/newer"]
    assert ready == "False"
    assert "mode" in why
    assert (await run("status", "--exit-code")).exit_code == 1
    assert "could not be read completely" in (await run("explain", "backendtlspolicy", "newer")).stdout


async def test_one_by_name_comes_whole_and_without_managed_fields(api: FakeApi) -> None:
    route_document = api.get("httproutes", "api", "shop")
    route_document["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    document = yaml.safe_load((await run("status", "httproute/shop/api", "-o", "yaml", "--context", "bare")).stdout)
    assert document["spec"]["hostnames"] == ["shop.example"]
    assert "managedFields" not in document["metadata"]


async def test_nothing_of_a_secret_is_shown(api: FakeApi) -> None:
    content = base64.b64encode(b"hush").decode()
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": content}
    metadata = {"name": "s", "namespace": "shop", "annotations": annotations}
    api.put("secrets", {"metadata": metadata, "data": {"tls.key": content}})
    result = await run("status", "secret", "-o", "json")
    assert json.loads(result.stdout)[0]["metadata"]["name"] == "s"
    assert content not in result.output
    assert "hush" not in result.output


async def test_a_policy_whose_service_does_not_exist_is_not_ready(api: FakeApi) -> None:
    put(api, policy("typo", service="apii"), policy("none", service="elsewhere"))
    table = rows(await run("status", "backendtlspolicy"))
    assert table["backendtlspolicy/shop/api"] == ("Unknown", "no Gateway of this controller uses it")
    reason = "TargetNotFound: Service shop/apii does not exist; did you mean api?"
    assert table["backendtlspolicy/shop/typo"] == ("False", reason)
    assert table["backendtlspolicy/shop/none"] == ("False", "TargetNotFound: Service shop/elsewhere does not exist")
    api.fail("list", "services", forbidden("services"))
    assert rows(await run("status", "backendtlspolicy"))["backendtlspolicy/shop/typo"][0] == "Unknown"


async def test_status_reads_only_what_has_a_status_and_writes_nothing(api: FakeApi) -> None:
    with_status = {"gatewayclasses", "gateways", "httproutes", "backendtlspolicies", "listenersets"}
    with_status |= {"grpcroutes", "tlsroutes", "tcproutes", "udproutes"}
    await run("status")
    assert {verb for verb, _, _ in api.requests} == {"list"}
    # For a policy without a status, the command reads whether its Service exists.
    assert {plural for _, plural, _ in api.requests} == {*with_status, "services"}
    api.requests.clear()
    ours = accepted(ancestorRef={"name": "web"}, controllerName="lasthop.dev/gateway-controller")
    say(api, "backendtlspolicies", "api", {"ancestors": [ours]})
    await run("status")
    assert {plural for _, plural, _ in api.requests} == with_status


def _started(output: Path, *args: str) -> subprocess.Popen[bytes]:
    with output.open("wb") as out:
        command = [sys.executable, "-c", "from lasthop.cli.main import main; main()", *args]
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)


async def test_watch_goes_on_from_the_list(api: FakeApi, tmp_path: Path) -> None:
    output = tmp_path / "watched"
    watching = _started(output, "status", "-w", "httproute")

    async def shows(text: str) -> None:
        await asyncio.to_thread(until, lambda: text in output.read_text(), text)

    try:
        await shows("httproute/shop/api")
        put(api, route("more", "{name: api, port: 443}"))
        await shows("httproute/shop/more")
        api.end("httproutes")
        api.delete("httproutes", "more", "shop")
        await shows("Gone")
    finally:
        watching.kill()
        watching.wait(10)
    assert len(api.asked("list", "httproutes")) == 1


# --- check and explain -----------------------------------------------------------------------------------------------


async def test_check_names_objects_instead_of_files(api: FakeApi) -> None:
    assert (await run("check")).stdout == "nothing wrong in namespace shop; 8 objects\n"
    put(api, route("lost", "{name: gone, port: 443}"))
    result = await run("check")
    assert result.exit_code == 1
    assert "HTTPRoute shop/lost, spec.rules[0].backendRefs[0]: error: Service shop/gone does not exist" in result.stdout
    assert json.loads((await run("check", "-o", "json")).stdout)["findings"][0]["object"]["name"] == "lost"
    assert (await run("check", "-o", "github")).stdout.startswith("::error title=HTTPRoute shop/lost::")
    assert (await run("check", "-n", "blog")).exit_code == 0
    assert (await run("check", "-A")).exit_code == 1


async def test_policies_in_a_version_that_cannot_be_read_are_not_called_absent(api: FakeApi) -> None:
    api.served.discard((GATEWAY, "v1", "backendtlspolicies"))
    api.served.add((GATEWAY, "v1alpha2", "backendtlspolicies"))
    result = await run("check")
    assert result.exit_code == 1 and "its CRD serves only v1alpha2, and Lasthop reads v1, v1alpha3" in result.stdout
    assert "plaintext" not in (await run("audit")).stdout
    api.served.discard((GATEWAY, "v1alpha2", "backendtlspolicies"))
    api.fail("get", "customresourcedefinitions", "*", forbidden("customresourcedefinitions"))
    assert "whether its CRD exists cannot be determined" in (await run("check")).stdout
    api.faults.clear()
    assert "plaintext" in (await run("audit")).stdout, "there is no such CRD"


async def test_a_policy_whose_targets_cannot_be_read_is_not_called_absent(api: FakeApi) -> None:
    assert "plaintext" in (await run("audit")).stdout
    odd = {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"targetRefs": [{"kind": 7}]}}
    api.put("backendtlspolicies", odd)
    result = await run("audit")
    assert "plaintext" not in result.stdout and "the targets of BackendTLSPolicy shop/odd cannot be decoded" in result.stdout


async def test_explain_is_the_same_tree_as_of_a_folder(api: FakeApi, tmp_path: Path) -> None:
    (folder := tmp_path / "objects").mkdir()
    (folder / "all.yaml").write_text("---\n".join((BASE, policy(), config_map())))
    of_folder = (await run("explain", "httproute", "api", "--dir", folder)).stdout
    of_cluster = (await run("explain", "httproute", "api")).stdout
    assert of_cluster.splitlines() == [line.partition("  /")[0] for line in of_folder.splitlines()]


async def test_a_request_is_explained_from_the_objects_of_a_cluster(api: FakeApi) -> None:
    [answer] = json.loads((await run("explain", "request", "http://shop.example/x", "-o", "json")).stdout)
    assert (answer["gateway"], answer["route"]) == ("shop/web", "HTTPRoute shop/api")
    lost = await run("explain", "request", "http://shop.example:81/x")
    assert lost.exit_code == 0 and "no listener has port 81" in lost.stdout
    typo = await run("explain", "request", "shop.example/x")
    assert typo.exit_code == 2 and "write it like https://www.example.com/path" in typo.stderr
    assert (await run("explain", "request", "http://shop.example/x", "--gateway", "nope")).exit_code == 1


async def test_explain_takes_the_namespace_of_the_context(api: FakeApi) -> None:
    result = await run("explain", "httproute", "api", "--context", "bare")
    assert (result.exit_code, "there is one in namespace shop" in result.stderr) == (1, True)
    assert (await run("explain", "httproute", "api", "--context", "bare", "-A")).exit_code == 0
    assert (await run("explain", "gatewayclass", "lasthop")).stdout.startswith("✓")


async def test_unreadable_objects_are_named_and_their_dependents_are_not_errors(api: FakeApi) -> None:
    put(api, SECURE)
    assert (await run("check")).exit_code == 1
    api.fail("list", "secrets", "*", forbidden("secrets"))
    result = await run("check")
    assert result.exit_code == 0
    assert "You may not list secrets" in result.stderr
    assert "Gateway shop/secure, spec.listeners[0] cannot be judged" in result.stdout
    explained = await run("explain", "gateway", "secure")
    assert "Not visible with your permissions, so dependent results may be wrong: Secret shop/web-tls" in explained.stderr
    assert "Secret shop/web-tls is not visible with your permissions" in explained.stdout


async def test_a_user_of_one_namespace_sees_that_namespace(api: FakeApi) -> None:
    for plural in ("gateways", "httproutes", "services", "configmaps", "backendtlspolicies", "endpointslices"):
        api.fail("list", plural, forbidden(plural))  # once: the second list is of the namespace
    put(api, route("abroad", "{name: api, port: 443}").replace("{name: web}", "{name: web, namespace: infra}"))
    result = await run("check")
    assert result.exit_code == 0, result.output
    assert "outside namespace shop" in result.stderr
    assert "HTTPRoute shop/abroad cannot be judged" in result.stdout


async def test_a_user_without_rights_gets_an_error_and_never_an_empty_list(api: FakeApi) -> None:
    for kind in KINDS.values():
        api.fail("list", kind.plural, "*", forbidden(kind.plural))
    for command in ("check", "audit", "explain httproute api", "probe api", "probe", "explain request http://shop.example/"):
        result = await run(*command.split())
        assert (result.exit_code, result.stdout) == (1, ""), command
        assert "does not let you read this" in result.stderr and "request permission to list it (RBAC)" in result.stderr


async def test_a_kind_without_list_permission_is_not_reported_as_empty(api: FakeApi) -> None:
    api.fail("list", "configmaps", "*", forbidden("configmaps"))
    explained = await run("explain", "configmap", "corp-ca")
    assert (explained.exit_code, explained.stdout) == (1, "")
    assert explained.stderr.splitlines()[-1] == "Error: you may not list configmaps; request permission (RBAC)"
    probed = await run("probe", "api")
    assert "ConfigMap shop/corp-ca is not visible with your permissions" in probed.stdout
    assert "does not exist" not in probed.output


async def test_summaries_say_of_what_they_are_true(api: FakeApi) -> None:
    api.fail("list", "gatewayclasses", "*", forbidden("gatewayclasses"))
    result = await run("audit")
    assert result.stdout.endswith("\n\nthe backends of the routes in namespace shop (as far as you may list it) are unknown\n")
    assert "in the cluster (as far as you may list it); " in (await run("check", "-A")).stdout.splitlines()[-1]


# --- audit and probe -------------------------------------------------------------------------------------------------


async def test_audit_of_a_cluster_names_objects_instead_of_lines(api: FakeApi) -> None:
    document = json.loads((await run("audit", "-o", "json")).stdout)
    assert {(hop["service"], hop["port"], hop["manner"]) for hop in document["hops"]} == {
        ("shop/api", 443, "verified"),
        ("shop/api", 80, "plaintext"),
    }
    assert json.loads((await run("audit", "-n", "blog", "-o", "json")).stdout)["hops"] == []
    sarif = json.loads((await run("audit", "-A", "-o", "sarif")).stdout)
    (result,) = sarif["runs"][0]["results"]
    assert result["locations"] == [
        {"logicalLocations": [{"fullyQualifiedName": "Gateway shop/web to Service shop/api:80", "kind": "resource"}]}
    ]


@pytest.mark.parametrize("output", ["text", "json", "markdown", "sarif"])
async def test_audit_of_a_tenant_without_rights_on_classes_fails_with_the_reason(api: FakeApi, output: str) -> None:
    assert (await run("audit", "-o", output)).exit_code == 0
    api.fail("list", "gatewayclasses", "*", forbidden("gatewayclasses"))
    api.fail("list", "namespaces", "*", forbidden("namespaces"))
    result = await run("audit", "-o", output)
    assert result.exit_code == 1 and "no route" not in result.output
    assert "backends may be missing: you may not list gatewayclasses.gateway.networking.k8s.io" in result.stderr
    assert "lasthop-tenant" in result.stderr


async def test_audit_of_a_route_whose_gateway_is_out_of_sight_fails(api: FakeApi) -> None:
    put(api, route("far", "{name: api, port: 443}", "web, namespace: infra"))
    for plural in ("gateways", "namespaces"):
        api.fail("list", plural, forbidden(plural))
    result = await run("audit")
    assert (
        result.exit_code == 1 and "you may not list gateways.gateway.networking.k8s.io outside namespace shop" in result.stderr
    )


async def test_audit_of_a_tenant_who_sees_all_that_decides_passes(api: FakeApi) -> None:
    for plural in ("gateways", "services", "configmaps", "httproutes"):
        api.fail("list", plural, forbidden(plural))
    result = await run("audit")
    assert result.exit_code == 0 and "shop/api:443" in result.stdout


async def test_audit_with_few_rights_does_not_pass_for_a_whole_one(api: FakeApi) -> None:
    assert (await run("audit", "--fail-on", "waived")).exit_code == 0
    api.fail("list", "configmaps", "*", forbidden("configmaps"))
    result = await run("audit", "--fail-on", "waived")
    assert (result.exit_code, "not everything could be read" in result.stderr) == (1, True)
    assert "ConfigMap shop/corp-ca does not exist, as far as your permissions show" in result.stdout


async def test_probe_of_a_cluster_tries_its_endpoints_from_here(api: FakeApi) -> None:
    leaf = Certificate("api", CA, sans=dns("api.internal"))
    with backend(leaf.server_context()) as running:
        put(api, BASE.replace("10.0.0.1", "127.0.0.1").replace("8443", str(running.port)))
        result = await run("probe", "api")
        assert result.exit_code == 0, result.output
        assert "Gateway shop/web to Service shop/api port 443" in result.stdout
        assert "with its system store" in result.stdout
        assert "`lasthop dashboard` tries from the controller's Pod" in " ".join(result.stdout.split())
        api.fail("list", "configmaps", "*", forbidden("configmaps"))
        unseen = await run("probe", "shop/api", "--context", "bare")
        assert (unseen.exit_code, "Not visible with your permissions" in unseen.stderr) == (1, True)


# --- which of the three ----------------------------------------------------------------------------------------------


async def test_a_folder_goes_before_a_kubeconfig(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    assert (await run("check", tmp_path / "objects")).stdout.endswith("1 error in 0 files; 0 objects\n")
    assert not api.requests
    assert (await run("check", tmp_path / "objects", "-A")).stdout.endswith("1 error in 0 files; 0 objects\n")
    assert not api.requests
    both = await run("check", tmp_path / "objects", "--context", "dev")
    assert (both.exit_code, "remove all but one" in both.stderr) == (2, True)


async def test_a_running_gateway_goes_before_a_kubeconfig(api: FakeApi, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if request_line := await reader.readline():
            body = b'{"objects": 0}' if b"/api/count" in request_line else b"[]"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    (tmp_path / "run" / "a").mkdir(parents=True)
    path = tmp_path / "run" / "a" / "admin.sock"
    async with await asyncio.start_unix_server(answer, path):
        result = await run("status")
        assert "Reading the gateway that runs on" in result.stderr
        assert (await run("check")).stdout == "nothing wrong in the running gateway; 0 objects\n"
        assert not api.requests
        assert "Reading the gateway that runs on" in (await run("status", "-A")).stderr
        assert "Reading the cluster" in (await run("status", "--context", "dev")).stderr
        as_plugin = await asyncio.to_thread(CliRunner().invoke, main, ["status"], prog_name="kubectl lasthop")
        assert "Reading the cluster" in as_plugin.stderr
    path.touch()
    assert "Reading the cluster" in (await run("status")).stderr  # files that a killed gateway leaves behind


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_errors_have_a_remedy(api: FakeApi, tmp_path: Path) -> None:
    assert "no context nowhere; contexts: bare, dev" in (await run("status", "--context", "nowhere")).stderr
    assert "no such file" in (await run("check", "--kubeconfig", tmp_path / "none")).stderr
    api.fail("list", "gateways", "*", forbidden("gateways"))
    refused = await run("status", "gateway")
    assert (refused.exit_code, "request permission to list it (RBAC)" in refused.stderr) == (1, True)
    api.token = "another"
    assert "refuses the credentials of context dev" in (await run("status")).stderr
    api.token = ""
    api.served = {kind for kind in api.served if kind[0] != GATEWAY}
    missing = await run("explain", "gateway", "web")
    assert (missing.exit_code, "the CRDs of Gateway API are not installed" in missing.stderr) == (1, True)
    assert "Traceback" not in missing.output


async def test_an_absent_server_gives_a_readable_error(api: FakeApi, tmp_path: Path) -> None:
    away = (tmp_path / "kubeconfig").read_text().replace(api.url, "http://127.0.0.1:9")
    (tmp_path / "away").write_text(away)
    result = await run("check", "--kubeconfig", tmp_path / "away")
    assert (result.exit_code, "does not answer" in result.stderr) == (1, True)


def test_the_client_library_is_imported_only_for_a_cluster() -> None:
    imports = "import sys\nfrom lasthop.cli.commands import check, explain, status"
    code = f"{imports}\nprint('kubernetes' in sys.modules, 'yaml' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


async def test_the_record_of_changes_is_read_from_the_controllers_namespace(api: FakeApi) -> None:
    result = await run("audit", "--since", "24h", "-A")
    assert (
        result.exit_code == 1
        and "ConfigMap lasthop-system/lasthop-verification of the controller does not exist" in result.stderr
    )
    change = Entry(time.time(), "Service", "shop/api", 443, "verified (CA)", "plaintext", "it was deleted", True)
    data = base64.b64encode(
        codec.pack(codec.Memory({}, mk_record((change,), time.time() - 86400 * 7)), 10, codec.Encoder())
    ).decode()
    for namespace, held in (("lasthop-system", data), ("shop", "forged")):
        metadata = {"name": "lasthop-verification", "namespace": namespace}
        api.put("configmaps", {"metadata": metadata, "binaryData": {"memory": held}})
    result = await run("audit", "--since", "24h", "-A")
    assert result.exit_code == 0 and "shop/api:443  verified (CA) -> plaintext  weaker, not acknowledged" in result.stdout
    assert "no change" in (await run("audit", "--since", "24h", "-n", "other")).stdout
    elsewhere = await run("audit", "--since", "24h", "-A", "--controller-namespace", "gateways")
    assert elsewhere.exit_code == 1 and "gateways/lasthop-verification" in elsewhere.stderr
