"""The list of unsupported fields names existing fields of supported kinds."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api import crds
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.unserved import FIELDS, Unserved

NAMED = [(kind, field.path) for field in FIELDS for kind in field.kinds]


@pytest.mark.parametrize(("kind", "path"), NAMED)
def test_every_field_that_is_not_served_can_be_written(kind: str, path: str) -> None:
    schema: Any = crds.schema(KINDS[kind], KINDS[kind].versions[0], "experimental")
    for name in path.split("."):
        schema = schema["properties"][name.removesuffix("[]")]
        schema = schema["items"] if name.endswith("[]") else schema


def test_kinds_that_are_not_served_at_all_are_not_listed_by_field() -> None:
    assert not [kind for kind, _ in NAMED if KINDS[kind].struct is Unserved]
