"""The features that a GatewayClass claims for each release of the CRDs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lasthop.base.api.bundle import CrdVersion, CrdVersions, supported_features
from lasthop.base.api.kinds import GATEWAY_API, KINDS

NAMES = [line.split() for line in (Path(__file__).parent / "upstream_features.txt").read_text().splitlines()[1:]]
RELEASES = ["v1.4.1", "v1.5.1", "v1.6.2", "v1.6.3", "v1.7.0"]
NOT_SERVED = {"ClusterTrustBundle"}
"""The kind is served; as a feature it is that of a mesh, and its tests do not exist upstream."""


def known_to(release: str) -> set[str]:
    return {name for name, *releases in NAMES if release in releases}


def crds(release: str, channel: str = "experimental", without: tuple[str, ...] = ()) -> CrdVersions:
    names = [kind for kind in KINDS.values() if kind.group == GATEWAY_API and kind.kind not in without]
    return tuple(sorted((f"{kind.plural}.{kind.group}", CrdVersion(release, channel)) for kind in names))


def claimed(release: str, channel: str = "experimental", without: tuple[str, ...] = ()) -> set[str]:
    return set(supported_features(crds(release, channel, without)))


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_a_release_has_a_name_for_is_claimed_by_that_name_and_nothing_else(release: str) -> None:
    assert claimed(release) == known_to(release) - NOT_SERVED


@pytest.mark.parametrize("release", ["v1.6.0", "v1.6.1"])
def test_a_name_may_change_within_a_minor_release(release: str) -> None:
    assert claimed(release) == claimed("v1.6.2") != claimed("v1.6.3")


def test_features_of_experimental_fields_are_not_claimed_with_standard_crds() -> None:
    retries = {"HTTPRouteRetry", "HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError"}
    assert claimed("v1.4.1") - claimed("v1.4.1", "standard") == {"HTTPRouteCORS"}
    assert claimed("v1.5.1") == claimed("v1.5.1", "standard")
    assert claimed("v1.6.3") - claimed("v1.6.3", "standard") == retries
    new = {"GatewayAddressRoutability", "GatewayAddressRoutabilityCluster", "GatewayListenerFilters"}
    assert claimed("v1.7.0") - claimed("v1.7.0", "standard") == new


def test_the_features_of_a_kind_that_is_not_installed_are_not_claimed() -> None:
    absent = claimed("v1.7.0") - claimed("v1.7.0", without=("TLSRoute", "ListenerSet", "TCPRoute"))
    assert absent == {"TLSRoute", "TLSRouteModeMixed", "TLSRouteModeTerminate", "ListenerSet", "TCPRoute"}


def test_each_kind_goes_by_its_own_crd() -> None:
    newer = dict(crds("v1.6.3", "standard")) | {f"httproutes.{GATEWAY_API}": CrdVersion("v1.6.3", "experimental")}
    assert set(supported_features(tuple(newer.items()))) == claimed("v1.6.3")


@pytest.mark.parametrize(
    ("release", "nearest"), [("v1.3.0", "v1.4.1"), ("v1.8.0", "v1.7.0"), ("main", "v1.7.0"), ("", "v1.7.0")]
)
def test_a_release_that_we_do_not_know_counts_as_the_nearest_one(release: str, nearest: str) -> None:
    assert claimed(release) == claimed(nearest)


def test_without_crds_it_is_the_newest_release() -> None:
    assert supported_features(()) == supported_features(crds("v1.7.0"))


@pytest.mark.parametrize("release", RELEASES)
def test_names_are_in_order_and_there_is_room_for_them(release: str) -> None:
    names = supported_features(crds(release))
    assert list(names) == sorted(set(names)) and len(names) <= 64
