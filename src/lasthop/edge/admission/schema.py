"""Prepares a kind's schema for admission, once: a tree to walk beside the data, and a compiled JSON Schema validator.

The walk covers what JSON Schema cannot express (defaults, unknown fields, list keys, CEL rules); the validator covers the
rest, in Rust.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import jsonschema_rs
import msgspec

from lasthop.base.api import crds
from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS

_PROSE: Final = ("description", "default", "format")
_SCHEMAS: Final = ("items", "not", "additionalProperties")
_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
# fmt: off
KEYWORDS: Final = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
))
# fmt: on
"""Words that CEL reserves. In Kubernetes' rules, a field with such a name is written like `__namespace__`."""


class CelRule(msgspec.Struct, frozen=True):
    """Represents one entry of x-kubernetes-validations."""

    rule: str
    message: str


class SchemaNode(msgspec.Struct, frozen=True):
    properties: dict[str, SchemaNode] = {}
    defaults: Json = {}
    """Defaults of the properties; copied when used."""
    items: SchemaNode | None = None
    additional: SchemaNode | None = None
    is_object: bool = False
    max_items: int | None = None
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    rules: tuple[CelRule, ...] = ()
    all_rules: str = ""
    """The same rules as one expression."""
    has_rules: bool = False
    """Whether this node or one below has rules; otherwise CEL is skipped."""
    has_keywords: bool = False
    """Whether a field here or below must be renamed for CEL."""


class Schema(msgspec.Struct, frozen=True):
    root: SchemaNode
    validator: jsonschema_rs.Draft4Validator


@cache
def schema_of(kind: str, version: str) -> Schema:
    raw = crds.compact_schema(KINDS[kind], version)
    properties = {k: v for k, v in raw["properties"].items() if k not in ("apiVersion", "kind", "metadata", "status")}
    # metadata has its own checks; users do not write status.
    stripped = {**raw, "properties": properties, "required": [r for r in raw.get("required", ()) if r in properties]}
    return Schema(_node(stripped), jsonschema_rs.Draft4Validator(_json_schema(stripped)))


def _node(raw: Json) -> SchemaNode:
    properties = {name: _node(below) for name, below in raw.get("properties", {}).items()}
    items = _node(raw["items"]) if "items" in raw else None
    values = raw.get("additionalProperties")
    additional = _node(values) if isinstance(values, dict) else None
    rules = _rules(raw)
    below = [node for node in (*properties.values(), items, additional) if node]
    return SchemaNode(
        properties=properties,
        defaults={k: v["default"] for k, v in raw.get("properties", {}).items() if "default" in v},
        items=items,
        additional=additional,
        # Preserved unknown fields have no structure here; the API server checks them when it receives them.
        is_object=raw.get("type") == "object" and not raw.get("x-kubernetes-preserve-unknown-fields"),
        max_items=raw.get("maxItems"),
        list_type=raw.get("x-kubernetes-list-type", "atomic"),
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys", ())),
        rules=rules,
        all_rules=" && ".join(f"({rule.rule})" for rule in rules),
        has_rules=bool(rules) or any(n.has_rules for n in below),
        has_keywords=not KEYWORDS.isdisjoint(properties) or any(n.has_keywords for n in below),
    )


def _rules(raw: Json) -> tuple[CelRule, ...]:
    """Returns the rules except transition rules, which compare with the previous object; a file has no previous object."""
    entries = (entry for entry in raw.get("x-kubernetes-validations", ()) if "oldSelf" not in entry["rule"])
    return tuple(CelRule(entry["rule"], entry.get("message") or f"failed rule: {entry['rule']}") for entry in entries)


def _json_schema(raw: Json) -> Json:
    """Returns the schema without Kubernetes' extensions and without descriptions, which are most of it."""
    result: Json = {}
    for name, value in raw.items():
        if name in _PROSE or name.startswith("x-kubernetes-") or (name == "required" and not value):
            continue  # Draft 4 wants at least one required field
        if name == "properties":
            result[name] = {key: _json_schema(below) for key, below in value.items()}
        elif name in ("allOf", "anyOf", "oneOf"):
            result[name] = [_json_schema(below) for below in value]
        else:
            result[name] = _json_schema(value) if name in _SCHEMAS and isinstance(value, dict) else value
    if raw.get("format") in _RANGES:
        low, high = _RANGES[raw["format"]]
        result["minimum"] = max(low, raw.get("minimum", low))
        result["maximum"] = min(high, raw.get("maximum", high))
    if raw.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    return result
