"""Unreadable folders and files: their last content stays, all others are read, and nothing blocks."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.sources.files.folder import FilesError, UnreadableFile, read
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import StateDirectory
from tests.file_texts import SERVICE, port, reasons, reload, service, write


def test_a_missing_folder_is_a_readable_error(tmp_path: Path) -> None:
    with pytest.raises(FilesError, match=r"Cannot read the folder .*/nowhere: no such file or directory"):
        Loader(tmp_path / "nowhere").look()
    (tmp_path / "file").touch()
    with pytest.raises(FilesError, match="not a directory"):
        Loader(tmp_path / "file").look()


def test_a_socket_is_no_regular_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s.yaml"))
    with pytest.raises(UnreadableFile, match="it is not a regular file"):
        read(tmp_path / "s.yaml")


def test_a_folder_that_vanishes_while_running_keeps_everything(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write(files, a=service())
    loader = Loader(files)
    reload(loader)
    files.rename(tmp_path / "away")
    batch = reload(loader)
    assert (batch.changes, reasons(batch)) == ({}, ["FolderLost"])
    (tmp_path / "away").rename(files)
    assert reload(loader).findings == ()


def test_files_that_go_with_their_folder_are_not_taken_as_deleted(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write(files, a=service())
    loader = Loader(files)
    reload(loader)
    files.rename(tmp_path / "away")
    batch = loader.apply(loader.look(["a.yaml"]))
    assert batch is not None
    assert (batch.changes, reasons(batch)) == ({}, ["FolderLost"])


def test_a_symlink_loop_of_files_is_a_finding_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    write(tmp_path, c=service())
    batch = reload(Loader(tmp_path))
    assert port(batch) == 80
    messages = [f.message for f in batch.findings if f.reason == "Unreadable"]
    assert messages == [
        "cannot be read: its links form a loop.",
        "cannot be read: its links form a loop.",
        "cannot be read: it is a dangling link.",
    ]
    assert not batch.policies_known


def test_a_symlink_loop_of_folders_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "again").symlink_to("sub")
    (tmp_path / "sub" / "a.yaml").write_text(service())
    batch = reload(Loader(tmp_path))
    assert port(batch) == 80
    assert reasons(batch) == ["RepeatedFolder", "RepeatedFolder"]
    assert batch.policies_known


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    batch = reload(Loader(tmp_path))
    assert batch.findings[0].message == "cannot be read: it is not a regular file."


def test_a_file_removed_while_read_is_just_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a=service(), b=service("b"))
    opened = os.open

    def removing(path: str | os.PathLike[str], *rest: int) -> int:
        if os.fspath(path).endswith("a.yaml"):
            os.unlink(path)
        return opened(path, *rest)

    monkeypatch.setattr(os, "open", removing)
    batch = reload(Loader(tmp_path))
    assert SERVICE not in batch.changes
    assert Key("Service", "shop", "b") in batch.changes
    assert batch.findings == ()
    assert batch.policies_known


def deny(monkeypatch: pytest.MonkeyPatch, name: str, ending: str) -> None:
    """Root may read everything, so permission is denied at the boundary of the operating system."""
    real = getattr(os, name)

    def denied(path: str | os.PathLike[str], *rest: int) -> object:
        if os.fspath(path).endswith(ending):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest)

    monkeypatch.setattr(os, name, denied)


def test_an_unreadable_file_is_a_finding_and_keeps_its_last_good_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a=service("web", 80))
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a=service("web", 81))
    with monkeypatch.context() as patch:
        deny(patch, "open", "a.yaml")
        batch = reload(loader)
        assert batch.changes == {}
        assert batch.findings[0].message == "cannot be read: permission denied."
        assert not batch.policies_known
        assert not reload(Loader(tmp_path)).policies_known
    assert port(reload(loader)) == 81


def test_an_unreadable_sub_folder_keeps_what_it_held_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    (files / "sub").mkdir(parents=True)
    (files / "sub" / "a.yaml").write_text(service())
    loader = Loader(files, StateDirectory(state))
    reload(loader)
    deny(monkeypatch, "scandir", "/sub")
    batch = reload(loader)
    assert (batch.changes, batch.policies_known) == ({}, False)
    assert "Unreadable" in reasons(batch)
    assert port(reload(Loader(files, StateDirectory(state)))) == 80
    assert not reload(Loader(files)).policies_known


def test_a_mounted_config_map_is_read_through_its_links_and_seen_to_change(tmp_path: Path) -> None:
    for version, number in ("..v1", 80), ("..v2", 81):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(service("web", number))
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    loader = Loader(tmp_path)
    assert port(reload(loader)) == 80
    (tmp_path / "..new").symlink_to("..v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert port(reload(loader)) == 81


@pytest.mark.parametrize("name", ["p.YAML", "p.Yml", "P.JSON", "sub/p.YAML"])
def test_a_file_whose_extension_is_not_in_lower_case_is_an_error_and_may_hold_policies(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / name).write_text(service())
    loader = Loader(tmp_path)
    batch = reload(loader)
    assert SERVICE not in batch.changes
    assert [(finding.file, finding.message) for finding in batch.findings] == [
        (f"{tmp_path}/{name}", "cannot be read: its extension is not in lower case. Its last content stays in force.")
    ]
    assert not batch.policies_known
    (tmp_path / name).rename(tmp_path / "p.yaml")
    assert reload(loader).policies_known


@pytest.mark.parametrize("name", [".p.YAML", "p.yaml.bak", "YAML", "p.YAML~", "readme.TXT"])
def test_other_names_are_none_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(service())
    batch = reload(Loader(tmp_path))
    assert batch.policies_known and batch.findings == ()
