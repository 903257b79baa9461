"""What the code says that the reference has to explain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lasthop.engine.plan import condition, not_applied, reasons
from tests.docs.pages import ROOT

SOURCES = sorted((ROOT / "src" / "lasthop").rglob("*.py"))
REASON_AT = {"Finding": 1, "Problem": 0, "FieldProblem": 3}
"""Whose reason is which argument, where it may be written as text."""


def condition_reasons() -> set[str]:
    """The constants of engine/plan/reasons.py that anything uses."""
    texts = "\n".join(path.read_text() for path in SOURCES)
    return {getattr(reasons, name) for name in set(re.findall(r"\breasons\.([A-Z_]+)\b", texts))}


def finding_reasons() -> set[str]:
    """Reasons that stand as text where a finding, or a problem that becomes one, is made."""
    return {reason for path in SOURCES for reason in _written(path)}


def _written(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REASON_AT:
            named = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            at = REASON_AT[node.func.id]
            for value in (*node.args[at : at + 1], *named):
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                    yield value.value
                elif isinstance(value, ast.Name) and hasattr(not_applied, value.id):
                    yield getattr(not_applied, value.id)


MAKERS = ("true", "failed", "unknown", "Condition")
"""What makes a condition; its first argument is the type."""


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
