"""The check whether a commit can be released."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from release.check import COPIED, OWNED, disagreements, project_version, strangers, unready
from release.dist import ROOT

FILES = ("pyproject.toml", "CHANGELOG.md", "deploy/chart/Chart.yaml", "deploy/chart/values.yaml", *COPIED)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Makes a new repository with a commit."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("## [7.0.0] - 2026-11-17\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *command: str) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *command], check=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "a commit")


def test_all_places_name_the_version_of_the_project() -> None:
    assert disagreements(ROOT, project_version(ROOT)) == []


def test_each_place_with_another_version_is_reported() -> None:
    problems = disagreements(ROOT, "99.0.0")
    places = {problem.partition(",")[0] for problem in problems}
    assert places == {"deploy/chart/Chart.yaml", "deploy/chart/values.yaml", *COPIED}


def test_an_example_without_a_version_is_reported(copy: Path) -> None:
    (copy / "docs/how-to.md").write_text("nothing\n")
    (problem,) = disagreements(copy, project_version(copy))
    assert problem.startswith("docs/how-to.md: the version is none")


def test_every_place_names_the_owner_of_the_repository(copy: Path) -> None:
    assert strangers(ROOT) == []
    text = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(text.replace("github.com/lasthop/", "github.com/another/"))
    assert {problem.partition(":")[0] for problem in strangers(copy)} == set(OWNED)


def test_no_placeholder_is_left_in_what_users_read() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md"), *ROOT.glob("examples/**/*.md")]
    assert [page.name for page in pages if re.search(r"\bOWNER\b|example/lasthop\b", page.read_text())] == []


def test_a_clean_commit_with_a_dated_section_is_ready(copy: Path) -> None:
    assert unready(copy, "7.0.0") == []
    git(copy, "tag", "v7.0.0")
    assert unready(copy, "7.0.0") == []


def test_a_section_without_a_date_a_change_and_a_taken_tag_are_reported(copy: Path) -> None:
    git(copy, "tag", "v7.0.0")
    (copy / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert [problem.partition(":")[0] for problem in unready(copy, "7.0.0")] == [
        "CHANGELOG.md",
        "the working tree has changes",
    ]
    commit(copy)
    assert [problem.partition(":")[0] for problem in unready(copy, "7.0.0")] == [
        "CHANGELOG.md",
        "the tag v7.0.0 is another commit",
    ]
    (problem,) = unready(copy, "8.0.0")
    assert problem.startswith("CHANGELOG.md: there is no section `## [8.0.0] - YYYY-MM-DD`")
