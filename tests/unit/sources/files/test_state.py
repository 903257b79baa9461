"""The state directory: private, forgetful on purpose, and never a reason not to start."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from pathlib import Path

import msgspec
import pytest

from lasthop.edge.sources.files import content
from lasthop.edge.sources.files import state as state_module
from lasthop.edge.sources.files.folder import FilesError
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import SavedFile, StateDirectory
from tests.file_texts import SERVICE, reasons, reload, service, write


def change(state: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(state / "files.sqlite")) as database, database:
        database.execute(statement)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder, a=service())
    return folder


def test_it_is_readable_by_its_owner_only(tmp_path: Path, files: Path) -> None:
    reload(Loader(files, StateDirectory(tmp_path / "state")))
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "state").iterdir()} == {0o600}


def test_an_unchanged_file_is_not_admitted_again_after_a_restart(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reload(Loader(files, StateDirectory(tmp_path / "state")))
    monkeypatch.setattr(content, "admit", None)
    assert reload(Loader(files, StateDirectory(tmp_path / "state"))).changes == first.changes


def test_other_rules_admit_everything_again(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reload(Loader(files, StateDirectory(tmp_path / "state")))
    monkeypatch.setattr(state_module, "rules_version", lambda: "newer")
    saved = StateDirectory(tmp_path / "state").last_good(str(files / "a.yaml"))
    assert saved is not None and saved.stored is None
    write(files, a="a: [")
    assert reload(Loader(files, StateDirectory(tmp_path / "state"))).changes[SERVICE] == first.changes[SERVICE]


@pytest.mark.parametrize("statement", ["stored = x'5b5d'", "digest = x'00'", "stored = '[]'", "seal = null"])
def test_documents_that_are_not_as_they_were_written_are_admitted_again(tmp_path: Path, files: Path, statement: str) -> None:
    first = reload(Loader(files, StateDirectory(tmp_path / "state")))
    change(tmp_path / "state", f"update last_good set {statement}")
    saved = StateDirectory(tmp_path / "state").last_good(str(files / "a.yaml"))
    assert saved is None or saved.stored is None
    again = reload(Loader(files, StateDirectory(tmp_path / "state")))
    assert (again.changes, again.findings) == (first.changes, ())


@pytest.mark.parametrize("value", [b'{"metadata": 7}', b"[]"])
@pytest.mark.parametrize("kind", ["Service", "Deployment"])
def test_documents_without_a_valid_admission_are_admitted_again(tmp_path: Path, files: Path, kind: str, value: bytes) -> None:
    first = reload(Loader(files, StateDirectory(tmp_path / "state")))
    state, path = StateDirectory(tmp_path / "state"), str(files / "a.yaml")
    saved = state.last_good(path)
    assert saved is not None and saved.stored is not None
    forged = msgspec.structs.replace(saved.stored[0], kind=kind, value=msgspec.Raw(value))
    state.save({path: saved._replace(stored=(forged,))}, {})
    again = reload(Loader(files, StateDirectory(tmp_path / "state")))
    assert (again.changes, again.findings) == (first.changes, ())


def test_a_database_that_breaks_later_does_not_break_the_files(tmp_path: Path, files: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    change(tmp_path / "state", "drop table last_good")
    loader = Loader(files, state)
    assert SERVICE in reload(loader).changes
    write(files, b=service("b"))
    assert reasons(reload(loader)) == ["StateNotSaved"]


def test_a_database_behind_a_link_is_not_used(tmp_path: Path, files: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "files.sqlite").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FilesError, match="Cannot keep state in"):
        StateDirectory(tmp_path / "state")
    assert not (tmp_path / "elsewhere").exists()


def test_a_database_of_another_user_is_replaced(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = StateDirectory(tmp_path / "state")  # while it is open, saved data is in its journal
    reload(Loader(files, first))
    asked = iter([os.geteuid() + 1])
    monkeypatch.setattr(os, "geteuid", lambda: next(asked, os.getuid()))
    assert not list(StateDirectory(tmp_path / "state").paths())
    first.close()


def test_deleted_content_is_overwritten(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.save({"/a": SavedFile(b"1", b"hunter2" * 10, 0, ())}, {"/key": b"hunter2" * 10})
    state.save({"/a": None}, {"/key": None})
    state.close()
    assert b"hunter2" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_a_damaged_database_is_replaced(tmp_path: Path, files: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "files.sqlite").write_bytes(b"garbage " * 1000)
    assert SERVICE in reload(Loader(files, StateDirectory(tmp_path / "state"))).changes


def test_an_impossible_state_directory_is_a_readable_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FilesError, match="Cannot keep state in"):
        StateDirectory(tmp_path / "file")


def test_trouble_with_saving_is_a_finding_and_saving_is_tried_again(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDirectory(tmp_path / "state")
    loader = Loader(files, state)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        patch.setattr(state, "save", full)
        reload(loader)
        write(files, b=service("b"))
        assert reasons(reload(loader)) == ["StateNotSaved"]
    write(files, c=service("c"))
    reload(loader)
    assert {Path(path).name for path in state.paths()} == {"a.yaml", "b.yaml", "c.yaml"}
