"""No command writes colours, cursor movements or characters that a terminal lacks or its user disables."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lasthop.base.text.logs import LOG
from lasthop.base.text.terminal import STAND_INS
from lasthop.cli.render.progress import FolderProgress, ProgressLine
from tests.folders import BASE, config_map, policy
from tests.logged import captured

LASTHOP = (sys.executable, "-c", "from lasthop.cli.main import main; main(prog_name='lasthop')")
COMMANDS = {
    "check": ("check", "{folder}"),
    "audit": ("audit", "{folder}"),
    "explain": ("explain", "httproute", "api", "-n", "shop", "--dir", "{folder}"),
    "explain request": ("explain", "request", "GET", "http://shop.example/", "--dir", "{folder}"),
    "probe": ("probe", "api", "-n", "shop", "--dir", "{folder}"),
    "status": ("status", "--dir", "{folder}"),
}
MARKED = ("explain", "explain request", "probe")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has an error, a plaintext hop, and a policy whose backend does not exist."""
    objects = tmp_path / "shop"
    objects.mkdir()
    base = BASE.replace("10.0.0.1", "127.0.0.1").replace("8443", "1")
    (objects / "shop.yaml").write_text(f"{base}---\n{config_map()}---\n{policy()}---\n{policy('b', 'nothing')}")
    return objects


def shown(folder: Path, command: str, **env: str) -> str:
    """Returns the output of a command on a terminal, both streams."""
    master, slave = pty.openpty()
    settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "PYTHONIOENCODING")}
    settings |= {"TERM": "xterm-256color", "COLUMNS": "200", "PYTHONPATH": ":".join(sys.path), **env}
    args = [part.format(folder=folder) for part in COMMANDS[command]]
    process = subprocess.Popen([*LASTHOP, *args], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=settings)
    os.close(slave)
    received = bytearray()
    try:
        while piece := os.read(master, 1 << 16):
            received += piece
    except OSError:
        pass  # the process has ended
    os.close(master)
    process.wait()
    text = received.decode("latin-1" if "PYTHONIOENCODING" in env else "utf-8").replace("\r", "")
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_heeds_what_the_terminal_can_show(command: str, folder: Path) -> None:
    coloured = shown(folder, command)
    assert "\x1b[" in coloured or command == "status", "there is no gateway to show the status of"
    marks = set(coloured) & STAND_INS.keys()
    assert marks or command not in MARKED
    plain = shown(folder, command, TERM="dumb")
    assert "\x1b" not in plain
    assert set(plain) & STAND_INS.keys() == marks
    plain = shown(folder, command, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert plain.isascii() and "\x1b" not in plain


def test_stand_ins_keep_the_columns(folder: Path) -> None:
    marked, plain = (shown(folder, "explain", NO_COLOR="1", **env) for env in ({}, {"PYTHONIOENCODING": "latin-1"}))
    assert "└─ ✓" in marked
    assert plain == "".join(STAND_INS.get(c, c) for c in marked)


def test_text_of_strangers_that_the_encoding_does_not_have_is_escaped(folder: Path) -> None:
    (folder / "odd.yaml").write_text("apiVersion: v1\nkind: Sërvice→日\nmetadata: {name: x}\n")
    assert "S\xebrvice>\\u65e5" in shown(folder, "check", PYTHONIOENCODING="latin-1")
    assert "S\\xebrvice>\\u65e5" in shown(folder, "check", PYTHONIOENCODING="ascii")


def test_an_empty_no_color_is_none(folder: Path) -> None:
    assert "\x1b[" in shown(folder, "check", NO_COLOR="")


@pytest.mark.parametrize(("env", "erased"), [({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, False)])
def test_progress_is_shown_where_a_line_can_be_erased(
    env: dict[str, str], erased: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"NO_COLOR": "", "TERM": "xterm", **env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ProgressLine() as progress:
        progress("reading", 1, 2)
    assert capsys.readouterr().err.startswith("\r\x1b[Kreading [") is erased


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the clock of the progress line."""
    now = [0.0]
    monkeypatch.setattr("lasthop.cli.render.progress.time.monotonic", lambda: now[0])
    return now


def test_a_folder_that_is_read_at_once_is_not_worth_a_word(seconds: list[float]) -> None:
    with captured() as logs:
        progress = FolderProgress(LOG)
        for read in range(1, 11):
            progress(read, 10)
    assert logs == []


def test_a_log_says_every_few_seconds_how_much_of_a_folder_is_read(seconds: list[float]) -> None:
    with captured() as logs:
        progress = FolderProgress(LOG)
        for read in range(1, 13):
            seconds[0] += 1
            progress(read, 12)
    assert [(line["event"], line.get("files_read"), line["files"]) for line in logs] == [
        ("reading the folder", 1, 12),
        ("reading the folder", 6, 12),
        ("reading the folder", 11, 12),
        ("folder read", None, 12),
    ]


def test_a_terminal_shows_how_much_of_a_folder_is_read_in_one_line(
    seconds: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with captured() as logs:
        progress = FolderProgress(LOG)
        for read in range(1, 5):
            seconds[0] += 1
            progress(read, 4)
    assert [line.partition(" [")[0] for line in capsys.readouterr().err.split("\r\x1b[K")] == ["", *["reading files"] * 3, ""]
    assert [line["event"] for line in logs] == ["folder read"]
