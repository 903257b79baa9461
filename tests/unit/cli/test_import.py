"""`lasthop import`: its input, its output, and its exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from lasthop.cli.main import main
from tests.backends import backend
from tests.certificates import Certificate, dns
from tests.fake_api import RESOURCES, FakeApi, Refusal, serving
from tests.folders import lasthop

INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: grafana
  namespace: obs
  annotations: {nginx.ingress.kubernetes.io/backend-protocol: HTTPS}
spec:
  rules:
  - host: grafana.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: grafana, port: {number: 443}}}}]}
"""
SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {name: grafana, namespace: obs}
spec: {ports: [{name: web, port: 443}]}
"""
VERIFIED = INGRESS.replace(
    "HTTPS}",
    "HTTPS, nginx.ingress.kubernetes.io/proxy-ssl-secret: obs/ca, "
    'nginx.ingress.kubernetes.io/proxy-ssl-verify: "on", nginx.ingress.kubernetes.io/proxy-ssl-name: grafana.obs.svc}',
)
SYSTEM = "ingress-nginx"
PORT = "backends:\n- port: obs/grafana:443\n"
OPEN = "backends:\n- route: Ingress obs/grafana\n  open: true\n  reason: x\n"


def documents(text: str) -> dict[str, dict[str, object]]:
    objects = [document for document in yaml.safe_load_all(text) if document]
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in objects}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ingress.yaml").write_text(INGRESS + SERVICE)
    return tmp_path / "in"


def test_objects_go_to_standard_output_and_the_report_to_standard_error(folder: Path) -> None:
    result = lasthop("import", SYSTEM, folder)
    assert result.exit_code == 3
    assert {"BackendTLSPolicy grafana", "HTTPRoute grafana", "Gateway imported"} <= documents(result.stdout).keys()
    assert f"{folder}/ingress.yaml:10" in result.stderr
    assert "unverified -> TODO 1" in result.stderr


def test_standard_input_is_read_as_a_file(folder: Path) -> None:
    result = CliRunner().invoke(main, ["import", "auto", "-"], input=INGRESS + SERVICE)
    assert result.stdout == lasthop("import", SYSTEM, folder).stdout


def test_a_second_run_with_decisions_is_an_empty_diff(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert lasthop("import", SYSTEM, folder, "--to", out).exit_code == 3
    decisions = (out / "decisions.yaml").read_text()
    assert "# - port: obs/grafana:443" in decisions
    head, _, entries = decisions.partition("backends:\n")
    answer = "\n".join(line.removeprefix("# ") for line in entries.splitlines()[:3]).replace("NAME", "corp-ca")
    (out / "decisions.yaml").write_text(f"{head}backends:\n{answer}\n")
    assert lasthop("import", SYSTEM, folder, "--to", out).exit_code == 0
    written = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    policy = documents((out / "objects" / "backend-tls.yaml").read_text())["BackendTLSPolicy grafana"]
    assert "corp-ca" in json.dumps(policy)
    assert lasthop("import", SYSTEM, folder, "--to", out).exit_code == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == written


def test_the_shortcut_for_waivers_needs_a_reason_and_becomes_a_decision(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert lasthop("import", SYSTEM, folder, "--unverified", "waive").exit_code == 2
    result = lasthop("import", SYSTEM, folder, "--unverified", "waive", "--reason", "OPS-1", "--to", out)
    assert (result.exit_code, "waivers-not-allowed" in result.stderr) == (3, True)
    assert "- port: obs/grafana:443" in (out / "decisions.yaml").read_text()
    assert "waivers: Allow" not in documents((out / "objects" / "operator.yaml").read_text())
    objects = (out / "objects" / "waivers.yaml").read_text()
    assert lasthop("import", SYSTEM, folder, "--to", out, "--accept", "waivers-not-allowed").exit_code == 0
    assert (out / "objects" / "waivers.yaml").read_text() == objects


def test_a_folder_with_other_files_is_left_alone(folder: Path) -> None:
    result = lasthop("import", SYSTEM, folder, "--to", folder)
    assert (result.exit_code, "contains no earlier import" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backends:\n- port: nonsense\n", "decisions.yaml:2: port: write namespace/service:port"),
        ("backends:\n- port: obs/grafana:443\n  waive: All\n", "decisions.yaml:3: waive: needs a reason"),
        ("backends:\n- port: obs/grafana:443\n  waive: All\n  reason: x\n", "decisions.yaml:3: waive: needs an end"),
        ("backends:\n- port: obs/grafana:443\n  hostnam: x\n", "decisions.yaml:3: unknown field hostnam"),
        ("backends:\n- port: obs/grafana:443\n  ca: {file: none.pem}\n  hostname: x\n", "none.pem, which cannot be read"),
        (f"{PORT}  ca: {{configMap: ''}}\n", "decisions.yaml:3: ca: '' is not the name of a ConfigMap"),
        (f"{PORT}  waive: All\n  reason: x\n  expires: ''\n", "decisions.yaml:5: expires: is a time"),
        (f"{OPEN}{OPEN.removeprefix('backends:')}", "route: there are two decisions for Ingress obs/grafana"),
        (f"{PORT}---\n{PORT}", "decisions.yaml:3: this must be one document"),
        ("backends: []\nclientCertificate: /\n", "decisions.yaml:2: clientCertificate: write namespace/name"),
        ("- x\n", "must be a mapping"),
        ("{", "decisions.yaml:"),
    ],
)
def test_a_wrong_decision_is_named_with_its_line(folder: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "decisions.yaml").write_text(text)
    result = lasthop("import", SYSTEM, folder, "--decisions", tmp_path / "decisions.yaml")
    assert (result.exit_code, message in result.stderr) == (1, True), result.stderr


def test_lost_access_control_is_3_unless_it_is_accepted_by_name(tmp_path: Path) -> None:
    text = INGRESS.replace("backend-protocol: HTTPS", "whitelist-source-range: 10.0.0.0/8")
    text = text.replace("path: /, pathType: Prefix", "path: /x, pathType: ImplementationSpecific")
    (tmp_path / "in.yaml").write_text(text + SERVICE)
    assert lasthop("import", SYSTEM, tmp_path / "in.yaml").exit_code == 3
    assert lasthop("import", SYSTEM, tmp_path / "in.yaml", "--accept", "access-control").exit_code == 0
    assert lasthop("import", SYSTEM, tmp_path / "in.yaml", "--accept", "whitelist-source-range").exit_code == 0
    assert lasthop("import", SYSTEM, tmp_path / "in.yaml", "--accept", "access-control", "--strict").exit_code == 3


def test_unreadable_input_is_named_and_the_rest_is_imported(folder: Path) -> None:
    (folder / "broken.yaml").write_text("a: [")
    (folder / "text.json").write_bytes(b"\xff")
    result = lasthop("import", SYSTEM, folder, folder / "missing.yaml")
    assert result.exit_code == 1
    assert all(name in result.stderr for name in ("broken.yaml:", "text.json:", "missing.yaml: does not exist"))
    assert "HTTPRoute grafana" in documents(result.stdout)


UNREADABLE = {
    "truncated.yaml": f"{INGRESS}---\n{SERVICE[4:-9]}",
    "latin1.yaml": "a: caf\xe9",
    "list.yaml": "apiVersion: v1\nkind: List\nitems: [[x]]",
    "kustomization.yaml": "resources: [ingress.yaml]",
    "Chart.yaml": "name: shop",
    "patch.yaml": INGRESS.replace("HTTPS}", "HTTPS, nginx.ingress.kubernetes.io/auth-type: basic}"),
    "number.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: 5}",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_input_that_may_hide_restrictions_closes_all_routes_and_asks_nothing(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).write_bytes(UNREADABLE[name].encode("latin-1"))
    result = lasthop("import", SYSTEM, folder, "--to", tmp_path / "out", "-o", "json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert [hop["new"] for hop in report["hops"]] == ["closed"]
    assert "part of the input cannot be read" in report["headline"]
    assert "route:" not in (tmp_path / "out" / "decisions.yaml").read_text().partition("backends:")[2]


def test_file_that_is_no_object_is_named_and_closes_nothing(folder: Path) -> None:
    (folder / "values.yaml").write_text("replicas: 2\n")
    result = lasthop("import", SYSTEM, folder, "-o", "json")
    assert (result.exit_code, [hop["new"] for hop in json.loads(result.stdout)["hops"]]) == (1, ["TODO"])


def test_every_format_tells_the_same_hops(folder: Path) -> None:
    document = json.loads(lasthop("import", SYSTEM, folder, "-o", "json").stdout)
    assert document["summary"] == {"unverified -> TODO": 1}
    assert document["hops"][0]["source"]["line"] == 10
    assert (
        "| Service obs/grafana:443 | Ingress obs/grafana | unverified |"
        in lasthop("import", SYSTEM, folder, "-o", "markdown").stdout
    )
    run = json.loads(lasthop("import", SYSTEM, folder, "-o", "sarif").stdout)["runs"][0]
    assert {result["ruleId"] for result in run["results"]} >= {"decision"}


@pytest.mark.parametrize(
    "args", [("import", "auto", "{}/none"), ("import", "istoi", "{}"), ("import", "ingress-nginx", "{}", "--parent", "x")]
)
def test_a_wrong_command_line_is_an_error_without_a_traceback(args: tuple[str, ...], folder: Path) -> None:
    result = lasthop(*(arg.format(folder) for arg in args))
    assert result.exit_code in (1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_mistyped_system_gets_the_one_that_is_meant(folder: Path) -> None:
    assert "unknown system istoi; did you mean istio?" in lasthop("import", "istoi", folder).stderr


def test_keys_are_written_only_on_request_and_then_only_for_the_owner(folder: Path, tmp_path: Path) -> None:
    metadata, data = {"name": "pair", "namespace": "obs"}, {"tls.crt": "x", "tls.key": "PRIVATE KEY-----"}
    secret = "---\n" + yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    tls = INGRESS.replace("spec:\n", "spec:\n  tls: [{hosts: [grafana.example], secretName: pair}]\n")
    (folder / "ingress.yaml").write_text(tls + SERVICE + secret)
    lasthop("import", SYSTEM, folder, "--to", tmp_path / "a")
    assert not any("PRIVATE" in path.read_text() for path in (tmp_path / "a").rglob("*") if path.is_file())
    lasthop("import", SYSTEM, folder, "--to", tmp_path / "b", "--with-secrets")
    written = tmp_path / "b" / "objects" / "secrets.yaml"
    assert "PRIVATE" in written.read_text()
    assert written.stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in (tmp_path / "b" / "REPORT.md").read_text()


def test_a_probe_proposes_what_would_hold_and_decides_nothing(folder: Path, tmp_path: Path) -> None:
    ca = Certificate("corp CA", ca=True)
    leaf = Certificate("grafana", ca, sans=dns("grafana.obs.svc"))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "corp", "namespace": "obs"}}
    with backend(leaf.server_context()) as running:
        endpoints = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "grafana-1", "namespace": "obs", "labels": {"kubernetes.io/service-name": "grafana"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"name": "web", "port": running.port}],
        }
        more = yaml.safe_dump_all([endpoints, {**config_map, "data": {"ca.crt": ca.pem}}])
        (folder / "more.yaml").write_text(more)
        result = lasthop("import", SYSTEM, folder, "--to", tmp_path / "out", "--probe")
    assert result.exit_code == 3
    proposal = "would hold today: ca: {configMap: corp}, hostname: grafana.obs.svc"
    assert proposal in result.stderr
    decisions = (tmp_path / "out" / "decisions.yaml").read_text()
    assert f"#   # {proposal}" in decisions
    assert yaml.safe_load(decisions) == {"backends": None}


def test_a_host_outside_is_probed_too(tmp_path: Path) -> None:
    ca = Certificate("corp CA", ca=True)
    with backend(Certificate("nas", ca, sans=dns("nas.lan")).server_context()) as running:
        metadata = {"name": "nas", "namespace": "home"}
        tls = {"insecureSkipVerify": True, "sni": "nas.lan"}
        endpoints = [{"fqdn": {"hostname": "localhost", "port": running.port}}]
        gateway = {"gatewayClassName": "eg", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
        reference = {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "nas"}
        route = {"parentRefs": [{"name": "nas"}], "rules": [{"backendRefs": [reference]}]}
        documents = [
            {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata, "spec": gateway},
            {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": route},
            {
                "apiVersion": "gateway.envoyproxy.io/v1alpha1",
                "kind": "Backend",
                "metadata": metadata,
                "spec": {"endpoints": endpoints, "tls": tls},
            },
        ]
        (tmp_path / "in.yaml").write_text(yaml.safe_dump_all(documents))
        result = lasthop("import", "envoy-gateway", tmp_path / "in.yaml", "--probe")
    assert f"probed localhost:{running.port}: CN=nas" in result.stderr


# --- a cluster -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    fake = FakeApi()
    fake.served = {*RESOURCES, ("networking.k8s.io", "v1", "ingresses"), ("networking.k8s.io", "v1", "ingressclasses")}
    async with serving(fake) as fake_api:
        kubeconfig = {
            "clusters": [{"name": "fake", "cluster": {"server": fake_api.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [{"name": "dev", "context": {"cluster": "fake", "user": "me", "namespace": "obs"}}],
            "current-context": "dev",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        fake_api.put("ingresses", yaml.safe_load(VERIFIED))
        fake_api.put("services", yaml.safe_load(SERVICE))
        fake_api.put("secrets", {"metadata": {"name": "ca", "namespace": "obs"}, "data": {"tls.crt": "eA=="}})
        fake_api.put("secrets", {"metadata": {"name": "other", "namespace": "obs"}, "data": {}})
        yield fake_api


async def run(*args: str | Path) -> Result:
    return await asyncio.to_thread(lasthop, *args)


async def test_a_cluster_is_read_with_only_the_secrets_that_are_referred_to(api: FakeApi) -> None:
    result = await run("import", SYSTEM, "--context", "dev", "-o", "json")
    document = json.loads(result.stdout)
    assert document["summary"] == {"unverified -> TODO": 1}
    assert "secret-without-ca" in {note["reason"] for note in document["notes"]}
    requested = [(verb, plural) for verb, plural, _ in api.requests if plural == "secrets"]
    assert requested == [("get", "secrets")]
    assert "Service obs/grafana" not in document["objects"]


async def test_unreadable_kinds_are_named(api: FakeApi) -> None:
    api.faults[("get", "secrets")] = ["*", Refusal(403, "Forbidden", "no")]
    document = json.loads((await run("import", SYSTEM, "--context", "dev", "-o", "json")).stdout)
    assert any("may not be read with your rights" in note["message"] for note in document["notes"])
    api.faults[("list", "ingresses")] = ["*", Refusal(403, "Forbidden", "no")]
    result = await run("import", SYSTEM, "--context", "dev", "-o", "json")
    assert result.exit_code == 1
    assert "you may not list ingresses" in json.loads(result.stdout)["problems"][0]["message"]


@pytest.mark.parametrize("edit", [b"# mine\n", b"# caf\xe9\n"], ids=("text", "not UTF-8"))
def test_a_file_that_was_edited_by_hand_is_kept(edit: bytes, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lasthop("import", SYSTEM, folder, "--to", out)
    routes = out / "objects" / "routes.yaml"
    assert "do not edit" in routes.read_text().partition("\n")[0]
    generated = routes.read_bytes()
    routes.write_bytes(generated + edit)
    result = lasthop("import", SYSTEM, folder, "--to", out, "--accept", "decision", "--accept", "believed")
    assert result.exit_code == 3
    assert "edited by hand" in result.stderr
    assert routes.read_bytes() == generated + edit
    assert routes.with_name("routes.yaml.new").read_bytes() == generated
    routes.write_bytes(generated)
    lasthop("import", SYSTEM, folder, "--to", out)
    assert not routes.with_name("routes.yaml.new").exists()


def test_a_report_of_verified_backends_begins_with_their_number(folder: Path) -> None:
    (folder / "ingress.yaml").write_text(VERIFIED + SERVICE)
    assert lasthop("import", SYSTEM, folder).stderr.splitlines()[0] == "the name of 1 of 1 TLS backends was verified."


def test_a_report_begins_with_a_sentence_and_what_the_input_lacks(folder: Path) -> None:
    (folder / "ingress.yaml").write_text(INGRESS.rstrip().removesuffix("---"))
    lines = lasthop("import", SYSTEM, folder).stderr.splitlines()
    assert lines[0] == "1 of 1 TLS backends was never verified."
    assert lines[1] == "Not in the input: 1 Service (obs/grafana)."
