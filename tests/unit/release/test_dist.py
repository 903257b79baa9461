"""The wheel and the sdist: the same bytes from the same commit, with everything in them that a user needs."""

from __future__ import annotations

import io
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from release.dist import ROOT, built, tracked, write_sums

EPOCH = "1700000000"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WHEEL, SDIST = f"lasthop-{VERSION}-py3-none-any.whl", f"lasthop-{VERSION}.tar.gz"


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], dict[str, bytes]]:
    scratch = tmp_path_factory.mktemp("dist")
    return built(ROOT, scratch / "a", EPOCH), built(ROOT, scratch / "another", EPOCH, umask=0o077)


def test_two_builds_are_the_same_to_the_byte(twice: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    first, second = twice
    assert first.keys() == {WHEEL, SDIST}
    assert first == second


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(twice: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    names = zipfile.ZipFile(io.BytesIO(twice[0][WHEEL])).namelist()
    package = {name.removeprefix("src/") for name in tracked(ROOT) if name.startswith("src/")}
    assert {name for name in names if ".dist-info/" not in name} == package


def test_the_sdist_has_what_the_wheel_is_built_from(twice: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    with tarfile.open(fileobj=io.BytesIO(twice[0][SDIST])) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {name for name in tracked(ROOT) if name.startswith("src/")} | {"pyproject.toml", "README.md", "LICENSE"}
    assert wanted <= names
    assert {name.partition("/")[0] for name in names} == {
        *("src", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"),
        *(".gitignore", "PKG-INFO"),
    }


def test_sums_are_of_every_file_but_themselves(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"a")
    write_sums(tmp_path)
    write_sums(tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == (
        "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
    )
