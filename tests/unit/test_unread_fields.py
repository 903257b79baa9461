"""Every field of the experimental CRDs is read, so that unsupported settings are reported; the exceptions are listed here."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
import pytest

from lasthop.base.api import crds
from lasthop.base.api.kinds import KINDS

UNREAD = {
    # For people.
    "GatewayClass": {"spec.description"},
}


def unread(schema: dict[str, Any], struct: Any, path: str) -> set[str]:
    if typing.get_origin(struct) in (types.UnionType, typing.Union):
        struct = next(argument for argument in typing.get_args(struct) if argument is not type(None))
    if schema.get("type") == "array" and typing.get_origin(struct) is tuple:
        return unread(schema["items"], typing.get_args(struct)[0], f"{path}[]")
    if "properties" not in schema or not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
        return set()
    hints = typing.get_type_hints(struct)
    known = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}
    fields = schema["properties"]
    paths = {f"{path}.{name}" for name in fields if name not in known}
    return paths.union(*(unread(fields[name], known[name], f"{path}.{name}") for name in fields if name in known))


SERVED = (
    *("Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"),
    *("BackendTLSPolicy", "XBackend", "XBackendTrafficPolicy", "XTelemetryPolicy"),
)


@pytest.mark.parametrize("kind", [*UNREAD, *SERVED])
def test_every_field_is_read_or_known_as_unread(kind: str) -> None:
    schema = crds.schema(KINDS[kind], KINDS[kind].versions[0], "experimental")["properties"]["spec"]
    assert unread(schema, typing.get_type_hints(KINDS[kind].struct)["spec"], "spec") == UNREAD.get(kind, set())
