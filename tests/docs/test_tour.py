"""The tour names files and functions; all of them exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lasthop"
TOUR = (ROOT / "docs" / "tour.md").read_text()
PLACE = re.compile(r"`(?P<file>[\w/]+\.py)`: (?P<names>`\w+`(?:, `\w+`)*)")


@cache
def defined(file: str) -> set[str]:
    tree = ast.walk(ast.parse((SOURCE / file).read_text()))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def test_every_function_of_the_tour_exists() -> None:
    places = [(place["file"], name) for place in PLACE.finditer(TOUR) for name in re.findall(r"`(\w+)`", place["names"])]
    assert len(places) > 40
    assert not [(file, name) for file, name in places if name not in defined(file)]


def test_every_file_and_room_of_the_tour_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", TOUR)) - {"src/lasthop/"}
    assert len(named) > 40
    assert not [path for path in named if not (SOURCE / path).exists()]
