"""The memory across restarts; an unreadable file does not prevent a start."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.sources.files.source import FilesSource
from lasthop.edge.sources.source import Batch
from lasthop.engine.engine import Engine
from lasthop.engine.memory import codec
from lasthop.engine.memory.record import BEGAN, ChangeRecord, Record, about_record
from lasthop.engine.memory.verification import HopsMemory, Port, PortMemory
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import Basis, HopVerification
from lasthop.run.host import HostRuntime
from lasthop.run.infra import memory
from tests.fake_api import until
from tests.snapshot import Snapshot, settle, settled
from tests.world import NOW, ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service

POLICY = Key("BackendTLSPolicy", "a", "p")
ROUTE = Key("HTTPRoute", "a", "r")
WORLD = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_service("a/api"),
    mk_route("a/r", "a/g", [{"name": "api", "port": 443}]),
    mk_config_map("a/ca", ca_pem("good")),
    mk_policy("a/p", "api", "api.example", ["ca"]),
)


def saved(path: Path) -> codec.Memory:
    loaded = memory.load(path)
    assert isinstance(loaded, codec.Memory)
    return loaded


def life(path: Path, objects: dict[Key, Object | None]) -> Engine:
    engine = Engine(now=NOW.timestamp())
    engine.verifications.recall(saved(path).ports if path.exists() else {}, complete=path.exists())
    engine.apply(objects)
    settle(engine, Snapshot())
    memory.save(path, codec.Memory(engine.verifications.ports()), codec.Encoder())
    return engine


def lost(engine: Engine) -> list[str]:
    return [finding.message for finding in engine.findings() if finding.reason == "NoLongerVerified"]


def test_a_policy_that_was_deleted_while_nothing_ran_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "verification.json"
    assert lost(life(path, WORLD)) == []
    assert [hop.now.source for known in saved(path).ports.values() for hop in known.hops] == [POLICY]
    without = {key: obj for key, obj in WORLD.items() if key != POLICY}
    message = "backend a/api:443 is plaintext now, because BackendTLSPolicy a/p was deleted."
    assert lost(life(path, without)) == [message]
    assert lost(life(path, without)) == [message]
    assert lost(life(path, {key: obj for key, obj in without.items() if key != ROUTE})) == []
    assert saved(path) == codec.Memory()


def test_what_is_saved_again_is_what_it_is_now() -> None:
    """However it was before: a port that has changed, one that is as it was, one that has gone, one that is new."""
    world, encode, engine = dict(WORLD), codec.Encoder(), Engine(now=NOW.timestamp())
    world |= keyed(mk_service("a/other"), mk_route("a/s", "a/g", [{"name": "other", "port": 443}], ["other.example"]))
    edits: list[dict[Key, Object | None]] = [
        world,
        keyed(mk_policy("a/p", "api", "another.example", ["ca"])),
        {Key("HTTPRoute", "a", "s"): None},
        keyed(mk_route("a/t", "a/g", [{"name": "other", "port": 8443}], ["other.example"])),
    ]
    texts = []
    for edit in edits:
        engine.apply(edit)
        engine.settle()
        now = codec.Memory(engine.verifications.ports())
        texts.append(encode(now))
        assert codec.decode(texts[-1]) == now and texts[-1] == codec.Encoder()(now)
    assert len(set(texts)) == len(edits)


NEVER = codec.Encoder()(codec.Memory(record=Record((about_record(BEGAN, "no hops", 7.0),)))).replace(
    b'"at":7.0', b'"at":1e308'
)


WAIVED = HopVerification(Strength.WAIVED_ALL, POLICY, basis=Basis(until=7.0))
NO_DATE = codec.Encoder()(
    codec.Memory({Port(Key("Service", "a", "api"), 443): PortMemory((HopsMemory(WAIVED, ()),), ())})
).replace(b'"until":7.0', b'"until":1e308')


@pytest.mark.parametrize("content", [b"", b"{", b"[[1, 2]]", b"\xff", b'{"odd":' + b"[" * 100_000, NEVER, NO_DATE])
def test_a_damaged_file_differs_from_a_missing_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "verification.json").write_bytes(content)
    assert isinstance(memory.load(tmp_path / "verification.json"), codec.Damaged)
    assert isinstance(memory.load(tmp_path), codec.Damaged)
    assert memory.load(tmp_path / "nowhere") is None


def test_a_packed_memory_is_decompressed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = codec.pack(codec.Memory(), 10, codec.Encoder())
    large = gzip.compress(b" " * 100_000 + gzip.decompress(packed))
    assert codec.unpack(large) == codec.unpack(packed) == codec.Memory()
    monkeypatch.setattr(codec, "LARGEST", 10_000)
    assert isinstance(codec.unpack(large), codec.Damaged) and codec.unpack(packed) == codec.Memory()


def test_unsaved_and_saved_contents_are_separate() -> None:
    engine, _ = settled(WORLD)
    before = engine.verifications.version
    engine.apply(keyed(mk_route("a/r", "a/g", [{"name": "api", "port": 443}], ["one.example"])))
    settle(engine, Snapshot())
    assert engine.verifications.version == before
    engine.apply({ROUTE: None})
    settle(engine, Snapshot())
    assert engine.verifications.version > before


def test_edits_while_nothing_ran_are_recorded_at_the_next_start(tmp_path: Path) -> None:
    path, record = tmp_path / memory.FILE, ChangeRecord()
    record.begin("no hops", 500.0)
    record.add(life(path, WORLD).verifications.edits(), 1000.0)
    assert not record.changes
    record.add(life(path, {key: obj for key, obj in WORLD.items() if key != POLICY}).verifications.edits(), 2000.0)
    [change] = list(record.changes)
    assert (change.before, change.after) == ("verified (CA) for api.example", "plaintext")
    assert (change.because, change.weaker, change.gateways) == ("BackendTLSPolicy a/p was deleted", True, ("a/g",))
    memory.save(path, codec.Memory({}, record.record), codec.Encoder())
    assert saved(path).record == record.record
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_more_there_is_to_write_the_seldomer_it_is_written_up_to_a_limit() -> None:
    assert [memory.pause(1.0, took) for took in (0.0001, 0.007, 5.0)] == [1.0, 7.0, memory.LONGEST_PAUSE]


@contextlib.asynccontextmanager
async def keeping(
    path: Path, monkeypatch: pytest.MonkeyPatch, pause: float = 0.0, asked: list[float] | None = None
) -> AsyncIterator[HostRuntime]:
    """Keeps a record in a file, as `lasthop run` does, and reads it without a pause. `asked` gets the duration of each
    write."""

    def paused(interval: float, took: float) -> float:
        if asked is not None:
            asked.append(took)
        return pause

    monkeypatch.setattr(memory, "pause", paused)
    folder = path.parent
    runtime = HostRuntime(FilesSource(folder), Envoy(Path("/no/envoy"), (1, 40, 0)), folder / "run", remembered=path)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(runtime._keep_remembered())
        yield runtime
        task.cancel()


async def test_changes_since_the_last_save_are_saved_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "verification.json"
    async with keeping(path, monkeypatch, 60.0) as runtime:
        await until(path.exists)
        assert saved(path).ports == {}
        runtime.controller.take(Batch(WORLD))
    assert [hop.now.source for known in saved(path).ports.values() for hop in known.hops] == [POLICY]


@pytest.mark.parametrize(
    ("spoil", "what"), [(Path.unlink, "was deleted"), (lambda path: path.write_bytes(b"{"), "was damaged")]
)
async def test_manipulations_of_the_record_just_before_the_end_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], object], what: str
) -> None:
    path = tmp_path / "verification.json"
    async with keeping(path, monkeypatch, 60.0) as runtime:
        runtime.controller.take(Batch(WORLD))
        await until(path.exists)
        await asyncio.sleep(0)
        spoil(path)
    (incident,) = saved(path).record.incidents
    assert what in incident.because
    assert not saved(path).record.faults()


async def test_a_record_that_is_deleted_damaged_or_replaced_is_noticed_each_time_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verification.json"
    async with keeping(path, monkeypatch) as runtime:
        await until(path.exists)
        old = path.read_bytes()
        runtime.controller.take(Batch(WORLD))
        await until(lambda: path.read_bytes() != old)
        whole, expected = saved(path).ports, list[str]()
        for spoil, what in (
            (path.unlink, "was deleted"),
            (lambda: path.write_bytes(b"{"), "was damaged"),
            (lambda: path.write_bytes(old), "was replaced by an older copy"),
            (path.unlink, "was deleted"),
        ):
            expected.append(what)
            spoil()

            def noticed() -> bool:
                loaded = memory.load(path)
                return isinstance(loaded, codec.Memory) and len(loaded.record.incidents) == len(expected)

            await until(noticed)
            assert saved(path).ports == whole
    assert [what in incident.because for incident, what in zip(saved(path).record.incidents, expected, strict=True)] == [
        True
    ] * 4


async def test_a_file_system_that_fails_for_a_while_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, save, failures = tmp_path / "verification.json", memory.save, list[int]()

    def failing(*args: Any) -> memory.Stamp | None:
        if len(failures) < 3:
            failures.append(1)
            raise OSError(28, "No space left on device")
        return save(*args)

    monkeypatch.setattr(memory, "save", failing)
    async with keeping(path, monkeypatch):
        await until(path.exists)
    assert len(failures) == 3


async def test_a_slow_disk_delays_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise entries recorded just before a crash would be known only as far as the next start can see them."""
    path, save, asked = tmp_path / "verification.json", memory.save, list[float]()

    def slow(*args: Any) -> memory.Stamp | None:
        time.sleep(0.3)
        return save(*args)

    monkeypatch.setattr(memory, "save", slow)
    async with keeping(path, monkeypatch, asked=asked):
        await until(lambda: path.exists() and asked)
    assert max(asked) < 0.3


async def test_a_damaged_record_at_the_start_is_kept_and_noted_in_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "verification.json"
    path.write_bytes(b"{")
    async with keeping(path, monkeypatch):
        await until(lambda: path.exists() and isinstance(memory.load(path), codec.Memory))
    (incident,) = saved(path).record.incidents
    assert "was damaged" in incident.because and incident.because.endswith("; it is kept as verification.damaged")
    assert (tmp_path / "verification.damaged").read_bytes() == b"{"
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "was damaged" in line]
    assert "this process does not know the lost entries" in line and "from memory" not in line
