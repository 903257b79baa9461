"""Builds the documentation as a site (`make site`): a folder for each version, and nothing that is loaded from elsewhere.

The pages are copied into a folder that is laid out like the repository, with the files that they link to, and MkDocs makes
HTML of that. A link that leads nowhere ends the build.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
CONFIG: Final = ROOT / "docs" / "mkdocs.yml"
LINK: Final = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
SHOWN: Final = re.compile(r"""\b(?:src|srcset)="([^":]+)\"""")
FRONT: Final = "README.md"
STYLE: Final = "docs/site.css"
LOADED: Final = re.compile(
    rb"""(?:<(?:script|img|iframe|source)\b[^>]*?\bsrc|<link\b[^>]*?\bhref)=["']?((?:https?:)?//[^"'\s>]+)"""
)
STYLED: Final = re.compile(rb"""(?:url\(|@import\s)["']?((?:https?:)?//[^"')\s]+)""")


WIDE: Final = "---\nhide: [toc]\n---\n"
"""The front page has the width of its table of contents for its picture."""


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the tags that only MkDocs understands."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def pages() -> list[str]:
    """Returns the pages of the navigation, by their paths in the repository."""
    sections: list[dict[str, list[str]]] = yaml.load(CONFIG.read_text(), _Loader)["nav"]
    return [page for section in sections for listed in section.values() for page in listed]


def stage(target: Path) -> None:
    """Copies the pages, and all linked files of the repository, into `target`.

    A link to a folder becomes one to its README.md, which GitHub shows in place of the folder, or to a list of its files.
    """
    waiting, done = [*pages(), STYLE], set[str]()
    while waiting:
        if (name := waiting.pop()) in done:
            continue
        done.add(name)
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            text = (ROOT / name).read_text() if (ROOT / name).exists() else _listing(Path(name).parent)
            waiting += _linked(name, text)
            copy.write_text((WIDE if name == FRONT else "") + _with_folders(name, text))
        else:
            shutil.copy(ROOT / name, copy)


def _linked(page: str, text: str) -> Iterator[str]:
    for name in (*(link[2] for link in LINK.finditer(text)), *SHOWN.findall(text)):
        path = Path(os.path.normpath(ROOT / Path(page).parent / name))
        if path.is_relative_to(ROOT) and path.exists():
            yield str((path / "README.md" if path.is_dir() else path).relative_to(ROOT))


def _with_folders(page: str, text: str) -> str:
    def replaced(link: re.Match[str]) -> str:
        folder = (ROOT / page).parent / link[2]
        return f"{link[1]}{link[2].rstrip('/')}/README.md{link[3]}" if folder.is_dir() else link[0]

    return LINK.sub(replaced, text)


def _listing(folder: Path) -> str:
    """Returns a page for a folder that has no README.md."""
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in (ROOT / folder).iterdir())
    return "\n".join((f"# {folder}", "", *(f"- [{name}]({name})" for name in names), ""))


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Returns the resources that a browser would load from other hosts, as `file: address`."""
    loads = []
    for path in sorted(site.rglob("*")):
        pattern = {".html": LOADED, ".css": STYLED, ".svg": STYLED}.get(path.suffix)
        if pattern is not None:
            loads += [f"{path.relative_to(site)}: {address.decode()}" for address in pattern.findall(path.read_bytes())]
    return loads


def list_versions(target: Path, current: str) -> None:
    """Writes versions.json, from which every page has its list of versions, and the page that leads to the current one."""
    versions = {path.name for path in target.iterdir() if (path / "index.html").exists()}
    newest_first = sorted(versions, key=lambda name: [int(number) for number in re.findall(r"\d+", name)], reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in newest_first]
    (target / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (target / "index.html").write_text(
        f'<!doctype html><title>Lasthop</title><meta http-equiv="refresh" content="0; url={current}/index.html">'
        f'<a href="{current}/index.html">Lasthop {current}</a>\n'
    )


def build(target: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    site = target.resolve() / version
    with tempfile.TemporaryDirectory() as pages:
        stage(Path(pages))
        variables = {
            "LASTHOP_SITE_PAGES": pages,
            "LASTHOP_SITE_TARGET": str(site),
            "LASTHOP_SITE_FOOTER": f"Lasthop {version} · Apache-2.0",
            "NO_MKDOCS_2_WARNING": "true",
        }
        # Not --quiet: only logged warnings are counted, and only counted warnings fail the build.
        command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(CONFIG))
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr.replace(f"{pages}/", ""))
    if loaded := loaded_from_elsewhere(site):
        raise SystemExit("pages load from other hosts:\n" + "\n".join(loaded))
    list_versions(target, version)
    print(f"{target}/index.html leads to {sum(1 for _ in site.rglob('*.html'))} pages of version {version}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "target", type=Path, nargs="?", default=ROOT / "site", help="the folder that has a folder for each version"
    )
    build(parser.parse_args().target)
