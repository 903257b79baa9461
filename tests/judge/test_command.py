"""`lasthop judge` as users call it, for a gateway outside a cluster."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends import until
from tests.ports import free_port
from tests.proxy.lasthop import EXECUTABLE, Lasthop

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


def judge_nothing(folder: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Judges an address at which nothing listens."""
    address = ("--address", f"127.0.0.1:{free_port()}", "--write", folder, "--patience", "5")
    return subprocess.run([EXECUTABLE, "judge", *address, *more], capture_output=True, timeout=110)


def test_a_gateway_that_is_not_there_passes_nothing_and_fails_nothing(tmp_path: Path) -> None:
    found = judge_nothing(tmp_path, "--cases", "^(names/exact|protocols/(grpc|tls|tcp)(-ca)?|status/accepted)$", "-o", "json")
    assert found.returncode == 1, found.stderr
    assert json.loads(found.stdout)["summary"]["not run"] == 8


def test_a_second_run_removes_the_cases_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").touch()
    for case in ("names/exact", "names/other"):
        judge_nothing(tmp_path, "--cases", f"^{case}$")
    assert {file.name for file in tmp_path.iterdir()} == {"own.yaml", "judge.yaml", "names-other.yaml"}


def test_ctrl_c_ends_the_backend_too(lasthop: Lasthop) -> None:
    judge = judging(lasthop)
    until(lambda: (lasthop.folder / "names-exact.yaml").exists())
    (child,) = map(int, Path(f"/proc/{judge.pid}/task/{judge.pid}/children").read_text().split())
    judge.send_signal(signal.SIGINT)
    judge.communicate(timeout=60)
    assert judge.returncode == 1
    until(lambda: not Path(f"/proc/{child}").exists())
