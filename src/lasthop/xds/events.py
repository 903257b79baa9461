"""What a session tells the controller about its client."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lasthop.outputs.envoy.resource import Resource


class Acked(msgspec.Struct, frozen=True):
    """The client has taken these in. Also what it turns out to have already, when it reconnects."""

    type_url: str
    resources: Mapping[str, Resource]
    removed: frozenset[str] = frozenset()


class Nacked(msgspec.Struct, frozen=True):
    """The client has refused a response that held these. It may have applied some of them all the same (clusters and
    listeners are taken one by one), but it has recorded none: neither versions nor timers."""

    type_url: str
    resources: Mapping[str, Resource]
    detail: str


Event = Acked | Nacked
