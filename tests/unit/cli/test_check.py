"""`lasthop check`: every mistake once, with its place and its consequences below it; exit codes; outputs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from lasthop.engine.plan.finding import with_remedy
from tests.certificates import DAY, NOW, Certificate, dns
from tests.folders import BASE, CA, config_map, good_folder, lasthop, policy, route, write


def _secret(certificate: Certificate, key: Certificate) -> str:
    def coded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    return f"""\
apiVersion: v1
kind: Secret
metadata: {{name: web-tls, namespace: shop}}
type: kubernetes.io/tls
data: {{tls.crt: {coded(certificate.pem)}, tls.key: {coded(key.key_pem)}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: secure, namespace: shop}}
spec:
  gatewayClassName: lasthop
  listeners:
  - {{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: web-tls}}]}}}}
"""


TWELVE: dict[str, tuple[str, int, str]] = {
    "a-yaml": ("kind: Service\nmetadata: {name: x\n", 3, "not YAML"),
    "b-kind": ("apiVersion: v1\nkind: Servce\nmetadata: {name: x}\n", 2, "unknown kind"),
    "c-field": (route("c", "{name: api, port: 443, wieght: 1}"), 8, "wieght"),
    "d-schema": (route("d", "{name: api, port: 99999}"), 8, "99999"),
    "e-cel": (route("e", "{name: api}"), 8, "port"),
    "f-duplicate": (BASE.split("---\n")[3], 1, "duplicate of"),
    "g-no-ca": (policy("g", section="plain", ca="nowhere"), 7, "ConfigMap shop/nowhere does not exist"),
    "h-pem": (policy("h", ca="garbage") + "---\n" + config_map("garbage", "not a certificate"), 7, "no PEM certificate"),
    "i-key": (_secret(CA, Certificate("other", sans=dns("x"))), 7, "tls.key does not belong"),
    "j-backend": (route("j", "{name: gone, port: 443}"), 8, "Service shop/gone does not exist"),
    "k-grant": (route("k", "{name: api, namespace: other, port: 443}"), 8, "ReferenceGrant"),
    "l-port": (policy("l", section="htps"), 6, "has no port named htps"),
}
"""By file: its text, the first line that may be blamed, and what has to be said."""


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    return write(tmp_path / "objects", ca=config_map(), **{name: text for name, (text, _, _) in TWELVE.items()})


def _json(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(lasthop("check", folder, "-o", "json").stdout)
    return document


def test_twelve_mistakes_in_twelve_files_are_twelve_errors(twelve: Path) -> None:
    report = _json(twelve)
    errors = {Path(f["file"]).stem: f for f in report["findings"] if f["severity"] == "error"}
    assert sorted(errors) == sorted(TWELVE)
    assert report["errors"] == 12
    for name, (_, line, message) in TWELVE.items():
        assert message in errors[name]["message"], name
        assert errors[name]["line"] >= line, name


def test_every_error_has_a_remedy_and_an_object_or_is_no_object(twelve: Path) -> None:
    for finding in _json(twelve)["findings"]:
        advised = finding["remedy"] or "; " in finding["message"]
        assert advised or finding["reason"] in ("Invalid", "RuleViolated"), finding  # the CRDs' own words
        assert finding["object"] or finding["reason"] in ("InvalidYAML", "UnknownKind"), finding


def test_text_lists_them_by_file_and_line_and_exits_with_1(twelve: Path) -> None:
    result = lasthop("check", twelve)
    assert result.exit_code == 1
    places = [line.split(": ")[0] for line in result.stdout.splitlines() if ": error: " in line]
    assert places == sorted(places)
    assert len(places) == 12
    assert f"{twelve}/j-backend.yaml:8: error: Service shop/gone does not exist" in result.stdout
    assert "    HTTPRoute shop/j, spec.rules[0].backendRefs[0]" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("12 errors")


def test_a_good_folder_has_nothing_wrong_and_exits_with_0(tmp_path: Path) -> None:
    result = lasthop("check", good_folder(tmp_path / "objects"))
    assert (result.exit_code, result.stdout) == (0, "nothing wrong in 3 files; 7 objects\n")


def test_warnings_alone_exit_with_0(tmp_path: Path) -> None:
    idle = BASE.split("---\n")[3].replace("name: api", "name: idle")
    folder = write(tmp_path / "objects", idle=idle + "---\n" + policy("idle", "idle"), ca=config_map())
    result = lasthop("check", folder)
    assert result.exit_code == 0
    assert "warning: no Gateway reaches its targets" in result.stdout
    assert result.stdout.splitlines()[-1] == "0 errors, 2 warnings in 3 files; 8 objects"
    assert "port 443 uses plaintext: its name is https, but no BackendTLSPolicy names it" in result.stdout


def test_a_server_s_own_certificate_as_ca_is_a_warning(tmp_path: Path) -> None:
    leaf = Certificate("api", CA, sans=dns("api.internal"), valid=(NOW - DAY, NOW + 365 * DAY))
    findings = _json(write(tmp_path / "objects", policy=policy(), ca=config_map(pem=leaf.pem)))["findings"]
    assert [(finding["severity"], finding["reason"], finding["file"].endswith("policy.yaml")) for finding in findings] == [
        ("warning", "Warning", True)
    ]
    assert "api in ConfigMap corp-ca is a server's own certificate, not a CA's" in findings[0]["message"]


@pytest.mark.parametrize(
    ("port", "warns"),
    [
        ("{name: https, port: 443}", True),
        ("{name: https-web, port: 443}", True),
        ("{name: web, port: 443}", True),
        ("{name: tls, port: 443}", True),
        ("{name: https, port: 443, appProtocol: http}", False),
        ("{name: web, port: 443, appProtocol: http}", False),
    ],
)
def test_a_plaintext_port_that_looks_like_tls_is_a_warning(tmp_path: Path, port: str, warns: bool) -> None:
    folder = write(tmp_path / "objects")
    (folder / "base.yaml").write_text(BASE.replace("{name: https, port: 443}", port))
    names = [finding["object"]["name"] for finding in _json(folder)["findings"] if finding["reason"] == "PlaintextBackend"]
    assert names == (["api"] if warns else [])


def test_a_missing_local_file_is_one_error_with_its_consequences_below(tmp_path: Path) -> None:
    ca = "apiVersion: v1\nkind: ConfigMap\n"
    ca += "metadata: {name: corp-ca, namespace: shop, annotations: {lasthop.dev/file.ca.crt: nowhere.pem}}\n"
    report = _json(write(tmp_path / "objects", policy=policy(), ca=ca))
    (finding,) = report["findings"]
    assert finding["reason"] == "LocalFile"
    assert {follow["object"]["kind"] for follow in finding["follows"]} == {"BackendTLSPolicy", "HTTPRoute"}


def test_an_invalid_policy_is_not_reported_again_at_its_routes(tmp_path: Path) -> None:
    folder = write(tmp_path / "objects", policy=policy(ca="nowhere"))
    result = lasthop("check", folder)
    assert result.stdout.splitlines()[-1] == "1 error in 2 files; 6 objects"
    assert "so HTTPRoute shop/api, spec.rules[0].backendRefs[0] is refused" in result.stdout


def test_a_listener_set_that_is_not_let_in_is_not_reported_again_at_its_routes(tmp_path: Path) -> None:
    team = """\
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: team, namespace: shop}
spec:
  parentRef: {name: web}
  listeners: [{name: http, port: 81, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: team, namespace: shop}
spec:
  parentRefs: [{kind: ListenerSet, name: team}]
  rules: [{backendRefs: [{name: api, port: 80}]}]
"""
    (finding,) = _json(write(tmp_path / "objects", team=team, policy=policy(), ca=config_map()))["findings"]
    assert (finding["object"]["kind"], finding["reason"]) == ("ListenerSet", "NotAllowed")
    assert "spec.allowedListeners of the Gateway" in finding["remedy"]
    assert [follow["object"]["kind"] for follow in finding["follows"]] == ["HTTPRoute"]


def test_objects_that_a_broken_file_holds_are_not_reported_as_missing(tmp_path: Path) -> None:
    parts = BASE.split("---\n")
    folder = write(tmp_path / "objects", base="---\n".join(parts[:3]), service=parts[3] + "---\n" + "kind: Servce\n")
    report = _json(folder)
    assert {Path(f["file"]).name for f in report["findings"]} == {"service.yaml"}


def test_a_gateway_without_its_class_is_an_error_and_its_routes_are_not(tmp_path: Path) -> None:
    parts = BASE.split("---\n")
    report = _json(write(tmp_path / "objects", base="---\n".join(parts[1:])))
    (finding,) = report["findings"]
    assert (finding["field"], finding["line"]) == ("spec.gatewayClassName", 5)


def test_github_annotations_are_escaped_and_relative_to_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    folder = write(tmp_path / "a,b", broken='apiVersion: v1\nkind: "100%: a,b"\nmetadata: {name: x}\n')
    result = lasthop("check", folder, "-o", "github")
    assert result.exit_code == 1
    line = next(output_line for output_line in result.stdout.splitlines() if output_line.startswith("::error"))
    assert line.startswith("::error file=a%2Cb/broken.yaml,line=2,title=UnknownKind::kind: unknown kind")
    assert "100%25: a,b" in line


def test_an_unreadable_folder_gives_one_line(tmp_path: Path) -> None:
    result = lasthop("check", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert result.stderr == f"Error: cannot read {tmp_path}/nowhere: no such file or directory\n"
    assert "Traceback" not in result.output


def _errors(folder: Path) -> list[str]:
    result = lasthop("check", folder, "-o", "json")
    assert result.exit_code == 1, result.output
    errors = (finding for finding in json.loads(result.stdout)["findings"] if finding["severity"] == "error")
    return [with_remedy(error["message"], error["remedy"]) for error in errors]


def test_an_empty_folder_serves_nothing_and_that_is_an_error(tmp_path: Path) -> None:
    (error,) = _errors(tmp_path)
    assert error.startswith("no Gateway exists, so nothing is served.")


@pytest.mark.parametrize(
    ("written", "mistyped", "message"),
    [
        ("service-name: api}", "service-name: apy}", "EndpointSlice shop/api-1 has the label apy, but no such Service exists"),
        ("service-name: api}", "other: api}", "has the label kubernetes.io/service-name: api."),
        ("{name: https, port: 8443}", "{name: web, port: 8443}", "have no TCP port named 'https' (they have 'plain', 'web')"),
        ("[{addresses: [10.0.0.1]}]", "[{addresses: [10.0.0.1], conditions: {ready: false}}]", "endpoints (1) is ready"),
        ("[{addresses: [10.0.0.1]}]", "[]", "its EndpointSlices have no endpoints"),
    ],
)
def test_a_service_without_endpoints_is_an_error_and_explained(
    tmp_path: Path, written: str, mistyped: str, message: str
) -> None:
    assert written in BASE
    folder = write(tmp_path / "objects", base=BASE.replace(written, mistyped), policy=policy(), ca=config_map())
    errors = [error for error in _errors(folder) if "port 443" in error]
    assert len(errors) == 1 and message in errors[0] and "requests get 503" in errors[0]
    explained = lasthop("explain", "httproute", "api", "--dir", folder).stdout
    assert explained.startswith("✗ HTTPRoute shop/api") and message.rstrip(".") in explained


@pytest.mark.parametrize(
    ("written", "mistyped", "message"),
    [
        ("parentRefs: [{name: web}]", "parentRefs: [{name: wbe}]", "Gateway shop/wbe does not exist. Did you mean web?"),
        ("parentRefs: [{name: web}]", "parentRefs: [{name: web}, {name: wbe}]", "Gateway shop/wbe does not exist"),
        ("lasthop.dev/", "lasthop.io/", "which belongs to lasthop.io/gateway-controller, not to lasthop.dev/gateway-"),
        (
            "gatewayClassName: lasthop",
            "gatewayClassName: lastop",
            "which does not exist. Did you mean lasthop?",
        ),
        ("{name: api, port: 443}", "{name: apii, port: 443}", "Service shop/apii does not exist. Did you mean api?"),
        ("name: api, namespace: shop}\nspec:\n  ports", "name: appi, namespace: shop}\nspec:\n  ports", "Did you mean appi?"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error_that_names_what_is_near(
    tmp_path: Path, written: str, mistyped: str, message: str
) -> None:
    assert written in BASE
    errors = _errors(write(tmp_path / "objects", base=BASE.replace(written, mistyped, 1)))
    assert any(message in error for error in errors), errors


def test_a_mistyped_kind_is_one_error_and_its_consequences_stand_beneath(tmp_path: Path) -> None:
    documents = BASE.split("---\n")
    service = documents.pop(3).replace("kind: Service", "kind: Servce")
    folder = write(tmp_path / "objects", base="---\n".join(documents), service=service)
    (error,) = _errors(folder)
    assert "unknown kind" in error
    text = lasthop("check", folder).stdout
    assert text.index("unknown kind") < text.index("HTTPRoute shop/api")


def test_a_gateway_in_a_broken_file_is_why_nothing_is_served(tmp_path: Path) -> None:
    folder = write(tmp_path / "objects", base=BASE.replace("port: 80,", "port: 99999,"))
    (error,) = _errors(folder)
    assert "99999" in error


def test_refusals_of_a_gateway_are_listed_under_it(tmp_path: Path) -> None:
    gateways = (
        f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: shop}}
spec:
  gatewayClassName: lasthop
  addresses: [{{value: 127.0.0.{number}}}]
  listeners: [{{name: http, port: {8000 + number}, protocol: HTTP}}]
---
{route(name, "{name: api, port: 443}", gateway=name)}"""
        for number, name in enumerate(("one", "two", "three"), start=1)
    )
    waiver = """\
apiVersion: lasthop.dev/v1alpha1
kind: VerificationWaiver
metadata: {name: all, namespace: shop}
spec: {waives: All, reason: self-signed}
"""
    waived = policy().replace(
        'group: "", kind: ConfigMap, name: corp-ca', "group: lasthop.dev, kind: VerificationWaiver, name: all"
    )
    folder = write(tmp_path / "objects", policy=waived, waiver=waiver, more="---\n".join(gateways))
    follows_by_gateway = {
        finding["message"].split(":")[0]: finding["follows"]
        for finding in _json(folder)["findings"]
        if finding["severity"] == "error"
    }
    assert {at: [follow["object"]["name"] for follow in follows] for at, follows in follows_by_gateway.items()} == {
        "at Gateway shop/one": ["one"],
        "at Gateway shop/two": ["two"],
        "at Gateway shop/three": ["three"],
        "at Gateway shop/web": ["api"],
    }
