"""The importers produce the examples of docs/moving-in.md: before the decisions, and after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from lasthop_import.command import report as import_report
from lasthop_import.registry import SYSTEMS
from tests.importers.harness import run_text

SHORTENED = re.compile(r"\|\n\s+-----BEGIN CERTIFICATE-----\n\s+\.\.\.\n")
DOCUMENT = Path(__file__).parents[2] / "docs" / "moving-in.md"


class Section(NamedTuple):
    system: str
    manifests: str
    table: str
    decisions: str
    decided: str
    """Lines of the table after the decisions; empty if it is not shown."""


def _sections() -> list[Section]:
    found = []
    for text in re.split(r"(?m)^## ", DOCUMENT.read_text())[1:]:
        if command := re.search(r"(?m)^\$ lasthop import (\S+) manifests --to gateway\n", text):
            blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```", text)
            manifests, decisions = [SHORTENED.sub('"@ca.pem"\n', content) for kind, content in blocks if kind == "yml"][:2]
            shown = [content.removeprefix(command[0]) for kind, content in blocks if not kind]
            found.append(Section(command[1], manifests, shown[0], decisions, shown[1] if len(shown) > 1 else ""))
    return found


def _table(section: Section, decisions: str = "") -> list[str]:
    outcome = run_text(section.system, section.manifests, decisions)
    text = click.unstyle(import_report.text(import_report.ImportReport.of(outcome.result, 0)))
    return text[text.index("BACKEND") :].partition("\n\n")[0].splitlines()


def test_every_system_has_its_section() -> None:
    assert sorted(section.system for section in _sections()) == sorted(SYSTEMS)


@pytest.mark.parametrize("section", _sections(), ids=lambda section: section.system)
def test_the_report_of_an_example_is_the_one_shown(section: Section) -> None:
    assert _table(section) == section.table.splitlines()


@pytest.mark.parametrize("section", _sections(), ids=lambda section: section.system)
def test_the_decisions_of_an_example_close_its_questions(section: Section) -> None:
    lines = _table(section, section.decisions)
    assert set(section.decided.splitlines()) <= set(lines)
    asked = re.findall(r"(?m)^- port: (\S+)", section.decisions)
    assert not any(f"Service {port} " in line and "TODO" in line for line in lines for port in asked)
