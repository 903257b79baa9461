from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from conformance import build, needs, toolchain
from conformance.build import MODULES, PROGRAMS, path_of


def test_a_program_is_built_again_only_when_its_own_module_changes(tmp_path: Path) -> None:
    shutil.copytree(MODULES, tmp_path / "go")
    before = [path_of(program, tmp_path, tmp_path / "go") for program in PROGRAMS]
    with (tmp_path / "go/suite/go.sum").open("a") as file:
        file.write("\n")
    after = [path_of(program, tmp_path, tmp_path / "go") for program in PROGRAMS]
    changed = [program.module for program, old, new in zip(PROGRAMS, before, after, strict=True) if old != new]
    assert changed == ["suite", "suite"]


def mk_archive(path: Path, **files: str) -> str:
    """A module as the proxy serves it; returns its hash."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"golang.org/toolchain@v1/{name.replace('__', '/')}", content)
    with zipfile.ZipFile(path) as archive:
        return toolchain.h1(archive)


def test_the_toolchain_is_unpacked_with_its_programs_executable(tmp_path: Path) -> None:
    published = mk_archive(tmp_path / "zip", bin__go="#!/bin/sh", VERSION="go1")
    toolchain.unpack(tmp_path / "zip", tmp_path, published)
    program, other = (tmp_path / "golang.org/toolchain@v1" / name for name in ("bin/go", "VERSION"))
    assert os.access(program, os.X_OK) and not other.stat().st_mode & 0o111


def test_a_toolchain_with_another_content_or_name_is_refused(tmp_path: Path) -> None:
    published = mk_archive(tmp_path / "good", bin__go="#!/bin/sh")
    for number, files in enumerate(
        ({"bin__go": "#!/bin/evil"}, {"bin__go": "#!/bin/sh", "more": ""}, {"bin__og": "#!/bin/sh"})
    ):
        mk_archive(tmp_path / str(number), **files)
        with pytest.raises(needs.Missing, match="not the one that was published"):
            toolchain.unpack(tmp_path / str(number), tmp_path, published)
    assert not (tmp_path / "golang.org").exists()


def test_go_modules_hash_as_go_hashes_them(tmp_path: Path) -> None:
    """golang.org/x/mod's own example: sha256 of "<sha256 of the file>  <name>" and a newline."""
    line = f"{hashlib.sha256(b'data for a').hexdigest()}  golang.org/toolchain@v1/a\n"
    assert (
        mk_archive(tmp_path / "zip", a="data for a")
        == "h1:" + base64.b64encode(hashlib.sha256(line.encode()).digest()).decode()
    )


def test_a_proxy_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9,direct")
    with pytest.raises(needs.Missing, match=r"http://127\.0\.0\.1:9/golang\.org/toolchain/.* cannot be fetched.*GOPROXY"):
        build.build()


def test_without_root_the_first_words_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(needs.Missing, match="needs root"):
        needs.check()


def test_a_missing_command_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(needs, "find", lambda command: None if command == "nft" else f"/bin/{command}")
    monkeypatch.setattr("shutil.which", lambda *_: None)  # no apt-get either
    with pytest.raises(needs.Missing, match=r"`nft` \(nftables\)"):
        needs.check()
