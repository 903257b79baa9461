"""Desired objects are created in the cluster, once, and deleted again."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

import pytest

from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import Autoscaling, ProxySettings
from lasthop.base.pki import authority as ca
from lasthop.base.pki.certificates import uris
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.run.infra.kubernetes import deployments
from lasthop.run.infra.kubernetes.deployments import Deployments
from lasthop.run.infra.kubernetes.desired import DesiredGateway
from tests.unit.infra.kubernetes.cluster import SITE, WEB, FakeApi, gateway

ALL = ["deployments", "poddisruptionbudgets", "secrets", "serviceaccounts", "services"]
NOW = 1_790_000_000.0


class World:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.now, self.leads = NOW, True
        self.authority: ca.Authority | None = ca.renewed(None, NOW)
        self.heard: list[tuple[Key, Infrastructure]] = []
        self.deployments = self.another()

    def another(self) -> Deployments:
        return Deployments(
            self.api,
            SITE,
            authority=lambda: self.authority,
            changed=lambda key, provided: self.heard.append((key, provided)),
            may_write=lambda: self.leads,
            clock=lambda: self.now,
            retry=0.0,
            look_every=0.0,
        )

    def want(self, *gateways: DesiredGateway) -> None:
        self.deployments.want({gateway.key: gateway for gateway in gateways})

    async def settled(self) -> list[str]:
        """Returns all writes once there are no more: the server is in memory, so they need turns of the loop and no time."""
        for _ in range(300):
            await asyncio.sleep(0)
        written, self.api.writes = self.api.writes, []
        return written

    @contextlib.asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.deployments.run())
            yield
            running.cancel()


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_gateway_gets_all_it_needs_in_order(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        assert await world.settled() == [
            "APPLY shop/serviceaccounts/lasthop-web",
            "APPLY shop/secrets/lasthop-web-xds",
            "APPLY shop/services/lasthop-web",
            "APPLY shop/poddisruptionbudgets/lasthop-web",
            "APPLY shop/deployments/lasthop-web",
        ]
    assert world.heard == [(WEB, Infrastructure((("IPAddress", "192.0.2.1"),)))]
    data = world.api.named("lasthop-web-xds")["data"]
    assert uris(base64.b64decode(data["tls.crt"])) == ("lasthop://gateway/uid-of-web",)


async def test_rights_of_an_older_install_are_enough_unless_an_autoscaler_is_wanted(world: World) -> None:
    world.api.faults["horizontalpodautoscalers"] = ApiError(403, "Forbidden", "not permitted")
    world.want(gateway())
    async with world.leading():
        assert len(await world.settled()) == len(ALL)
        world.want(gateway(settings=ProxySettings(autoscaling=Autoscaling(max_replicas=3))))
        await world.settled()
    assert "not permitted" in world.heard[-1][1].problem


async def test_an_autoscaler_comes_last_and_goes_when_it_is_no_longer_wanted(world: World) -> None:
    world.want(gateway(settings=ProxySettings(autoscaling=Autoscaling(max_replicas=3))))
    async with world.leading():
        assert (await world.settled())[-1] == "APPLY shop/horizontalpodautoscalers/lasthop-web"
        world.want(gateway())
        (deleted,) = [write for write in await world.settled() if write.startswith("DELETE")]
        assert deleted.endswith("shop/horizontalpodautoscalers/lasthop-web")


async def test_a_lease_that_ran_out_while_frozen_forbids_every_write(world: World) -> None:
    world.want(gateway())
    world.leads = False
    async with world.leading():
        assert await world.settled() == []
        world.leads = True
        assert len(await world.settled()) == len(ALL)


async def test_the_next_leader_does_not_write_unchanged_statuses(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
    world.deployments, world.heard = world.another(), []
    world.want(gateway())
    async with world.leading():
        assert await world.settled() == []
        world.want(gateway())
        assert await world.settled() == []
    assert world.heard == [(WEB, Infrastructure((("IPAddress", "192.0.2.1"),)))], "but it learns of the addresses"


async def test_nothing_is_touched_before_it_is_known_what_is_wanted(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
    world.deployments = world.another()
    async with world.leading():
        assert await world.settled() == []


async def test_a_change_is_made_in_place_and_only_where_it_is(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        world.want(gateway(ports=((80, "TCP"), (8443, "TCP"))))
        assert await world.settled() == ["APPLY shop/services/lasthop-web"]


async def test_a_gateway_that_goes_takes_everything_along_and_leaves_the_others_alone(world: World) -> None:
    world.want(gateway(), gateway("api"))
    async with world.leading():
        await world.settled()
        world.want(gateway("api"))
        assert len(await world.settled()) == len(ALL)
    assert world.api.paths() == [f"shop/{kind}/lasthop-api{'-xds' * (kind == 'secrets')}" for kind in ALL]


async def test_statuses_of_objects_removed_without_a_leader_are_deleted_later(world: World) -> None:
    world.want(gateway(), gateway("api"))
    async with world.leading():
        await world.settled()
    world.deployments = world.another()
    world.want(gateway("api"))
    async with world.leading():
        await world.settled()
    assert all("lasthop-api" in path for path in world.api.paths())


async def test_an_address_that_is_given_up_loses_its_service_when_its_successor_stands(world: World) -> None:
    world.want(gateway(addresses=("192.0.2.7",)))
    async with world.leading():
        await world.settled()
        world.want(gateway(addresses=("192.0.2.8",)))
        written = await world.settled()
        assert [line.split()[0] for line in written] == ["APPLY", "DELETE"]
    assert world.heard[-1] == (WEB, Infrastructure((("IPAddress", "192.0.2.8"),)))


async def test_a_load_balancer_that_takes_its_time_is_waited_for(world: World) -> None:
    world.api.assign = False
    world.want(gateway())
    async with world.leading():
        await world.settled()
        assert world.heard == [(WEB, Infrastructure())]
        world.api.named("services/lasthop-web")["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}
        await world.settled()
    assert world.heard[-1] == (WEB, Infrastructure((("Hostname", "lb.example.com"),)))


async def test_a_gateway_that_was_made_anew_under_its_name_gets_a_certificate_of_its_own(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        world.want(gateway(uid="uid-2"))
        written = await world.settled()
    assert not any(line.startswith("DELETE") for line in written)
    assert uris(base64.b64decode(world.api.named("lasthop-web-xds")["data"]["tls.crt"])) == ("lasthop://gateway/uid-2",)


async def test_a_certificate_is_renewed_in_good_time_without_touching_anything_else(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        world.now += ca.CLIENT_LIFE * 0.7
        world.want(gateway(), gateway("api", ports=()))  # any news
        written = await world.settled()
    assert [line for line in written if "lasthop-web" in line] == ["APPLY shop/secrets/lasthop-web-xds"]


async def test_a_new_ca_reaches_every_proxy(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        world.now += ca.CA_LIFE * 0.7
        world.authority = ca.renewed(world.authority, world.now)
        world.want(gateway(), gateway("api", ports=()))
        await world.settled()
    assert base64.b64decode(world.api.named("lasthop-web-xds")["data"]["ca.crt"]) == world.authority.bundle


async def test_deleted_objects_are_created_again(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        del world.api.objects["/apis/apps/v1/namespaces/shop/deployments/lasthop-web"]
        world.now += deployments.RESYNC + 1
        world.want(gateway(), gateway("api", ports=()))
        assert "APPLY shop/deployments/lasthop-web" in await world.settled()


async def test_another_owners_object_of_the_same_name_stays_unchanged(world: World) -> None:
    path = "/api/v1/namespaces/shop/services/lasthop-web"
    theirs = {
        "kind": "Service",
        "metadata": {"name": "lasthop-web", "namespace": "shop", "uid": "x"},
        "spec": {"type": "ClusterIP"},
    }
    world.api.objects[path] = theirs
    world.want(gateway())
    async with world.leading():
        await world.settled()
    assert world.api.objects[path] is theirs
    assert (
        world.heard[-1][1].problem == "Service lasthop-web: it exists and is not managed by Lasthop; rename it or the Gateway"
    )


async def test_a_refusal_is_reported_and_all_other_parts_are_created(world: World) -> None:
    world.api.faults["/services/lasthop-web"] = ApiError(422, "Invalid", "spec.loadBalancerIP: not allowed")
    world.want(gateway())
    async with world.leading():
        await world.settled()
        assert len(world.api.objects) == len(ALL) - 1
        assert world.heard == [(WEB, Infrastructure(problem="Service lasthop-web: spec.loadBalancerIP: not allowed"))]
        world.api.faults.clear()
        await world.settled()
    assert world.heard[-1] == (WEB, Infrastructure((("IPAddress", "192.0.2.1"),)))


async def test_a_server_that_is_away_changes_nothing_that_is_known(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        heard = list(world.heard)
        world.api.faults["/"] = ApiError(0, "Unreachable", "connection refused")
        world.now += deployments.RESYNC + 1
        world.want(gateway(ports=((8080, "TCP"),)))
        await world.settled()
        assert world.heard == heard
        world.api.faults.clear()
        assert await world.settled() == ["APPLY shop/services/lasthop-web"]


async def test_a_gateway_that_is_no_longer_accepted_keeps_what_it_has_and_its_certificate_alive(world: World) -> None:
    world.want(gateway())
    async with world.leading():
        await world.settled()
        world.now += ca.CLIENT_LIFE * 0.7
        world.want(gateway(ports=(), hold=True))
        assert await world.settled() == ["APPLY shop/secrets/lasthop-web-xds"]


async def test_a_gateway_that_was_never_accepted_gets_nothing(world: World) -> None:
    world.want(gateway(hold=True))
    async with world.leading():
        assert await world.settled() == []


async def test_without_a_ca_there_are_no_proxies_yet(world: World) -> None:
    authority, world.authority = world.authority, None
    world.want(gateway())
    async with world.leading():
        assert await world.settled() == []
        world.authority = authority
        assert len(await world.settled()) == len(ALL)
