from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from conformance import build, preflight
from conformance.build import MODULES, path_of, programs
from conformance.releases import CURRENT, RELEASES, Release


def test_a_program_is_built_again_only_when_its_own_module_changes(tmp_path: Path) -> None:
    shutil.copytree(MODULES, tmp_path / "go")
    moved = [dataclasses.replace(program, modules=tmp_path / "go") for program in programs(CURRENT)]
    before = [path_of(program, tmp_path) for program in moved]
    with (tmp_path / "go/suite/go.sum").open("a") as file:
        file.write("\n")
    after = [path_of(program, tmp_path) for program in moved]
    changed = [program.module for program, old, new in zip(moved, before, after, strict=True) if old != new]
    assert changed == ["suite", "suite"]


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.version)
def test_each_suite_is_pinned_to_its_own_release(release: Release) -> None:
    """The module of the API's types has the CRDs too."""
    go_mod = (MODULES / release.module / "go.mod").read_text()
    assert set(re.findall(r"sigs\.k8s\.io/gateway-api(?:/conformance)? (v\S+)", go_mod)) == {release.version}
    assert f"sigs.k8s.io/gateway-api {release.version} h1:" in (MODULES / release.module / "go.sum").read_text()


def test_without_go_the_first_words_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("conformance.build.find", lambda command: None)
    with pytest.raises(preflight.Missing, match=r"needs Go, 1\.21 or newer"):
        build.build()


def test_without_root_the_first_words_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(preflight.Missing, match="needs root"):
        preflight.check()


def test_a_missing_command_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    present = {name: f"/bin/{name}" for name in ("ip", "mount", "nsenter", "unshare")}
    monkeypatch.setattr("shutil.which", lambda name, path=None: present.get(name))  # neither nft nor apt-get
    with pytest.raises(preflight.Missing, match=r"^nft is not installed .*apt-get install nftables$"):
        preflight.check()
