"""Local files as content of ConfigMaps and Secrets."""

from __future__ import annotations

from pathlib import Path

from files_texts import CONFIG_MAP, config_map, reasons, refused, reload, write

from lasthop.api.core import ConfigMap, Secret
from lasthop.api.meta import Key
from lasthop.sources.files.loader import Loader
from lasthop.sources.files.local_files import folders_to_watch
from lasthop.sources.files.state import State
from lasthop.sources.source import Batch


def data(batch: Batch) -> dict[str, str]:
    found = batch.changes[CONFIG_MAP]
    assert isinstance(found, ConfigMap)
    return dict(found.data)


def test_the_annotation_puts_a_file_beside_the_yaml_into_the_object(tmp_path: Path) -> None:
    (tmp_path / "sub" / "certs").mkdir(parents=True)
    (tmp_path / "sub" / "certs" / "ca.pem").write_text("PEM")
    (tmp_path / "sub" / "a.yaml").write_text(config_map("certs/ca.pem", "data: {other: x}\n"))
    assert data(reload(Loader(tmp_path))) == {"ca.crt": "PEM", "other": "x"}


def test_an_absolute_path_works_and_a_secret_takes_any_bytes(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (tmp_path / "key").write_bytes(b"\xff\x00")
    write(
        files,
        a=f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: tls\n  annotations:\n"
        f"    lasthop.dev/file.tls.crt: {tmp_path}/key\n    lasthop.dev/file.tls.key: ../key\ntype: kubernetes.io/tls\n",
    )
    found = reload(Loader(files)).changes[Key("Secret", "default", "tls")]
    assert isinstance(found, Secret)
    assert dict(found.data) == {"tls.crt": b"\xff\x00", "tls.key": b"\xff\x00"}


def test_a_changed_file_changes_the_object_and_its_generation(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("one")
    write(tmp_path, a=config_map("ca.pem"))
    loader = Loader(tmp_path)
    reload(loader)
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").rename(tmp_path / "ca.pem")
    batch = reload(loader)
    assert data(batch) == {"ca.crt": "two"}
    found = batch.changes[CONFIG_MAP]
    assert found is not None and found.metadata.generation == 2


def test_a_missing_file_is_a_finding_at_the_annotation_and_the_key_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, a=config_map("ca.pem", "data: {other: x}\n"))
    loader = Loader(tmp_path)
    batch = reload(loader)
    assert data(batch) == {"other": "x"}
    (finding,) = batch.findings
    assert (finding.object, finding.line) == (CONFIG_MAP, 7)
    assert finding.field == "metadata.annotations[lasthop.dev/file.ca.crt]"
    assert finding.message == f"{tmp_path}/ca.pem does not exist. The key is left out."
    (tmp_path / "ca.pem").write_text("PEM")
    batch = reload(loader)
    assert data(batch) == {"ca.crt": "PEM", "other": "x"}
    assert batch.findings == ()


def test_a_file_that_goes_or_is_emptied_keeps_its_last_content_also_after_a_restart(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    (tmp_path / "ca.pem").write_text("PEM")
    write(files, a=config_map("../ca.pem"))
    loader = Loader(files, State(state))
    reload(loader)
    (tmp_path / "ca.pem").write_text("")
    batch = reload(loader)
    assert (batch.changes, reasons(batch)) == ({}, ["LocalFile"])
    (tmp_path / "ca.pem").unlink()
    assert "Its last content stays in use." in reload(loader).findings[0].message
    assert data(reload(Loader(files, State(state)))) == {"ca.crt": "PEM"}


def test_a_file_that_nobody_names_any_more_is_forgotten(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    (tmp_path / "ca.pem").write_text("PEM")
    write(files, a=config_map("../ca.pem"))
    loader = Loader(files, State(state))
    reload(loader)
    assert State(state).local_file(f"{tmp_path}/ca.pem") == b"PEM"
    (files / "a.yaml").unlink()
    reload(loader)
    assert State(state).local_file(f"{tmp_path}/ca.pem") is None
    assert list(loader.local_files) == []


def test_a_file_too_large_or_not_text_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (2**20 + 1))
    (tmp_path / "der").write_bytes(b"\xff")
    (tmp_path / "half").write_bytes(b"x" * 2**19)
    write(tmp_path, a=config_map("big"))
    loader = Loader(tmp_path)
    assert "larger than 1048576 bytes" in reload(loader).findings[0].message
    write(tmp_path, a=config_map("der"))
    batch = reload(loader)
    assert "not UTF-8" in batch.findings[0].message
    write(tmp_path, a=config_map("half", f"data: {{other: {'x' * (2**19 + 1)}}}\n"))
    batch = reload(loader)
    assert "with its files the object is larger" in batch.findings[0].message
    assert list(data(batch)) == ["other"]


def test_a_key_written_twice_or_a_path_left_out_is_refused() -> None:
    where = "metadata.annotations[lasthop.dev/file.ca.crt]"
    assert refused(config_map("ca.pem", "data: {ca.crt: x}\n")) == [(where, '"ca.crt" is also written in the object itself')]
    assert refused(config_map("' '")) == [(where, "names no file")]


def test_every_link_on_the_way_to_a_file_is_watched(tmp_path: Path) -> None:
    for name in ("mount/..v1", "store", "files"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "store" / "ca.pem").write_text("PEM")
    (tmp_path / "mount" / "..v1" / "ca.pem").symlink_to("../../store/ca.pem")
    (tmp_path / "mount" / "..data").symlink_to("..v1")
    (tmp_path / "mount" / "ca.pem").symlink_to("..data/ca.pem")
    names = {str(Path(folder).relative_to(tmp_path)) for folder in folders_to_watch(f"{tmp_path}/mount/ca.pem")}
    assert names == {"mount", "mount/..data", "mount/..v1", "store"}
