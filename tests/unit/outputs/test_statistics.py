"""The names of Envoy's statistics that are kept; Envoy's patterns are RE2's and match whole names."""

from __future__ import annotations

from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from lasthop.engine.outputs.envoy.statistics import stats_config

HOP = "cluster.shop/web/shop/api.v1/443/auto"


def kept(name: str) -> bool:
    config: Any = stats_config()
    patterns = config["stats_matcher"]["inclusion_list"]["patterns"]
    return any(re2.fullmatch(pattern["safe_regex"]["regex"], name) for pattern in patterns)


@pytest.mark.parametrize(
    "counted",
    [
        "ssl.handshake",
        "ssl.connection_error",
        "ssl.fail_verify_san",
        "ssl.fail_verify_cert_hash",
        "upstream_cx_total",
        "upstream_cx_active",
        "upstream_cx_connect_fail",
        "upstream_cx_connect_timeout",
        "upstream_rq_total",
        "upstream_rq_active",
        "outlier_detection.ejections_active",
    ],
)
def test_the_statistics_of_a_hop_that_are_read_are_kept(counted: str) -> None:
    assert kept(f"{HOP}.{counted}")


@pytest.mark.parametrize(
    "counted", ["upstream_rq_time", "upstream_rq_200", "ssl.ciphers.TLS_AES_128_GCM_SHA256", "lb_healthy_panic"]
)
def test_nothing_else_of_a_hop_is_kept(counted: str) -> None:
    assert not kept(f"{HOP}.{counted}")


@pytest.mark.parametrize(
    "name",
    [
        "cluster.lasthop/xds.upstream_cx_destroy",
        "cluster_manager.cds.update_rejected",
        "control_plane.connected_state",
        "http.http.downstream_rq_active",
        "listener.127.0.0.1_8080.downstream_cx_active",
        "listener_manager.lds.update_rejected",
        "overload.envoy.resource_monitors.fixed_heap.pressure",
        "server.live",
    ],
)
def test_what_there_is_once_is_kept(name: str) -> None:
    assert kept(name)


@given(st.from_regex(r"[a-z_]{1,9}\.[a-z_.]{1,20}", fullmatch=True))
def test_all_resources_but_clusters_are_complete(name: str) -> None:
    assert kept(name) or name.startswith("cluster.")
