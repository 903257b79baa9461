"""Checks whether this commit can be released, and writes the signed checksums of the build: `make release`.

The version is in pyproject.toml and nowhere else by hand, except where users copy it from: those places are checked here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from conformance.build import HELM, build_one
from release.dist import FOLDER, ROOT, SUMS, write_sums

COPIED = {
    ".pre-commit-hooks.yaml": r"rev: v([\w.]+)",
    "docs/how-to.md": r"(?:/lasthop@|rev: )v([\w.]+)",
    "deploy/README.md": r"lasthop:(\d[\w.]+)",
}
"""Examples with the version in them."""
OWNED = {
    "docs/how-to.md": r"github\.com/([\w-]+)/lasthop|uses: ([\w-]+)/lasthop@",
    "deploy/chart/values.yaml": r"ghcr\.io/([\w-]+)/lasthop",
}
"""Examples with the owner of the repository in them."""


def main() -> int:
    version = project_version(ROOT)
    match sys.argv[1:]:
        case ["before"]:
            problems = [*disagreements(ROOT, version), *strangers(ROOT), *unready(ROOT, version)]
            for problem in problems:
                print(problem)
            print(f"{version} can be released" if not problems else f"{version} cannot be released yet")
            return 1 if problems else 0
        case ["after"]:
            subprocess.run([build_one(HELM), "package", ROOT / "deploy/chart", "--destination", FOLDER], check=True)
            return _finish(version)
    print("python -m release.check before|after")
    return 2


def project_version(root: Path) -> str:
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return version


def disagreements(root: Path, version: str) -> list[str]:
    """Returns the places that name another version than pyproject.toml."""
    chart = yaml.safe_load((root / "deploy/chart/Chart.yaml").read_text())
    image = yaml.safe_load((root / "deploy/chart/values.yaml").read_text())["image"]
    stated = {
        "deploy/chart/Chart.yaml, version": chart["version"],
        "deploy/chart/Chart.yaml, appVersion": chart["appVersion"],
        "deploy/chart/values.yaml, image": image.rpartition(":")[2],
    }
    for name, pattern in COPIED.items():
        versions = re.findall(pattern, (root / name).read_text())
        stated |= {f"{name}, {number}. time": copy for number, copy in enumerate(versions, 1)} or {name: "none"}
    return [
        f"{place}: the version is {other}, and {version} in pyproject.toml (`make docs` writes the chart anew)"
        for place, other in stated.items()
        if other != version
    ]


def strangers(root: Path) -> list[str]:
    """Returns the places that name another owner of the repository than pyproject.toml."""
    address: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    owner = address.split("/")[-2]
    return [
        f"{name}: the owner is {named_owner}, and {owner} in pyproject.toml"
        for name, pattern in OWNED.items()
        for match in re.finditer(pattern, (root / name).read_text())
        if (named_owner := next(filter(None, match.groups()))) != owner
    ]


def unready(root: Path, version: str) -> list[str]:
    """Returns the steps that remain before a release: the date in the changelog, a commit, a free tag."""
    problems = []
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        problems.append(f"CHANGELOG.md: there is no section `## [{version}] - YYYY-MM-DD`; rename [Unreleased] to it")
    if _git(root, "status", "--porcelain"):
        problems.append("the working tree has changes: commit them: a release is a commit")
    tagged = _git(root, "rev-list", "-n1", f"v{version}", "--") if f"v{version}" in _git(root, "tag").split() else ""
    if tagged and tagged != _git(root, "rev-parse", "HEAD"):
        problems.append(f"the tag v{version} is another commit: raise the version in pyproject.toml")
    return problems


def _finish(version: str) -> int:
    write_sums(FOLDER)
    print((FOLDER / SUMS).read_text(), end="")
    key = os.environ.get("SIGNING_KEY", "")
    if not key:
        print(f"Not signed: there is no key. SIGNING_KEY=ID make release signs dist/{SUMS} with gpg.")
    elif gpg := shutil.which("gpg"):
        signature = f"{FOLDER / SUMS}.asc"
        command: list[str | Path] = [
            gpg,
            "--yes",
            "--local-user",
            key,
            "--armor",
            "--output",
            signature,
            "--detach-sign",
            FOLDER / SUMS,
        ]
        subprocess.run(command, check=True)
    else:
        print("SIGNING_KEY is set, and gpg is not installed")
        return 1
    print(f"Next, by hand: git tag -s v{version}, and the rest of release/README.md")
    return 0


def _git(root: Path, *command: str) -> str:
    return subprocess.run(["git", "-C", str(root), *command], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
