"""No deprecated field of Envoy's messages is used.

Lasthop disables Envoy's own check (`edge/proxy/launch.py`), so only this test finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse, Resource
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given

from lasthop.engine.outputs.envoy.retries import BUDGET_INTERVAL
from tests.examples import slow
from tests.properties.promises import walk
from tests.random_world import EDITS, Edit

NEWER = {("envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget", BUDGET_INTERVAL)}
"""Fields of Envoy 1.39 that xds-protos lacks."""
KEPT = {"envoy.config.cluster.v3.Cluster.respect_dns_ttl"}
"""Of STRICT_DNS. Envoy's replacement is another type of cluster, not another field."""


@slow(50)
@given(EDITS)
def test_no_deprecated_or_unknown_field_is_sent(edits: list[Edit]) -> None:
    _, _, snapshot = walk(edits)
    for (_, type_url, name), resource in snapshot.xds.items():
        odd = set(odd_fields(decoded(type_url, resource.body)))
        assert not odd, f"{name} has {odd}"


def test_odd_fields_are_found_wherever_they_are() -> None:
    host = decoded("/envoy.config.route.v3.VirtualHost", bytes.fromhex("9201020801f2ff030161"))
    assert set(odd_fields(host)) == {
        "envoy.config.route.v3.VirtualHost.per_request_buffer_limit_bytes",
        "envoy.config.route.v3.VirtualHost: 8190",
    }
    packed = AnyMessage(type_url="/envoy.config.route.v3.VirtualHost", value=host.SerializeToString())
    response = DeltaDiscoveryResponse(resources=[Resource(resource=packed)])
    assert set(odd_fields(response)) == set(odd_fields(host))


def decoded(type_url: str, body: bytes) -> Any:
    return GetMessageClass(Default().FindMessageTypeByName(type_url.rpartition("/")[2])).FromString(body)


def odd_fields(message: Message) -> Iterator[str]:
    """Yields fields that are set and deprecated, or not known, in the message and all that it holds."""
    if isinstance(message, AnyMessage):
        yield from odd_fields(decoded(message.type_url, message.value))
        return
    name = message.DESCRIPTOR.full_name
    unknown = UnknownFieldSet(message)
    numbers = {unknown[index].field_number for index in range(len(unknown))}
    yield from (f"{name}: {number}" for number in numbers if (name, number) not in NEWER)
    for field, value in message.ListFields():
        if field.GetOptions().deprecated and field.full_name not in KEPT:
            yield field.full_name
        yield from (inner for held in _messages(value) for inner in odd_fields(held))


def _messages(value: Any) -> Iterator[Message]:
    """Yields the messages of a field's value: one, a list of them or a map to them."""
    if isinstance(value, Message):
        yield value
    elif not isinstance(value, str | bytes | int | float):
        yield from (item for item in (value.values() if hasattr(value, "values") else value) if isinstance(item, Message))
