"""The addresses that `lasthop probe` tries are those that Envoy would find."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lasthop.edge.probe import checks
from lasthop.edge.probe.checks import addresses
from lasthop.edge.probe.handshake import NoHandshake, glance


def unknown(*_: object, **__: object) -> None:
    raise socket.gaierror("Name or service not known")


def test_localhost_is_loopback_on_a_machine_without_a_hosts_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert addresses("localhost", 443) == [("127.0.0.1", 443)]
    with pytest.raises(NoHandshake, match=r"^api\.example is not found in DNS$"):
        addresses("api.example", 443)


def test_a_name_with_a_label_that_dns_does_not_allow_is_not_found() -> None:
    name = f"{'l' * 64}.example"
    with pytest.raises(NoHandshake, match="not found in DNS"):
        addresses(name, 443)
    with pytest.raises(NoHandshake, match="not found in DNS"):
        glance(name, 443)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("127.0.0.1 localhost\n127.0.0.9 two.example\n127.0.0.1 two.example\n", ["127.0.0.9"]),
        ("127.0.0.1 localhost\n127.0.0.1 two.example\n127.0.0.9 two.example\n", ["127.0.0.1", "127.0.0.9"]),
        ("127.0.0.9 two.example\n127.0.0.1 two.example\n127.0.0.1 localhost\n", ["127.0.0.9", "127.0.0.1"]),
        ("127.0.0.1 localhost\n::1 localhost\n::1 two.example\n127.0.0.9 Two.example # x\n", ["127.0.0.1", "127.0.0.9"]),
        (
            "127.0.0.9 a.example two.example\n127.0.0.8 b.example\n127.0.0.8 two.example\n127.0.0.7 a.example\n",
            ["127.0.0.9", "127.0.0.7"],
        ),
        (
            "127.0.0.8 b.example\n127.0.0.9 c.example\n127.0.0.8 two.example\n127.0.0.9 two.example\n127.0.0.5 b.example\n",
            ["127.0.0.8", "127.0.0.5"],
        ),
        ("# 127.0.0.9 two.example\nnonsense two.example\n127.0.0.9\n\n::1 two.example\n", ["::1"]),
        ("127.0.0.1 localhost\n", ["192.0.2.1"]),
        ("", ["192.0.2.1"]),
    ],
)
def test_a_hosts_file_is_read_as_envoys_resolver_does(
    hosts: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected addresses are those of Envoy 1.40 with such a file (c-ares merges lines)."""
    (tmp_path / "hosts").write_text(hosts)
    monkeypatch.setattr(checks, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 0, 0, "", ("192.0.2.1", 443))])
    assert addresses("two.example", 443) == [(address, 443) for address in expected]
