"""Files to objects: good ones apply, broken ones keep their last good content, nothing is ever half applied."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import StateDirectory
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan.not_applied import NotApplied
from tests.file_texts import POLICY, SERVICE, policy, port, reasons, reload, service, write

BROKEN = "a: [\n"


def rejected(batch: Batch, key: Key = POLICY) -> list[str]:
    obj = batch.changes[key]
    assert isinstance(obj, RejectedPolicy)
    return [target.name for target in obj.targets]


def last_good(batch: Batch) -> list[str]:
    obj = batch.changes[POLICY]
    assert isinstance(obj, RejectedPolicy)
    return [target.name for target in obj.last_good.spec.target_refs] if obj.last_good else []


# -- read files


def test_yaml_json_lists_and_sub_folders_are_read_and_hidden_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "sub.yaml").mkdir()  # a folder of any name
    (tmp_path / ".git").mkdir()
    write(tmp_path, a=service("a") + "---\n" + service("b"), **{".hidden": service("h"), ".git/x": service("g")})
    (tmp_path / "sub.yaml" / "c.yml").write_text(service("c"))
    item = {"metadata": {"name": "d", "namespace": "shop"}, "spec": {"ports": [{"port": 1}]}}
    (tmp_path / "d.json").write_text(json.dumps({"apiVersion": "v1", "kind": "ServiceList", "items": [item]}))
    items = "".join(f"- {line}" if not i else f"  {line}" for i, line in enumerate(service("e").splitlines(keepends=True)))
    write(tmp_path, e=f"apiVersion: v1\nkind: List\nitems:\n{items}")
    (tmp_path / "notes.txt").write_text("not YAML: [")
    batch = reload(Loader(tmp_path))
    assert sorted(key.name for key in batch.changes if key.kind == "Service") == ["a", "b", "c", "d", "e"]
    assert batch.findings == ()
    assert batch.policies_known


def test_a_namespace_that_is_used_exists_and_one_that_is_not_any_more_goes(tmp_path: Path) -> None:
    write(tmp_path, a=service())
    loader = Loader(tmp_path)
    namespace = reload(loader).changes[Key("Namespace", "", "shop")]
    assert namespace is not None
    assert namespace.metadata.labels.get("kubernetes.io/metadata.name") == "shop"
    write(tmp_path, n="{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}")
    written = reload(loader).changes[Key("Namespace", "", "shop")]
    assert written is not None
    assert written.metadata.labels.get("team") == "a"
    (tmp_path / "n.yaml").unlink()
    (tmp_path / "a.yaml").unlink()
    assert reload(loader).changes == {SERVICE: None, Key("Namespace", "", "shop"): None}


def test_only_what_changed_is_in_a_batch_and_generation_counts_changes_of_the_spec(tmp_path: Path) -> None:
    write(tmp_path, a=service("web", 80), b=service("other"))
    loader = Loader(tmp_path)
    first = reload(loader).changes[SERVICE]
    assert first is not None and first.metadata.generation == 1
    write(tmp_path, a=service("web", 81))
    changes = reload(loader).changes
    assert list(changes) == [SERVICE]
    second = changes[SERVICE]
    assert second is not None and second.metadata.generation == 2
    write(tmp_path, a=service("web", 81).replace("namespace: shop", "namespace: shop, labels: {a: b}"))
    labelled = reload(loader).changes[SERVICE]
    assert labelled is not None and labelled.metadata.generation == 2
    write(tmp_path, a="# the same\n" + service("web", 81).replace("namespace: shop", "namespace: shop, labels: {a: b}"))
    assert loader.apply(loader.look()) is None


def test_an_object_and_its_fields_are_located(tmp_path: Path) -> None:
    write(tmp_path, a="# first\n---\n" + service("other") + "---\n" + service())
    loader = Loader(tmp_path)
    reload(loader)
    file = str(tmp_path / "a.yaml")
    assert loader.locate(SERVICE) == (file, 10)
    assert loader.locate(SERVICE, "spec.ports[0].port") == (file, 15)
    assert loader.locate(SERVICE, "spec.ports[0].appProtocol") == (file, 15)
    assert loader.locate(SERVICE, "spec.type") == (file, 13)
    assert loader.locate(Key("Service", "shop", "nowhere")) is None


# -- broken files


def test_every_problem_has_file_line_object_and_field(tmp_path: Path) -> None:
    write(tmp_path, a=service("web", 0) + "---\n" + service("x").replace("ports:", "prots:"))
    batch = reload(Loader(tmp_path))
    file = str(tmp_path / "a.yaml")
    assert [str(finding) for finding in batch.findings] == [
        f"{file}:6: Service shop/web, spec.ports[0].port: 0 is less than 1",
        f'{file}:12: Service shop/x, spec.prots: unknown field "prots". Did you mean ports?',
        f"{file}:11: Service shop/x, spec.ports: must not be empty. Give the Service a port.",
        f"{file}:6: none of this file is applied, and it has no last good content.",
    ]


def test_a_broken_file_keeps_its_last_good_content_and_is_never_half_applied(tmp_path: Path) -> None:
    write(tmp_path, a=service("web", 80) + "---\n" + service("x"), b=service("other"))
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a=service("web", 81) + "---\n" + service("new") + "---\n" + service("x", 0), b=service("other", 90))
    batch = reload(loader)
    assert list(batch.changes) == [Key("Service", "shop", "other")]
    assert batch.findings[-1].reason == "OlderTextInForce"
    write(tmp_path, a=service("web", 82))
    mended = reload(loader)
    assert port(mended) == 82
    assert mended.changes[Key("Service", "shop", "x")] is None
    assert mended.findings == ()


@pytest.mark.parametrize("text", [BROKEN, service("web", 0), "\xff", service() + service(), service() + "---\n" + service()])
def test_objects_of_a_broken_file_stay_even_after_a_restart(tmp_path: Path, text: str) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    write(files, a=service("web", 80))
    reload(Loader(files, StateDirectory(state)))
    (files / "a.yaml").write_text(text, encoding="latin-1")
    batch = reload(Loader(files, StateDirectory(state)))
    assert port(batch) == 80
    assert reasons(batch)[-1] == "OlderTextInForce"


def test_a_refused_text_is_reported_with_its_place_and_the_time_of_the_older_one(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    write(files, a=service("web", 80), b=service("b", 0))
    os.utime(files / "a.yaml", (86400, 86400))
    loader = Loader(files, StateDirectory(state))
    never = NotApplied(f"{files}/b.yaml", 6, "0 is less than 1")
    assert reload(loader).not_applied == (never,)
    write(files, a=service("web", 0))
    older = NotApplied(f"{files}/a.yaml", 6, "0 is less than 1", "1970-01-02T00:00:00Z", (SERVICE,))
    for batch in (reload(loader), reload(Loader(files, StateDirectory(state)))):
        assert batch.not_applied == (older, never)
        assert [older.reason, never.reason] == [r for r in reasons(batch) if r != "Invalid"]
        assert "its last good content, of 1970-01-02T00:00:00Z, stays in force" in batch.findings[1].message
    write(files, a=service("web", 81), b=service("b"))
    assert reload(loader).not_applied == ()


def test_a_broken_file_that_is_deleted_takes_its_last_good_content_along(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    write(files, a=service())
    loader = Loader(files, StateDirectory(state))
    reload(loader)
    write(files, a=BROKEN)
    reload(loader)
    (files / "a.yaml").unlink()
    assert reload(loader).changes[SERVICE] is None
    write(files, a=BROKEN)
    batch = reload(Loader(files, StateDirectory(state)))
    assert SERVICE not in batch.changes
    assert not batch.policies_known


def test_a_file_deleted_while_stopped_is_forgotten_at_the_next_start(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    write(files, a=service(), b=service("b"))
    reload(Loader(files, StateDirectory(state)))
    (files / "a.yaml").unlink()
    assert SERVICE not in reload(Loader(files, StateDirectory(state))).changes
    write(files, a=BROKEN)
    assert SERVICE not in reload(Loader(files, StateDirectory(state))).changes


def test_edits_while_nothing_ran_are_known_at_the_next_start(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    write(files, same=service("same"), changed=service("changed", 80), gone=service("gone"), moved=service("moved"))
    write(files, both=service("kept") + "---\n" + service("dropped"))
    (files / "ca.pem").write_text("one")
    annotations = "annotations: {lasthop.dev/file.ca.crt: ca.pem}"
    write(files, ca=f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca, namespace: shop, {annotations}}}\n")
    first = Loader(files, StateDirectory(state))
    assert reload(first).edited == {}, "at the first start nothing is known of the time before"
    assert reload(Loader(files, StateDirectory(state))).edited == {}
    for path in ("gone", "moved"):
        (files / f"{path}.yaml").unlink()
    write(files, changed=service("changed", 81), new=service("new") + "---\n" + service("moved"), both=service("kept"))
    (files / "ca.pem").write_text("two")
    again = Loader(files, StateDirectory(state))
    existed_before = {key.name: existed for key, existed in reload(again).edited.items()}
    assert existed_before == {"changed": True, "gone": True, "dropped": True, "new": False, "ca": True}
    edited_in = {name: again.edited_in(Key("Service", "shop", name)) for name in ("changed", "gone", "new", "same", "moved")}
    expected = {name: files / f"{name}.yaml" for name in ("changed", "gone", "new")}
    assert edited_in == {**expected, "same": None, "moved": None}
    assert again.edited_in(Key("ConfigMap", "shop", "ca")) == files / "ca.pem"


def test_a_file_that_was_emptied_keeps_its_objects_and_one_commented_out_does_not(tmp_path: Path) -> None:
    write(tmp_path, a=service())
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a="\n")
    batch = reload(loader)
    assert batch.changes == {}
    assert reasons(batch) == ["EmptyFile", "OlderTextInForce"]
    write(tmp_path, a="# nothing here any more\n")
    assert reload(loader).changes[SERVICE] is None


def test_an_empty_file_that_never_had_objects_is_nothing(tmp_path: Path) -> None:
    write(tmp_path, a="")
    batch = reload(Loader(tmp_path))
    assert (batch.changes, batch.findings, batch.policies_known) == ({}, (), True)


@pytest.mark.parametrize("before", ["", "# nothing yet\n"])
def test_a_file_that_held_nothing_has_no_last_good_content_when_its_first_policy_is_broken(
    tmp_path: Path, before: str
) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    files.mkdir()
    write(files, a=before)
    loader = Loader(files, StateDirectory(state))
    assert reload(loader).policies_known
    write(files, a=BROKEN)
    for batch in (reload(loader), reload(Loader(files, StateDirectory(state)))):
        assert not batch.policies_known
        assert reasons(batch)[-1] == "FileNotApplied"


# -- the same object twice


def test_the_first_file_by_path_wins_for_a_repeated_object_and_both_are_named(tmp_path: Path) -> None:
    write(tmp_path, b=service("web", 81), a="# a\n" + service("web", 80))
    batch = reload(Loader(tmp_path))
    assert port(batch) == 80
    assert [str(f) for f in batch.findings] == [
        f"{tmp_path}/b.yaml:1: Service shop/web: duplicate of {tmp_path}/a.yaml:2, which is used. Remove one of the two."
    ]


def test_an_object_in_force_stays_when_another_file_claims_it_and_goes_over_when_its_own_lets_go(tmp_path: Path) -> None:
    write(tmp_path, b=service("web", 81))
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a=service("web", 80))
    batch = reload(loader)
    assert batch.changes == {}
    assert reasons(batch) == ["DuplicateObject"]
    (tmp_path / "b.yaml").unlink()
    batch = reload(loader)
    assert port(batch) == 80
    assert batch.findings == ()


def test_a_policy_that_loses_to_another_file_still_guards_its_own_targets(tmp_path: Path) -> None:
    write(tmp_path, a=policy("web", "web"), b=policy("web", "web", "pay"))
    batch = reload(Loader(tmp_path))
    assert last_good(batch) == ["web"]
    assert rejected(batch) == ["pay"]


# -- policies in broken files fail closed


def test_a_policy_that_fails_admission_is_rejected_with_its_targets(tmp_path: Path) -> None:
    write(tmp_path, a=policy("web", "web", "pay", hostname="'not a host'"))
    batch = reload(Loader(tmp_path))
    assert last_good(batch) == []
    assert rejected(batch) == ["web", "pay"]
    assert batch.policies_known


def test_a_rejected_policy_keeps_the_age_that_is_written_over_edits_and_restarts(tmp_path: Path) -> None:
    """Precedence goes by age, also of what cannot be read whole; without one a document counts as there from the beginning."""
    dated = policy("web", hostname="'no host'").replace(
        "namespace: shop", "namespace: shop, creationTimestamp: 2020-02-03T04:05:06+01:00"
    )
    for text, age in ((dated, "2020-02-03T03:05:06Z"), (policy("web", hostname="'no host'"), "1970-01-01T00:00:00Z")):
        write(tmp_path, a=text)
        loader = Loader(tmp_path)
        ages = [reload(loader).changes[POLICY].metadata.creation_timestamp]  # type: ignore[union-attr]
        write(tmp_path, a=text.replace("name: web}", "name: pay}"))
        ages.append(reload(loader).changes[POLICY].metadata.creation_timestamp)  # type: ignore[union-attr]
        ages.append(reload(Loader(tmp_path)).changes[POLICY].metadata.creation_timestamp)  # type: ignore[union-attr]
        assert set(ages) == {age}


def test_the_first_file_by_path_is_reported_for_a_policy_in_two_broken_files(tmp_path: Path) -> None:
    write(tmp_path, b=policy("web", "pay", hostname="'no host'"))
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a=policy("web", "web", hostname="'no host'"))
    living, again = reload(loader).changes[POLICY], reload(Loader(tmp_path)).changes[POLICY]
    assert living == again
    assert isinstance(again, RejectedPolicy)
    assert f"{tmp_path}/a.yaml" in again.message


def test_a_good_policy_beside_a_broken_document_is_rejected_too(tmp_path: Path) -> None:
    write(tmp_path, a=policy() + "---\n" + service("x", 0))
    batch = reload(Loader(tmp_path))
    assert last_good(batch) == []
    assert rejected(batch) == ["web"]


def test_a_broken_edit_guards_the_targets_it_adds_while_the_last_good_policy_stays(tmp_path: Path) -> None:
    write(tmp_path, a=policy("web", "web"))
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a=policy("web", "web", "pay", hostname="'not a host'"))
    batch = reload(loader)
    assert list(batch.changes) == [POLICY]
    assert last_good(batch) == ["web"]
    assert rejected(batch) == ["pay"]
    write(tmp_path, a=policy("web", "web"))
    assert isinstance(reload(loader).changes[POLICY], BackendTLSPolicy)
    write(tmp_path, a=policy("web", "pay", hostname="'not a host'"))
    assert rejected(reload(loader)) == ["pay"]
    write(tmp_path, a=policy("web", "web", "pay"))
    assert isinstance(reload(loader).changes[POLICY], BackendTLSPolicy)
    (tmp_path / "a.yaml").unlink()
    assert reload(loader).changes == {POLICY: None, Key("Namespace", "", "shop"): None}


def test_policies_before_a_syntax_error_guard_their_targets(tmp_path: Path) -> None:
    write(tmp_path, a=policy() + "---\n" + BROKEN)
    batch = reload(Loader(tmp_path))
    assert rejected(batch) == ["web"]
    assert not batch.policies_known  # there may be more behind the error


def test_an_unparsable_file_without_last_good_content_leaves_policies_unknown_until_it_is_corrected(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN, b=service())
    loader = Loader(tmp_path)
    batch = reload(loader)
    assert port(batch) == 80  # the rest is served
    assert not batch.policies_known
    write(tmp_path, a=service("x"))
    assert reload(loader).policies_known


def test_so_does_an_unparsable_file_with_last_good_content(tmp_path: Path) -> None:
    write(tmp_path, a=policy())
    loader = Loader(tmp_path)
    reload(loader)
    write(tmp_path, a=BROKEN)
    batch = reload(loader)
    assert batch.changes == {}
    assert not batch.policies_known
    write(tmp_path, a=policy())
    assert reload(loader).policies_known


def test_policies_with_unreadable_targets_leave_policies_unknown(tmp_path: Path) -> None:
    write(tmp_path, a=policy().replace("targetRefs", "targets"))
    assert not reload(Loader(tmp_path)).policies_known


def test_a_broken_file_that_holds_no_policy_leaves_policies_known(tmp_path: Path) -> None:
    write(tmp_path, a=service("web", 0), b="{apiVersion: v1, kind: Servce, metadata: {name: x}}")
    batch = reload(Loader(tmp_path))
    assert batch.policies_known
    assert reasons(batch).count("UnknownKind") == 1


def test_documents_of_other_programs_are_counted_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, a=f"{service('web')}---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: x}}}}")
    loader = Loader(tmp_path)
    batch = reload(loader)
    assert (batch.policies_known, reasons(batch)) == (True, [])
    assert loader.others == {"Deployment (apps/v1)": 1}
    assert Key("Service", "shop", "web") in batch.changes


def test_links_on_the_way_to_the_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "releases" / "a" / "objects").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/a")
    (tmp_path / "link").symlink_to("current/objects")
    assert [*Loader(tmp_path / "current" / "objects").followed()] == [str(tmp_path / "current")]
    assert [*Loader(tmp_path / "link").followed()] == [str(tmp_path / "link")]
    assert [*Loader(tmp_path / "releases").followed()] == []
