"""The installed release of the Gateway API, and the GatewayClass's condition about it."""

from __future__ import annotations

import pytest

from lasthop.base.api.bundle import BUNDLE_VERSION, CHANNEL, CrdVersion, CrdVersions, known
from lasthop.base.api.gateway import GatewayClass, GatewayClassSpec
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key, ObjectMeta
from lasthop.base.api.status import GatewayClassStatus
from lasthop.edge.sources.kubernetes.discovery import crd_versions
from lasthop.engine.engine import Engine
from lasthop.engine.resolve.settings import CRD_VERSIONS
from tests.fake_api import FakeApi, Refusal, client_of

CLASS = Key("GatewayClass", "", "lasthop")
GATEWAYS = "gateways.gateway.networking.k8s.io"
HTTP_ROUTES = "httproutes.gateway.networking.k8s.io"
READ = [KINDS["Gateway"], KINDS["Service"]]


OLD: CrdVersions = ((GATEWAYS, CrdVersion("v1.6.0", "experimental")),)


def install(api: FakeApi, version: str | None) -> None:
    api.served.add(("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    annotations = {} if version is None else {BUNDLE_VERSION: version, CHANNEL: "standard"}
    api.put("customresourcedefinitions", {"metadata": {"name": GATEWAYS, "annotations": annotations}})


async def versions(api: FakeApi, before: CrdVersions = ()) -> CrdVersions:
    async with client_of(api) as client:
        return await crd_versions(client, READ, before)


async def test_the_annotations_of_each_crd_of_the_gateway_api_is_read(api: FakeApi) -> None:
    install(api, "v1.7.0")
    assert await versions(api) == ((GATEWAYS, CrdVersion("v1.7.0", "standard")),)


async def test_a_crd_without_the_annotations_is_of_no_release(api: FakeApi) -> None:
    install(api, None)
    assert await versions(api) == ((GATEWAYS, CrdVersion()),)


@pytest.mark.parametrize("refusal", [Refusal(403, "Forbidden"), Refusal(404, "NotFound")])
async def test_a_crd_that_may_not_be_read_is_of_no_release_and_holds_nothing_up(api: FakeApi, refusal: Refusal) -> None:
    install(api, "v1.7.0")
    api.fail("get", "customresourcedefinitions", refusal)
    assert await versions(api, OLD) == ((GATEWAYS, CrdVersion()),)


async def test_no_answer_is_no_news(api: FakeApi) -> None:
    install(api, "v1.7.0")
    api.fail("get", "customresourcedefinitions", Refusal(503, "ServiceUnavailable"))
    assert await versions(api, OLD) == OLD


def class_status(*versions: tuple[str, str]) -> GatewayClassStatus:
    engine = Engine()
    engine.apply({CLASS: GatewayClass(metadata=ObjectMeta("lasthop"), spec=GatewayClassSpec(CONTROLLER_NAME))})
    CRD_VERSIONS.set(engine.graph, tuple((crd, CrdVersion(release)) for crd, release in versions))
    status = engine.settle().status[CLASS]
    assert isinstance(status, GatewayClassStatus)
    return status


@pytest.mark.parametrize("version", ["v1.4.0", "v1.5.1", "v1.6.3", "v1.7.0", "v1.7.0-rc.1"])
def test_known_releases_are_supported(version: str) -> None:
    accepted, supported = class_status((GATEWAYS, version)).conditions
    assert (accepted.status, supported.type, supported.status) == ("True", "SupportedVersion", "True")


@pytest.mark.parametrize("version", ["v1.3.0", "v1.8.0", "v2.7.0", "v1.70.0", "main", ""])
def test_other_releases_are_served_as_well_as_can_be_and_named(version: str) -> None:
    accepted, supported = class_status((GATEWAYS, version), (HTTP_ROUTES, "v1.7.0")).conditions
    assert accepted.status == "True"
    assert (supported.status, supported.reason) == ("False", "UnsupportedVersion")
    assert supported.message.startswith(f"{GATEWAYS} is of {version or 'an unknown release'}. ")
    assert "v1.4 to v1.7" in supported.message and "httproutes" not in supported.message
    assert not known(version)


def test_features_have_the_names_that_the_release_of_the_crds_has_for_them() -> None:
    def infrastructure(*versions: tuple[str, str]) -> list[str]:
        return [feature.name for feature in class_status(*versions).supported_features if "Infrastructure" in feature.name]

    assert infrastructure() == ["GatewayInfrastructure"]
    assert infrastructure((GATEWAYS, "v1.6.2")) == ["GatewayInfrastructurePropagation"]
    assert infrastructure((GATEWAYS, "v1.6.3")) == ["GatewayInfrastructure"]
    assert infrastructure((HTTP_ROUTES, "v1.6.3")) == []
