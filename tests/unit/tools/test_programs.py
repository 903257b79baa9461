"""The table of programs: installation by `make test`, skipped tests without a program, and failures in CI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests import conftest
from tools import programs
from tools.programs import TABLE, Program

ROOT = Path(__file__).parents[3]
SMALL = (
    Program("lh-browser", "browser", ("test",), "pages", others=("lh-other-browser",)),
    Program("lh-server", "server", ("test", "bare"), "requests", service="server"),
    Program("lh-status", "server", ("test",), "requests"),
    Program("lh-builder", "builder", ("image",), "images"),
)
APT = """#!/bin/sh
echo "$@" >> {log}
for package; do :; done
case $package in
  server) for name in lh-server lh-status; do : > {bin}/$name; /bin/chmod +x {bin}/$name; done;;
  browser) echo E: no package browser; exit 100;;
esac
"""


class Debian:
    """A machine whose apt-get has a package `server` and no package `browser`."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.calls = folder / "bin", folder / "calls"
        self.bin.mkdir()
        self.calls.touch()
        self.add("apt-get", APT.format(log=self.calls, bin=self.bin))
        self.add("systemctl", f"#!/bin/sh\necho systemctl $@ >> {self.calls}\nexit 1\n")

    def add(self, name: str, text: str = "") -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Debian]:
    made = Debian(tmp_path)
    (tmp_path / "debian_version").touch()
    for name, value in {"TABLE": SMALL, "SYSTEM": "", "DEBIAN": tmp_path / "debian_version"}.items():
        monkeypatch.setattr(programs, name, value)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.delenv("CI", raising=False)
    yield made


INSTALL = "--quiet=2 install --yes --no-install-recommends"


def test_root_on_debian_installs_each_missing_package_once_and_prints_it(
    debian: Debian, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [program.name for program in programs.install("test")] == ["lh-browser"]
    assert debian.called == [
        "--quiet=2 update",
        f"{INSTALL} browser",
        f"{INSTALL} server",
        "systemctl disable --quiet --now server",
    ]
    output = capfd.readouterr()
    assert output.out.splitlines() == [
        "Installing browser, for `make test` (pages)",
        "E: no package browser",
        "",
        "Installing server, for `make test` (requests)",
    ]
    assert output.err == ""


def test_nothing_is_done_where_everything_is_there(debian: Debian, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("lh-other-browser", "lh-server", "lh-status"):
        debian.add(name)
    assert programs.main("test") == 0
    assert (debian.called, capfd.readouterr()) == ([], ("", ""))


def test_a_plain_user_and_another_system_install_nothing(
    debian: Debian, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as plain:
        plain.setattr("os.geteuid", lambda: 1000)
        assert programs.main("test") == 0
    monkeypatch.setattr(programs, "DEBIAN", tmp_path / "nowhere")
    assert programs.main("test") == 0
    assert (debian.called, capfd.readouterr()) == ([], ("", ""))


def test_in_ci_a_program_that_cannot_be_installed_ends_make_test(
    debian: Debian, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    assert programs.main("test") == 1
    assert capfd.readouterr().out.splitlines()[-1] == "lh-browser is not installed (pages); on Debian: apt-get install browser"


@pytest.mark.parametrize(
    ("value", "ci"),
    [("true", True), ("1", True), ("", False), ("false", False), ("False", False), ("0", False)],
)
def test_the_variable_decides_whether_it_is_ci(value: str, ci: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", value)
    assert programs.in_ci() is ci


def test_programs_outside_the_path_of_a_plain_user_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = Debian(tmp_path)
    debian.add("lh-server")
    monkeypatch.setattr(programs, "SYSTEM", f":{debian.bin}")
    monkeypatch.setenv("PATH", "/nowhere")
    assert SMALL[1].find() == str(debian.bin / "lh-server")
    assert SMALL[1].find("/elsewhere") is None


def marked(*names: str) -> pytest.Item:
    """Stands for a test with these marks."""
    return cast(pytest.Item, SimpleNamespace(iter_markers=lambda _: [SimpleNamespace(args=(name,)) for name in names]))


def test_a_test_without_its_program_is_skipped_and_fails_in_ci(debian: Debian, monkeypatch: pytest.MonkeyPatch) -> None:
    debian.add("lh-server")
    conftest.pytest_runtest_setup(marked("lh-server"))
    absent = marked("lh-server", "lh-status")
    with pytest.raises(pytest.skip.Exception, match=r"lh-status is not installed .*apt-get install server"):
        conftest.pytest_runtest_setup(absent)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"lh-status is not installed .*apt-get install server"):
        conftest.pytest_runtest_setup(absent)


def test_a_skipped_test_names_every_program_that_is_missing(debian: Debian) -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        conftest.pytest_runtest_setup(marked("lh-browser", "lh-server"))
    assert all(programs.named(name).absence() in str(skipped.value) for name in ("lh-browser", "lh-server"))


def test_the_table_names_what_the_makefile_and_the_tests_need() -> None:
    assert len({program.name for program in TABLE}) == len(TABLE)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {target for program in TABLE for target in program.targets} <= targets
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    used = {name for text in texts for name in re.findall(r'mark\.program\("([^"]+)"\)', text)}
    assert used == {program.name for program in TABLE if "test" in program.targets}
