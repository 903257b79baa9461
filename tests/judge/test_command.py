"""`lasthop judge` as users call it, for a gateway outside a cluster."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lasthop.cli.main import main
from lasthop_judge.command import cli
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
    output, told = judge.communicate(timeout=110)
    found = json.loads(output)
    assert judge.returncode == 0, told
    assert (found["summary"]["pass"], found["summary"]["not run"]) == (5, 1)  # status/accepted has nothing to read
    assert "names/exact" in page.read_text()


def judge_at(port: int, folder: Path, *more: str) -> Result:
    address = ("--address", f"127.0.0.1:{port}", "--write", str(folder), "--patience", "5")
    return CliRunner().invoke(main, ["judge", *address, *more])


def test_a_gateway_that_serves_nothing_passes_nothing_and_fails_nothing(tmp_path: Path) -> None:
    with server(None, read_and_hang_up) as port:
        cases = "^(names/exact|protocols/(grpc|tls|tcp)(-ca)?|status/accepted)$"
        found = judge_at(port, tmp_path, "--cases", cases, "-o", "json")
    assert found.exit_code == 1, found.stderr
    assert json.loads(found.stdout)["summary"]["not run"] == 8


def test_a_gateway_that_is_never_started_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "START_WITHIN", 0.1)
    port = free_port()
    found = judge_at(port, tmp_path, "--cases", "^names/exact$")
    assert found.exit_code == 1 and f"nothing has listened at 127.0.0.1:{port}" in found.stderr


def test_a_second_run_removes_the_cases_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "START_WITHIN", 0.0)
    (tmp_path / "own.yaml").touch()
    for case in ("names/exact", "names/sni"):
        judge_at(free_port(), tmp_path, "--cases", f"^{case}$")
    assert {file.name for file in tmp_path.iterdir()} == {"own.yaml", "judge.yaml", "names-sni.yaml"}


def redirect_all_but_canaries(connection: socket.socket) -> None:
    body = b'{"backend": "canary.http"}'
    if b" /judge-canary" in connection.recv(65536):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    else:
        connection.sendall(b"HTTP/1.1 302 Found\r\nlocation: http://x.invalid/\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.program("openssl")
@pytest.mark.program("curl")
def test_the_commands_of_a_failing_case_repeat_it_while_the_backend_is_kept(tmp_path: Path) -> None:
    """This gateway fails every case, so there are commands for each; the backend decides what openssl finds."""
    found = {
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
            f"^({'|'.join(found)})$",
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
            for id, expected in found.items():
                hint, asked, *rest = cases[id]
                assert f"--keep --cases '^{id}$'" in hint
                assert "302 Found" in run(tmp_path, asked).stderr
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
