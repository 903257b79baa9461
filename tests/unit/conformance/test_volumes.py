from __future__ import annotations

from pathlib import Path

import pytest

from conformance.node import atomic
from conformance.node.atomic import File
from conformance.node.environment import Waiting
from conformance.node.payload import payload, references
from tests.unit.conformance.objects import mk_container, mk_find, mk_pod, mk_secret


@pytest.fixture(autouse=True)
def own_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.chown", lambda *_: None)  # only root may give files away


def test_files_appear_through_the_data_symlink(tmp_path: Path) -> None:
    assert atomic.write(tmp_path, {"tls.crt": File(b"one"), "sub/ca.crt": File(b"ca", 0o600)})
    assert (tmp_path / "tls.crt").readlink() == Path("..data/tls.crt")
    assert (tmp_path / "tls.crt").read_bytes() == b"one"
    assert (tmp_path / "sub/ca.crt").stat().st_mode & 0o777 == 0o600


def test_a_change_swaps_the_data_symlink_and_leaves_no_old_folder(tmp_path: Path) -> None:
    atomic.write(tmp_path, {"a": File(b"1"), "b": File(b"1")})
    before = (tmp_path / "..data").readlink()
    assert atomic.write(tmp_path, {"a": File(b"2")})
    assert (tmp_path / "..data").readlink() != before
    assert {entry.name for entry in tmp_path.iterdir()} == {"..data", str((tmp_path / "..data").readlink()), "a"}
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / before).exists()


def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    atomic.write(tmp_path, {"a": File(b"1")})
    before = (tmp_path / "..data").readlink()
    assert not atomic.write(tmp_path, {"a": File(b"1")})
    assert (tmp_path / "..data").readlink() == before


def test_items_rename_keys_and_leave_the_others_out() -> None:
    secret = {"secretName": "s", "items": [{"key": "tls.crt", "path": "crt", "mode": 0o400}]}
    files = payload(
        mk_pod(), {"name": "v", "secret": secret}, "", mk_find(s=mk_secret(**{"tls.crt": "C", "tls.key": "K"})), {}
    )
    assert files == {"crt": File(b"C", 0o400)}


def test_a_missing_secret_is_waited_for() -> None:
    with pytest.raises(Waiting, match='secret "s" not found'):
        payload(mk_pod(), {"name": "v", "secret": {"secretName": "s"}}, "", mk_find(), {})
    assert payload(mk_pod(), {"name": "v", "secret": {"secretName": "s", "optional": True}}, "", mk_find(), {}) == {}


def test_a_projected_volume_has_the_files_of_all_its_sources() -> None:
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    volume = {"name": "v", "projected": {"sources": sources}}
    files = payload(mk_pod(), volume, "", mk_find(s=mk_secret(k="v")), {"": "t0ken"})
    assert {name: file.content for name, file in files.items()} == {"token": b"t0ken", "k": b"v", "namespace": b"shop"}


def test_a_token_is_private_to_the_user_it_is_for() -> None:
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    (file,) = payload(mk_pod(security={"runAsUser": 65532}), volume, "", mk_find(), {"": "t"}).values()
    assert (file.mode, file.uid) == (0o600, 65532)


def test_fs_group_may_read_what_the_owner_may() -> None:
    volume = {"name": "v", "secret": {"secretName": "s", "defaultMode": 0o400}}
    (file,) = payload(mk_pod(security={"fsGroup": 7}), volume, "", mk_find(s=mk_secret(k="v")), {}).values()
    assert (file.mode, file.gid) == (0o440, 7)


def test_references_are_those_of_volumes_and_environment() -> None:
    container = mk_container(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}],
        envFrom=[{"configMapRef": {"name": "c1"}}],
    )
    volumes = [
        {"name": "a", "secret": {"secretName": "s2"}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "c2"}}]}},
        {"name": "c", "emptyDir": {}},
    ]
    wanted = {("Secret", "s1"), ("ConfigMap", "c1"), ("Secret", "s2"), ("ConfigMap", "c2")}
    assert references(mk_pod(container, volumes=volumes)) == wanted
