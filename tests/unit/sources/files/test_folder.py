"""Hostile folders: deep, many, linked to everywhere, with names that are not text."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from lasthop.edge.admission.limits import MAX_FOLDER_DEPTH
from lasthop.edge.sources.files import content, folder, loader
from lasthop.edge.sources.files.folder import scan
from lasthop.edge.sources.files.loader import Loader
from tests.file_texts import POLICY, SERVICE, policy, reasons, reload, service, write


def _nest(at: Path, levels: int) -> None:
    """Makes folders one in the other; their path is longer than the system takes as one."""
    here = os.open(at, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("down", dir_fd=here)
        below = os.open("down", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_folders_are_listed_down_to_a_limit_that_is_named(tmp_path: Path) -> None:
    _nest(tmp_path, 600)
    write(tmp_path, a=service())
    last = tmp_path.joinpath(*["down"] * MAX_FOLDER_DEPTH)
    write(last, b=service())
    write(last / "down", c=service())
    scanned = scan(tmp_path)
    assert set(scanned.files) == {"a.yaml", str((last / "b.yaml").relative_to(tmp_path))}
    assert list(scanned.closed.values()) == [f"it is more than {MAX_FOLDER_DEPTH} folders deep"]


def test_a_name_that_is_not_utf_8_is_reported_and_may_hide_a_policy(tmp_path: Path) -> None:
    write(tmp_path, a=service())
    for name in (b"\xff.yaml", b"\xff.txt", b"\xff\xfe"):
        path = os.path.join(os.fsencode(tmp_path), name)
        if name.endswith(b"\xfe"):
            os.mkdir(path)
        else:
            Path(os.fsdecode(path)).write_text(policy())
    files = Loader(tmp_path)
    batch = files.apply(files.look())
    assert batch is not None and SERVICE in batch.changes
    assert [finding.file for finding in batch.findings] == [f"{tmp_path}/\\xff.yaml", f"{tmp_path}/\\xff\\xfe"]
    assert not batch.policies_known


def test_a_link_to_the_whole_machine_ends_at_a_limit_and_leaves_what_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MAX_FOLDERS", 50)
    (tmp_path / "good").mkdir()
    write(tmp_path / "good", a=service(), b=policy())
    files = Loader(tmp_path)
    files.apply(files.look())
    (tmp_path / "everything").symlink_to("/")
    batch = files.apply(files.look())
    assert batch is not None and batch.changes.keys().isdisjoint({SERVICE, POLICY})
    assert "Unreadable" in reasons(batch)
    assert "more than 50 folders" in str(batch.findings)
    assert len(files.folders) <= 51


def test_a_team_with_many_folders_uses_only_its_own_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_FOLDERS", 30)
    for number in range(100):
        (tmp_path / "a-noisy" / str(number)).mkdir(parents=True)
    (tmp_path / "quiet" / "deep" / "deeper").mkdir(parents=True)
    write(tmp_path / "quiet" / "deep" / "deeper", a=service())
    assert list(scan(tmp_path).files) == ["quiet/deep/deeper/a.yaml"]


def test_a_file_that_is_regular_and_has_nothing_to_read_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/kmsg, which waits for the kernel to write something."""

    class Waiting(io.FileIO):
        def read(self, size: int | None = -1, /) -> Any:
            return None

    monkeypatch.setattr(folder, "open", lambda descriptor, mode: Waiting(descriptor, mode), raising=False)
    write(tmp_path, a=service())
    assert reasons(reload(Loader(tmp_path))) == ["Unreadable", "FileNotApplied"]


def test_a_file_that_makes_lasthop_itself_fail_is_broken_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = content.examine

    def failing(file: str, text: bytes) -> object:
        if b"odd" in text:
            raise RecursionError("odd")
        return sound(file, text)

    monkeypatch.setattr(loader, "examine", failing)
    write(tmp_path, a=service(), b=service("odd"))
    batch = reload(Loader(tmp_path))
    assert SERVICE in batch.changes
    assert reasons(batch) == ["InternalError", "FileNotApplied"]
    assert not batch.policies_known
