"""Renders the result of `lasthop check` for terminals, as JSON and as annotations of a pull request."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator

import click
import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.cli.render.terminal import wrapped
from lasthop.engine.outputs.findings.root_causes import RootCause
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, with_remedy
from lasthop.engine.plan.reasons import entry_of

SHOWN_FOLLOWS = 5
INDENT = " " * 4


class Report(msgspec.Struct, frozen=True):
    root_causes: tuple[RootCause, ...]
    """By file and line, or by object."""
    where: str
    """The folder, gateway or cluster that was checked."""
    objects: int
    files: int = 0

    @property
    def errors(self) -> int:
        return sum(root.finding.severity is Severity.ERROR for root in self.root_causes)

    @property
    def warnings(self) -> int:
        return len(self.root_causes) - self.errors

    def __str__(self) -> str:
        problems = [count(self.errors, "error"), *([count(self.warnings, "warning")] if self.warnings else [])]
        summary = ", ".join(problems) if self.root_causes else "nothing wrong"
        return f"{summary} in {self.where}; {count(self.objects, 'object')}"

    def of_namespace(self, namespace: str) -> Report:
        """Selects findings of this namespace and of cluster-scoped objects; empty: all."""
        if not namespace:
            return self

        def concerns(finding: Finding) -> bool:
            return finding.object is None or finding.object.namespace in ("", namespace)

        kept = [
            msgspec.structs.replace(root, follows=tuple(filter(concerns, root.follows)))
            for root in self.root_causes
            if any(map(concerns, (root.finding, *root.follows)))
        ]
        return msgspec.structs.replace(self, root_causes=tuple(kept))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def placed(finding: Finding, locate: Callable[[Key, str], tuple[str, int] | None], otherwise: str) -> Finding:
    """Adds file and line; the engine has neither."""
    if finding.file:
        return finding
    file, line = (finding.object and locate(finding.object, finding.field)) or (otherwise, 1)
    return msgspec.structs.replace(finding, file=file, line=line)


# --- for a terminal --------------------------------------------------------------------------------------------------


def text(report: Report) -> str:
    blocks = []
    for _, group in itertools.groupby(report.root_causes, key=lambda root: root.finding.file):
        blocks.append("\n".join(line for root in group for line in _lines(root)))
    colour = "red" if report.errors else "yellow" if report.warnings else "green"
    return "\n\n".join([*blocks, click.style(str(report), bold=True, fg=colour)])


def _lines(root: RootCause) -> Iterator[str]:
    finding = root.finding
    subject = ", ".join(str(part) for part in (finding.object, finding.field) if part)
    place = _place(finding) or subject or "cluster"
    yield from _headline(finding, place)
    if subject and subject != place:
        yield click.style(f"    {subject}", fg="cyan")
    if finding.remedy:
        yield from (click.style(line, fg="green") for line in wrapped(finding.remedy, INDENT, INDENT))
    yield from (click.style(line, dim=True) for line in _consequences(root))


def _consequences(root: RootCause) -> Iterator[str]:
    for consequence in root.follows[:SHOWN_FOLLOWS]:
        yield from wrapped(_follow(consequence, root.finding), f"{INDENT}so ", f"{INDENT}   ")
    if len(root.follows) > SHOWN_FOLLOWS:
        yield f"{INDENT}and {len(root.follows) - SHOWN_FOLLOWS} more like these"


def _headline(finding: Finding, place: str) -> Iterator[str]:
    colour = "red" if finding.severity is Severity.ERROR else "yellow"
    word = click.style(str(finding.severity), fg=colour, bold=True)
    lead = f"{place}: {finding.severity}:"
    first, *more = wrapped(f"{lead} {finding.message}", rest=INDENT)
    yield f"{click.style(place, bold=True)}: {word}:{first.removeprefix(lead)}" if first.startswith(lead) else first
    yield from more


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}" if finding.file else ""


def _follow(finding: Finding, cause: Finding) -> str:
    """Returns a consequence in one line, below its cause."""
    entry = entry_of(finding.reason)
    if finding.object is None:
        return with_remedy(entry.effect, "" if finding.remedy == entry.remedy else finding.remedy)
    where = f"{finding.object}{', ' if finding.field else ''}{finding.field}"
    effect = "cannot be judged" if cause.reason == reasons.FORBIDDEN else entry.effect
    return f"{where} {effect}{f' ({_place(finding)})' if finding.file else ''}"


# --- for programs ----------------------------------------------------------------------------------------------------


def as_json(report: Report) -> str:
    document = {
        "errors": report.errors,
        "warnings": report.warnings,
        "where": report.where,
        "files": report.files,
        "objects": report.objects,
        "findings": [
            {**plain(root.finding), "follows": [plain(consequence) for consequence in root.follows]}
            for root in report.root_causes
        ],
    }
    return json.dumps(document, indent=2)


def plain(finding: Finding) -> Json:
    names = ("severity", "file", "line", "object", "field", "reason", "message", "remedy")
    fields = {name: getattr(finding, name) for name in names}
    return {**fields, "object": finding.object._asdict() if finding.object else None}


# --- for pull requests: workflow commands of GitHub Actions ----------------------------------------------------------


def github(report: Report) -> str:
    return "\n".join([*(annotation(root.finding) for root in report.root_causes), str(report)])


def annotation(finding: Finding) -> str:
    title = str(finding.object) if finding.object else finding.reason
    message = f"{finding.field}: {finding.message}" if finding.field else finding.message
    message = with_remedy(message, finding.remedy)
    return command(str(finding.severity), title, message, finding.file, finding.line)


def command(level: str, title: str, message: str, file: str, line: int) -> str:
    """Returns a workflow command that marks a line, or without a file the whole run."""
    place = {"file": in_workspace(file), "line": str(line)} if file else {}
    shown = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in {**place, "title": title}.items())
    return f"::{level} {shown}::{_escaped(message)}"


def _escaped(value: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        value = value.replace(character, f"%{ord(character):02X}")
    return value


def in_workspace(file: str) -> str:
    """Returns the path from the repository's root, which GitHub needs to show an annotation at its line."""
    root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    relative = os.path.relpath(os.path.abspath(file), root)
    return file if relative.startswith("..") else relative
