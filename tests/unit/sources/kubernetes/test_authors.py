"""The last author of an object, as far as the API server knows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes.objects import author_of, read_object
from lasthop.edge.sources.kubernetes import source as module
from lasthop.edge.sources.kubernetes.source import KubernetesSource


def managed(manager: str, time: str, *fields: str, operation: str = "Update", subresource: str = "") -> dict[str, Any]:
    entry = {"manager": manager, "operation": operation, "time": time, "fieldsV1": {name: {"f:x": {}} for name in fields}}
    return {**entry, **({"subresource": subresource} if subresource else {})}


OLD, NEW, NEWEST = ("2026-11-18T12:00:00Z", "2026-11-18T13:00:00Z", "2026-11-18T14:00:00Z")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([managed("argocd", OLD, "f:spec", operation="Apply")], f"argocd (Apply, {OLD})"),
        ([managed("a", NEW, "f:spec"), managed("b", OLD, "f:spec")], f"a (Update, {NEW})"),
        ([managed("a", OLD, "f:data"), managed("labels", NEWEST, "f:metadata")], f"a (Update, {OLD})"),
        ([managed("a", OLD, "f:spec"), managed("lasthop", NEWEST, "f:status", subresource="status")], f"a (Update, {OLD})"),
        ([managed("labels", OLD, "f:metadata")], f"labels (Update, {OLD})"),
        ([managed("lasthop", OLD, "f:status", subresource="status")], ""),
        ([], ""),
        (None, ""),
        ({"manager": "x"}, ""),
        ([{"manager": 3}], ""),
        ("x", ""),
    ],
)
def test_it_is_the_manager_that_wrote_spec_or_data_last(entries: Any, expected: str) -> None:
    assert author_of(json.dumps(entries).encode()) == expected
    metadata = {"name": "c", "namespace": "a", "managedFields": entries}
    read = read_object("ConfigMap", json.dumps({"metadata": metadata, "data": {"ca.crt": "x"}}).encode())
    assert read.object is not None and read.author == expected, "whatever is there, the object is read"
    assert b"managedFields" not in repr(read.object).encode()


def test_authors_are_kept_of_what_is_written_after_the_start_and_not_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AUTHORS", 3)
    source, kind = KubernetesSource(None), KINDS["ConfigMap"]  # type: ignore[arg-type]

    def write(name: str, manager: str) -> Key:
        metadata = {"name": name, "namespace": "a", "managedFields": [managed(manager, OLD, "f:data")]}
        read = read_object("ConfigMap", json.dumps({"metadata": metadata}).encode())
        source.read(kind, [read], [])
        return read.key

    assert source.author(write("c", "ann")) == ""
    source.started = True
    first = write("c", "ann")
    assert source.author(first) == f"ann (Update, {OLD})"
    others = [write(f"c{n}", "bob") for n in range(3)]
    assert source.author(first) == "" and all(map(source.author, others))
    source.read(kind, [], others[:1])
    assert source.author(others[0]) == "", "who has deleted it is not known"
