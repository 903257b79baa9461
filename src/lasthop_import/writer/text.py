"""Renders objects as YAML in one fixed format: block style, literal certificates, quotes only where they are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.edge.admission.scalars import plain
from lasthop_import.writer.objects import Written

_SAFE: Final = re.compile(r"[A-Za-z0-9/_.(][A-Za-z0-9/_.()*+$^|=-]*(?:[ :][A-Za-z0-9/_.()*+$^|=-]+)*")
_NUMBER: Final = re.compile(r"[-+.]?[0-9]")


def render(objects: Iterable[Written]) -> str:
    return "---\n".join(_document(written) for written in objects)


def _document(written: Written) -> str:
    return "".join([*(f"# {line}\n" for line in written.comment), *as_yaml(written.document)])


def as_yaml(document: Json) -> list[str]:
    """Returns the lines of a mapping."""
    lines: list[str] = []
    _mapping(lines, document, "", "")
    return lines


def _mapping(lines: list[str], value: Json, first: str, indent: str) -> None:
    """Adds the lines of a mapping. `first` begins the first of them, `indent` the others."""
    start = first
    for key, below in value.items():
        _entry(lines, f"{start}{_scalar(str(key))}:", below, indent)
        start = indent


def _entry(lines: list[str], start: str, value: Any, indent: str) -> None:
    if isinstance(value, dict) and value:
        lines.append(f"{start}\n")
        below = f"{indent}  "
        _mapping(lines, value, below, below)
    elif isinstance(value, list) and value:
        lines.append(f"{start}\n")
        _items(lines, value, indent)
    elif isinstance(value, str) and "\n" in value and _literal(value):
        lines.append(f"{start} |\n")
        lines += [f"{indent}  {line}\n" if line else "\n" for line in value.removesuffix("\n").split("\n")]
    else:
        lines.append(f"{start} {_scalar(value)}\n")


def _items(lines: list[str], values: list[Any], indent: str) -> None:
    for item in values:
        if isinstance(item, dict) and item:
            _mapping(lines, item, f"{indent}- ", f"{indent}  ")
        else:
            _entry(lines, f"{indent}-", item, indent)


def _literal(value: str) -> bool:
    """Returns whether a literal block holds exactly this text."""
    ends_once = value.endswith("\n") and not value.endswith("\n\n")
    return ends_once and not value[0].isspace() and value.isascii() and value.replace("\n", "").isprintable()


def _scalar(value: Any) -> str:
    return _text(value) if isinstance(value, str) else json.dumps(value)


@lru_cache(maxsize=10_000)  # most values are keys, or common to all routes
def _text(value: str) -> str:
    if _SAFE.fullmatch(value) and isinstance(_read(value), str) and not _NUMBER.match(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def _read(text: str) -> Any:
    try:
        return plain(text)
    except ValueError:
        return None
