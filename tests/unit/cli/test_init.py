"""`lasthop init`: what it writes passes `check` and means what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.folders import CA, lasthop


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    (tmp_path / "corp.pem").write_text(CA.pem)
    return tmp_path / "corp.pem"


def _init(folder: Path, *args: str | Path) -> str:
    result = lasthop("init", folder, *args)
    assert result.exit_code == 0, result.output
    assert f"lasthop check {folder}" in result.stdout
    checked = lasthop("check", folder)
    assert checked.stdout.startswith("nothing wrong"), checked.stdout
    return lasthop("explain", "httproute", "backend", "--dir", folder).stdout


@pytest.fixture(autouse=True)
def _system_store(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))


def test_a_name_is_verified_against_the_system_store_by_default(tmp_path: Path) -> None:
    said = _init(tmp_path / "demo", "--backend", "api.example.com:8443")
    assert "verified against the system store" in said
    assert "the certificate must be for api.example.com" in said
    assert "sent to api.example.com:8443" in said


def test_an_address_with_a_name_and_a_ca(tmp_path: Path, ca: Path) -> None:
    said = _init(tmp_path / "demo", "--backend", "10.0.0.7:8443", "--hostname", "api.internal", "--ca", ca, "--port", "8088")
    assert "verified against the bundle of ConfigMap default/backend-ca" in said
    assert "CA corp CA" in said
    assert "listener http (port 8088)" in said
    assert "sent to 10.0.0.7:8443" in said


def test_ipv6_and_plaintext(tmp_path: Path) -> None:
    said = _init(tmp_path / "demo", "--backend", "[::1]:3000", "--plaintext")
    assert "plaintext: no BackendTLSPolicy targets this port" in said
    assert "sent to ::1:3000" in said
    assert not (tmp_path / "demo" / "policy.yaml").exists()


def test_a_name_that_yaml_would_take_for_something_else_stays_a_name(tmp_path: Path) -> None:
    assert "sent to on:443" in _init(tmp_path / "demo", "--backend", "on:443")
    assert "sent to 1e3:443" in _init(tmp_path / "demo2", "--backend", "1e3:443")


def test_localhost_is_loopback_and_still_a_name_to_verify(tmp_path: Path, ca: Path) -> None:
    said = _init(tmp_path / "demo", "--backend", "localhost:8443", "--ca", ca)
    assert "sent to 127.0.0.1:8443" in said
    assert "the certificate must be for localhost" in said


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("name: backend, sectionName", "name: backed, sectionName"),
        ("sectionName: https", "sectionName: htps"),
    ],
)
def test_a_typo_in_the_target_is_no_way_to_plaintext(tmp_path: Path, ca: Path, written: str, instead: str) -> None:
    _init(tmp_path / "demo", "--backend", "localhost:8443", "--ca", ca)
    policy = tmp_path / "demo" / "policy.yaml"
    policy.write_text(policy.read_text().replace(written, instead))
    found = json.loads(lasthop("check", tmp_path / "demo", "-o", "json").stdout)
    assert "TargetNotFound" in [finding["reason"] for finding in found["findings"]]
    hops = json.loads(lasthop("audit", tmp_path / "demo", "-o", "json").stdout)["hops"]
    assert [hop["manner"] for hop in hops] == ["failing closed"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--backend", "10.0.0.7:443"), "--hostname NAME"),
        (("--backend", "api.example"), "is not HOST:PORT"),
        (("--backend", "https://api.example:443"), "is not HOST:PORT"),
        (("--backend", "api.example:99999"), "is not HOST:PORT"),
        (("--backend", "api.example:443", "--plaintext", "--hostname", "x.example"), "cannot be combined with"),
        (("--backend", "api.example:443", "--hostname", "10.0.0.1"), "is an address"),
        (("--backend", "api example:443"), "is not HOST:PORT"),
        (("--backend", "api.example:443", "--hostname", "*.example"), "not a DNS name"),
        ((), "--backend"),
    ],
)
def test_what_does_not_make_sense_is_refused_and_nothing_is_written(tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    result = lasthop("init", tmp_path / "demo", *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "demo").exists()


def test_a_file_that_is_no_ca_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(CA.key_pem)
    result = lasthop("init", tmp_path / "demo", "--backend", "a.example:443", "--ca", tmp_path / "key.pem")
    assert result.exit_code == 2
    assert "holds no PEM certificate but a private key" in result.stderr
    assert not (tmp_path / "demo").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    result = lasthop("init", tmp_path, "--backend", "a.example:443")
    assert result.exit_code == 1
    assert "is not empty" in result.stderr
    assert sorted(path.name for path in tmp_path.glob("*.yaml")) == ["mine.yaml"]
