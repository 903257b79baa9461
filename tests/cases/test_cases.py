"""Each case is one readable file: the documents that a user writes, a line, and the result. The common parts of a folder's
cases (a Gateway, a route, a Service) are in its `_base.yaml`.

`pytest tests/cases --update` writes the second half anew; the diff is the review.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from lasthop.edge.kubernetes.objects import trimmed
from lasthop.edge.sources.files.source import FilesSource
from lasthop.engine.engine import Engine
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.settings import SYSTEM_STORE
from tests.snapshot import Snapshot, settle
from tests.summary import summary
from tests.world import NOW

HERE = Path(__file__).parent
LINE = "\n=== what comes of it\n"
CASES = sorted(path for path in HERE.glob("*/*.yaml") if not path.name.startswith("_"))


def outcome(documents: str, base: Path, folder: Path, *, in_cluster: bool = False) -> str:
    """`in_cluster`: of each object only what is kept of those that an API server sends."""
    shutil.copytree(HERE / "files", folder / "files")
    shutil.copy(base, folder / "base.yaml")
    (folder / "case.yaml").write_text(documents)
    source = FilesSource(folder)
    batch = source.load()
    engine, snapshot = Engine(now=NOW.timestamp()), Snapshot()
    SYSTEM_STORE.set(engine.graph, SystemStore("/etc/ssl/system.pem", "digest"))
    engine.policies.set_unknown(batch.unknown)
    kept = {key: trimmed(key.kind, obj) if in_cluster and obj else obj for key, obj in batch.changes.items()}
    engine.apply(kept)
    settle(engine, snapshot)
    assert engine.graph.crashes == {}
    expected = summary(engine, snapshot, [str(f) for f in (*batch.findings, *engine.findings())])
    text = yaml.safe_dump(expected, sort_keys=False, width=1000, allow_unicode=True)
    return text.replace(f"{folder}/", "")


@pytest.mark.parametrize("case", CASES, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_case(case: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    documents, _, expected = case.read_text().partition(LINE)
    found = outcome(documents, case.parent / "_base.yaml", tmp_path)
    if request.config.getoption("--update"):
        case.write_text(f"{documents}{LINE}{found}")
    else:
        assert found == expected


@pytest.mark.parametrize("case", CASES, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_the_kept_parts_of_objects_in_a_cluster_suffice(case: Path, tmp_path: Path) -> None:
    documents, _, expected = case.read_text().partition(LINE)
    assert outcome(documents, case.parent / "_base.yaml", tmp_path, in_cluster=True) == expected


def test_there_are_cases() -> None:
    assert CASES
