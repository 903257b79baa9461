"""The verification memory in a cluster: only the leader writes it, and no other write destroys it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes.client import JSON
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.engine.memory import codec
from lasthop.engine.memory.codec import Damaged, Memory
from lasthop.engine.memory.record import MAX_ENTRIES, Entry, Record, chained
from lasthop.engine.memory.verification import HopsMemory, Port, PortMemory
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import TrustedCA
from lasthop.engine.plan.verdict import Basis, HopVerification
from lasthop.run.infra.kubernetes import verification_memory
from lasthop.run.infra.kubernetes.verification_memory import CONFIG_MAP, VerificationConfigMap, config_map, content
from tests.records import mk_record
from tests.unit.infra.kubernetes.cluster import FakeApi

NAMESPACE = "lasthop-system"
GATEWAY = Key("Gateway", "a", "g")
VERIFIED = HopVerification(Strength.VERIFIED, Key("BackendTLSPolicy", "a", "p"), "CA", ("api.example",))


def mk_port(verification: HopVerification) -> PortMemory:
    return PortMemory((HopsMemory(verification, (GATEWAY,)),), (verification,))


def ports(count: int, namespace: str = "a") -> dict[Port, PortMemory]:
    return {Port(Key("Service", namespace, f"s{n}"), 443): mk_port(VERIFIED) for n in range(count)}


def change(at: float) -> Entry:
    return Entry(at, "Service", "a/s0", 443, "verified", "plaintext", f"{at} was deleted", True)


def known(ports: dict[Port, PortMemory], *changes: Entry, since: float | None = None) -> Memory:
    return Memory(ports, mk_record(changes, since))


class Replica(VerificationConfigMap):
    def __init__(self, api: FakeApi, known: Memory, *, leads: bool = True) -> None:
        self.known, self.problems, self.leads, self.losses = known, list[str](), leads, list[str]()
        self.adopted: list[Record] = []
        super().__init__(
            api,
            NAMESPACE,
            version=lambda: (self.known, len(self.losses)),
            current=lambda: self.known,
            may_write=lambda: self.leads,
            problem=self.problems.append,
            lost=self.losses.append,
            adopt=self.adopted.append,
        )


async def stored(api: FakeApi) -> Memory:
    """Returns the memory that a new process would load, without the number of writes."""
    memory = await Replica(api, Memory()).load()
    return msgspec.structs.replace(memory, record=msgspec.structs.replace(memory.record, revision=0))


async def times(api: FakeApi) -> list[float]:
    return [entry.at for entry in (await stored(api)).record.changes]


async def test_the_next_process_knows_what_the_last_one_wrote() -> None:
    api, written = FakeApi(), known(ports(3), change(1.0), since=1.0)
    assert await Replica(api, written).load() == Memory()
    await Replica(api, written).write()
    assert await stored(api) == written
    assert api.writes == [f"POST {NAMESPACE}/configmaps/{CONFIG_MAP}"]


async def test_only_the_leader_writes_new_entries_before_the_end() -> None:
    api = FakeApi()
    for leads in (False, True):
        replica = Replica(api, known(ports(1)), leads=leads)
        await replica.finish()
        assert bool(api.writes) is leads
    await replica.finish()
    assert len(api.writes) == 1, "nothing is new"


async def test_a_server_that_does_not_answer_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeApi):
        async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> dict[str, object]:
            await asyncio.Event().wait()
            return {}

    monkeypatch.setattr(verification_memory, "LAST_WRITE", 0.01)
    await Replica(Silent(), known(ports(1))).finish()


async def test_a_new_leader_adds_to_the_record_of_the_one_before() -> None:
    api = FakeApi()
    await Replica(api, known(ports(2), change(1.0), change(1000.0))).write()
    await Replica(api, known(ports(1), change(1000.5), change(2000.0))).write()
    assert await times(api) == [1.0, 1000.0, 1000.5, 2000.0]
    assert (await stored(api)).ports == ports(1)


async def test_a_write_that_another_one_has_overtaken_is_repeated() -> None:
    class Contested(FakeApi):
        refused = 0

        async def put(self, path: str, body: dict[str, object]) -> dict[str, object]:
            if self.refused < 2:
                self.refused += 1
                raise ApiError(409, "Conflict", "the object has been modified")
            return await super().put(path, body)

    api = Contested()
    await Replica(api, known({}, change(1.0))).write()
    await Replica(api, known({}, change(2000.0))).write()
    assert api.refused == 2
    assert await times(api) == [1.0, 2000.0]


async def test_its_own_write_is_not_read_again_unless_another_process_wrote_since() -> None:
    class Counted(FakeApi):
        read = 0

        async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> dict[str, object]:
            self.read += 1
            return await super().get(path, params, accept=accept)

    api = Counted()
    first, second = Replica(api, known({}, change(1.0))), Replica(api, known({}, change(1000.0)))
    await first.write()
    first.known = known({}, change(2000.0))
    await first.write()
    assert api.read == 1
    await second.write()
    first.known = known({}, change(3000.0))
    await first.write()
    assert await times(api) == [1.0, 1000.0, 2000.0, 3000.0]


DAMAGED: tuple[dict[str, object], ...] = (
    {},
    {"binaryData": {}},
    {"binaryData": 3},
    {"binaryData": {"memory": "!"}},
    {"binaryData": {"memory": "AAAA"}},
)


async def test_a_deleted_record_is_noticed_and_written_again_each_time() -> None:
    api, written = FakeApi(), known(ports(1), change(1.0), since=1.0)
    replica = Replica(api, written)
    await replica.refresh()
    for number in (1, 2, 3):
        await api.delete(config_map(NAMESPACE))
        await replica.refresh()
        assert await stored(api) == written
        assert replica.losses == [f"ConfigMap {NAMESPACE}/{CONFIG_MAP} was deleted"] * number
        await replica.refresh()
    count = len(api.writes)
    await replica.refresh()
    assert len(api.writes) == count, "nothing has happened since"


@pytest.mark.parametrize("content", DAMAGED)
async def test_a_damaged_record_is_noticed_and_written_again(content: dict[str, object]) -> None:
    api, written = FakeApi(), known(ports(1), change(1.0), since=1.0)
    replica = Replica(api, written)
    await replica.refresh()
    path = config_map(NAMESPACE)
    bare = {key: value for key, value in (await api.get(path)).items() if key != "binaryData"}
    await api.put(path, bare | content)
    await replica.refresh()
    assert await stored(api) == written
    (lost,) = replica.losses
    assert "was damaged" in lost


async def test_an_old_copy_in_place_of_the_record_is_noticed_and_loses_nothing() -> None:
    api = FakeApi()
    replica = Replica(api, known(ports(1), change(1.0), since=1.0))
    await replica.refresh()
    old = await api.get(config_map(NAMESPACE))
    replica.known = known(ports(1), change(1.0), change(2000.0), since=1.0)
    await replica.refresh()
    now = await api.get(config_map(NAMESPACE))
    await api.put(config_map(NAMESPACE), {**now, "binaryData": old["binaryData"]})
    await replica.refresh()
    (lost,) = replica.losses
    assert "was replaced by an older copy (revision 1 after 2)" in lost
    assert await times(api) == [1.0, 2000.0]


async def forge(api: FakeApi, record: Record) -> None:
    now = await api.get(config_map(NAMESPACE))
    packed = codec.pack(Memory(ports(1), record), 10, codec.Encoder())
    await api.put(config_map(NAMESPACE), {**now, "binaryData": {"memory": base64.b64encode(packed).decode()}})


async def test_a_record_from_which_a_line_was_removed_is_noticed_and_loses_nothing() -> None:
    api = FakeApi()
    replica = Replica(api, known(ports(1), change(1.0), change(1000.0), change(2000.0), since=1.0))
    await replica.refresh()
    written = replica.adopted[-1]
    removed = msgspec.structs.replace(written, entries=(*written.entries[:2], *written.entries[3:]), revision=7)
    await forge(api, removed)
    await replica.refresh()
    assert replica.losses == [f"ConfigMap {NAMESPACE}/{CONFIG_MAP} was edited: entry 3 is missing"]
    assert await times(api) == [1.0, 1000.0, 2000.0]
    assert not (await stored(api)).record.faults()
    await forge(api, msgspec.structs.replace(removed, revision=9))
    new = Replica(api, known({}, change(3000.0)))
    await new.load()
    assert "was edited" in new.losses[0], "also at a start"
    await new.refresh()
    assert (await stored(api)).record.faults() == ("entry 3 is missing",), "a new process does not mend it"


async def test_replicas_take_turns_and_keep_one_chain() -> None:
    """Each adopts its own write, so that the next write continues it."""
    api = FakeApi()
    replicas = [Replica(api, known({}, since=float(number))) for number in (1, 2)]
    recorded = list[float]()
    for number in range(6):
        replica = replicas[number % 2]
        recorded.append(1000.0 * (number + 1))
        own = replica.adopted[-1] if replica.adopted else replica.known.record
        chain = chained([change(recorded[-1])], own.entries)
        replica.known = Memory({}, Record(tuple(chain), chain[-1].hash))
        await replica.refresh()
        assert not replica.adopted[-1].faults()
    assert await times(api) == recorded
    record = (await stored(api)).record
    assert record.since == 1.0 and not record.faults()
    assert all(not replica.losses for replica in replicas)


async def test_a_write_by_another_leader_is_not_a_loss() -> None:
    api = FakeApi()
    first, second = Replica(api, known({}, change(1.0))), Replica(api, known({}, change(1000.0)))
    await first.refresh()
    await second.refresh()
    first.known = known({}, change(1.0), change(2000.0))
    await first.refresh()
    await second.refresh()
    assert first.losses == second.losses == []
    assert await times(api) == [1.0, 1000.0, 2000.0]


async def test_a_label_on_the_record_is_not_a_loss() -> None:
    api = FakeApi()
    replica = Replica(api, known({}, change(1.0)))
    await replica.refresh()
    now = await api.get(config_map(NAMESPACE))
    await api.put(config_map(NAMESPACE), {**now, "metadata": {**now["metadata"], "labels": {"team": "a"}}})
    await replica.refresh()
    assert replica.losses == []
    assert (await api.get(config_map(NAMESPACE)))["metadata"]["labels"] == {"team": "a"}


async def test_a_record_that_is_damaged_at_the_start_is_reported_once() -> None:
    api = FakeApi()
    await Replica(api, known({}, change(1.0))).write()
    now = await api.get(config_map(NAMESPACE))
    await api.put(config_map(NAMESPACE), {**now, "binaryData": {"memory": "AAAA"}})
    replica = Replica(api, known(ports(1), since=5000.0))
    assert await replica.load() == Memory()
    await replica.refresh()
    (lost,) = replica.losses
    assert "was damaged" in lost
    assert (await stored(api)).record.since == 5000.0


async def test_a_replica_that_could_not_read_the_record_at_its_start_does_not_continue_it() -> None:
    api = FakeApi()
    await Replica(api, known({}, change(1.0), since=1.0)).write()
    late = Replica(api, known({}, since=5000.0))
    api.faults[CONFIG_MAP] = ApiError(403, "Forbidden", "configmaps is forbidden")
    assert await late.load() == Memory()
    api.faults.clear()
    await late.refresh()
    record = (await stored(api)).record
    assert (record.since, len(record.changes)) == (5000.0, 1)


async def test_a_replica_that_follows_does_not_look_after_the_record() -> None:
    api = FakeApi()
    replica = Replica(api, known({}, change(1.0)))
    await replica.refresh()
    await api.delete(config_map(NAMESPACE))
    replica.leads = False
    await replica.refresh()
    assert replica.losses == [] and config_map(NAMESPACE) not in api.objects


async def test_only_the_leader_writes_and_only_what_is_new() -> None:
    api = FakeApi()
    replica = Replica(api, known(ports(1), change(1.0)), leads=False)
    await replica.refresh()
    assert api.writes == []
    replica.leads = True
    await replica.refresh()
    await replica.refresh()
    assert len(api.writes) == 1
    replica.known = known(ports(1), change(1.0), change(2000.0))
    await replica.refresh()
    assert len(api.writes) == 2


async def test_a_write_that_failed_is_made_up_for() -> None:
    api = FakeApi()
    replica = Replica(api, known(ports(1)))
    api.faults[CONFIG_MAP] = ApiError(500, "InternalError", "etcd is away")
    await replica.refresh()
    await replica.refresh()
    assert len(replica.problems) == 1 and api.writes == []
    api.faults.clear()
    await replica.refresh()
    assert len(api.writes) == 1


async def test_without_the_right_to_read_it_the_controller_starts_and_logs_it_once() -> None:
    class Closed(FakeApi):
        async def get(self, path: str, params: object = None, *, accept: str = JSON) -> dict[str, object]:
            raise ApiError(403, "Forbidden", "configmaps is forbidden")

    replica = Replica(Closed(), Memory())
    assert await replica.load() == Memory()
    assert await replica.load() == Memory()
    assert len(replica.problems) == 1 and "is forbidden" in replica.problems[0]


def test_it_fits_into_an_object_and_each_namespace_keeps_its_share() -> None:
    names = HopVerification(
        Strength.VERIFIED, VERIFIED.source, "CA", tuple("n" * 60 + str(n) for n in range(5)), ("ConfigMap a/b",)
    )
    many = {Port(Key("Service", f"ns{n % 5}", f"service-{n}"), n % 60000): mk_port(names) for n in range(30_000)} | ports(
        3, "small"
    )
    packed = codec.pack(known(many, *(change(1000.0 * n) for n in range(MAX_ENTRIES - 1))), 5000, codec.Encoder())
    assert len(packed) < 700_000
    unpacked = codec.unpack(packed)
    assert isinstance(unpacked, Memory)
    assert len(unpacked.ports) <= 5000 and set(ports(3, "small")) <= set(unpacked.ports)
    assert len(unpacked.record.changes) == MAX_ENTRIES - 1


def with_cas(namespace: str, count: int, per_port: int) -> dict[Port, PortMemory]:
    """Returns ports with CAs of their own, whose hashes cannot be compressed."""
    memories = {}
    for port in range(count):
        cas = tuple(
            TrustedCA(f"CA {n}", hashlib.sha256(f"{namespace}{port}{n}".encode()).hexdigest()) for n in range(per_port)
        )
        value = msgspec.structs.replace(VERIFIED, digest=f"{namespace}{port}", basis=Basis(cas))
        memories[Port(Key("Service", namespace, f"s{port}"), 443)] = mk_port(value)
    return memories


def test_cas_of_a_loud_namespace_are_left_out_so_that_the_record_can_be_stored() -> None:
    quiet, loud = with_cas("quiet", 10, 2), with_cas("loud", 1000, 50)
    packed = codec.pack(known(quiet | loud), 5000, codec.Encoder())
    unpacked = codec.unpack(packed)
    assert isinstance(unpacked, Memory) and len(packed) < 700_000
    assert {port: unpacked.ports[port] for port in quiet} == quiet
    assert all(hop.now.basis is None and hop.now.digest for port in loud for hop in unpacked.ports[port].hops)


@pytest.mark.parametrize("per_port", [1, 50])
def test_only_ports_that_have_changed_are_encoded_again_whether_or_not_their_cas_are_kept(
    per_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, encoder, encoded = with_cas("shop", 100, per_port), codec.Encoder(), list[Port]()
    codec.pack(known(before), 5000, encoder)
    real = codec._encoded

    def counted(port: Port, known: PortMemory, *, bare: bool) -> codec._Encoded:
        encoded.append(port)
        return real(port, known, bare=bare)

    monkeypatch.setattr(codec, "_encoded", counted)
    edited = next(iter(before))
    after = {**before, edited: mk_port(VERIFIED)}
    packed = codec.pack(known(after), 5000, encoder)
    assert encoded == [edited]
    assert packed == codec.pack(known(after), 5000, codec.Encoder())


def test_cas_are_kept_again_once_a_namespace_has_few() -> None:
    loud, few, encoder = with_cas("shop", 100, 50), with_cas("shop", 10, 50), codec.Encoder()
    codec.pack(known(loud), 5000, encoder)
    assert codec.unpack(codec.pack(known(few), 5000, encoder)) == known(few)


def test_a_bundle_that_many_ports_share_counts_and_is_stored_once() -> None:
    (one,) = with_cas("shop", 1, 50).values()
    many = {Port(Key("Service", "shop", f"s{n}"), 443): one for n in range(1000)}
    packed = codec.pack(known(many), 5000, codec.Encoder())
    assert codec.unpack(packed) == known(many)
    assert len(packed) < 40_000


def test_foreign_content_counts_as_damaged_and_never_as_an_empty_record() -> None:
    assert content(None) is None
    for document in DAMAGED:
        assert isinstance(content(dict(document)), Damaged), document
    assert config_map("n").endswith(f"/namespaces/n/configmaps/{CONFIG_MAP}")


def test_what_is_cached_follows_the_namespaces_whose_bases_are_left_out() -> None:
    trusting = msgspec.structs.replace(VERIFIED, basis=Basis(cas=(TrustedCA("ca", "ab"),)))
    memory = Memory({Port(Key("Service", namespace, "s"), 443): mk_port(trusting) for namespace in "ab"})
    encode = codec.Encoder()
    for bare in ((), ("a",), ("a", "b"), ("b",), ()):
        assert encode(memory, bare) == codec.Encoder()(memory, bare)
    assert len({encode(memory, bare) for bare in ((), ("a",), ("b",))}) == 3
