"""`lasthop ps` and `lasthop stop` of root read what other users' gateways write and answer, which may be anything."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lasthop.base import foreign_file
from lasthop.cli.args import local, paths
from lasthop.edge import unix_http
from lasthop.edge.proxy import handover
from tests.folders import lasthop

OUTPUTS = ("table", "wide", "name", "json")
HEAD = b"HTTP/1.0 200 OK\r\n\r\n"
ABOUTS = (
    "[" * 60_000,
    '{"started": 1e400}',
    '{"started": NaN}',
    '{"started": -1e18}',
    '{"folder": "/a\\ud800"}',
    '{"folder": "/a\\u001b[2J\\n/b"}',
    '{"folder": ["/a"], "admin": {}, "version": null, "envoy": [1]}',
    "[]",
    "",
)
ANSWERS = (
    b"[" * 200_000,
    b'{"a": {"proxies": 1, "synced": "x"}}',
    b'{"a": {"proxies": 1e999, "synced": true}}',
    b'{"a": {"proxies": 1}}',
    b'{"a": []}',
    b"[]",
    b"\xff",
)


class Foreign:
    """A gateway of a user who may write and answer anything."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.answer = run_dir, b"{}"
        (run_dir / "lock").write_text(str(os.getpid()))
        self._lock = open(run_dir / "lock")  # noqa: SIM115
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(run_dir / paths.ADMIN_SOCKET))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(HEAD + self.answer)
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._lock.close()


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Foreign]:
    monkeypatch.setenv("LASTHOP_RUN_DIR", str(tmp_path))
    (tmp_path / "theirs").mkdir()
    made = Foreign(tmp_path / "theirs")
    yield made
    made.close()


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("about", ABOUTS)
def test_a_gateway_may_say_anything_about_itself(foreign: Foreign, about: str, output: str) -> None:
    (foreign.run_dir / local.ABOUT).write_text(about)
    shown = lasthop("ps", "-o", output)
    assert (shown.exit_code, shown.exception) == (0, None)
    assert "running" in shown.stdout or output == "name"
    assert len(shown.stdout.splitlines()) == 1 + (output != "name") or output == "json"
    assert all(character.isprintable() for line in shown.stdout.splitlines() for character in line)
    if output == "json":
        (document,) = json.loads(shown.stdout, parse_constant=pytest.fail)
        assert document["started"] is None


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_a_gateway_may_answer_anything(foreign: Foreign, answer: bytes) -> None:
    foreign.answer = answer
    shown = lasthop("ps", "-o", "json")
    assert json.loads(shown.stdout, parse_constant=pytest.fail)[0]["gateways"] is None
    assert "?" in lasthop("ps").stdout


def test_an_answer_without_end_is_not_read_to_its_end(foreign: Foreign) -> None:
    foreign.answer = b" " * (1 << 20)
    with pytest.raises(unix_http.BadResponse, match="does not end"):
        unix_http.get(foreign.run_dir / paths.ADMIN_SOCKET, "/", 5.0, most=1000)
    assert unix_http.get(foreign.run_dir / paths.ADMIN_SOCKET, "/", 5.0) == (200, foreign.answer)


def test_an_answer_byte_by_byte_is_not_waited_for(tmp_path: Path) -> None:
    answering = socket.socket(socket.AF_UNIX)
    answering.bind(str(tmp_path / "a.sock"))
    answering.listen()
    ended = threading.Event()

    def drip() -> None:
        connection, _ = answering.accept()
        with connection:
            while not ended.wait(0.05):
                connection.send(b" ")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    begin = time.monotonic()
    with answering, pytest.raises(unix_http.BadResponse, match="does not end"):
        unix_http.get(tmp_path / "a.sock", "/", 0.3, most=1 << 20)
    assert time.monotonic() - begin < 5
    ended.set()
    thread.join(5)


def test_a_command_to_copy_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "/tmp/a; reboot #"
    theirs = local.LocalGateway(Path("/run/user/4099/lasthop/a"), 4099, {"folder": folder})
    monkeypatch.setattr(local, "gateways", lambda: [theirs])
    monkeypatch.setattr(local, "state", lambda _: "running")
    assert lasthop("stop").stdout.endswith(f"lasthop stop '{folder}'\n")
    own = [local.LocalGateway(Path(f"/run/lasthop/{name}"), os.geteuid(), {"folder": folder}) for name in "ab"]
    monkeypatch.setattr(local, "gateways", lambda: own)
    assert f"choose one: lasthop stop '{folder}', or" in lasthop("stop").stderr


def test_only_regular_files_are_read_and_never_more_than_the_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"abcdef")
    assert foreign_file.read(tmp_path / "file", 3) == b"abc"
    for name in ("pipe", "link", "missing", "."):
        with pytest.raises(OSError):
            foreign_file.read(tmp_path / name, 3)
    os.mkfifo(tmp_path / handover.FILE)
    assert handover.read_handover(tmp_path) is None
