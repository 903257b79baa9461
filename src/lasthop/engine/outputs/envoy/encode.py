"""Helpers to encode protobuf messages."""

from __future__ import annotations

import functools

from envoy.config.core.v3 import address_pb2, config_source_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message


def encode(message: Message) -> bytes:
    """Encodes a message. Equal messages give equal bytes, because versions and hashes depend on them."""
    return message.SerializeToString(deterministic=True)


def packed(message: Message) -> AnyMessage:
    return AnyMessage(type_url=f"type.googleapis.com/{message.DESCRIPTOR.full_name}", value=encode(message))


def seconds(value: float) -> Duration:
    return Duration(seconds=int(value), nanos=round((value % 1) * 1_000_000_000))


@functools.cache
def over_ads(initial_fetch_timeout: float | None = None) -> config_source_pb2.ConfigSource:
    """Returns the config source of referenced resources. Callers share the message, copy it and never change it."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.V3,
        initial_fetch_timeout=None if initial_fetch_timeout is None else seconds(initial_fetch_timeout),
    )


def socket_address(address: str, port: int, transport: str = "TCP") -> address_pb2.Address:
    protocol = address_pb2.SocketAddress.UDP if transport == "UDP" else address_pb2.SocketAddress.TCP
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=address, port_value=port, protocol=protocol))


def field(number: int, body: bytes) -> bytes:
    """Encodes a length-delimited field (a message, a string, bytes), for messages that are joined from encoded parts."""
    return _head(number, len(body)) + body


def enclosed(number: int, chunks: list[bytes]) -> list[bytes]:
    """Encodes a length-delimited field as chunks, so that large messages are copied once and not per level of nesting."""
    return [_head(number, sum(map(len, chunks))), *chunks]


@functools.lru_cache(maxsize=8192)
def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
