"""The schemas that admission reads equal those of the CRDs, without the parts that it ignores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lasthop.base.api import crds
from lasthop.base.api.kinds import KINDS
from lasthop.edge.admission.schema import _json_schema, _node

SERVED = [(kind.kind, version) for kind in KINDS.values() for version in kind.versions]


def test_the_schemas_of_admission_are_up_to_date() -> None:
    assert Path(crds.__file__).with_name(crds.COMPACT).read_bytes() == crds.compacted(), "run: make docs"


@pytest.mark.parametrize(("kind", "version"), SERVED)
def test_admission_reads_the_same_of_a_compact_schema_as_of_the_crd(kind: str, version: str) -> None:
    compact, whole = crds.compact_schema(KINDS[kind], version), _without_status(crds.schema(KINDS[kind], version))
    assert _node(compact) == _node(whole)
    assert _json_schema(compact) == _json_schema(whole)


def _without_status(schema: Any) -> Any:
    return {**schema, "properties": {name: field for name, field in schema["properties"].items() if name != "status"}}
