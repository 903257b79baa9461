"""`ps`, `config`, `bundle` and `--admin`, for a running gateway and for the files of a stopped one."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests import reachable
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.lasthop import EXECUTABLE, Lasthop

SERVED = Certificate("web", CA, sans=dns("web.test"))
TOKEN = "Bearer 0123456789abcdef"
SHOWN = ("XTelemetryPolicy", "HTTPRoute")


@pytest.fixture(scope="module")
def gateway(module_own: Callable[..., Lasthop]) -> Iterator[Lasthop]:
    made = module_own()
    made.standard()
    made.write(
        "more.yaml",
        docs.gateway("secure", docs.https(free_port(), "web-tls")),
        docs.key_pair("web-tls", SERVED),
        docs.config_map("ca", CA.pem),
        *docs.hop("api", 9, docs.policy("api", "api.example", "ca")),
    )
    names = ("Authorization", "x-honeycomb-team")
    header = {
        "type": "RequestHeaderModifier",
        "requestHeaderModifier": {"set": [{"name": name, "value": TOKEN} for name in names]},
    }
    routed = docs.route("token", docs.to("api"))
    routed["spec"]["rules"][0]["filters"] = [header]
    exported = {"headers": [{"name": "x-honeycomb-team", "value": TOKEN}]}
    unsampled = docs.telemetry_policy("traces", docs.to("api"), provider=exported, samplingRate={"numerator": 0})
    made.write("token.yaml", routed, unsampled)
    made.write("others.yaml", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api"}})
    made.start()
    made.settle()
    yield made


def test_a_folder_with_other_kinds_is_served_and_they_are_named_once(gateway: Lasthop) -> None:
    (line,) = [line for line in gateway.log.splitlines() if "some objects are ignored" in line]
    assert json.loads(line)["kinds"] == {"Deployment (apps/v1)": 1}
    assert gateway.get("nobody").status == 404


def test_a_gateway_is_named_as_anywhere_and_a_typo_is_answered(gateway: Lasthop) -> None:
    whole = gateway.command("config", "clusters", "--gateway", "shop/web").stdout
    assert gateway.command("config", "clusters", "--gateway", "web").stdout == whole
    typo = gateway.command("config", "clusters", "--gateway", "wbe")
    assert (typo.returncode, "did you mean shop/web?" in typo.stderr) == (1, True)


def test_ps_lists_the_gateway_by_its_folder(gateway: Lasthop) -> None:
    (document,) = json.loads(gateway.cli("ps", "-o", "json").stdout)
    assert gateway.process
    assert (document["folder"], document["state"]) == (str(gateway.folder.resolve()), "running")
    assert (document["pid"], sorted(document["envoys"])) == (gateway.process.pid, sorted(gateway.envoys()))
    headline, row = gateway.cli("ps").stdout.splitlines()
    assert headline.split() == ["FOLDER", "STATE", "PID", "AGE", "ADMIN", "IN", "SYNC"]
    assert row.split()[:2] == [str(gateway.folder.resolve()), "running"]
    assert row.split()[-1] == f"{len(document['gateways'])}/{len(document['gateways'])}"
    assert document["gateways"]["shop/web"] == {"proxies": 1, "synced": True, "decided": True}


def test_clusters_say_what_envoy_verifies(gateway: Lasthop) -> None:
    lines = gateway.command("config", "clusters", "--gateway", "shop/web", "--no-headers").stdout.splitlines()
    clusters = {line.split()[0]: line.split()[1:] for line in lines}
    assert clusters["shop/web/shop/api/443/auto"][0] == "CA"
    assert clusters["shop/web/shop/api/443/auto"][-2:] == ["api.example", "127.0.0.1:9"]
    assert clusters["shop/web/shop/first/443/auto"][0] == "plaintext"


def test_routes_listeners_and_secrets_are_shown_by_gateway(gateway: Lasthop) -> None:
    assert "shop/web/shop/api/443/auto" in gateway.command("config", "routes").stdout
    listeners = gateway.command("config", "listeners", "-o", "json")
    assert {len(listed) for listed in json.loads(listeners.stdout).values()} == {1}
    secrets = gateway.command("config", "secrets", "--gateway", "shop/secure", "-o", "yaml").stdout
    (secret,) = yaml.safe_load(secrets)["shop/secure"]
    assert "tls_certificate" in secret


def test_certificates_are_listed_with_their_dates_inline_ones_too(gateway: Lasthop) -> None:
    document = json.loads(gateway.cli("config", "certificates", "-o", "json").stdout)
    assert {"name": "shop/web/shop/api/443/auto", "use": "CA"}.items() <= document["shop/web"][0].items()
    assert {certificate["use"] for certificate in document["shop/web"]} == {"CA"}
    assert [certificate["use"] for certificate in document["shop/secure"]] == ["shown"]
    assert all(row["left"].endswith("left") and row["until"] for rows in document.values() for row in rows)
    assert "CN=" in gateway.cli("config", "certificates", "--gateway", "shop/web").stdout


def test_no_output_has_a_private_key_or_a_credential(gateway: Lasthop, tmp_path: Path) -> None:
    dump = gateway.command("config", "dump", "-o", "json").stdout
    assert "[redacted]" in dump
    assert "initial_metadata" in dump
    archive = tmp_path / "bundle.tar.gz"
    made = gateway.command("bundle", "-o", str(archive))
    assert made.returncode == 0, made.stderr
    with tarfile.open(archive) as opened:
        contents = {member.name: opened.extractfile(member) for member in opened}
        texts = {name: file.read().decode() for name, file in contents.items() if file}
    assert {"lasthop/envoy-config.json", "lasthop/audit.json", "lasthop/objects/xtelemetrypolicy.json"} <= texts.keys()
    assert not [name for name, text in texts.items() if text.startswith("cannot be read")]
    key_lines = SERVED.key_pem.splitlines()[1:-1]
    told = [
        gateway.ask(path)[1].decode() for path in ("/", "/api/objects?kind=XTelemetryPolicy", "/api/objects?kind=HTTPRoute")
    ]
    for text in (dump, *told, *texts.values()):
        assert TOKEN not in text
        assert not any(line in text for line in key_lines)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert "exists" in gateway.command("bundle", "-o", str(archive)).stderr


def test_other_users_of_the_machine_cannot_read_envoys_configuration(gateway: Lasthop) -> None:
    assert gateway.ask("/api/envoy-config")[0] == 403


def test_a_gateway_is_named_by_its_admin_address_or_its_folder(gateway: Lasthop) -> None:
    by_address = gateway.command("status", "gateway", "-o", "name", "--admin", f"127.0.0.1:{gateway.admin}")
    assert by_address.stdout == gateway.command("status", "gateway", "-o", "name", "--dir", str(gateway.folder)).stdout
    assert "in the running gateway: 1 plaintext" in gateway.command("audit", "--dir", str(gateway.folder)).stdout
    envoys = gateway.command("config", "listeners", "--admin", f"localhost:{gateway.admin}")
    assert envoys.stdout == gateway.command("config", "listeners", "--dir", str(gateway.folder)).stdout
    assert "does not answer" in gateway.command("config", "listeners", "--admin", f"127.0.0.1:{free_port()}").stderr
    both = gateway.command("audit", str(gateway.folder), "--admin", f"127.0.0.1:{gateway.admin}")
    assert (both.returncode, "remove all but one" in both.stderr) == (2, True)


def test_doctor_knows_the_ports_that_the_gateway_itself_serves(gateway: Lasthop) -> None:
    checks = json.loads(gateway.command("doctor", str(gateway.folder), "-o", "json").stdout)
    ports = {check["what"]: check["found"] for check in checks if check["what"].startswith("port ")}
    assert ports[f"port 127.0.0.1:{gateway.port}"] == "served by this gateway"


def test_a_killed_gateway_is_orphaned_until_a_user_stops_it(own: Callable[..., Lasthop]) -> None:
    made = own()
    made.standard()
    made.start()
    made.kill()
    assert [process["state"] for process in json.loads(made.command("ps", "-o", "json").stdout)] == ["orphaned"]
    made.command("stop")
    assert made.command("ps").stdout == "No gateway runs on this machine\n"


def _root_collects_nothing_that_a_link_leads_to(made: Lasthop, run_dir: Path) -> None:
    secret = made.root / "secret"
    secret.write_text("of root")
    for name in ("link", "pipe"):
        (run_dir / name).mkdir()
    (run_dir / "link" / "envoy.log").symlink_to(secret)
    os.mkfifo(run_dir / "pipe" / "envoy.log")
    archive = made.root / "bundle.tar.gz"
    assert made.command("bundle", "--dir", str(made.folder), "-o", str(archive)).returncode == 0
    with tarfile.open(archive) as opened:
        texts = {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]
    assert b"of root" not in b"".join(texts.values())
    assert texts["lasthop/envoy-pipe.log"].startswith(b"cannot be read")


@pytest.mark.program("setpriv")
@pytest.mark.program("unshare")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_root_finds_the_gateway_of_another_user_and_does_not_end_it(own: Callable[..., Lasthop]) -> None:
    made = own()
    place = Path("/tmp/lasthop-4003")
    if place.exists():
        pytest.skip(f"{place} is somebody's")
    for path in (made.root, made.folder):
        os.chown(path, 4003, 4003)
    made.standard()
    made.env = {name: value for name, value in made.env.items() if name not in ("LASTHOP_RUN_DIR", "XDG_RUNTIME_DIR")}
    made.env |= {"HOME": str(made.root)}
    (made.root / "spare").mkdir()
    enter = reachable.wrapper(reachable.mounts(made.root / "spare"))
    made.executable = [*enter, "setpriv", "--reuid=4003", "--regid=4003", "--clear-groups", EXECUTABLE]
    try:
        made.start()
        listed = made.command("ps", "-o", "json")
        (process,) = [process for process in json.loads(listed.stdout) if process["folder"] == str(made.folder.resolve())]
        assert (process["user"], process["state"]) == ("uid 4003", "running")
        shown = made.command("status", "--dir", str(made.folder))
        assert "gateway/shop/web" in shown.stdout, shown.stderr
        refused = made.command("stop", str(made.folder))
        assert (refused.returncode, "sudo -u" in refused.stderr) == (1, True)
        (line,) = [
            output_line for output_line in made.command("ps").stdout.splitlines() if str(made.folder.resolve()) in output_line
        ]
        assert line.endswith("uid 4003")
        checked = json.loads(made.command("doctor", str(made.folder), "-o", "json").stdout)
        assert "served by the gateway of uid 4003" in [check["found"] for check in checked]
        _root_collects_nothing_that_a_link_leads_to(made, next(place.glob("*/admin.sock")).parent)
    finally:
        if made.process:
            made.process.terminate()
            made.process.wait(30)
        subprocess.run(["rm", "-rf", str(place)], check=True)
