"""Each case is one readable file: the objects of another gateway, perhaps decisions, a line, and the result.

The common parts of a system's cases (a Service, its endpoints, Secrets) are in its `_base.yaml`. The first line may have
options: `# options: {chain_only: strict}`. The second half has the exit code, the hops, the notes and the names of what is
written. A case that is about objects names their kinds, as `=== what comes of it: HTTPRoute, Gateway`, and shows those whole.
`pytest tests/importers --update` writes the second half anew; the diff is the review.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lasthop_import.registry import AUTO, SYSTEMS
from tests.importers.harness import run_text, shown
from tests.importers.promises import assert_promises, assert_repeatable

HERE = Path(__file__).parent / "cases"
LINE = re.compile(r"\n=== what comes of it(?:: (?P<kinds>\w+(?:, \w+)*))?\n")
NAME = re.compile(r"^kind: (\w+)\nmetadata: \{name: ([\w-]+)[,}](?: namespace: ([\w-]+))?", re.MULTILINE)
"""The beginning of an object in flow style, up to its name."""
DECISIONS = "\n=== decisions\n"
CASES = sorted(path for path in HERE.glob("*/*.yaml") if not path.name.startswith("_"))


def options_of(documents: str) -> dict[str, object]:
    first = documents.partition("\n")[0]
    if not first.startswith("# options: "):
        return {}
    found: dict[str, object] = yaml.safe_load(first.removeprefix("# options: "))
    return found


def _others(base: str, documents: str) -> str:
    """Returns the objects of a base that a case does not write itself."""
    own = {*NAME.findall(documents)}
    return "---\n".join(each for each in base.split("---\n") if not own & {*NAME.findall(each)})


@pytest.mark.parametrize("case", CASES, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_case(case: Path, request: pytest.FixtureRequest) -> None:
    whole = case.read_text()
    line = LINE.search(whole)
    assert line, "there is no line between the objects and what comes of them"
    given, expected = whole[: line.start()], whole[line.end() :]
    documents, _, decisions = given.partition(DECISIONS)
    base = case.parent / "_base.yaml"
    # The case comes first, so that the lines in its notes are its own.
    text = f"{documents}\n---\n{_others(base.read_text(), documents)}" if base.exists() else documents
    outcome = run_text(case.parent.name, text, decisions, **options_of(documents))
    assert_promises(case.parent.name, outcome)
    assert_repeatable(case.parent.name, outcome, seed=1)
    found = shown(outcome, line["kinds"].split(", ") if line["kinds"] else ())
    if request.config.getoption("--update"):
        case.write_text(f"{given}{line[0]}{found}")
    else:
        assert found == expected


@pytest.mark.parametrize("system", [*SYSTEMS])
def test_every_system_has_cases(system: str) -> None:
    assert any(case.parent.name == system for case in CASES)


def test_cases_are_of_known_systems() -> None:
    assert {case.parent.name for case in CASES} <= {*SYSTEMS, AUTO}
