from __future__ import annotations

import struct

import pytest

from conformance.node.dns import answer

SERVICES = {("web", "shop"): ["10.96.1.1"], ("pods", "shop"): ["10.244.1.1", "10.244.1.2"], ("empty", "shop"): []}


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def ask(name: str, kind: int = 1) -> tuple[int, list[str]]:
    """Response code and addresses."""
    reply = answer(query(name, kind), lambda service, namespace: SERVICES.get((service, namespace)))
    identifier, flags, _, count, _, _ = struct.unpack_from("!HHHHHH", reply)
    assert identifier == 7 and flags & 0x8000
    records = reply[len(query(name, kind)) :]
    return flags & 15, [".".join(map(str, records[16 * n + 12 : 16 * n + 16])) for n in range(count)]


@pytest.mark.parametrize("name", ["web.shop.svc.cluster.local", "web.shop.svc", "WEB.Shop.svc.cluster.local"])
def test_a_service_has_its_address(name: str) -> None:
    assert ask(name) == (0, ["10.96.1.1"])


def test_a_headless_service_has_those_of_its_pods() -> None:
    assert ask("pods.shop.svc.cluster.local") == (0, ["10.244.1.1", "10.244.1.2"])


def test_no_ipv6_is_not_no_such_name() -> None:
    assert ask("web.shop.svc.cluster.local", kind=28) == (0, [])
    assert ask("empty.shop.svc.cluster.local") == (0, [])


@pytest.mark.parametrize(
    "name", ["other.shop.svc.cluster.local", "example.com", "web.shop.svc.cluster.local.shop.svc.cluster.local"]
)
def test_other_names_do_not_exist(name: str) -> None:
    assert ask(name) == (3, [])


@pytest.mark.parametrize("garbage", [b"", b"\0" * 11, b"\0" * 4 + b"\0\1" + b"\0" * 6 + b"\x3fabc"])
def test_garbage_is_not_answered(garbage: bytes) -> None:
    assert answer(garbage, lambda *_: None) == b""
