"""Root file systems from Debian's packages: built once, and again if they do not match."""

from __future__ import annotations

from pathlib import Path

import pytest

from release import debian
from tools.programs import Program


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Replaces mmdebstrap, and returns its arguments."""
    calls: list[tuple[str, ...]] = []

    def bootstrap(result: Path, *options: str) -> None:
        calls.append(options)
        result.mkdir()
        (result / "number").write_text(str(len(calls)))
        if "--include=broken" in options:
            raise RuntimeError("mmdebstrap failed")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "bootstrap", bootstrap)
    return calls


def test_a_root_is_made_once_for_its_packages(made: list[tuple[str, ...]], tmp_path: Path) -> None:
    for number in range(2):
        debian.copied("bare", ("python3", "git"), tmp_path / str(number))
        assert (tmp_path / str(number) / "number").read_text() == "1"
    debian.base("machine", ("python3",))
    assert made == [("--include=python3,git",), ("--include=python3",)]


def test_a_root_of_other_packages_and_one_that_is_not_complete_are_made_anew(made: list[tuple[str, ...]]) -> None:
    debian.base("bare", ("python3",))
    with pytest.raises(RuntimeError, match="mmdebstrap failed"):
        debian.base("bare", ("broken",))
    assert (debian.base("bare", ("python3",)) / "number").read_text() == "3"


def test_without_root_or_a_program_the_first_words_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Program("lh-builder", "builder", ("image",), "images")
    monkeypatch.setattr("tools.programs.install", lambda target: [missing] if target == "image" else [])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert debian.unready("image") == "`make image` needs root: it makes a root file system."
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert debian.unready("image") == missing.absence()
    assert debian.unready("bare") == ""
