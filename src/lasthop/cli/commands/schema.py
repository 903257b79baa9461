"""`lasthop schema`: a JSON Schema of the objects in a folder, for editors."""

from __future__ import annotations

import json
from typing import Any

import click

from lasthop.base.api.documents import Json

INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVED = "x-kubernetes-preserve-unknown-fields"


@click.command("schema")
def command() -> None:
    """Print a JSON Schema of every kind that Lasthop reads, for editors: completion and errors while you type.

    Editors with the YAML language server (VS Code, Neovim, JetBrains) take it by a comment in the file's first line, or by
    their settings. The schema accepts other kinds in the same file. References, conflicts and CEL rules are the task of
    lasthop check.

    \b
    Examples:
      lasthop schema > .lasthop.schema.json
      # yaml-language-server: $schema=.lasthop.schema.json      as the first line of a file
      lasthop schema | jq -r '.allOf[].if.properties.kind.const' | sort -u
    """
    click.echo(json.dumps(document(), indent=1))


def document() -> dict[str, Any]:
    from lasthop.base.api import crds
    from lasthop.base.api.kinds import KINDS

    branches = [
        {
            "if": {
                "properties": {"apiVersion": {"const": name}, "kind": {"const": kind.kind}},
                "required": ["apiVersion", "kind"],
            },
            "then": _closed(crds.schema(kind, version), kind.kind),
        }
        for kind in KINDS.values()
        for name, version in zip(kind.api_versions, kind.versions, strict=True)
        if _served(kind, version)
    ]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Objects of a Lasthop folder",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
        "allOf": branches,
    }


def _served(kind: Any, version: str) -> bool:
    from lasthop.base.api import crds

    try:
        crds.schema(kind, version)
    except KeyError:
        return False
    return True


def _closed(schema: Any, title: str = "") -> Any:
    """Forbids unknown fields, as admission does, and translates OpenAPI's own keywords."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items() if not name.startswith("x-kubernetes-")}
    closed |= _types(schema)
    if schema.get(INT_OR_STRING):
        closed.pop("anyOf", None)
    closed.pop("nullable", None)
    if isinstance(schema.get("properties"), dict):
        closed |= _closed_properties(schema)
    if title:
        common: Json = {name: {} for name in ("apiVersion", "kind", "metadata", "status")}
        closed |= {"title": title, "properties": common | closed.get("properties", {})}
    return closed


def _types(schema: Json) -> Json:
    """Returns the types that OpenAPI expresses by its own keywords."""
    if schema.get(INT_OR_STRING):
        return {"type": ["integer", "string"]}
    types = schema.get("type")
    return {"type": [types, "null"]} if schema.get("nullable") and isinstance(types, str) else {}


def _closed_properties(schema: Json) -> Json:
    closed: Json = {"properties": {name: _closed(value) for name, value in schema["properties"].items()}}
    is_open = "additionalProperties" in schema or schema.get(PRESERVED)
    return closed if is_open or schema.get("type") != "object" else {**closed, "additionalProperties": False}
