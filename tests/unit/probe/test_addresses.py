"""The addresses that `lasthop probe` tries are those that Envoy would find."""

from __future__ import annotations

import socket

import pytest

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
