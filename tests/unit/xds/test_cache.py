from __future__ import annotations

from lasthop.edge.xds.cache import KEPT_WITHDRAWALS, Cache, wire_version
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, Withdrawal
from tests.unit.xds.playbook import clusters, endpoints, mk, withdrawn


def test_apply_returns_whether_anything_is_new() -> None:
    cache = Cache()
    assert cache.apply(clusters("a=1"))
    assert not cache.apply(clusters("a=1"))
    assert cache.apply(clusters("a=2"))
    assert not cache.apply({})


def test_changes_since_a_generation_come_oldest_first_and_each_name_once() -> None:
    cache = Cache()
    cache.apply(clusters("a=1", "b=1", "c=1"))
    start = cache.generation
    cache.apply(clusters("b=2"))
    cache.apply({**clusters("a=2"), **endpoints("a@2=1")})
    cache.apply(clusters("b=3"))
    assert cache.changed_since(CLUSTER, start) == ["a", "b"]
    assert cache.changed_since(ENDPOINTS, start) == ["a@2"]
    assert cache.changed_since(CLUSTER, cache.generation) == []
    assert cache.names(CLUSTER) == ["c", "a", "b"]


def test_an_urgent_withdrawal_stays_urgent_until_the_resource_comes_back() -> None:
    cache = Cache()
    cache.apply(withdrawn(CLUSTER, "a", urgent=True))
    assert not cache.apply(withdrawn(CLUSTER, "a"))
    assert cache.get(CLUSTER, "a") == Withdrawal(urgent=True)
    cache.apply(clusters("a=1"))
    cache.apply(withdrawn(CLUSTER, "a"))
    assert cache.get(CLUSTER, "a") == Withdrawal(urgent=False)
    assert cache.apply(withdrawn(CLUSTER, "a", urgent=True))


def test_expired_resources_become_urgent_withdrawals() -> None:
    cache = Cache()
    cache.apply({**clusters("a=1", expires=100.0), **endpoints("a@1=1")})
    cache.apply(clusters("b=1", expires=200.0))
    assert cache.next_expiry == 100.0
    generation = cache.generation
    cache.expire(99.9)
    assert cache.generation == generation
    cache.expire(100.0)
    assert cache.get(CLUSTER, "a") == Withdrawal(urgent=True)
    assert cache.changed_since(CLUSTER, generation) == ["a"]
    assert cache.next_expiry == 200.0
    cache.apply(clusters("b=1"))  # no longer waived
    cache.expire(300.0)
    assert cache.get(CLUSTER, "b") == mk(CLUSTER, "b=1") and cache.next_expiry is None


def test_the_expiry_is_part_of_the_version() -> None:
    assert wire_version(mk(CLUSTER, "a=1")) == "1"
    assert wire_version(mk(CLUSTER, "a=1", expires=5.0)) != wire_version(mk(CLUSTER, "a=1", expires=6.0))


def test_only_so_many_withdrawals_are_remembered() -> None:
    cache, names = Cache(), [f"a@{i}" for i in range(KEPT_WITHDRAWALS + 3)]
    cache.apply(endpoints(*(f"{name}=1" for name in names)))
    for name in names:
        cache.apply(withdrawn(ENDPOINTS, name))
    assert cache.names(ENDPOINTS) == names[3:]
