"""Extracts the facts in the code that the reference must document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lasthop.engine.plan import condition, reasons
from tests.docs.pages import ROOT

SOURCES = sorted((ROOT / "src" / "lasthop").rglob("*.py"))


def used_reasons() -> set[str]:
    """The entries of engine/plan/reasons.py that anything else uses."""
    texts = "\n".join(path.read_text() for path in SOURCES if path != Path(reasons.__file__))
    names = set(re.findall(r"\b[A-Z][A-Z_]+\b", texts))
    return {
        value for name, value in vars(reasons).items() if name in names and isinstance(value, str)
    } & reasons.REASONS.keys()


MAKERS = ("true", "failed", "unknown", "Condition")
"""Functions that build a condition; their first argument is the type."""


def condition_types() -> set[str]:
    """The type of every condition that is made anywhere."""
    return {type for path in SOURCES for type in _types(path)}


def _types(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
            named = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            (type,) = (*node.args[:1], *named)
            if isinstance(type, ast.Attribute):
                yield getattr(reasons, type.attr)
            elif path != Path(condition.__file__):  # whose own helpers pass on what they are given
                raise AssertionError(f"{path}:{node.lineno}: write the type as a constant of engine/plan/reasons.py")


def environment_variables() -> set[str]:
    texts = "\n".join(path.read_text() for path in SOURCES)
    return set(re.findall(r'"(_?LASTHOP_[A-Z_]+|SSL_CERT_FILE)"', texts)) | set(re.findall(r'environ\.get\("(\w+)"\)', texts))


def own_names() -> set[str]:
    """`lasthop.dev/…` as the code has them; a prefix ends in a slash or a dot."""
    return set(re.findall(r'"(lasthop\.dev/[\w.-]*)"', "\n".join(path.read_text() for path in SOURCES)))


def metrics() -> set[str]:
    return set(re.findall(r'"(lasthop_[a-z_]+)"', "\n".join(path.read_text() for path in SOURCES)))
