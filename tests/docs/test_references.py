"""No link, comment or docstring names a file or a heading that the repository does not have."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, links

ROOMS = ("src", "tests", "bench", "conformance", "docs", "examples", "deploy", "release", "tools", ".github")
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.md"))))
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
FILE = re.compile(r"(?<![\w/.*{<-])((?:[\w.-]+/)*[\w-]+\.(?:py|md))(?:#([\w-]+))?\b")
"""A file's name as prose has it: from the root of the repository, or as much of its end as is needed (`session.py`)."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            lost.append(link)
    assert not lost


def test_files_and_headings_that_prose_names_exist() -> None:
    named = [
        (path, line, reference)
        for path in (*PAGES, *MODULES)
        for line, text in (comments(path) if path.suffix == ".py" else enumerate(path.read_text().splitlines(), 1))
        for reference in FILE.finditer(text)
    ]
    assert len(named) > 100, "the references are not found any more"
    assert not [f"{relative(path)}:{line}: {name[0]}" for path, line, name in named if not exists(path, name[1], name[2])]


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yields comments and docstrings, each with its line."""
    source = path.read_text()
    if not FILE.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


@cache
def files() -> frozenset[str]:
    return frozenset(relative(path) for path in (*PAGES, *MODULES))


def exists(at: Path, file: str, anchor: str | None) -> bool:
    found = [name for name in files() if name == file or name.endswith(f"/{file}")] or [relative(at.parent / file)]
    return any((ROOT / name).exists() and (anchor is None or anchor in anchors(ROOT / name)) for name in found)
