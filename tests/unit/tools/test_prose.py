"""`make prose`: the listed sentences and their lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.prose import advise, judge


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("word " * 31, "31 words"),
        ("What is listed of a hop by how it is connected.", "hidden subject"),
        ("One indexer, because of which most hops appear in none.", "of which"),
        ("Keeps whatever comes.", "whatever, whoever"),
        ("Which of the names somebody meant.", "nobody, somebody"),
        ("There are none.", "is no X"),
        ("Of our own words there is a list.", "of X there is Y"),
        ("An engine that is told that all works.", "said, told, asked"),
        ("The port was read and is sent.", "passive chain"),
    ],
)
def test_hard_sentences_have_a_reason(sentence: str, reason: str) -> None:
    assert reason in judge(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Indexes hops by connection mode.",
        "Precedence never looks at validity: an invalid policy that wins fails closed.",
        "The Secret is no longer watched.",
        "What comes next?",
    ],
)
def test_plain_sentences_have_none(sentence: str) -> None:
    assert judge(sentence) == ()


PYTHON = '''"""Plain text.

Nobody reads this
line.
"""

# Somebody wrote
# this.
name = "whatever"
text = f"nobody reads {name} here"


def speak() -> None:
    """Tells all.

        said in code
    """
'''


def test_docstrings_comments_and_texts_are_read_in_python(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(PYTHON)
    assert [(advice.line, advice.sentence) for advice in advise(file)] == [
        (3, "Nobody reads this line."),
        (7, "Somebody wrote this."),
        (10, "nobody reads {} here"),
        (14, "Tells all."),
    ]
    assert [advice.line for advice in advise(file, {4, 12})] == [3]


def test_paragraphs_items_and_cells_are_read_in_markdown_and_code_is_not(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("# Title\n\nPlain. Nobody\nreads it.\n\n- Somebody wrote.\n\n```\nasked\n```\n\n    told\n")
    assert [(advice.line, advice.sentence) for advice in advise(file)] == [(3, "Nobody reads it."), (6, "Somebody wrote.")]


def test_only_sentences_on_changed_lines_are_listed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments), cwd=tmp_path, check=True, capture_output=True
        )

    page = tmp_path / "page.md"
    git("init", "--initial-branch", "main")
    page.write_text("Nobody reads this.\n\nPlain.\n")
    git("add", ".")
    git("commit", "--message", "Add a page")
    page.write_text("Nobody reads this.\n\nSomebody wrote this.\n")
    # By its path, because the repository that it reads is the current folder.
    prose = Path("tools/prose.py").resolve()
    run = subprocess.run((sys.executable, prose, "--base", "main"), cwd=tmp_path, capture_output=True, text=True, check=True)
    first, last = run.stdout.splitlines()
    assert first == "page.md:3: nobody, somebody: Somebody wrote this."
    assert last.startswith("1 sentences to look at again")
