"""The CA in the cluster: made once, by the leader, never lost and never overwritten."""

from __future__ import annotations

import pytest

from lasthop.base.pki import authority as ca
from lasthop.edge.kubernetes.client import JSON
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.run.infra.kubernetes.identity import SECRET, Identity, UnusableSecret, ensure_authority, read_authority
from tests.unit.infra.kubernetes.cluster import FakeApi

NAMESPACE = "lasthop-system"
PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}"
NOW = 1_790_000_000.0


def identity(api: FakeApi, *, leads: bool = True, now: float = NOW) -> Identity:
    return Identity(api, NAMESPACE, ("lasthop-xds.lasthop-system.svc",), "me", may_write=lambda: leads, clock=lambda: now)


async def test_the_leader_makes_it_once() -> None:
    api = FakeApi()
    first = await ensure_authority(api, NAMESPACE, NOW)
    assert await ensure_authority(api, NAMESPACE, NOW) == first
    assert api.writes == [f"POST {NAMESPACE}/secrets/{SECRET}"]


async def test_a_follower_only_reads() -> None:
    api = FakeApi()
    follower = identity(api, leads=False)
    await follower.refresh()
    assert not follower.known.is_set() and api.writes == []
    made = await ensure_authority(api, NAMESPACE, NOW)
    await follower.refresh()
    assert follower.known.is_set()
    assert follower.authority == made == await read_authority(api, NAMESPACE)


async def test_two_leaders_for_a_moment_agree_on_one_ca() -> None:
    """One has looked before the other has written."""
    api = FakeApi()

    class Late(FakeApi):
        looked = 0

        async def get(self, path: str, params: object = None, *, accept: str = JSON) -> dict[str, object]:
            self.looked += 1
            if self.looked == 1:
                await ensure_authority(api, NAMESPACE, NOW)
                raise ApiError(404, "NotFound", "")
            return await FakeApi.get(self, path)

    late = Late()
    late.objects = api.objects
    assert await ensure_authority(late, NAMESPACE, NOW) == await read_authority(api, NAMESPACE)
    assert len(api.writes) == 1 and late.writes == []


async def test_a_successor_is_stored_and_taken_up() -> None:
    api = FakeApi()
    old = await ensure_authority(api, NAMESPACE, NOW)
    later = NOW + ca.CA_LIFE * 0.7
    both = await ensure_authority(api, NAMESPACE, later)
    assert both.issuers[0] == old.issuers[0] and len(both.issuers) == 2
    assert await read_authority(api, NAMESPACE) == both


async def test_a_replica_shows_a_certificate_and_renews_it_also_without_the_server() -> None:
    api = FakeApi()
    moment = [NOW]
    problems: list[str] = []
    own = Identity(api, NAMESPACE, ("x.svc",), "me", may_write=lambda: True, problem=problems.append, clock=lambda: moment[0])
    await own.refresh()
    first = own.credentials()
    await own.refresh()
    assert own.credentials() is first, "the same object, so that gRPC sees no change"
    api.faults["/"] = ApiError(0, "Unreachable", "connection refused")
    moment[0] += ca.SERVER_LIFE * 0.7
    await own.refresh()
    assert own.credentials().own != first.own
    assert problems == ["CA of the proxies: Unreachable: connection refused"]


async def test_a_damaged_secret_is_reported_and_not_overwritten() -> None:
    api = FakeApi()
    await ensure_authority(api, NAMESPACE, NOW)
    api.objects[PATH]["data"] = {"ca.crt": "eA=="}
    with pytest.raises(UnusableSecret, match="delete it, and the controller creates a new CA"):
        await ensure_authority(api, NAMESPACE, NOW)
    assert len(api.writes) == 1
