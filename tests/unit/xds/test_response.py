from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import duration_pb2
from hypothesis import given
from hypothesis import strategies as st

from lasthop.edge.xds.cache import wire_version
from lasthop.edge.xds.response import Response, encode
from lasthop.engine.outputs.envoy.resource import CLUSTER, Resource

NOW = 1_000_000.0

some_resources = st.builds(
    Resource,
    type_url=st.just(CLUSTER),
    name=st.text(min_size=1),
    body=st.binary(max_size=300),
    version=st.text("0123456789abcdef", min_size=1),
    expires=st.none() | st.floats(NOW, NOW + 1e7),
)


def built_normally(response: Response) -> discovery_pb2.DeltaDiscoveryResponse:
    message = discovery_pb2.DeltaDiscoveryResponse(
        system_version_info=str(response.generation),
        type_url=response.type_url,
        nonce=response.nonce,
        removed_resources=response.removed,
    )
    for resource in response.resources:
        added = message.resources.add(name=resource.name, version=wire_version(resource))
        added.resource.type_url = resource.type_url
        added.resource.value = resource.body
        if resource.expires is not None:
            ttl = duration_pb2.Duration()
            ttl.FromMilliseconds(max(1, int((resource.expires - response.sent_at) * 1000)))
            added.ttl.CopyFrom(ttl)
    return message


@given(st.lists(some_resources, max_size=4), st.lists(st.text(min_size=1), max_size=3), st.integers(1, 10**9))
def test_joined_bytes_are_read_as_a_message_built_the_normal_way(
    resources: list[Resource], removed: list[str], number: int
) -> None:
    response = Response(CLUSTER, str(number), number, NOW, tuple(resources), tuple(removed))
    assert discovery_pb2.DeltaDiscoveryResponse.FromString(encode(response)) == built_normally(response)


def test_a_resource_that_expires_carries_the_time_that_is_left() -> None:
    waived = Resource(CLUSTER, "waived", b"body", "1", expires=NOW + 90.25)
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(encode(Response(CLUSTER, "1", 1, NOW, (waived,))))
    assert message.resources[0].ttl.ToMilliseconds() == 90_250


def test_a_time_that_envoy_cannot_count_is_cut() -> None:
    """From 292 years on it refuses the response, and all that is in it."""
    waived = Resource(CLUSTER, "waived", b"body", "1", expires=NOW + 8_000 * 365 * 86400)
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(encode(Response(CLUSTER, "1", 1, NOW, (waived,))))
    assert message.resources[0].ttl.ToSeconds() == 10 * 365 * 86400


def test_a_resource_about_to_expire_still_has_a_timer() -> None:
    waived = Resource(CLUSTER, "waived", b"body", "1", expires=NOW + 0.0001)
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(encode(Response(CLUSTER, "1", 1, NOW, (waived,))))
    assert message.resources[0].ttl.ToMilliseconds() == 1
