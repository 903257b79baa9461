"""The documentation as data: links, headings, and the objects in its YAML blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.certificates import DAY, NOW, Certificate, dns

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.glob("*.md")))

FILE = "lasthop.dev/file."
YEAR = (NOW - DAY, NOW + 365 * DAY)
CA = Certificate("docs CA", ca=True, valid=YEAR)
SERVER = Certificate("docs", CA, sans=dns("www.example"), valid=YEAR)
LOCAL_FILES = {"ca.crt": CA.pem, "tls.crt": SERVER.pem, "tls.key": SERVER.key_pem}
"""Contents of the files that readers of a page create, by their key."""

Document = dict[str, Any]


class Block(NamedTuple):
    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def documents(self) -> list[Document]:
        return [document for document in yaml.safe_load_all(self.text) if document]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in re.finditer(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(page, text.count("\n", 0, found.start()) + 2, found[1])


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    text = without_code(page.read_text())
    return [*re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", text), *re.findall(r"""\b(?:src|srcset)="([^"]+)\"""", text)]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_under(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    section = page.read_text().split(f"\n{heading}\n", 1)[1]
    table = re.search(r"^\|.*?(?=\n\n|\Z)", section, re.DOTALL | re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in table[0].splitlines()[2:]]


def put(folder: Path, base: list[Document], documents: list[Document]) -> None:
    """Into a folder: the base, the objects that stand beside it or in place of its own, and the files that they name."""
    objects = {_key(document): document for document in (*base, *documents)}
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects.values(), sort_keys=False))
    for document in objects.values():
        for name, path in document["metadata"].get("annotations", {}).items():
            if name.startswith(FILE):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(LOCAL_FILES[name.removeprefix(FILE)])


def _key(document: Document) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", "default"), metadata["name"]
