"""Runs the commands in the documentation, page by page in order, and lists the reasons for commands that do not run here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import DOCS, ROOT

PAGES = (
    ROOT / "README.md",
    *sorted(page for page in DOCS.glob("*.md") if page.name != "reference.md"),
    ROOT / "examples" / "README.md",
    *sorted(ROOT.glob("examples/*/README.md")),
    *sorted(ROOT.glob("deploy/**/*.md")),
)
REASONS = {
    "cluster": "needs a Kubernetes cluster; conformance/ runs these",
    "root": "needs root and systemd; `make service` runs these",
    "release": "installs, or takes an hour; `make bare` and `make release` run these",
    "judge": "waits for a gateway in another terminal and asks it for a minute; tests/judge runs these",
    "tools": "needs a program that the tests do not install",
}
"""Why a block marked `<!-- not run: REASON -->` is not run."""
BY_WORD = {
    "cluster": re.compile(r"--context\b|^(kubectl|helm|docker) "),
    "root": re.compile(r"^(sudo|systemctl|journalctl) "),
    "release": re.compile(r"^make "),
}
"""Commands that explain themselves, and need no mark."""

MARK = re.compile(r"<!-- not run: (\w+) -->")
FENCE = re.compile(r"^ *```(\w*)")
INDENTED = re.compile(r"^ {4,}(?=\S)")


class Command(NamedTuple):
    page: str
    line: int
    text: str
    shown: tuple[str, ...] = ()
    """The output on the page."""
    skipped: str = ""


def commands(page: Path) -> Iterator[Command]:
    """Yields the commands of indented and `sh` blocks; where lines begin with `$ `, the others are output."""
    name = str(page.relative_to(ROOT))
    for start, mark, block in _blocks(page.read_text().splitlines()):
        typed = any(line.startswith("$ ") for line in block)
        found: list[Command] = []
        text = ""
        for number, line in enumerate(block, start):
            if typed and not line.startswith("$ ") and not text:
                found[-1] = found[-1]._replace(shown=(*found[-1].shown, line))
                continue
            text += line.removeprefix("$ ") if typed else line
            if text.endswith("\\"):
                text = text[:-1]
                continue
            if text:
                by_word = next((reason for reason, words in BY_WORD.items() if words.search(text)), "")
                found.append(Command(name, number, text, (), mark or by_word))
            text = ""
        yield from found


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yields the first line's number, the mark above, and the lines of each block of commands."""
    mark, block, fence, blank = "", list[str](), None, True
    for number, line in enumerate([*lines, ""], 1):
        if found := FENCE.match(line):
            if fence is None:
                fence, block = found[1], []
            else:
                if fence == "sh":
                    yield number - len(block), mark, block
                fence, block, mark = None, [], ""
        elif (
            fence is not None
            or (INDENTED.match(line) and (block or blank))
            or (block and not line and number < len(lines) and INDENTED.match(lines[number]))
        ):
            block.append(line)
        elif block:
            yield number - len(block), mark, _dedented(block)
            block, mark = [], ""
        if fence is None and (found := MARK.search(line)):
            mark = found[1]
        elif fence is None and line.strip() and not block:
            mark = ""
        blank = not line.strip()


def _dedented(block: list[str]) -> list[str]:
    depth = min(len(line) - len(line.lstrip()) for line in block if line)
    return [line[depth:] for line in block]
