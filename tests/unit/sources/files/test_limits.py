"""The limits of one file: above them it is rejected with a finding that names the limit, in bounded time and memory."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.admission import limits, yaml
from lasthop.edge.sources.files import content, folder, loader
from lasthop.edge.sources.files.content import BrokenFile, FileContent, examine
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.source import FilesSource
from tests.file_texts import SERVICE, policy, reload, route, service, write


def broken(text: str | bytes, name: str = "a.yaml") -> BrokenFile:
    file, _ = examine(name, text if isinstance(text, bytes) else text.encode())
    assert isinstance(file, BrokenFile)
    assert len(file.findings) <= limits.MAX_FINDINGS + 1
    assert sum(len(str(finding)) for finding in file.findings) < 300_000
    return file


def test_aliases_count_by_the_length_of_what_they_repeat() -> None:
    text = route() + f"  hostnames: [&a {'x' * 10**6}, {'*a, ' * 3000}]\n"
    tracemalloc.start()
    (finding,) = broken(text).findings
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (finding.reason, finding.line) == ("TooLarge", 8)
    assert finding.message == f"aliases expand to more than {limits.MAX_ALIASED} characters."
    assert peak < 50_000_000


def test_aliases_of_aliases_and_keys_count_too() -> None:
    nested = f"a: &a [{'x' * 1000}]\nb: &b [{'*a, ' * 40}]\nc: [{'*b, ' * 40}]\n"
    assert f"more than {limits.MAX_ALIASED} characters" in broken(nested).findings[0].message
    keys = f"a: &a {{{'k' * 1000}: 1}}\nb: [{'*a, ' * 1600}]\n"
    assert f"more than {limits.MAX_ALIASED} characters" in broken(keys).findings[0].message
    merged = f"a: &a {{{'k' * 1000}: 1}}\nb: [{'{<<: *a}, ' * 1600}]\n"
    assert f"more than {limits.MAX_ALIASED} characters" in broken(merged).findings[0].message


def test_one_duplicate_among_many_keys_of_json_is_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """By counting how often names are compared, not by the clock."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    loads = json.loads

    def with_counted_names(text: str, object_pairs_hook: object, **options: object) -> object:
        return loads(text, object_pairs_hook=lambda pairs: object_pairs_hook([(Name(k), v) for k, v in pairs]), **options)  # type: ignore[operator,arg-type]

    monkeypatch.setattr(json, "loads", with_counted_names)
    names = ", ".join(f'"k{i}": 1' for i in range(2000))
    parsed = yaml.parse(f'{{{names}, "k5": 1}}'.encode(), as_json=True)
    assert parsed.mistakes[0].message == "key 'k5' is written twice in one object"
    assert compared < 10 * 2000


def test_a_file_with_too_many_values_is_not_parsed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "MAX_VALUES", 1000)
    (finding,) = broken(route() + f"  hostnames: [{'[],' * 5000}]\n  @ not even YAML").findings
    assert (finding.reason, finding.message) == ("TooLarge", "the file has more than 1000 values.")
    assert "more than 1000 values" in broken("---\n" * 2000).findings[0].message
    assert "more than 1000 values" in broken(json.dumps({"a": [[]] * 2000}), "a.json").findings[0].message
    assert broken(route() + f"  hostnames: [{'[],' * 5000}]\n").opaque


def test_unknown_fields_are_listed_up_to_a_limit_and_looked_up_no_further() -> None:
    text = route() + "".join(f"  f{i:05}: 1\n" for i in range(20_000))
    findings = broken(text).findings
    assert len(findings) == limits.MAX_PROBLEMS + 1
    assert findings[-1].message == f"more than {limits.MAX_PROBLEMS} problems; the rest is not listed"
    assert [finding.line for finding in findings[:3]] == [8, 9, 10]


def test_all_that_is_wrong_with_a_file_is_listed_up_to_a_limit() -> None:
    findings = broken("---\n".join(service(f"s{i}", 0) for i in range(300))).findings
    assert len(findings) == limits.MAX_FINDINGS + 1
    assert findings[-1].message.startswith(f"this file has more than {limits.MAX_FINDINGS} problems")


def test_an_object_larger_than_an_api_server_takes_is_refused() -> None:
    lines = "".join(f"  - matches: [{{path: {{value: /{'x' * 1000}{i}}}}}]\n" for i in range(1600))
    (finding,) = broken(service() + "---\n" + route(lines)).findings
    assert (finding.reason, finding.line) == ("TooLarge", 8)
    assert f"the limit is {limits.MAX_OBJECT}" in finding.message


def test_a_list_that_is_too_long_is_cut_before_defaults_multiply_it() -> None:
    tracemalloc.start()
    findings = broken(route("  - {}\n" * 5_000)).findings
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(f.field, f.message, f.reason) for f in findings] == [("spec.rules", "has more than 16 items", "TooLarge")]
    assert peak < 15_000_000


def test_a_file_with_too_many_objects_is_refused_and_its_policies_still_guard_their_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(content, "MAX_OBJECTS", 5)
    texts = [policy("web", "pay"), *(service(f"s{i}") for i in range(5))]
    file = broken("---\n".join(texts))
    assert [finding.message for finding in file.findings] == ["the file has more than 5 objects."]
    assert [target.name for policy_targets in file.policies for target in policy_targets.targets] == ["pay"]
    assert file.opaque  # more may follow
    listed = {"apiVersion": "v1", "kind": "ServiceList", "items": [{"metadata": {"name": f"s{i}"}} for i in range(6)]}
    assert broken(json.dumps(listed), "a.json").findings[0].message == "the file has more than 5 objects."


def test_a_deep_json_file_is_refused_as_a_deep_yaml_file_is() -> None:
    deep = "[" * (limits.MAX_DEPTH + 1) + "]" * (limits.MAX_DEPTH + 1)
    for name in ("a.json", "a.yaml"):
        assert broken(deep, name).findings[0].message == f"nested more than {limits.MAX_DEPTH} levels deep."
    inside = limits.MAX_DEPTH - 1
    just = f'{{"spec": {"[" * inside}{"]" * inside}}}'
    for name in ("a.json", "a.yaml"):
        assert "nested" not in broken(just, name).findings[0].message


def test_long_names_and_many_targets_do_not_get_into_findings_and_refused_policies() -> None:
    long = "x" * 100_000
    broken(service(long).replace("ports:", f"{long}: 1\n  ports:"))
    broken(f"{long}: 1\n{long}: 2\n")
    broken(f"a: *{long}\n")
    file = broken(policy(long, *(f"s{i}" for i in range(1000)), more="  oops: 1\n"))
    (rejected,) = file.policies
    assert len(rejected.metadata.name) < 300
    assert len(rejected.targets) == limits.MAX_TARGETS
    assert file.opaque


def test_a_kind_of_any_length_is_compared_in_no_time() -> None:
    file = broken(f"apiVersion: v1\nkind: {'backendtspolicy' * 50_000}\nmetadata: {{name: a}}\n")
    assert file.findings[0].reason == "UnknownKind"
    assert not file.opaque


def test_a_file_larger_than_the_limit_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.read, "__defaults__", (1000, None))
    write(tmp_path, a=service() + "#" * 1000)
    (finding, _) = reload(Loader(tmp_path)).findings
    assert (finding.reason, finding.file) == ("TooLarge", f"{tmp_path}/a.yaml")
    assert finding.message == "is not read: it is larger than 1000 bytes."


def test_places_in_a_file_of_many_documents_are_found_by_reading_only_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "---\n".join(service(f"s{i}") for i in range(50)).encode()
    file_content, _ = examine("a.yaml", text)
    assert isinstance(file_content, FileContent)
    lines = [file_content.line(entry, "spec.ports[0].port") for entry in file_content.entries]
    assert lines == [6 + 7 * i for i in range(50)]
    read: list[int] = []
    reader = yaml._Reader
    monkeypatch.setattr(yaml, "_Reader", lambda text, limit, record: read.append(len(text)) or reader(text, limit, record))  # type: ignore[func-returns-value]
    assert file_content.line(file_content.entries[7]) == 50
    assert file_content.line(file_content.entries[7], "spec.type") == 53
    assert len(read) == 1 and read[0] < 200


# -- no team waits for another's file


async def test_an_edit_takes_effect_while_another_file_is_still_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined, release = threading.Event(), threading.Event()

    def slowly(file: str, text: bytes) -> object:
        if file.endswith("large.yaml"):
            examined.set()
            assert release.wait(30)
        return examine(file, text)

    monkeypatch.setattr(loader, "examine", slowly)
    padding = "#" * limits.LARGE_FILE + "\n"
    write(tmp_path, small=service("web", 80))
    batches = FilesSource(tmp_path).batches()
    try:
        await anext(batches)
        write(tmp_path, large=padding + service("large", 1))
        edit = asyncio.ensure_future(anext(batches))
        assert await asyncio.to_thread(examined.wait, 10)
        for number in (81, 82):  # also the second time, independent of the large file's state meanwhile
            write(tmp_path, small=service("web", number))
            while not (changes := (await asyncio.wait_for(edit, 10)).changes):
                edit = asyncio.ensure_future(anext(batches))
            assert changes[SERVICE].spec.ports[0].port == number  # type: ignore[union-attr]
            edit = asyncio.ensure_future(anext(batches))
            write(tmp_path, large=padding + service("large", number))
        release.set()
        while True:
            batch = await asyncio.wait_for(edit, 10)
            if not batch.changes:
                edit = asyncio.ensure_future(anext(batches))
                continue
            (service_object,) = batch.changes.values()
            assert service_object.metadata.name == "large"  # type: ignore[union-attr]
            if service_object.spec.ports[0].port == 82:  # type: ignore[union-attr]
                break
            edit = asyncio.ensure_future(anext(batches))
    finally:
        release.set()
        await batches.aclose()  # type: ignore[attr-defined]


async def test_a_large_file_that_is_deleted_while_it_is_read_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined, release = threading.Event(), threading.Event()

    def slowly(file: str, text: bytes) -> object:
        if file.endswith("large.yaml"):
            examined.set()
            assert release.wait(30)
        return examine(file, text)

    monkeypatch.setattr(loader, "examine", slowly)
    write(tmp_path, small=service("web", 80))
    batches = FilesSource(tmp_path).batches()
    try:
        await anext(batches)
        write(tmp_path, large="#" * limits.LARGE_FILE + "\n" + service("large", 1))
        edit = asyncio.ensure_future(anext(batches))
        assert await asyncio.to_thread(examined.wait, 10)
        (tmp_path / "large.yaml").unlink()
        release.set()
        write(tmp_path, small=service("web", 81))
        while not (changes := (await asyncio.wait_for(edit, 10)).changes):
            edit = asyncio.ensure_future(anext(batches))
        assert [key.name for key in changes] == ["web"]
        write(tmp_path, small=service("web", 82), large=service("large", 2))  # and when it returns it is seen
        while "large" not in {key.name for key in changes}:
            changes = (await asyncio.wait_for(anext(batches), 10)).changes
    finally:
        release.set()
        await batches.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["small", "large"])
async def test_a_policy_that_moves_to_or_from_a_large_file_is_never_known_to_be_gone(tmp_path: Path, first: str) -> None:
    """Between the two files nothing new may be plaintext: the other one may hold the policy."""
    padding = "#" * limits.LARGE_FILE + "\n"
    with_policy = {"small": policy(), "large": padding + policy()}
    without = {"small": service("web", 80), "large": padding + service("large", 1)}
    second = "large" if first == "small" else "small"
    write(tmp_path, **{first: with_policy[first], second: without[second]})
    batches = FilesSource(tmp_path).batches()
    there = Key("BackendTLSPolicy", "shop", "web")
    try:
        held = dict((await anext(batches)).changes)
        assert there in held
        write(tmp_path, **{second: with_policy[second]})
        write(tmp_path, **{first: without[first]})
        while True:
            batch = await asyncio.wait_for(anext(batches), 10)
            held.update(batch.changes)
            assert held[there] is not None or not batch.policies_known
            if batch.complete and held.get(Key("Service", "shop", "web" if first == "small" else "large")):
                break
        assert batch.policies_known and held[there] is not None
    finally:
        await batches.aclose()  # type: ignore[attr-defined]
