"""The layout of code and tests: tests import no test module, and the program imports only its own dependencies."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import metadata
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
    imports = {(path.name, name) for path in MODULES for name in imported(path)}
    assert {(path, name) for path, name in imports if tests & {name, name.rpartition(".")[0]}} == set()


def test_the_program_imports_only_installed_packages() -> None:
    """A development tool such as rich is there in every test, and missing in a wheel."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=\[]", requirement)[0].lower().replace("_", "-") for requirement in project["dependencies"]}
    needed = declared | {
        re.split(r"[ <>=!~;\[(]", requirement)[0].lower().replace("_", "-")
        for name in declared
        for requirement in metadata.requires(name) or ()
        if "extra ==" not in requirement
    }
    provided = metadata.packages_distributions()
    imports = {(path.name, name.partition(".")[0]) for path in (HERE.parent / "src").rglob("*.py") for name in imported(path)}
    foreign = {(path, name) for path, name in imports if name in provided and not name.startswith("lasthop")}
    assert len({name for _, name in foreign}) > 10
    assert {
        (path, name)
        for path, name in foreign
        if not {distribution.lower().replace("_", "-") for distribution in provided[name]} & needed
    } == set()
