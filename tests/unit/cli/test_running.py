"""`lasthop status` and `lasthop explain` of a gateway that runs."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.backends import until
from tests.folders import CA
from tests.proxy import documents
from tests.proxy.lasthop import EXECUTABLE, Lasthop, intended


@pytest.fixture(scope="module")
def gateway() -> Iterator[Lasthop]:
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as root, contextlib.closing(Lasthop(Path(root))) as running:
        running.standard()
        running.write(
            "api.yaml",
            documents.service("api"),
            *documents.endpoints("api", 9),
            documents.policy("api", "api.internal", "corp-ca"),
            documents.config_map("corp-ca", CA.pem),
            documents.route("api", documents.to("api")),
            documents.route("lost", documents.to("nowhere")),
        )
        running.start()
        yield running


def _rows(text: str) -> dict[str, tuple[str, str]]:
    split = (line.split(maxsplit=2) for line in text.splitlines()[1:])
    return {name: (ready, why[0] if why else "") for name, ready, *why in split}


def test_the_table_says_what_is_ready_and_why_not(gateway: Lasthop) -> None:
    shown = gateway.command("status")
    assert shown.stdout.splitlines()[0].split() == ["NAME", "READY", "WHY"]
    rows = _rows(shown.stdout)
    assert rows["gateway/shop/web"] == ("True", "")
    assert rows["backendtlspolicy/shop/api"] == ("True", "")
    ready, why = rows["httproute/shop/lost"]
    assert (ready, "Service shop/nowhere does not exist" in why) == ("False", True)


def test_the_exit_code_reports_readiness_on_request(gateway: Lasthop) -> None:
    assert gateway.command("status").returncode == 0
    assert gateway.command("status", "--exit-code").returncode == 1
    assert gateway.command("status", "httproute", "api", "--exit-code").returncode == 0


def test_one_object_as_yaml_and_a_kind_as_json(gateway: Lasthop) -> None:
    document = yaml.safe_load(gateway.command("status", "httproute/shop/api", "-o", "yaml").stdout)
    assert document["status"]["parents"][0]["conditions"][0]["type"] == "Accepted"
    listed = json.loads(gateway.command("status", "httproute", "-n", "shop", "-o", "json").stdout)
    assert {d["metadata"]["name"] for d in listed} >= {"api", "lost"}


def test_several_kinds_are_listed_with_commas_as_by_kubectl(gateway: Lasthop) -> None:
    def names(*args: str) -> set[str]:
        return set(gateway.command("status", *args, "-o", "name").stdout.split())

    both = names("hr,btp")
    assert {"httproute/shop/api", "httproute/shop/lost", "backendtlspolicy/shop/api"} <= both
    assert {name.partition("/")[0] for name in both} == {"httproute", "backendtlspolicy"}
    assert names("hr,btp", "api") == {"httproute/shop/api", "backendtlspolicy/shop/api"}
    assert names("hr/lost,gw") == {"httproute/shop/lost", "gateway/shop/web"}
    assert names("all") == names() > both
    explained = gateway.command("explain", "hr,btp", "api").stdout
    assert "✓ HTTPRoute shop/api" in explained and "✓ BackendTLSPolicy shop/api" in explained


def test_a_name_that_is_not_there_is_answered_with_a_suggestion(gateway: Lasthop) -> None:
    result = gateway.command("status", "httproute", "lsot")
    assert (result.returncode, "did you mean shop/lost?" in result.stderr) == (1, True)


@pytest.mark.parametrize("named", [("hr", "api", "nope", "lost"), ("hr/api", "hr/nope", "hr/shop/lost")])
@pytest.mark.parametrize("output", ["table", "wide", "name", "yaml", "json"])
def test_existing_names_are_shown_and_each_missing_one_is_an_error(
    gateway: Lasthop, named: tuple[str, ...], output: str
) -> None:
    result = gateway.command("status", *named, "-o", output)
    assert result.returncode == 1
    assert "there is no HTTPRoute nope; " in result.stderr
    match output:
        case "json":
            names = [item["metadata"]["name"] for item in json.loads(result.stdout)]
        case "yaml":
            names = [document["metadata"]["name"] for document in yaml.safe_load_all(result.stdout)]
        case "name":
            names = [word.rpartition("/")[2] for word in result.stdout.split()]
        case _:
            names = [name.rpartition("/")[2] for name in _rows(result.stdout)]
    assert sorted(names) == ["api", "lost"]


def test_several_names_that_all_exist_are_no_error_and_several_that_do_not_are_an_error_each(gateway: Lasthop) -> None:
    assert gateway.command("status", "hr/api", "btp/api", "-o", "name").stdout.split() == [
        "httproute/shop/api",
        "backendtlspolicy/shop/api",
    ]
    result = gateway.command("status", "hr", "nope", "neither", "-o", "json")
    assert (result.returncode, result.stdout, result.stderr.count("Error: there is no HTTPRoute n")) == (1, "", 2)
    assert gateway.command("status", "gc", "lasthop", "-n", "shop").returncode == 0, "a class is in no namespace"


def test_several_objects_are_explained(gateway: Lasthop) -> None:
    result = gateway.command("explain", "hr", "api", "nope", "lost")
    assert result.returncode == 1
    assert "HTTPRoute shop/api" in result.stdout and "HTTPRoute shop/lost" in result.stdout
    assert "there is no HTTPRoute nope" in result.stderr
    facts = json.loads(gateway.command("explain", "hr/api", "btp/api", "-o", "json").stdout)
    assert [fact["object"]["kind"] for fact in facts] == ["HTTPRoute", "BackendTLSPolicy"]


def test_check_counts_the_same_objects_in_a_folder_and_in_the_gateway_that_runs_on_it(gateway: Lasthop) -> None:
    def objects(*args: str) -> int:
        return int(json.loads(gateway.command("check", *args, "-o", "json").stdout)["objects"])

    written = sum(len(list(yaml.safe_load_all(file.read_text()))) for file in gateway.folder.glob("*.yaml"))
    for narrowed in ([], ["-n", "shop"]):
        assert objects(*narrowed) == objects(str(gateway.folder), *narrowed) == written
    rejected = documents.policy("refused", "api.internal", "corp-ca")
    rejected["spec"]["validation"]["wellKnownCACertificates"] = "System"
    elsewhere = documents.route("elsewhere", documents.to("api"))
    elsewhere["metadata"]["namespace"] = "unwritten"
    gateway.write("elsewhere.yaml", elsewhere)
    gateway.write("refused.yaml", rejected)
    try:
        until(lambda: "backendtlspolicy/shop/refused" in gateway.command("status", "backendtlspolicy").stdout, "the row")
        assert objects() == objects(str(gateway.folder)) == written + 1
        assert objects("-n", "shop") == objects(str(gateway.folder), "-n", "shop") == written
    finally:
        _remove(gateway, "refused.yaml", "elsewhere.yaml")


def test_a_policy_that_admission_rejects_is_listed_and_explained(gateway: Lasthop) -> None:
    rejected = documents.policy("refused", "api.internal", "corp-ca")
    rejected["spec"]["validation"]["wellKnownCACertificates"] = "System"
    gateway.write("refused.yaml", rejected)
    try:
        until(lambda: "backendtlspolicy/shop/refused" in gateway.command("status", "backendtlspolicy").stdout, "the row")
        ready, why = _rows(gateway.command("status", "backendtlspolicy").stdout)["backendtlspolicy/shop/refused"]
        assert (ready, "caCertificateRefs wellKnownCACertificates" in why) == ("False", True)
        assert "could not be read completely" in gateway.command("explain", "backendtlspolicy", "refused").stdout
        assert "refused.yaml:" in gateway.command("check").stdout
    finally:
        _remove(gateway, "refused.yaml")


def _remove(gateway: Lasthop, *names: str) -> None:
    """Removes files, and waits until the gateway, which other tests use, has removed their objects."""
    for name in names:
        (gateway.folder / name).unlink()
    until(lambda: not re.search(r"refused|elsewhere", gateway.command("status").stdout), "the end of the rows")


def test_watch_shows_what_changes_and_ends_quietly(gateway: Lasthop) -> None:
    output = gateway.root / "watched"
    with output.open("wb") as out:
        watching = subprocess.Popen(
            [EXECUTABLE, "status", "-w", "httproute"],
            stdout=out,
            stderr=out,
            env=gateway.env,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # the user who runs the tests may ignore it
        )
    try:
        rows = gateway.command("status", "httproute", "-o", "name").stdout.split()
        until(lambda: all(row in output.read_text() for row in rows), "the table")
        before = len(output.read_text().splitlines())
        gateway.write("more.yaml", documents.route("more", documents.to("api")))
        until(lambda: "httproute/shop/more" in output.read_text(), "the new row")
        (gateway.folder / "more.yaml").unlink()
        until(lambda: "Gone" in output.read_text(), "the row's end")
        lines = [tuple(line.split()) for line in output.read_text().splitlines()]
        assert not set(lines[:before]) & set(lines[before:]), "unchanged rows are not repeated"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
    finally:
        watching.kill()
        watching.wait(10)
    assert "Traceback" not in output.read_text()


def test_explain_asks_the_gateway_and_shows_places(gateway: Lasthop) -> None:
    shown = gateway.command("explain", "httproute", "api").stdout
    assert f"✓ HTTPRoute shop/api  {gateway.folder}/api.yaml:" in shown
    assert "TLS because of BackendTLSPolicy shop/api" in shown
    assert "CA corp CA" in shown


def test_explain_agrees_with_the_folder(gateway: Lasthop) -> None:
    for args in (("httproute", "lost"), ("gateway", "web"), ("backendtlspolicy", "api"), ("service", "api")):
        folder = gateway.command("explain", *args, "--dir", str(gateway.folder)).stdout
        assert intended(gateway.command("explain", *args).stdout) == intended(folder)


def test_the_endpoint_answers_404_for_what_is_not_there(gateway: Lasthop) -> None:
    status, body = gateway.ask("/api/explain?kind=Service&namespace=shop&name=nowhere")
    assert (status, body) == (404, b"Service shop/nowhere does not exist\n")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("lasthop explain httproute l", "lost"),
        ("lasthop explain gw,httproute l", "lost"),
        ("lasthop status gw,pins", "gw,pinset"),
        ("lasthop explain hr/l", "hr/lost"),
        ("lasthop explain hr/shop/l", "hr/shop/lost"),
        ("lasthop status btp,hr/l", "btp,hr/lost"),
        ("lasthop status btp/api hr/l", "hr/lost"),
        ("lasthop probe sh", "shop/api"),
    ],
)
def test_names_complete(gateway: Lasthop, typed: str, completed: str) -> None:
    last = str(len(typed.split()) - 1)
    env = {**gateway.env, "_LASTHOP_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": last}
    result = subprocess.run([EXECUTABLE], env=env, capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.split() == [f"plain,{completed}"]


def test_every_name_in_the_table_can_be_copied_into_the_next_command(gateway: Lasthop) -> None:
    names = list(_rows(gateway.command("status").stdout))
    assert {name.partition("/")[0] for name in names} >= {"gatewayclass", "gateway", "httproute", "backendtlspolicy"}
    for name in names:
        assert gateway.command("status", name).returncode == 0, name
        assert gateway.command("explain", name).returncode == 0, name
    probed = gateway.command("probe", "backendtlspolicy/shop/api")
    assert "BackendTLSPolicy shop/api" in probed.stdout and "connect" in probed.stdout


def test_a_namespace_that_is_not_there_is_an_error_and_the_gateway_that_is_read_is_named(gateway: Lasthop) -> None:
    for command in ("check", "audit", "status"):
        result = gateway.command(command, "-n", "shpo")
        assert (result.returncode, "did you mean shop?" in result.stderr) == (1, True), (command, result.stderr)
    gateway.env["KUBECONFIG"] = "/nowhere/config"
    try:
        assert "not the cluster of $KUBECONFIG" in gateway.command("status").stderr
    finally:
        del gateway.env["KUBECONFIG"]


def test_commands_on_the_folder_say_that_the_gateway_has_an_older_text_in_force(gateway: Lasthop) -> None:
    file = gateway.folder / "api.yaml"
    good = file.read_text()
    commands = (("check",), ("audit",), ("explain", "httproute", "api", "--dir"), ("probe", "api", "--dir"))
    assert not [command for command in commands if "still applies" in gateway.command(*command, str(gateway.folder)).stderr]
    try:
        file.write_text(good.replace("hostname: api.internal", "hostname: not a host"))
        until(lambda: json.loads(gateway.ask("/api/not-applied")[1]))
        (older,) = json.loads(gateway.ask("/api/not-applied")[1])
        assert (older["file"], "BackendTLSPolicy shop/api" in older["objects"]) == (str(file), True)
        for command in commands:
            stderr = gateway.command(*command, str(gateway.folder)).stderr
            assert f"still applies the version of {older['since']}, because {file}:{older['line']} cannot be applied" in stderr
    finally:
        file.write_text(good)
    until(lambda: not json.loads(gateway.ask("/api/not-applied")[1]))


def test_log_levels_change_while_it_runs_and_only_by_the_socket(gateway: Lasthop) -> None:
    def levels(*args: str) -> tuple[str, str]:
        result = gateway.command("log-level", *args, "-o", "json")
        assert result.returncode == 0, result.stderr
        shown = json.loads(result.stdout)
        return shown["lasthop"], shown["envoy"]["shop/web"]["level"]

    assert levels() == ("info", "warning")
    assert levels("debug", "--envoy", "trace") == ("debug", "trace")
    log = next((gateway.root / "r").rglob("envoy.log"))
    gateway.get("api", headers={"authorization": "Bearer hunter2"})
    until(lambda: "hunter2" in log.read_text())
    archive = gateway.root / "bundle.tar.gz"
    assert gateway.command("bundle", "-o", str(archive)).returncode == 0
    with tarfile.open(archive) as files:
        texts = {member.name: files.extractfile(member) for member in files if member.isfile()}
        assert any("envoy-" in name and name.endswith(".log") for name in texts)
        assert [name for name, file in texts.items() if file and b"hunter2" in file.read()] == []
    assert levels("error") == ("error", "trace")
    size = len(gateway.log)
    (gateway.folder / "broken.yaml").write_text("kind: [")
    until(lambda: '"level": "error"' in gateway.log[size:])
    (gateway.folder / "broken.yaml").unlink()
    until(lambda: gateway.ask("/api/not-applied")[1] == b"[]")
    assert '"level": "info"' not in gateway.log[size:]
    assert levels("info", "--envoy", "warning") == ("info", "warning")
    assert gateway.command("log-level").stdout == "Lasthop  info\nEnvoy    warning  of Gateway shop/web\n"


def test_the_admin_address_neither_shows_nor_sets_log_levels(gateway: Lasthop) -> None:
    for method in ("GET", "POST"):
        request = urllib.request.Request(f"http://127.0.0.1:{gateway.admin}/api/log-level?lasthop=debug", method=method)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=10)
        assert error.value.code == 403
    assert gateway.command("log-level").stdout.startswith("Lasthop  info\n")
