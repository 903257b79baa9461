"""What modules may import: no test module, and in the package only what its installation brings."""

from __future__ import annotations

import ast
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_the_package_imports_only_what_its_installation_brings() -> None:
    """A development dependency is there in every test run, and in no user's environment."""
    brought, todo = {"lasthop"}, ["lasthop"]
    while todo:
        for line in requires(todo.pop()) or ():
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in brought and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                brought.add(name)
                todo.append(name)
    owners = packages_distributions()
    for path in sorted((HERE.parent / "src").rglob("*.py")):
        for module in {name.partition(".")[0] for name in imported(path)}:
            known = {canonicalize_name(owner) for owner in owners.get(module, ())}
            assert not known or known & brought, f"{path} imports {module}, which no dependency of the package has"
