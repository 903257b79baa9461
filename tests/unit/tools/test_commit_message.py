"""The commit-msg hook: which subjects it refuses, and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.commit_message import faults


@pytest.mark.parametrize(
    "message",
    [
        "Give the test bridge a static address\n\nWithout one it took a Pod's address.\n",
        "Keep the admin port of run --to open once it was found free",
        "Pass the verdict to audit",
        "Need two failures before an ejection",
        "x" * 0,
        "Merge branch 'main' into a-branch-whose-name-makes-this-subject-much-longer-than-others",
        'Revert "The cluster\'s bridge has an address"',
        "Fix typo\n# Please enter the commit message\n",
        "Fix typo\n\n# ------------------------ >8 ------------------------\ndiff --git a/x b/x\n",
    ],
)
def test_subjects_that_are_accepted(message: str) -> None:
    assert faults(message) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Add " + "x" * 69, "73 characters"),
        ("The cluster's bridge has an address", 'starts with "The"'),
        ("Added an address", 'starts with "Added"'),
        ("Adding an address", 'starts with "Adding"'),
        ("Adds an address", 'starts with "Adds"'),
        ("Tests: one more", 'starts with "Tests"'),
        ("add an address", 'starts with "add"'),
        ("Add an address.", "full stop"),
        ("Add an address\nbecause it is missing", "second line is not blank"),
    ],
)
def test_subjects_that_are_refused(message: str, fault: str) -> None:
    (text,) = faults(message)
    assert fault in text


def test_the_hook_runs_as_configured(tmp_path: Path) -> None:
    (hook,) = (
        hook
        for repository in yaml.safe_load(Path(".pre-commit-config.yaml").read_text())["repos"]
        for hook in repository["hooks"]
        if hook.get("stages") == ["commit-msg"]
    )
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("The bridge")
    command = [sys.executable, *hook["entry"].split()[1:], str(message)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert 'starts with "The"' in refused.stderr
    message.write_text("Give the bridge an address\n")
    assert subprocess.run(command, check=False).returncode == 0
