"""How the tests are laid out: packages, in which no test module is imported by another module."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
MODULES = [path for path in HERE.rglob("*.py") if path.name != "__init__.py"]


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = {f"{node.module}.{name.name}" for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    return named | {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}


def test_every_folder_is_a_package() -> None:
    folders = {folder for path in MODULES for folder in path.parents if folder.is_relative_to(HERE)}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_no_module_imports_a_test_module() -> None:
    tests = {".".join(path.relative_to(HERE.parent).with_suffix("").parts) for path in HERE.rglob("test_*.py")}
    found = {(path.name, name) for path in MODULES for name in imported(path)}
    assert {(path, name) for path, name in found if tests & {name, name.rpartition(".")[0]}} == set()
