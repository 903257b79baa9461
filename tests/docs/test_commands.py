"""Every command of README, docs/, examples/ and deploy/ runs as written, in its page's order, or is marked with the reason.

All pages are walked once, with one gateway for those that start none (tests/docs/walk.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.absence import absent
from tests.docs.commands import PAGES, REASONS, commands
from tests.docs.pages import ROOT
from tests.docs.walk import GATEWAY

COMMANDS = [each for page in PAGES for each in commands(page)]
STARTING = {each.page for each in COMMANDS if not each.skipped and GATEWAY.match(each.text)}
RUN = sorted(dict.fromkeys(each.page for each in COMMANDS if not each.skipped), key=lambda page: page not in STARTING)
"""Pages that start no gateway come last, so that one gateway serves them all."""
NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
EXITS = {
    ("docs/tutorial.md", "lasthop check demo", 2): 1,
    ("docs/seeing-waivers.md", "lasthop status backendtlspolicy -o yaml | grep -A4 VerificationDegraded", 1): 1,
    ("examples/failing-policy/README.md", "lasthop check examples/failing-policy", 1): 1,
    ("examples/failing-policy/README.md", "lasthop probe api", 1): 1,
    ("examples/guardrails/README.md", "lasthop check examples/guardrails", 1): 1,
    ("examples/import/README.md", "lasthop import ingress-nginx examples/import/manifests --to /tmp/imported", 1): 3,
    ("examples/import/README.md", "lasthop check /tmp/imported/objects", 1): 1,
}
"""Exit codes other than 0, where the page says so: by page, command, and the time that the page has it."""


@pytest.fixture(scope="module")
def walk() -> Iterator[subprocess.Popen[str]]:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        absent("this user may not create a network namespace, in which ports are those of the pages")
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as folder:  # short, because unix sockets are in it
        command = [*NAMESPACE, sys.executable, "-m", "tests.docs.walk", folder]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield process


@pytest.mark.program("unshare")
@pytest.mark.program("bash")
@pytest.mark.program("curl")
@pytest.mark.program("openssl")
@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run_as_written(page: str, walk: subprocess.Popen[str]) -> None:
    assert walk.stdin and walk.stdout
    print(page, file=walk.stdin, flush=True)
    ran: list[dict[str, Any]] = json.loads(walk.stdout.readline())
    assert ran
    times = Counter[str]()
    for each in ran:
        times[each["text"]] += 1
        wanted = EXITS.get((page, each["text"], times[each["text"]]), 0)
        where = f"{page}:{each['line']}: {each['text']}\n{each['output']}"
        assert each["code"] == wanted, where
        assert "\nMISSING: " not in each["output"], where


def test_commands_that_are_not_run_have_a_known_reason_and_are_the_minority() -> None:
    skipped = Counter(each.skipped for each in COMMANDS if each.skipped)
    assert set(skipped) == set(REASONS)
    assert sum(skipped.values()) < len(COMMANDS) / 2
    assert skipped["tools"] <= 3 and skipped["release"] <= 8


def test_every_mark_stands_above_a_block_of_commands() -> None:
    for page in PAGES:
        marked = {each.line for each in commands(page) if each.skipped}
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if "<!-- not run: " in line:
                assert marked & set(range(number + 1, number + 4)), f"{page.name}:{number}"


def test_exit_codes_are_of_commands_that_pages_have() -> None:
    listed = Counter((each.page, each.text) for each in COMMANDS)
    assert [key for key in EXITS if listed[key[:2]] < key[2]] == []
