"""The sources of Lasthop as nodes of syntax trees, for tests of rules over all modules."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import lasthop
import lasthop_import

ROOTS = [Path(module.__path__[0]) for module in (lasthop, lasthop_import)]


@functools.cache
def source_nodes() -> dict[Path, list[ast.AST]]:
    paths = [path for root in ROOTS for path in sorted(root.rglob("*.py"))]
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in paths}
