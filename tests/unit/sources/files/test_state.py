"""The state directory: private, forgetful on purpose, and never a reason not to start."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from lasthop.sources.files import FilesError, content
from lasthop.sources.files import state as state_module
from lasthop.sources.files.loader import Loader
from lasthop.sources.files.state import SavedFile, StateDirectory
from tests.file_texts import SERVICE, reasons, reload, service, write


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


def test_a_state_directory_that_cannot_be_is_an_error_in_words(tmp_path: Path) -> None:
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
