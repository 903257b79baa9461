"""Local files as content of ConfigMaps and Secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lasthop.base.api.core import ConfigMap, Secret
from lasthop.base.api.meta import Key
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.local_file import folders_to_watch
from lasthop.edge.sources.files.state import PairPaths, StateDirectory
from lasthop.edge.sources.source import Batch
from tests.certificates import Certificate, dns
from tests.file_texts import CONFIG_MAP, config_map, reasons, refused, reload, write


def data(batch: Batch) -> dict[str, str]:
    obj = batch.changes[CONFIG_MAP]
    assert isinstance(obj, ConfigMap)
    return dict(obj.data)


def test_the_annotation_puts_a_file_beside_the_yaml_into_the_object(tmp_path: Path) -> None:
    (tmp_path / "sub" / "certs").mkdir(parents=True)
    (tmp_path / "sub" / "certs" / "ca.pem").write_text("PEM")
    (tmp_path / "sub" / "a.yaml").write_text(config_map("certs/ca.pem", "data: {other: x}\n"))
    assert data(reload(Loader(tmp_path))) == {"ca.crt": "PEM", "other": "x"}


def test_an_absolute_path_works_where_it_is_allowed_and_a_secret_takes_any_bytes(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (tmp_path / "key").write_bytes(b"\xff\x00")
    write(
        files,
        a=f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: tls\n  annotations:\n"
        f"    lasthop.dev/file.tls.crt: {tmp_path}/key\n    lasthop.dev/file.tls.key: ../key\ntype: kubernetes.io/tls\n",
    )
    obj = reload(Loader(files, None, [tmp_path / "key"])).changes[Key("Secret", "default", "tls")]
    assert isinstance(obj, Secret)
    assert dict(obj.data) == {"tls.crt": b"\xff\x00", "tls.key": b"\xff\x00"}


def test_a_changed_file_changes_the_object_and_its_generation(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("one")
    write(tmp_path, a=config_map("ca.pem"))
    loader = Loader(tmp_path)
    reload(loader)
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").rename(tmp_path / "ca.pem")
    batch = reload(loader)
    assert data(batch) == {"ca.crt": "two"}
    obj = batch.changes[CONFIG_MAP]
    assert obj is not None and obj.metadata.generation == 2


def test_a_missing_file_is_a_finding_at_the_annotation_and_the_key_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, a=config_map("ca.pem", "data: {other: x}\n"))
    loader = Loader(tmp_path)
    batch = reload(loader)
    assert data(batch) == {"other": "x"}
    (finding,) = batch.findings
    assert (finding.object, finding.line) == (CONFIG_MAP, 7)
    assert finding.field == "metadata.annotations[lasthop.dev/file.ca.crt]"
    assert finding.message == f"{tmp_path}/ca.pem does not exist. The key is omitted."
    (tmp_path / "ca.pem").write_text("PEM")
    batch = reload(loader)
    assert data(batch) == {"ca.crt": "PEM", "other": "x"}
    assert batch.findings == ()


def test_a_file_that_goes_or_is_emptied_keeps_its_last_content_also_after_a_restart(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    (tmp_path / "ca.pem").write_text("PEM")
    write(files, a=config_map("../ca.pem"))
    loader = Loader(files, StateDirectory(state), [tmp_path])
    reload(loader)
    (tmp_path / "ca.pem").write_text("")
    batch = reload(loader)
    assert (batch.changes, reasons(batch)) == ({}, ["LocalFile"])
    (tmp_path / "ca.pem").unlink()
    assert "Its last content stays in use." in reload(loader).findings[0].message
    assert data(reload(Loader(files, StateDirectory(state), [tmp_path]))) == {"ca.crt": "PEM"}


def test_a_file_without_references_is_forgotten(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    (tmp_path / "ca.pem").write_text("PEM")
    write(files, a=config_map("../ca.pem"))
    loader = Loader(files, StateDirectory(state), [tmp_path])
    reload(loader)
    assert StateDirectory(state).local_file(f"{tmp_path}/ca.pem") == b"PEM"
    (files / "a.yaml").unlink()
    reload(loader)
    assert StateDirectory(state).local_file(f"{tmp_path}/ca.pem") is None
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


# -- where files may be


def secret(certificate: str, key: str) -> str:
    return (
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: tls\n  namespace: shop\n  annotations:\n"
        f"    lasthop.dev/file.tls.crt: {certificate}\n    lasthop.dev/file.tls.key: {key}\ntype: kubernetes.io/tls\n"
    )


@pytest.mark.parametrize(
    "how", ["../other/ca.pem", "absolute", "a link", "a link in a folder", "a linked folder", "/proc/self/environ"]
)
def test_a_file_outside_the_folder_is_not_read_unless_it_is_allowed(tmp_path: Path, how: str) -> None:
    files, other = tmp_path / "files", tmp_path / "other"
    (files / "sub").mkdir(parents=True)
    other.mkdir()
    (other / "ca.pem").write_text("PEM")
    (files / "link.pem").symlink_to(other / "ca.pem")
    (files / "sub" / "link.pem").symlink_to("../link.pem")
    (files / "linked").symlink_to(other)
    named = {
        "absolute": f"{other}/ca.pem",
        "a link": "link.pem",
        "a link in a folder": "sub/link.pem",
        "a linked folder": "linked/ca.pem",
    }.get(how, how)
    write(files, a=config_map(named))
    batch = reload(Loader(files))
    assert data(batch) == {}
    (finding,) = batch.findings
    assert finding.reason == "LocalFile"
    assert "is not below the folder of Gateway API objects. The key is omitted." in finding.message
    there = Path("/proc/self") if named.startswith("/proc") else other
    assert finding.remedy.endswith(f" --allow-files {there}")
    assert ("link" in how) is (f" leads to {other}/ca.pem, which is not below" in finding.message)
    if not named.startswith("/proc"):
        assert data(reload(Loader(files, None, [other]))) == {"ca.crt": "PEM"}
        assert data(reload(Loader(files, None, [other / "ca.pem"]))) == {"ca.crt": "PEM"}
        assert data(reload(Loader(files, None, [tmp_path / "oth"]))) == {}


def test_the_existence_of_an_outside_file_stays_hidden(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "there").write_text("x")
    messages = []
    for name in ("there", "gone!"):
        write(tmp_path / "files", a=config_map(f"../{name}"))
        messages.append(reload(Loader(tmp_path / "files")).findings[0].message.replace(name, ""))
    assert messages[0] == messages[1]


def test_a_link_in_an_allowed_folder_says_where_it_leads_and_one_outside_does_not(tmp_path: Path) -> None:
    """As certbot has it: live/www/cert.pem is a link to archive/www/cert1.pem."""
    files, live, archive = tmp_path / "files", tmp_path / "live", tmp_path / "archive"
    for folder in (files, live, archive):
        folder.mkdir()
    (archive / "cert1.pem").write_text("PEM")
    (live / "cert.pem").symlink_to("../archive/cert1.pem")
    write(files, a=config_map(f"{live}/cert.pem"))
    (finding,) = reload(Loader(files, None, [live])).findings
    assert f"{live}/cert.pem leads to {archive}/cert1.pem, which is not below" in finding.message
    assert finding.remedy.endswith(f" --allow-files {archive}")
    assert data(reload(Loader(files, None, [live, archive]))) == {"ca.crt": "PEM"}
    (untold,) = reload(Loader(files)).findings
    assert "archive" not in untold.message + untold.remedy


def test_a_file_that_was_allowed_once_is_forgotten_when_it_is_not_any_more(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    (tmp_path / "ca.pem").write_text("PEM")
    write(files, a=config_map("../ca.pem"))
    assert data(reload(Loader(files, StateDirectory(state), [tmp_path / "ca.pem"]))) == {"ca.crt": "PEM"}
    assert data(reload(Loader(files, StateDirectory(state)))) == {}


def test_a_link_that_comes_to_lead_outside_takes_its_content_along(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "real.pem").write_text("PEM")
    (tmp_path / "secret").write_text("SECRET")
    (files / "ca.pem").symlink_to("real.pem")
    write(files, a=config_map("ca.pem"))
    loader = Loader(files)
    assert data(reload(loader)) == {"ca.crt": "PEM"}
    (files / "ca.pem").unlink()
    (files / "ca.pem").symlink_to(tmp_path / "secret")
    assert data(reload(loader)) == {}
    assert tmp_path not in [Path(path).parent for path in loader.followed()]


def test_a_link_swapped_between_the_check_and_the_reading_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (tmp_path / "secret").write_text("SECRET")
    (files / "ca.pem").symlink_to(tmp_path / "secret")
    realpath = os.path.realpath
    monkeypatch.setattr(os.path, "realpath", lambda path: str(path) if str(path).endswith("ca.pem") else realpath(path))
    write(files, a=config_map("ca.pem"))
    assert data(reload(Loader(files))) == {}


def test_only_certificates_and_keys_come_from_files_and_keys_only_into_secrets() -> None:
    for key, fits in (("ca.crt", True), ("ca.crl", True), ("tls.key", False), ("x", False)):
        assert bool(refused(config_map("f").replace("file.ca.crt", f"file.{key}"))) is not fits
    ((where, message),) = refused(config_map("f").replace("file.ca.crt", "file.tls.key"))
    assert where == "metadata.annotations[lasthop.dev/file.tls.key]"
    assert message == '"tls.key" of a ConfigMap cannot come from a file'
    assert refused(secret("a", "b")) == []


# -- two files that make one pair

SECRET = Key("Secret", "shop", "tls")
OLD, NEW = (Certificate("www.example", sans=dns("www.example")) for _ in range(2))


def pair(batch: Batch) -> tuple[bytes | None, bytes | None]:
    obj = batch.changes[SECRET]
    assert isinstance(obj, Secret)
    return obj.data.get("tls.crt"), obj.data.get("tls.key")


def put(folder: Path, certificate: Certificate | None = None, key: Certificate | None = None) -> None:
    """Sets the two files, each if it is given."""
    if certificate:
        (folder / "tls.crt").write_text(certificate.pem)
    if key:
        (folder / "tls.key").write_text(key.key_pem)


def whole(certificate: Certificate) -> tuple[bytes, bytes]:
    return certificate.pem.encode(), certificate.key_pem.encode()


@pytest.mark.parametrize("first", ["certificate", "key"])
def test_a_half_renewed_pair_leaves_the_old_one_in_force_until_the_other_half_comes(tmp_path: Path, first: str) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    put(files, OLD, OLD)
    for name in ("tls.crt", "tls.key"):
        os.utime(files / name, (86400, 86400))
    write(files, a=secret("tls.crt", "tls.key"))
    loader = Loader(files, StateDirectory(state))
    assert pair(reload(loader)) == whole(OLD)
    put(files, **{first: NEW})
    batch = reload(loader)
    assert batch.changes == {}
    (finding,) = batch.findings
    assert (finding.reason, finding.object, finding.line) == ("OlderPairInForce", SECRET, 8)
    assert finding.message == "tls.key does not belong to tls.crt; the pair of 1970-01-02T00:00:00Z stays in force."
    (older,) = batch.not_applied
    assert (older.since, older.objects) == ("1970-01-02T00:00:00Z", (SECRET,))
    again = reload(Loader(files, StateDirectory(state)))
    assert (pair(again), reasons(again)) == (whole(OLD), ["OlderPairInForce"])
    put(files, NEW, NEW)
    batch = reload(loader)
    assert (pair(batch), batch.findings, batch.not_applied) == (whole(NEW), (), ())
    put(files, OLD)  # a second time, and the other way round: now the new pair is the one to keep
    assert reload(loader).changes == {}
    assert pair(reload(Loader(files, StateDirectory(state)))) == whole(NEW)


def test_a_pair_whose_files_are_cut_short_or_gone_stays(tmp_path: Path) -> None:
    put(tmp_path, OLD, OLD)
    write(tmp_path, a=secret("tls.crt", "tls.key"))
    loader = Loader(tmp_path)
    reload(loader)
    for text in (NEW.pem[:-40], "garbage", ""):
        (tmp_path / "tls.crt").write_text(text)
        batch = reload(loader)
        assert batch.changes == {} and batch.findings
    (tmp_path / "tls.crt").unlink()
    put(tmp_path, key=NEW)
    assert reload(loader).changes == {}
    put(tmp_path, NEW)
    assert pair(reload(loader)) == whole(NEW)


def test_a_pair_that_never_matched_is_passed_on_as_it_is_and_fails_closed_there(tmp_path: Path) -> None:
    put(tmp_path, OLD, NEW)
    write(tmp_path, a=secret("tls.crt", "tls.key"))
    batch = reload(Loader(tmp_path))
    assert pair(batch) == (OLD.pem.encode(), NEW.key_pem.encode())
    assert batch.not_applied == ()


def test_a_pair_is_kept_when_its_secret_moves_to_another_file_and_forgotten_with_it(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    put(files, OLD, OLD)
    write(files, a=secret("tls.crt", "tls.key"))
    loader = Loader(files, StateDirectory(state))
    reload(loader)
    put(files, NEW)
    reload(loader)
    (files / "a.yaml").rename(files / "b.yaml")
    assert reload(loader).changes == {}
    assert pair(reload(Loader(files, StateDirectory(state)))) == whole(OLD)
    (files / "b.yaml").unlink()
    reload(loader)
    paths = PairPaths(f"{files}/tls.crt", f"{files}/tls.key")
    assert StateDirectory(state).pair(paths) is None
    write(files, b=secret("tls.crt", "tls.key"))
    assert pair(reload(loader)) == (NEW.pem.encode(), OLD.key_pem.encode())


def test_a_ca_file_that_ends_too_early_keeps_its_last_content(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(OLD.pem)
    write(tmp_path, a=config_map("ca.pem"))
    loader = Loader(tmp_path)
    reload(loader)
    (tmp_path / "ca.pem").write_text(OLD.pem + NEW.pem[:-40])
    batch = reload(loader)
    assert batch.changes == {}
    assert "ends in the middle of a PEM block. Its last content stays in use." in batch.findings[0].message
