"""Hundreds of files are read in pieces, so that no team waits for another's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.sources.files import loader
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.source import Batch
from tests.file_texts import reload, service, write


def _pieces(files: Loader) -> Iterator[Batch]:
    """Applies files like the source: files left for later may contain a policy."""
    later: frozenset[str] | None = None
    while later is None or later:
        readings = files.look(later, leave_large=True)
        later = readings.later
        if batch := files.apply(readings._replace(large=later)):
            yield batch


def _names(batch: Batch) -> set[str]:
    return {key.name for key in batch.changes if key.kind == "Service"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    """A team with a file, and one with two; ten files are read at once."""
    for team in ("many", "other"):
        (tmp_path / team).mkdir()
    write(tmp_path / "other", a=service("theirs"))
    write(tmp_path / "many", a=service("moves"), b=service("stays") + "---\n" + service("moves-too"))
    loaded = Loader(tmp_path)
    reload(loaded)
    monkeypatch.setattr(loader, "AT_ONCE", 10)
    return loaded


def test_a_flood_is_read_in_pieces_and_the_edit_of_another_team_is_in_the_first(files: Loader) -> None:
    write(files.root / "many", **{f"f{number:02}": service(f"new-{number:02}") for number in range(45)})
    write(files.root / "other", a=service("theirs", 81), z=service("more-of-theirs"))
    first, *rest = _pieces(files)
    assert {"theirs", "more-of-theirs"} <= _names(first)
    assert [len(_names(batch)) for batch in (first, *rest)] == [10, 10, 10, 10, 7]
    assert [batch.complete for batch in (first, *rest)] == [False] * 4 + [True]
    assert [batch.policies_known for batch in (first, *rest)] == [False] * 4 + [True]


def test_an_object_that_moves_between_files_of_a_flood_is_never_missing(files: Loader) -> None:
    write(files.root / "many", **{f"f{number:02}": service(f"new-{number:02}") for number in range(45)})
    write(files.root / "many", z=service("moves") + "---\n" + service("moves-too"), b=service("stays"))
    (files.root / "many" / "a.yaml").unlink()
    batches = list(_pieces(files))
    assert len(batches) >= 4
    assert [key for batch in batches for key, obj in batch.changes.items() if obj is None] == []
    (files.root / "many" / "z.yaml").unlink()
    (gone,) = _pieces(files)
    assert gone.changes == {Key("Service", "shop", name): None for name in ("moves", "moves-too")}


def test_deletions_by_others_do_not_wait_for_the_flood(files: Loader) -> None:
    write(files.root / "many", **{f"f{number:02}": service(f"new-{number:02}") for number in range(45)})
    (files.root / "other" / "a.yaml").unlink()
    first = next(_pieces(files))
    assert first.changes[Key("Service", "shop", "theirs")] is None


def test_files_that_take_long_to_read_end_a_piece_too(files: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "AT_ONCE_SECONDS", 0)
    write(files.root / "many", **{f"f{number}": service(f"new-{number}") for number in range(3)})
    write(files.root / "other", a=service("theirs", 81))
    assert [_names(batch) for batch in _pieces(files)] == [{"new-0"}, {"theirs"}, {"new-1"}, {"new-2"}]
