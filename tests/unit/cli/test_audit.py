"""`lasthop audit`: every verification mode in every output format, and the exit codes for pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.certificates import DAY, NOW, Certificate, dns
from tests.folders import good_folder, lasthop, policy, write
from tests.proxy import documents as docs

LONG = (NOW - DAY, NOW + 365 * DAY)
CA = Certificate("corp CA", ca=True, valid=LONG)
OLD_CA = Certificate("old CA", ca=True, valid=(NOW - 9 * DAY, NOW - DAY))
SHORT_CA = Certificate("short CA", ca=True, valid=(NOW - DAY, NOW + 10 * DAY))
LEAF = Certificate("leaf", sans=dns("api.example"), valid=(NOW - DAY, NOW + 20 * DAY))
OWN = Certificate("own", CA, sans=dns("www.example"), valid=(NOW - DAY, NOW + 5 * DAY))
KEY = "d6d2c4d8e7c1a2b3" * 4
END = f"{NOW + 40 * DAY:%FT%TZ}"


def port(name: str, number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"name": name, "port": number, "protocol": protocol}


def world(folder: Path) -> Path:
    """One backend of every manner, reached by every kind of route, a mirror and a ListenerSet."""
    folder.mkdir(exist_ok=True)
    web = docs.gateway(
        "web",
        docs.http(80),
        docs.listener("pass", "TLS", 8443, "*.pass.example"),
        docs.listener("tcp", "TCP", 5432),
        docs.listener("udp", "UDP", 53),
        docs.https(443, "own"),
        **docs.with_profile("lenient"),
        allowedListeners={"namespaces": {"from": "All"}},
        tls={"backend": {"clientCertificateRef": {"name": "own"}}},
    )
    sets = docs.obj(
        docs.GATEWAY_API,
        "ListenerSet",
        "team/extra",
        spec={"parentRef": {"name": "web", "namespace": "shop"}, "listeners": [{**docs.http(8080, "extra")}]},
    )
    by_set = docs.route("team/by-set", docs.to("by-set"))
    by_set["spec"]["parentRefs"] = [{"kind": "ListenerSet", "group": "gateway.networking.k8s.io", "name": "extra"}]
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": docs.to("mirrored")}}
    main = docs.route(
        "main", *(docs.to(name) for name in ("ca", "system", "leaf", "hash", "waived", "bad", "plain", "astray"))
    )
    main["spec"]["rules"][0]["filters"] = [mirror]
    rpc = docs.obj(
        docs.GATEWAY_API,
        "GRPCRoute",
        "rpc",
        spec={"parentRefs": [{"name": "web"}], "hostnames": ["rpc.test"], "rules": [{"backendRefs": [docs.to("rpc")]}]},
    )
    names = ("ca", "rpc", "system", "leaf", "hash", "waived", "bad", "plain", "astray", "mirrored", "passed", "db")
    astray = docs.policy("astray", "api.example", "corp-ca")
    astray["spec"]["targetRefs"][0]["name"] = "astry"
    objects = [
        docs.gateway_class(),
        docs.profile("lenient", waivers="Allow"),
        web,
        sets,
        main,
        by_set,
        rpc,
        docs.stream_route("TLSRoute", "passed", docs.to("passed"), listener="pass", hosts=("a.pass.example",)),
        docs.stream_route("TCPRoute", "db", docs.to("db"), listener="tcp"),
        docs.stream_route("UDPRoute", "dns", docs.to("dns", 53), listener="udp"),
        *(docs.service(name) for name in (*names, "team/by-set")),
        docs.service("dns", port("dns", 53, "UDP")),
        docs.policy("ca", "api.example", "corp-ca"),
        docs.policy("rpc", "api.example", "corp-ca"),
        docs.policy("mirrored", "api.example", "corp-ca"),
        docs.policy("db", "api.example", "corp-ca"),
        docs.policy("system", "api.example"),
        docs.policy("leaf", "api.example", docs.own("leaf", "PinSet")),
        docs.policy("hash", "api.example", docs.own("hash", "PinSet")),
        docs.policy("waived", "api.example", docs.own("legacy", "VerificationWaiver")),
        docs.policy("bad", "api.example", "old-ca"),
        astray,
        docs.pin_set("leaf", certificates=[LEAF.pem]),
        docs.pin_set("hash", ("SPKI", KEY)),
        docs.obj(
            docs.OWN_API,
            "VerificationWaiver",
            "legacy",
            spec={"waives": "All", "reason": "old | box, ERP-1", "owner": "team-erp", "expires": END},
        ),
        docs.config_map("corp-ca", CA.pem + SHORT_CA.pem),
        docs.config_map("old-ca", OLD_CA.pem),
        docs.secret("own", tls_crt=OWN.pem, tls_key=OWN.key_pem),
    ]
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "store.pem").write_text(CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "store.pem"))
    return world(tmp_path / "objects")


def audited(*args: str | Path) -> dict[str, Any]:
    result = lasthop("audit", *args, "-o", "json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_every_verification_mode_has_its_routes_and_its_place(folder: Path) -> None:
    report = audited(folder)
    hops = {hop["service"]: hop for hop in report["hops"]}
    assert {name: (hop["manner"], hop["source"]) for name, hop in hops.items()} == {
        "shop/ca": ("verified", "CA"),
        "shop/mirrored": ("verified", "CA"),
        "shop/rpc": ("verified", "CA"),
        "shop/db": ("verified", "CA"),
        "shop/system": ("verified", "System"),
        "shop/leaf": ("verified", "pinned"),
        "shop/hash": ("pinned only", ""),
        "shop/waived": ("waived", ""),
        "shop/bad": ("failing closed", ""),
        "shop/plain": ("plaintext", ""),
        "shop/astray": ("plaintext", ""),
        "team/by-set": ("plaintext", ""),
        "shop/passed": ("passthrough", ""),
        "shop/dns": ("udp", ""),
    }
    assert hops["shop/waived"]["waiver"] == {
        "name": "shop/legacy",
        "waives": "WaivedAll",
        "reason": "old | box, ERP-1",
        "owner": "team-erp",
        "expires": END,
    }
    misses = "BackendTLSPolicy shop/astray names Service astry, which does not exist"
    assert hops["shop/astray"]["detail"] == f"no BackendTLSPolicy names this port: {misses}"
    assert "expired" in hops["shop/bad"]["detail"]
    assert hops["shop/mirrored"]["routes"] == ["HTTPRoute shop/main"]
    assert hops["team/by-set"]["routes"] == ["HTTPRoute team/by-set"]
    lines = (folder / "objects.yaml").read_text().splitlines()
    place = hops["shop/waived"]
    assert place["file"].endswith("objects.yaml")
    assert lines[place["line"] : place["line"] + 1] == ["kind: VerificationWaiver"]
    assert report["counts"] == {
        "failing closed": 1,
        "waived": 1,
        "plaintext": 3,
        "pinned only": 1,
        "passthrough": 1,
        "udp": 1,
        "verified": 6,
    }
    assert "WebSocket" in report["notes"][0]


def test_certificates_are_reported_before_they_expire(folder: Path) -> None:
    def told(*args: str) -> list[tuple[str, str, int]]:
        return [(c["subject"], c["role"], c["daysLeft"]) for c in audited(folder, *args)["certificates"]]

    assert told() == [
        ("old CA", "CA of backends", -2),
        ("own", "certificate of a Gateway", 4),
        ("own", "client certificate of a Gateway", 4),
        ("short CA", "CA of backends", 9),
        ("leaf", "pinned certificate", 19),
    ]
    assert [subject for subject, *_ in told("--expiring", "9")] == ["old CA", "own", "own"]
    assert "corp CA" in [subject for subject, *_ in told("--expiring", "400")]
    (short,) = (c for c in audited(folder)["certificates"] if c["subject"] == "short CA")
    assert short["holder"] == "ConfigMap shop/corp-ca"
    assert "BackendTLSPolicy shop/mirrored" in short["users"]


def test_the_text_is_grouped_and_counted(folder: Path) -> None:
    text = lasthop("audit", folder).stdout
    titles = [line.split(" (")[0] for line in text.splitlines() if line and line[0] != " "]
    assert titles[:8] == [
        *("failing closed", "waived", "plaintext", "pinned only", "passthrough", "udp", "verified", "certificates")
    ]
    assert '"old | box, ERP-1", team-erp' in text and "39 days left" in text
    assert text.splitlines()[-1].startswith("14 hops from 1 Gateway in ")
    by_gateway = lasthop("audit", folder, "--sort", "gateway").stdout
    assert by_gateway.startswith("Gateway shop/web (14)\n")
    assert "  shop/web -> shop/hash:443  pinned only (no name check)" in by_gateway.splitlines()
    by_end = lasthop("audit", folder, "--sort", "until").stdout
    assert by_end.splitlines()[1] == "  shop/web -> shop/waived:443  waived"
    assert "BackendTLSPolicy shop/ca (1)" in lasthop("audit", folder, "--sort", "policy").stdout


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        ("waived", 3),
        ("plaintext,waived", 3),
        ("failing-closed", 3),
        ("expiring", 3),
        ("waivd", 2),
    ],
)
def test_a_pipeline_fails_on_what_it_names(folder: Path, causes: str, code: int) -> None:
    result = lasthop("audit", folder, "--fail-on", causes)
    assert result.exit_code == code
    assert (
        "did you mean waived?" if code == 2 else f"--fail-on {'waived' if 'waived' in causes else causes}"
    ) in result.stderr


def test_a_pipeline_passes_where_there_is_nothing_of_it_and_not_where_something_was_not_read(tmp_path: Path) -> None:
    clean = good_folder(tmp_path / "clean")
    assert lasthop("audit", clean, "--fail-on", "waived,failing-closed,expiring").exit_code == 0
    assert lasthop("audit", clean, "--fail-on", "waived", "--fail-on", "plaintext").exit_code == 3
    broken = write(tmp_path / "broken", policy=policy(), other="kind: [")
    result = lasthop("audit", broken, "--fail-on", "waived")
    assert (result.exit_code, "see: lasthop check" in result.stderr) == (1, True)
    assert lasthop("audit", broken).exit_code == 0


def test_a_namespace_has_what_begins_or_ends_there(folder: Path) -> None:
    def shown(*args: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(lasthop("audit", folder, "--expiring", "400", "-o", "json", *args).stdout)
        return document

    team = shown("-n", "team")
    assert {hop["service"] for hop in team["hops"]} == {"team/by-set"}
    assert not team["certificates"]
    assert shown("-n", "shop")["hops"] == shown()["hops"]


@pytest.mark.parametrize("command", ["audit", "check"])
def test_a_namespace_that_is_not_there_is_an_error_that_names_those_that_are(folder: Path, command: str) -> None:
    result = lasthop(command, folder, "-n", "shpo")
    assert result.exit_code == 1
    assert "there is no namespace shpo" in result.output and "did you mean shop?" in result.output
    assert "there is shop, team" in lasthop(command, folder, "-n", "other").output


def test_a_folder_that_serves_nothing_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert lasthop("audit", tmp_path / "empty").exit_code == 0
    assert lasthop("audit", tmp_path / "empty", "--fail-on", "waived").exit_code == 1


def test_a_waiver_without_an_end_can_fail_a_pipeline(folder: Path) -> None:
    assert lasthop("audit", folder, "--fail-on", "waived-without-end").exit_code == 0
    for file in folder.glob("*.yaml"):
        kept = (
            line
            for line in file.read_text().splitlines(keepends=True)
            if not line.strip().startswith(("expires:", "maxWaiver"))
        )
        file.write_text("".join(kept))
    assert lasthop("audit", folder, "--fail-on", "waived-without-end").exit_code == 3


def test_markdown_keeps_what_people_wrote_as_text(folder: Path) -> None:
    text = lasthop("audit", folder, "-o", "markdown").stdout
    rows = [line for line in text.splitlines() if line.startswith("| shop/web")]
    assert len(rows) == 14
    assert any("**waived**" in row and "old \\| box" in row for row in rows)
    assert "## Certificates to renew" in text


def test_sarif_has_a_line_for_everything_that_deserves_a_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    document = json.loads(lasthop("audit", folder.name, "-o", "sarif").stdout)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    results = run["results"]
    assert len(results) == 8 + 5, "eight hops that are not verified, five certificates"
    for result in results:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        (location,) = result["locations"]
        assert location["logicalLocations"][0]["fullyQualifiedName"]
        at = location["physicalLocation"]
        assert at["artifactLocation"] == {"uri": "objects/objects.yaml", "uriBaseId": "%SRCROOT%"}
        assert at["region"]["startLine"] > 0
    assert len({result["partialFingerprints"]["lasthop/v1"] for result in results}) == len(results)
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]
    assert "PRIVATE KEY" not in json.dumps(document)


def test_a_backend_that_no_cluster_stands_for_is_failing_and_not_plaintext(tmp_path: Path) -> None:
    wss = docs.service("live", {"name": "https", "port": 443, "appProtocol": "kubernetes.io/wss"})
    (tmp_path / "objects.yaml").write_text(
        yaml.safe_dump_all(
            [
                docs.gateway_class(),
                docs.gateway("web", docs.http(80)),
                docs.route("live", docs.to("live"), docs.to("nowhere")),
                wss,
            ]
        )
    )
    hops = {hop["service"]: hop for hop in audited(tmp_path)["hops"]}
    assert {name: hop["manner"] for name, hop in hops.items()} == dict.fromkeys(hops, "failing closed")
    assert "appProtocol" in hops["shop/live"]["detail"]
