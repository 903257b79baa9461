"""WebSocket: uses HTTP/1.1 to the backend, even if other requests use h2.

Envoy has a separate filter chain for upgrade requests: the usual one, preceded by a filter that restricts ALPN in the
backend's TLS handshake to http/1.1. These connections have a separate pool within the hop's cluster, so trust, names and
client certificate are the same (docs/measurements.md#alpn)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.extensions.filters.common.set_filter_state.v3 import value_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from lasthop.engine.outputs.envoy.access_log import UPGRADE_STATE
from lasthop.engine.outputs.envoy.encode import packed

FILTER: Final = "lasthop.upgrades"
OFFERED: Final = "envoy.network.application_protocols"
"""Envoy's filter state key for the ALPN protocols of a connection to a backend, in place of the cluster's."""


def websocket(filters: Sequence[hcm_pb2.HttpFilter]) -> hcm_pb2.HttpConnectionManager.UpgradeConfig:
    states = [_state(OFFERED, "http/1.1"), _state(UPGRADE_STATE, "true", factory="envoy.string")]
    config = set_filter_state_pb2.Config(on_request_headers=states)
    first = hcm_pb2.HttpFilter(name=FILTER, typed_config=packed(config))
    return hcm_pb2.HttpConnectionManager.UpgradeConfig(upgrade_type="websocket", filters=[first, *filters])


def _state(key: str, value: str, factory: str = "") -> value_pb2.FilterStateValue:
    text = substitution_format_string_pb2.SubstitutionFormatString(text_format_source=base_pb2.DataSource(inline_string=value))
    return value_pb2.FilterStateValue(object_key=key, factory_key=factory, format_string=text)
