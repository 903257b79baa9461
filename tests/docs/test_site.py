"""The documentation as a site: every page has its place, and nothing is loaded from elsewhere. `make site` checks links."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from docs import site
from tests.docs.pages import DOCS, ROOT


def test_every_page_of_docs_is_in_the_navigation_and_none_is_missing() -> None:
    listed = site.pages()
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= set(listed)
    assert [page for page in listed if not (ROOT / page).is_file()] == []
    assert len(listed) == len(set(listed))


def test_a_link_to_a_file_brings_it_and_one_to_a_folder_leads_to_its_page(tmp_path: Path) -> None:
    site.stage(tmp_path)
    assert (tmp_path / "docs/images/dashboard.png").exists()
    assert (tmp_path / "deploy/compose.yaml").exists()
    assert "](../conformance/reports/README.md)" in (tmp_path / "docs/compatibility.md").read_text()
    assert "- [v1.7/](v1.7/README.md)" in (tmp_path / "conformance/reports/README.md").read_text()
    assert (tmp_path / "conformance/reports/v1.7/lasthop/README.md").exists()


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>', ["a.html: https://cdn.example/x.js"]),
        ("a.html", "<link rel=stylesheet href=//fonts.example/css>", ["a.html: //fonts.example/css"]),
        ("a.css", "@font-face{src:url('https://fonts.example/f.woff2')}", ["a.css: https://fonts.example/f.woff2"]),
        ("a.html", '<a href="https://gateway-api.sigs.k8s.io/">a link is followed, not loaded</a><img src="x.png">', []),
    ],
)
def test_resources_from_other_origins_are_found(file: str, text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    assert site.loaded_from_elsewhere(tmp_path) == found


def test_versions_are_listed_newest_first_and_the_front_page_leads_to_the_current_one(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.2.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").touch()
    site.list_versions(tmp_path, "0.10.0")
    text = (tmp_path / "versions.json").read_text()
    assert [text.index(version) for version in ("0.10.0", "0.9.0", "0.2.1")] == sorted(
        text.index(version) for version in ("0.10.0", "0.9.0", "0.2.1")
    )
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()


def test_the_recorded_terminal_shows_what_the_example_says() -> None:
    """Recorded by tools/terminal.py; if the output is another now, record it again."""
    picture = (DOCS / "images" / "terminal.svg").read_text()
    rows: dict[float, str] = {}
    for y, text in re.findall(r'<text[^>]*? y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        rows[float(y)] = rows.get(float(y), "") + html.unescape(text).replace("\xa0", " ")
    words = " ".join(" ".join(rows[y] for y in sorted(rows)).split())
    shown = (ROOT / "examples" / "failing-policy" / "README.md").read_text()
    lines = [line for block in re.findall(r"^```\n(.+?)^```$", shown, re.DOTALL | re.MULTILINE) for line in block.splitlines()]
    assert len(lines) > 5
    assert [line for line in lines if " ".join(line.split()) not in words] == []
    assert "url(" not in picture.replace("url(#", "")
