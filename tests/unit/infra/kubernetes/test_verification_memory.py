"""What is remembered of verification in a cluster: written by the leader alone, and never lost to another one's write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from lasthop.api.meta import Key
from lasthop.infra import memory
from lasthop.infra.kubernetes import verification_memory
from lasthop.infra.kubernetes.verification_memory import CONFIG_MAP, VerificationConfigMap, config_map, content
from lasthop.infra.memory import Memory
from lasthop.kubernetes.errors import ApiError
from lasthop.outputs.audit.changes import MAX_CHANGES, Change
from lasthop.plan.verification import HopVerification, Strength
from lasthop.verification_memory import Port, PortMemory
from tests.unit.infra.kubernetes.cluster import FakeApi

NAMESPACE = "lasthop-system"
VERIFIED = HopVerification(Strength.VERIFIED, Key("BackendTLSPolicy", "a", "p"), "CA", ("api.example",))


def ports(count: int, namespace: str = "a") -> dict[Port, PortMemory]:
    return {Port(Key("Service", namespace, f"s{n}"), 443): PortMemory(VERIFIED, (VERIFIED,)) for n in range(count)}


def change(at: float) -> Change:
    return Change(at, "Service", "a/s0", 443, "verified", "plaintext", f"{at} was deleted", True)


class Replica(VerificationConfigMap):
    def __init__(self, api: FakeApi, known: Memory, *, leads: bool = True) -> None:
        self.known, self.problems, self.leads = known, list[str](), leads
        super().__init__(
            api,
            NAMESPACE,
            version=lambda: self.known,
            current=lambda: self.known,
            may_write=lambda: self.leads,
            problem=self.problems.append,
        )


async def test_the_next_process_knows_what_the_last_one_wrote() -> None:
    api, known = FakeApi(), Memory(ports(3), (change(1.0),))
    assert await Replica(api, known).load() == Memory()
    await Replica(api, known).write()
    assert await Replica(api, Memory()).load() == known
    assert api.writes == [f"POST {NAMESPACE}/configmaps/{CONFIG_MAP}"]


async def test_what_is_new_is_written_before_the_end_by_the_leader_alone() -> None:
    api = FakeApi()
    for leads in (False, True):
        replica = Replica(api, Memory(ports(1)), leads=leads)
        await replica.finish()
        assert bool(api.writes) is leads
    await replica.finish()
    assert len(api.writes) == 1, "nothing is new"


async def test_a_server_that_does_not_answer_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeApi):
        async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, object]:
            await asyncio.Event().wait()
            return {}

    monkeypatch.setattr(verification_memory, "LAST_WRITE", 0.01)
    await Replica(Silent(), Memory(ports(1))).finish()


async def test_a_new_leader_adds_to_the_record_of_the_one_before() -> None:
    api = FakeApi()
    await Replica(api, Memory(ports(2), (change(1.0), change(1000.0)))).write()
    await Replica(api, Memory(ports(1), (change(1000.5), change(2000.0)))).write()
    found = await Replica(api, Memory()).load()
    assert [each.at for each in found.changes] == [1.0, 1000.0, 1000.5, 2000.0]
    assert found.ports == ports(1)


async def test_a_write_that_another_one_has_overtaken_is_repeated() -> None:
    class Contested(FakeApi):
        refused = 0

        async def put(self, path: str, body: dict[str, object]) -> dict[str, object]:
            if self.refused < 2:
                self.refused += 1
                raise ApiError(409, "Conflict", "the object has been modified")
            return await super().put(path, body)

    api = Contested()
    await Replica(api, Memory({}, (change(1.0),))).write()
    await Replica(api, Memory({}, (change(2000.0),))).write()
    assert api.refused == 2
    assert [each.at for each in (await Replica(api, Memory()).load()).changes] == [1.0, 2000.0]


async def test_what_it_has_written_is_not_read_again_unless_somebody_else_has_written_it() -> None:
    class Counted(FakeApi):
        read = 0

        async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, object]:
            self.read += 1
            return await super().get(path, params)

    api = Counted()
    first, second = Replica(api, Memory({}, (change(1.0),))), Replica(api, Memory({}, (change(1000.0),)))
    await first.write()
    first.known = Memory({}, (change(2000.0),))
    await first.write()
    assert api.read == 1
    await second.write()
    first.known = Memory({}, (change(3000.0),))
    await first.write()
    assert [each.at for each in (await first.load()).changes] == [1.0, 1000.0, 2000.0, 3000.0]


async def test_a_deleted_record_is_written_anew() -> None:
    api = FakeApi()
    replica = Replica(api, Memory(ports(1), (change(1.0),)))
    await replica.write()
    await api.delete(config_map(NAMESPACE))
    replica.known = Memory(ports(2), (change(1.0),))
    await replica.write()
    assert await replica.load() == replica.known


async def test_only_the_leader_writes_and_only_what_is_new() -> None:
    api, known = FakeApi(), Memory(ports(1), (change(1.0),))
    replica = Replica(api, known, leads=False)
    await replica.refresh()
    assert api.writes == []
    replica.leads = True
    await replica.refresh()
    await replica.refresh()
    assert len(api.writes) == 1
    replica.known = Memory(ports(1), (change(1.0), change(2000.0)))
    await replica.refresh()
    assert len(api.writes) == 2


async def test_a_write_that_failed_is_made_up_for() -> None:
    api = FakeApi()
    replica = Replica(api, Memory(ports(1)))
    api.faults[CONFIG_MAP] = ApiError(500, "InternalError", "etcd is away")
    await replica.refresh()
    await replica.refresh()
    assert len(replica.problems) == 1 and api.writes == []
    api.faults.clear()
    await replica.refresh()
    assert len(api.writes) == 1


async def test_without_the_right_to_read_it_the_controller_starts_and_says_so_once() -> None:
    class Closed(FakeApi):
        async def get(self, path: str, params: object = None) -> dict[str, object]:
            raise ApiError(403, "Forbidden", "configmaps is forbidden")

    replica = Replica(Closed(), Memory())
    assert await replica.load() == Memory()
    assert await replica.load() == Memory()
    assert len(replica.problems) == 1 and "is forbidden" in replica.problems[0]


def test_it_fits_into_an_object_and_each_namespace_keeps_its_share() -> None:
    names = HopVerification(
        Strength.VERIFIED, VERIFIED.source, "CA", tuple("n" * 60 + str(n) for n in range(5)), ("ConfigMap a/b",)
    )
    many = {
        Port(Key("Service", f"ns{n % 5}", f"service-{n}"), n % 60000): PortMemory(names, (names,)) for n in range(30_000)
    } | ports(3, "small")
    packed = memory.pack(Memory(many, tuple(change(1000.0 * n) for n in range(MAX_CHANGES))), 5000, memory.Encoder())
    assert len(packed) < 700_000
    found = memory.unpack(packed)
    assert len(found.ports) <= 5000 and set(ports(3, "small")) <= set(found.ports)
    assert len(found.changes) == MAX_CHANGES


def test_what_is_none_of_ours_is_no_memory() -> None:
    for data in ({}, {"memory": "!"}, {"memory": "AAAA"}, {"memory": 3}, {"other": "x"}):
        assert content({"binaryData": data}) == Memory()
    assert content(None) == content({"binaryData": None}) == Memory()
    assert config_map("n").endswith(f"/namespaces/n/configmaps/{CONFIG_MAP}")
