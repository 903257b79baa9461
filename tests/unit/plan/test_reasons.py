"""The registry of reasons, and that nothing goes round it: no reason as text, nothing that reads a sentence back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lasthop.base.api.kinds import KINDS as API_KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Severity, make_finding
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import Cause, ReasonEntry, entry_of
from tests.source_nodes import ROOTS, source_nodes

SERVICE = Key("Service", "shop", "api")


@pytest.mark.parametrize("reason", reasons.REASONS)
def test_an_entry_is_whole(reason: str) -> None:
    entry = entry_of(reason)
    assert re.fullmatch(r"([A-Z][a-z]*)+[A-Za-z]*", reason)
    assert entry.means or reason in reasons.CONDITION_REASONS
    assert not entry.means.endswith(".") and (not entry.remedy or entry.remedy.endswith("."))
    assert set(entry.needs) <= API_KINDS.keys()
    assert entry.needs or Cause.BROKEN_NEED not in entry.follows
    assert entry.follows and len(set(entry.follows)) == len(entry.follows)


def test_a_reason_of_another_version_has_a_plain_entry() -> None:
    assert entry_of("MadeUpByANewerVersion") == ReasonEntry()


@pytest.mark.parametrize("reason", reasons.REASONS)
def test_a_finding_has_the_severity_and_the_remedy_of_its_reason_unless_it_has_its_own(reason: str) -> None:
    known, name = entry_of(reason), reasons.Reason(reason)
    plain = make_finding(SERVICE, name, "it is wrong")
    assert plain.severity is (Severity.WARNING if known.warning else Severity.ERROR)
    assert plain.remedy == known.remedy
    assert Problem(name, "it is wrong").on(SERVICE) == plain
    own = make_finding(SERVICE, name, "it is wrong", "Do that.", severity=Severity.WARNING)
    assert (own.severity, own.remedy) == (Severity.WARNING, "Do that.")
    advised = Problem(name, "it is wrong", remedy="do that").on(SERVICE)
    assert (advised.message, advised.remedy) == ("it is wrong; do that", "")


# --- nothing goes round it -------------------------------------------------------------------------------------------

DISTINCT = {reason for reason in reasons.REASONS if len(re.findall("[A-Z][a-z]", reason)) > 1}
"""Reasons that are no words of anything else."""


def test_no_reason_is_written_as_text() -> None:
    violations = [
        f"{path.name}:{node.lineno}: {node.value}"
        for path, nodes in source_nodes().items()
        if path != Path(reasons.__file__)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in DISTINCT
    ]
    assert not violations


def test_no_reason_is_compared_with_text() -> None:
    violations = [
        f"{path.name}:{node.lineno}"
        for path, nodes in source_nodes().items()
        if "lasthop_import" not in path.parts  # whose notes have reasons of their own
        for node in nodes
        if isinstance(node, ast.Compare) and _is_reason(node.left)
        for comparator in node.comparators
        if any(isinstance(part, ast.Constant) and part.value in reasons.REASONS for part in ast.walk(comparator))
    ]
    assert not violations


def _is_reason(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "reason"


# --- no English is parsed --------------------------------------------------------------------------------------------

SENTENCES = re.compile(r"(?:^|_)(?:message|text|why|remedy|said|refused|problem|detail|words|advice)$")
FOREIGN = {
    "edge/proxy/admin.py": "Envoy's list of its loggers",
    "edge/probe/handshake.py": "OpenSSL's words",
    "engine/resolve/routing/regexes.py": "RE2's words",
    "notes.py": "the first line of a PEM file",
}
"""Modules that read what other programs write."""
SEPARATORS = {": ", "; ", ". "}


def test_no_sentence_of_ours_is_read_back() -> None:
    """Data that a program needs later is a field. See `Finding.missing`, `AccessLogEntry.advice`, `BindProblem.remedy`."""
    violations = [
        f"{name}: {ast.unparse(node)}"
        for path, nodes in source_nodes().items()
        if (name := path.relative_to(ROOTS[0]).as_posix() if ROOTS[0] in path.parents else path.name) not in FOREIGN
        for node in nodes
        if any(_reads(node))
    ]
    assert not violations


def _reads(node: ast.AST) -> Iterator[bool]:
    """Yields True for `"some words" in message`, `message.replace("some words", ...)`, `message.partition(": ")`."""
    match node:
        case ast.Compare(left=ast.Constant(value=str() as words), ops=[ast.In() | ast.NotIn()], comparators=[text]):
            yield " " in words.strip() and _is_sentence(text)
        case ast.Call(func=ast.Attribute(value=text, attr="replace" | "startswith" | "endswith" | "removeprefix"), args=args):
            values = [part.value for arg in args[:1] for part in ast.walk(arg) if isinstance(part, ast.Constant)]
            yield _is_sentence(text) and any(isinstance(value, str) and " " in value.strip() for value in values)
        case ast.Call(func=ast.Attribute(attr="partition" | "rpartition"), args=[ast.Constant(value=value)]):
            yield value in SEPARATORS


def _is_sentence(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(SENTENCES.search(name))


@pytest.mark.parametrize(
    "code",
    [
        '"not in the input" in leg.problem',
        'message.replace("does not exist", "is not visible")',
        'str(error).partition(". ")',
        'explained(error).rpartition("; ")',
        "message.startswith(\"key 'apiVersion' is written twice\")",
    ],
)
def test_the_ways_in_which_sentences_were_read_back_are_found(code: str) -> None:
    assert any(reads for node in ast.walk(ast.parse(code)) for reads in _reads(node))
