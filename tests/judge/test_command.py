"""`lasthop judge` as users call it, for a gateway outside a cluster."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from lasthop.cli.main import main
from lasthop_judge.command import cli
from lasthop_judge.objects import CANARY_PATH
from tests.backends import until
from tests.ports import free_port
from tests.proxy.lasthop import EXECUTABLE, Lasthop
from tests.servers import read_and_hang_up, server

CASES = "^(names/(exact|other|sni)|invalid/missing|changes/policy-removed|status/accepted)$"


@pytest.fixture
def lasthop() -> Iterator[Lasthop]:
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as root, contextlib.closing(Lasthop(Path(root))) as made:
        yield made


def judging(lasthop: Lasthop, *more: str) -> subprocess.Popen[str]:
    address = f"127.0.0.1:{lasthop.port}"
    command: list[str | Path] = [
        EXECUTABLE,
        "judge",
        "--address",
        address,
        "--write",
        str(lasthop.folder),
        "--cases",
        CASES,
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=lasthop.env)


def test_a_gateway_that_starts_on_the_folder_is_judged_by_traffic(lasthop: Lasthop) -> None:
    page = lasthop.root / "judged.html"
    judge = judging(lasthop, "-o", "json", "--report", str(page))
    until(lambda: (lasthop.folder / "names-exact.yaml").exists())
    lasthop.start(ready=False)
    output, stderr = judge.communicate(timeout=110)
    report = json.loads(output)
    assert judge.returncode == 0, stderr
    assert (report["summary"]["pass"], report["summary"]["not run"]) == (5, 1)  # status/accepted has nothing to read
    assert "names/exact" in page.read_text()


def judge_at(port: int, folder: Path, *more: str) -> Result:
    address = ("--address", f"127.0.0.1:{port}", "--write", str(folder), "--patience", "5")
    return CliRunner().invoke(main, ["judge", *address, *more])


def test_a_gateway_that_serves_nothing_passes_nothing_and_fails_nothing(tmp_path: Path) -> None:
    with server(None, read_and_hang_up) as port:
        cases = "^(names/exact|protocols/(grpc|tls|tcp)(-ca)?|status/accepted)$"
        result = judge_at(port, tmp_path, "--cases", cases, "-o", "json")
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout)["summary"]["not run"] == 8


def test_a_gateway_that_is_never_started_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "START_WITHIN", 0.1)
    port = free_port()
    result = judge_at(port, tmp_path, "--cases", "^names/exact$")
    assert result.exit_code == 1 and f"nothing has listened at 127.0.0.1:{port}" in result.stderr


def test_a_second_run_removes_the_cases_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "START_WITHIN", 0.0)
    (tmp_path / "own.yaml").touch()
    for case in ("names/exact", "names/sni"):
        judge_at(free_port(), tmp_path, "--cases", f"^{case}$")
    assert {file.name for file in tmp_path.iterdir()} == {"own.yaml", "judge.yaml", "names-sni.yaml"}


CANARY = b'HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n{"backend": "canary.http"}'


def redirect_all_but_canaries(connection: socket.socket) -> None:
    if CANARY_PATH.encode() in connection.recv(65536):
        connection.sendall(CANARY)
    else:
        connection.sendall(b"HTTP/1.1 302 Found\r\nlocation: http://x.invalid/\r\ncontent-length: 0\r\n\r\n")


def test_a_gateway_that_refuses_until_it_knows_the_endpoints_has_verified_nothing(tmp_path: Path) -> None:
    """It answers 503 for a second, and then forwards to backends whose certificate it does not verify."""
    first: dict[str, float] = {}

    def careless(connection: socket.socket) -> None:
        request = connection.recv(65536)
        if CANARY_PATH.encode() in request:
            connection.sendall(CANARY)
            return
        name = request.partition(b"Host: ")[2].partition(b".")[0].decode()
        if time.monotonic() < first.setdefault(name, time.monotonic()) + 1:
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
            return
        objects = yaml.safe_load_all((tmp_path / f"{name}.yaml").read_text())
        slices = (document for document in objects if document["kind"] == "EndpointSlice")
        backend = next(
            (endpoint_slice["endpoints"][0]["addresses"][0], endpoint_slice["ports"][0]["port"]) for endpoint_slice in slices
        )
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(socket.create_connection(backend)) as forwarded:
            forwarded.sendall(request)
            connection.sendall(forwarded.recv(65536))

    with server(None, careless) as port:
        result = judge_at(port, tmp_path, "--cases", "^names/(exact|other)$", "-o", "json")
    assert {case["id"]: case["severity"] for case in json.loads(result.stdout)["cases"]} == {
        "names/exact": None,
        "names/other": "open",
    }


@pytest.mark.program("openssl")
@pytest.mark.program("curl")
def test_the_commands_of_a_failing_case_repeat_it_while_the_backend_is_kept(tmp_path: Path) -> None:
    """This gateway fails every case, so there are commands for each; the backend decides what openssl finds."""
    statuses = {
        "names/exact": 0,
        "names/san-hostname-not-listed": 1,
        "chains/other-ca": 1,
        "trust/config-map": 0,
        "trust/secret-other": 1,
        "dates/expired": 1,
    }
    report = tmp_path / "report.json"
    with server(None, redirect_all_but_canaries) as port:
        options: tuple[str | Path, ...] = (
            "--patience",
            "5",
            "--keep",
            "--report",
            report,
            "--cases",
            f"^({'|'.join(statuses)})$",
        )
        address = ("--address", f"127.0.0.1:{port}", "--write", tmp_path / "objects")
        command: list[str | Path] = [EXECUTABLE, "judge", *address, *options]
        judge = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert judge.stderr is not None
        try:
            for line in judge.stderr:
                if "Ctrl-C" in line:
                    break
            cases = {case["id"]: case["repeat"] for case in json.loads(report.read_text())["cases"]}
            for id, expected in statuses.items():
                hint, request, *rest = cases[id]
                assert f"--keep --cases '^{id}$'" in hint
                assert "302 Found" in run(tmp_path, request).stderr
                verified = run(tmp_path, *rest)
                assert (verified.returncode, id) == (expected, id), verified.stderr
                assert "BEGIN CERTIFICATE" in verified.stdout or expected
        finally:
            judge.send_signal(signal.SIGINT)
            judge.communicate(timeout=60)
    assert judge.returncode == 4


def run(folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", "\n".join(commands)], cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_backend_too(lasthop: Lasthop, sent: signal.Signals) -> None:
    judge = judging(lasthop)
    until(lambda: (lasthop.folder / "names-exact.yaml").exists())
    (child,) = map(int, Path(f"/proc/{judge.pid}/task/{judge.pid}/children").read_text().split())
    judge.send_signal(sent)
    judge.communicate(timeout=60)
    assert judge.returncode == 1
    until(lambda: not Path(f"/proc/{child}").exists())
