"""Renders objects as YAML, always in the same way: block style, literal certificates, quotes only where they are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lasthop.admission.scalars import plain
from lasthop.api.documents import Json
from lasthop.importers.writer.objects import Written

_SAFE: Final = re.compile(r"[A-Za-z0-9/_.(][A-Za-z0-9/_.()*+$^|=-]*(?:[ :][A-Za-z0-9/_.()*+$^|=-]+)*")
_NUMBER: Final = re.compile(r"[-+.]?[0-9]")


def render(objects: Iterable[Written]) -> str:
    """Returns the objects as YAML documents."""
    return "---\n".join("".join(_document(each)) for each in objects)


def _document(written: Written) -> Iterator[str]:
    for line in written.comment:
        yield f"# {line}\n"
    yield from as_yaml(written.document)


def as_yaml(document: Json) -> Iterator[str]:
    """Yields the lines of a mapping."""
    yield from _mapping(document, "")


def _mapping(value: Json, indent: str) -> Iterator[str]:
    for key, below in value.items():
        yield from _entry(f"{indent}{_scalar(str(key))}:", below, indent)


def _entry(start: str, value: Any, indent: str) -> Iterator[str]:
    match value:
        case dict() if value:
            yield f"{start}\n"
            yield from _mapping(value, f"{indent}  ")
        case list() if value:
            yield f"{start}\n"
            for item in value:
                yield from _item(item, indent)
        case str() if "\n" in value and _literal(value):
            yield f"{start} |\n"
            yield from (f"{indent}  {line}\n" if line else "\n" for line in value.removesuffix("\n").split("\n"))
        case _:
            yield f"{start} {_scalar(value)}\n"


def _item(value: Any, indent: str) -> Iterator[str]:
    match value:
        case dict() if value:
            lines = list(_mapping(value, f"{indent}  "))
            yield f"{indent}- {lines[0][len(indent) + 2 :]}"
            yield from lines[1:]
        case _:
            yield from _entry(f"{indent}-", value, indent)


def _literal(value: str) -> bool:
    """Whether a literal block holds exactly this text."""
    ends_once = value.endswith("\n") and not value.endswith("\n\n")
    return ends_once and not value[0].isspace() and value.isascii() and value.replace("\n", "").isprintable()


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _SAFE.fullmatch(value) and isinstance(_read(value), str) and not _NUMBER.match(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def _read(text: str) -> Any:
    try:
        return plain(text)
    except ValueError:
        return None
