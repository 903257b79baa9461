"""Our CRDs and our structs agree, so that neither can drift."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from lasthop.base.api import crds
from lasthop.base.api.kinds import KINDS, LASTHOP_API, Kind
from lasthop.base.api.meta import PassedOn, StringMap
from lasthop.run.infra.kubernetes.installation import crds as installed

OWN = [kind for kind in KINDS.values() if kind.group == LASTHOP_API]
TYPES = {str: "string", int: "integer", bool: "boolean"}


def differences(struct: type, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Fields that only one side has, or that each side holds for something else."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    properties = schema["properties"]
    yield from (f"{path}.{name}: not in the CRD" for name in fields.keys() - properties.keys())
    yield from (f"{path}.{name}: not in the struct" for name in properties.keys() - fields.keys())
    for name in fields.keys() & properties.keys():
        yield from _of_type(fields[name], properties[name], f"{path}.{name}")


def _of_type(held: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(held, types.UnionType):
        if {int, str} <= set(typing.get_args(held)):
            if not schema.get("x-kubernetes-int-or-string"):
                yield f"{path}: a number or a text, and not in the CRD"
            return
        (held,) = (arg for arg in typing.get_args(held) if arg is not type(None))
    if typing.get_origin(held) is tuple:
        if schema["type"] != "array":
            yield f"{path}: a tuple, and {schema['type']} in the CRD"
        else:
            yield from _of_type(typing.get_args(held)[0], schema["items"], f"{path}[]")
    elif held is StringMap:
        if "additionalProperties" not in schema:
            yield f"{path}: a map, and not in the CRD"
    elif held is PassedOn:
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}: passed on, and pruned by the CRD"
    elif isinstance(held, type) and issubclass(held, msgspec.Struct):
        yield from differences(held, schema, path)
    elif TYPES[held] != schema["type"]:
        yield f"{path}: {held.__name__}, and {schema['type']} in the CRD"


def spec_of(kind: Kind) -> type:
    (spec,) = (field.type for field in msgspec.structs.fields(kind.struct) if field.name == "spec")
    return typing.cast(type, spec)


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.kind)
def test_struct_and_crd_have_the_same_fields(kind: Kind) -> None:
    schema = crds.schema(kind, kind.versions[0])
    assert list(differences(spec_of(kind), schema["properties"]["spec"], "spec")) == []


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.kind)
def test_the_crd_is_of_its_kind_and_is_installed(kind: Kind) -> None:
    crd = msgspec.yaml.decode(installed()[f"{kind.plural}.yaml"])
    assert crd["metadata"]["name"] == f"{kind.plural}.{kind.group}"
    assert crd["spec"]["names"]["kind"] == kind.kind
    assert (crd["spec"]["scope"] == "Namespaced") == kind.namespaced
    assert [version["name"] for version in crd["spec"]["versions"]] == list(kind.versions)
    assert {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"} in crd["spec"]["versions"][0][
        "additionalPrinterColumns"
    ]


def test_a_difference_would_be_found() -> None:
    schema = {"properties": {"name": {"type": "integer"}, "more": {"type": "string"}}}
    struct = msgspec.defstruct("Some", [("name", str), ("less", str)])
    assert sorted(differences(struct, schema, "spec")) == [
        "spec.less: not in the CRD",
        "spec.more: not in the struct",
        "spec.name: str, and integer in the CRD",
    ]
