"""The watched folder: from a save to a batch, without intermediate states."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lasthop.base.api.core import ConfigMap, Service
from lasthop.base.api.meta import Key
from lasthop.edge.sources.files import loader
from lasthop.edge.sources.files.folder import FilesError
from lasthop.edge.sources.files.source import RESCAN, FilesSource, rescan_after
from lasthop.edge.sources.source import Batch
from tests.file_texts import CONFIG_MAP, SERVICE, config_map, policy, reasons, service, write

EDITOR = 0.03
"""Seconds between the two steps of an editor that saves."""


class Watched:
    """A source that is being consumed."""

    def __init__(self, source: FilesSource, files: Path) -> None:
        self.source = source
        self._files, self._markers = files, 0
        self._batches = source.batches()
        self._next: asyncio.Future[Batch] | None = None

    async def start(self) -> Batch:
        """The first batch comes before any watch exists. Between the two edits the watch of the folder and of its outside
        files begins, so the second edit is seen as an event."""
        first = await self.batch()
        await self.nothing_but_a_marker()
        await self.nothing_but_a_marker()
        return first

    async def batch(self) -> Batch:
        self._ask()
        assert self._next is not None
        batch = await asyncio.wait_for(self._next, 10)
        self._next = None
        self._ask()
        return batch

    async def nothing_but_a_marker(self) -> None:
        """Makes an edit, and expects only that edit in the next batch."""
        self._markers += 1
        write(self._files, marker=service("marker", self._markers))
        assert list((await self.batch()).changes) == [Key("Service", "shop", "marker")]

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await self._batches.aclose()  # type: ignore[attr-defined]

    def _ask(self) -> None:
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._batches))


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    (tmp_path / "files").mkdir()
    write(tmp_path / "files", a=service("web", 80))
    watched = Watched(FilesSource(tmp_path / "files", tmp_path / "state", [tmp_path / "certs"]), tmp_path / "files")
    yield watched
    await watched.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


def port(batch: Batch) -> int:
    obj = batch.changes[SERVICE]
    assert isinstance(obj, Service)
    return obj.spec.ports[0].port


async def test_a_missing_folder_is_a_readable_error(tmp_path: Path) -> None:
    with pytest.raises(FilesError, match="no such file"):
        await anext(FilesSource(tmp_path / "nowhere").batches())
    with pytest.raises(FilesError, match="no such file"):
        FilesSource(tmp_path / "nowhere").load()


async def test_the_first_batch_holds_everything_and_later_ones_what_changed(watched: Watched, files: Path) -> None:
    assert set((await watched.start()).changes) == {SERVICE, Key("Namespace", "", "shop")}
    write(files, a=service("web", 81))
    batch = await watched.batch()
    assert list(batch.changes) == [SERVICE]
    assert port(batch) == 81
    (files / "new" / "deep").mkdir(parents=True)
    (files / "new" / "deep" / "b.yaml").write_text(service("b"))
    assert list((await watched.batch()).changes) == [Key("Service", "shop", "b")]


async def test_an_edit_between_the_first_look_and_the_watch_is_not_lost(watched: Watched, files: Path) -> None:
    await watched.batch()
    write(files, a=service("web", 81))
    assert port(await watched.batch()) == 81


async def test_a_file_truncated_first_and_written_then_never_looks_empty(watched: Watched, files: Path) -> None:
    await watched.start()
    with (files / "a.yaml").open("w") as file:
        file.flush()
        await asyncio.sleep(EDITOR)
        file.write(service("web", 81))
    batch = await watched.batch()
    assert port(batch) == 81
    assert batch.findings == ()


async def test_a_file_written_in_two_halves_never_loses_its_second_object(watched: Watched, files: Path) -> None:
    write(files, a=service("web", 80) + "---\n" + policy())
    await watched.start()
    with (files / "a.yaml").open("w") as file:
        file.write(service("web", 81) + "---\n")
        file.flush()
        await asyncio.sleep(EDITOR)
        file.write(policy())
    batch = await watched.batch()
    assert list(batch.changes) == [SERVICE]
    assert batch.findings == ()


async def test_a_file_that_is_moved_aside_and_written_anew_never_looks_deleted(watched: Watched, files: Path) -> None:
    await watched.start()
    (files / "a.yaml").rename(files / "a.yaml~")
    await asyncio.sleep(EDITOR)
    write(files, a=service("web", 81))
    assert port(await watched.batch()) == 81


async def test_a_renamed_file_changes_nothing(watched: Watched, files: Path) -> None:
    await watched.start()
    (files / "a.yaml").rename(files / "b.yaml")
    await watched.nothing_but_a_marker()
    assert watched.source.locate(SERVICE) == (str(files / "b.yaml"), 1)


async def test_a_deleted_file_takes_its_objects_along(watched: Watched, files: Path) -> None:
    await watched.start()
    (files / "a.yaml").unlink()
    assert (await watched.batch()).changes[SERVICE] is None


async def test_a_broken_file_is_reported_and_keeps_its_objects(watched: Watched, files: Path) -> None:
    await watched.start()
    write(files, a=service("web", 0))
    batch = await watched.batch()
    assert batch.changes == {}
    assert reasons(batch) == ["Invalid", "OlderTextInForce"]
    write(files, a=service("web", 82))
    batch = await watched.batch()
    assert (port(batch), batch.findings) == (82, ())


async def test_the_last_good_content_outlives_the_process(watched: Watched, files: Path, tmp_path: Path) -> None:
    await watched.start()
    write(files, a=service("web", 81))
    await watched.batch()
    await watched.close()
    write(files, a="a: [")
    assert port(FilesSource(files, tmp_path / "state").load()) == 81


async def test_editors_debris_and_hidden_files_cause_no_batch(watched: Watched, files: Path) -> None:
    await watched.start()
    for name in ("a.yaml~", ".a.yaml.swp", "4913", "#a.yaml#"):
        (files / name).write_text("junk: [")
        (files / name).unlink()
    await watched.nothing_but_a_marker()


async def test_a_certificate_outside_the_folder_is_picked_up_however_it_is_replaced(
    watched: Watched, files: Path, tmp_path: Path
) -> None:
    for version, text in ("..v1", "one"), ("..v2", "two"):
        (tmp_path / "certs" / version).mkdir(parents=True)
        (tmp_path / "certs" / version / "ca.pem").write_text(text)
    (tmp_path / "certs" / "..data").symlink_to("..v1")
    (tmp_path / "certs" / "ca.pem").symlink_to("..data/ca.pem")
    write(files, c=config_map("../certs/ca.pem"))
    first = await watched.start()

    def content(batch: Batch) -> str:
        obj = batch.changes[CONFIG_MAP]
        assert isinstance(obj, ConfigMap)
        return obj.data.get("ca.crt")

    assert content(first) == "one"
    (tmp_path / "certs" / "..tmp").symlink_to("..v2")
    os.rename(tmp_path / "certs" / "..tmp", tmp_path / "certs" / "..data")
    assert content(await watched.batch()) == "two"
    (tmp_path / "certs" / "new").write_text("three")
    os.rename(tmp_path / "certs" / "new", tmp_path / "certs" / "ca.pem")
    assert content(await watched.batch()) == "three"
    (tmp_path / "certs" / "ca.pem").write_text("four")
    assert content(await watched.batch()) == "four"


async def test_a_folder_that_goes_and_comes_back_as_another_is_followed(watched: Watched, files: Path, tmp_path: Path) -> None:
    await watched.start()
    files.rename(tmp_path / "away")
    batch = await watched.batch()
    assert (batch.changes, reasons(batch)) == ({}, ["FolderLost"])
    (tmp_path / "next").mkdir()
    write(tmp_path / "next", a=service("web", 90))
    (tmp_path / "next").rename(files)
    assert port(await watched.batch()) == 90
    write(files, a=service("web", 91))
    assert port(await watched.batch()) == 91


async def test_a_folder_that_another_replaces_is_followed_at_once(watched: Watched, files: Path, tmp_path: Path) -> None:
    (tmp_path / "next").mkdir()
    write(tmp_path / "next", a=service("web", 90), marker=service("marker", 2))
    await watched.start()
    files.rename(tmp_path / "away")
    (tmp_path / "next").rename(files)
    async with asyncio.timeout(RESCAN / 2):
        assert port(await watched.batch()) == 90
        write(files, a=service("web", 91))
        assert port(await watched.batch()) == 91


async def test_a_mounted_config_map_is_read_at_once_when_it_is_updated(watched: Watched, files: Path) -> None:
    for version, number in ("..v1", 80), ("..v2", 81):
        (files / "mounted" / version).mkdir(parents=True)
        (files / "mounted" / version / "b.yaml").write_text(service("b", number))
    (files / "mounted" / "..data").symlink_to("..v1")
    (files / "mounted" / "b.yaml").symlink_to("..data/b.yaml")
    await watched.start()
    (files / "mounted" / "..data_tmp").symlink_to("..v2")
    (files / "mounted" / "..data_tmp").rename(files / "mounted" / "..data")
    async with asyncio.timeout(RESCAN / 2):
        assert list((await watched.batch()).changes) == [Key("Service", "shop", "b")]


async def test_a_linked_file_is_watched_where_it_is(watched: Watched, files: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.yaml").write_text(service("b", 80))
    (files / "b.yaml").symlink_to("../elsewhere/b.yaml")
    await watched.start()
    (tmp_path / "elsewhere" / "b.yaml").write_text(service("b", 81))
    assert list((await watched.batch()).changes) == [Key("Service", "shop", "b")]


async def test_a_file_in_a_hidden_folder_is_watched_where_a_link_leads_to_it(watched: Watched, files: Path) -> None:
    (files / ".hidden").mkdir()
    (files / ".hidden" / "b.yaml").write_text(service("b", 80))
    (files / "b.yaml").symlink_to(".hidden/b.yaml")
    await watched.start()
    (files / ".hidden" / "b.yaml").write_text(service("b", 81))
    assert list((await watched.batch()).changes) == [Key("Service", "shop", "b")]


async def test_a_subfolder_that_is_replaced_is_watched_again(watched: Watched, files: Path, tmp_path: Path) -> None:
    for where in (files / "sub", tmp_path / "next"):
        where.mkdir()
        write(where, b=service("b", 80))
    await watched.start()
    (files / "sub").rename(tmp_path / "away")
    (tmp_path / "next").rename(files / "sub")
    await watched.nothing_but_a_marker()
    await watched.nothing_but_a_marker()
    write(files / "sub", b=service("b", 81))
    assert list((await watched.batch()).changes) == [Key("Service", "shop", "b")]


async def test_a_name_that_is_not_utf_8_stops_neither_the_watch_nor_other_files(watched: Watched, files: Path) -> None:
    """The watcher cannot name it and fails; it begins again."""
    await watched.start()
    odd = Path(os.fsdecode(os.path.join(os.fsencode(files), b"\xff.yaml")))
    odd.write_text(policy())
    assert [finding.file for finding in (await watched.batch()).findings] == [f"{files}/\\xff.yaml"]
    for number in (81, 82):
        write(files, a=service("web", number))
        assert port(await watched.batch()) == number
    odd.unlink()
    assert (await watched.batch()).findings == ()


async def test_a_link_to_a_name_that_is_not_utf_8_stops_nothing(watched: Watched, files: Path, tmp_path: Path) -> None:
    elsewhere = os.path.join(os.fsencode(tmp_path), b"\xff")
    os.mkdir(elsewhere)
    Path(os.fsdecode(elsewhere), "b.yaml").write_text(service("b", 80))
    os.symlink(os.path.join(elsewhere, b"b.yaml"), os.fsencode(files / "b.yaml"))
    assert Key("Service", "shop", "b") in (await watched.start()).changes
    write(files, a=service("web", 81))
    assert port(await watched.batch()) == 81


async def test_more_files_than_are_read_at_once_arrive_all_the_same(
    watched: Watched, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "AT_ONCE", 10)
    await watched.start()
    (tmp_path / "many").mkdir()
    write(tmp_path / "many", **{f"f{number}": service(f"many-{number}") for number in range(35)})
    (tmp_path / "many").rename(files / "many")
    batches = [await watched.batch()]
    while not batches[-1].complete:
        batches.append(await watched.batch())
    assert [len(batch.changes) for batch in batches] == [10, 10, 10, 5]


@pytest.mark.parametrize(("seconds", "wait"), [(0.0, 10), (0.02, 10), (0.1, 50), (30, 600)])
def test_looking_at_everything_costs_no_more_of_a_core_with_many_files_than_with_few(seconds: float, wait: float) -> None:
    assert rescan_after(seconds) == pytest.approx(wait)
