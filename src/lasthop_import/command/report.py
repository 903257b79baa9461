"""Renders the report of an import as text, JSON, Markdown and SARIF. No format contains private keys."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import click

from lasthop.base.text.printable import printable
from lasthop.cli.render import sarif
from lasthop.cli.render.report import count
from lasthop.cli.render.terminal import wrapped
from lasthop.engine.plan.finding import with_remedy
from lasthop_import.notes import SEVERITIES, Category, Note, NoteSeverity, SourceRef
from lasthop_import.result import SERIOUS, ImportResult, ReportRow

MEANING: Final = {
    Category.DECISION: "Decisions needed: these backends fail closed until you decide in decisions.yaml",
    Category.TODO: "To do: something is missing, and a placeholder is written",
    Category.BELIEVED: "Weaker than it seems: the old gateway did less than its configuration suggests",
    Category.ACCESS_CONTROL: "Access control that is not carried over",
    Category.LOOSENED: "Loosened: the new gateway accepts what the old one refused",
    Category.TIGHTENED: "Tightened: the new gateway refuses what the old one accepted",
    Category.CANNOT: "Without an equivalent",
    Category.UNKNOWN: "Not known to this importer",
    Category.CHANGED: "Changed: the same purpose, another behaviour",
    Category.SKIPPED: "Skipped: not of this gateway",
}
FOLDED: Final = 3
"""Maximum notes with one reason that are shown separately."""
COLOURS: Final = {NoteSeverity.ERROR: "red", NoteSeverity.HIGH: "red", NoteSeverity.WARNING: "yellow"}
SARIF_LEVELS: Final = {
    NoteSeverity.ERROR: "error",
    NoteSeverity.HIGH: "error",
    NoteSeverity.WARNING: "warning",
    NoteSeverity.INFO: "note",
}
SARIF_SEVERITIES: Final = {
    NoteSeverity.ERROR: "7.0",
    NoteSeverity.HIGH: "8.0",
    NoteSeverity.WARNING: "4.0",
    NoteSeverity.INFO: "1.0",
}


class FileLine(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""


class ImportReport(NamedTuple):
    result: ImportResult
    places: dict[SourceRef, FileLine]
    exit_code: int
    accepted: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: ImportResult, exit_code: int, accepted: Iterable[str] = ()) -> ImportReport:
        sources = {note.source for note in result.notes if note.source} | {row.source for row in result.rows}
        # Handles documents one after the other, so that only the lines of one document stay in memory.
        ordered = sorted(sources, key=lambda source: (source.document.text.name, source.document.span))
        places = {source: FileLine(source.document.text.name, source.document.line(source.path)) for source in ordered}
        return cls(result, places, exit_code, tuple(accepted))

    def place(self, source: SourceRef | None) -> FileLine:
        return self.places[source] if source else FileLine("", 0)

    @property
    def missing(self) -> list[str]:
        """Lists in one line the objects that the input lacks."""

        listed = [
            f"{count(len(names), kind)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for kind, names in self.result.missing
        ]
        return [f"Not in the input: {', '.join(listed)}."] if listed else []

    @property
    def conclusion(self) -> str:
        hops = ", ".join(f"{key} {number}" for key, number in self.result.summary.items())
        written = count(len(self.result.objects), "object")
        return f"{written}, {count(len(self.result.rows), 'hop')}{': ' if hops else ''}{hops}"


# --- for a terminal --------------------------------------------------------------------------------------------------


def text(report: ImportReport) -> str:
    blocks = [[click.style(report.result.headline, bold=True), *report.missing]]
    if report.result.rows:
        blocks.append(list(_table(report)))
    blocks += [*_problem_block(report), *_note_blocks(report)]
    blocks.append([click.style(report.conclusion, bold=True, fg="red" if report.exit_code else None)])
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _problem_block(report: ImportReport) -> Iterator[list[str]]:
    problems = report.result.problems
    if problems:
        lines = [
            f"  {problem.file}{f':{problem.line}' if problem.line else ''}: {printable(problem.message)}"
            for problem in problems
        ]
        yield ["Could not be read", *lines]


def _note_blocks(report: ImportReport) -> Iterator[list[str]]:
    for category, notes in itertools.groupby(report.result.notes, key=lambda note: note.category):
        lines = (line for folded in _folded(notes) for line in _note_lines(report, *folded))
        yield [click.style(MEANING[category], bold=True), *lines]


def _folded(notes: Iterable[Note]) -> Iterator[tuple[Note, int]]:
    """Yields notes, each with the number of notes that it represents. Notes of one reason that need no action share a line."""
    by_key: dict[tuple[object, ...], list[Note]] = {}
    for note in notes:
        key = (note.level, note.reason) if note.level not in SERIOUS else (id(note),)
        by_key.setdefault(key, []).append(note)
    for same in by_key.values():
        shown = same[:1] if len(same) > FOLDED else same
        yield from ((note, len(same) - len(shown)) for note in shown)


def _note_lines(report: ImportReport, note: Note, others: int) -> Iterator[str]:
    place = str(report.place(note.source))
    severity = click.style(f"{note.level:7}", fg=COLOURS.get(note.level))
    more = f", and {count(others, 'other')}" if others else ""
    yield f"  {severity} {printable(_where(note))}{f'  ({place})' if place else ''}{more}"
    message = f"{note.reason}: {with_remedy(printable(note.text), note.remedy)}"
    target = f" -> {note.target}" if note.target else ""
    yield from wrapped(f"{message}{target}", " " * 10, " " * 10)


def _where(note: Note) -> str:
    if note.source is None:
        return note.target or "in general"
    field = f" {note.source.field}" if note.source.field else ""
    return f"{note.source.object}{field}{f' = {note.value}' if note.value else ''}"


HEADINGS: Final = ("BACKEND", "ROUTE", "WAS", "SEEMED", "IS NOW", "BY")


def _cells(row: ReportRow) -> tuple[str, ...]:
    role = f" ({row.role})" if row.role != "backend" else ""
    seemed = row.believed if row.misled else ""
    return tuple(
        printable(str(cell)) for cell in (row.backend + role, row.source.object, row.old, seemed, row.new, row.target)
    )


def _table(report: ImportReport) -> Iterator[str]:
    rows = [_cells(row) for row in report.result.rows]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]

    def line(cells: Iterable[str]) -> str:
        return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()

    yield click.style(line(HEADINGS), bold=True)
    for row, cells in zip(report.result.rows, rows, strict=True):
        alarming = row.new.todo or row.misled
        yield click.style(line(cells), fg="red") if alarming else line(cells)


# --- for programs ----------------------------------------------------------------------------------------------------


def as_json(report: ImportReport) -> str:
    result = report.result
    document = {
        "systems": result.systems,
        "exitCode": report.exit_code,
        "accepted": report.accepted,
        "headline": result.headline,
        "missing": dict(result.missing),
        "summary": result.summary,
        "hops": [_row_json(report, row) for row in result.rows],
        "notes": [_note_json(report, note) for note in result.notes],
        "decisions": [
            {"port": question.port, "reason": question.reason, "was": question.was} for question in result.questions
        ],
        "closed": [{"route": question.port, "was": question.was} for question in result.closed],
        "objects": [written.name for written in result.objects],
        "problems": [{"file": problem.file, "line": problem.line, "message": problem.message} for problem in result.problems],
    }
    return json.dumps(document, indent=2)


def _row_json(report: ImportReport, row: ReportRow) -> dict[str, Any]:
    place = report.place(row.source)
    return {
        "backend": row.backend,
        "role": row.role,
        "route": row.route,
        "source": {"object": row.source.object, "field": row.source.field, **place._asdict()},
        "old": row.old,
        "believed": row.believed,
        "new": str(row.new),
        "why": row.why,
        "target": row.target,
        "detail": row.detail,
    }


def _note_json(report: ImportReport, note: Note) -> dict[str, Any]:
    source = note.source
    location = {"object": source.object, "field": source.field, **report.place(source)._asdict()} if source else None
    return {
        "category": note.category,
        "severity": note.level,
        "reason": note.reason,
        "message": note.text,
        "remedy": note.remedy,
        "value": note.value,
        "target": note.target,
        "source": location,
    }


# --- for a pull request ----------------------------------------------------------------------------------------------


def markdown(report: ImportReport) -> str:
    result = report.result
    lines = [f"# Import from {', '.join(result.systems)}", "", f"**{result.headline}**", ""]
    lines += [f"{line}\n" for line in report.missing] + [f"{report.conclusion}.", ""]
    if result.problems:
        lines += ["## Could not be read", ""]
        lines += [f"- `{problem.file}:{problem.line}` {_escaped(problem.message)}" for problem in result.problems] + [""]
    lines += ["## Hops", "", "| backend | route | was | seemed | is now | by |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(_escaped(cell) for cell in _cells(row))} |" for row in result.rows] + [""]
    for category, notes in itertools.groupby(result.notes, key=lambda note: note.category):
        lines += [f"## {MEANING[category]}", ""]
        lines += [*(_item(note, others, str(report.place(note.source))) for note, others in _folded(notes)), ""]
    return "\n".join(lines)


def _item(note: Note, others: int, place: str) -> str:
    more = f", and {count(others, 'other')}" if others else ""
    where = f"{_escaped(_where(note))}{f' ({place})' if place else ''}"
    text = with_remedy(_escaped(note.text), _escaped(note.remedy))
    return f"- **{note.reason}** ({note.level}) {where}{more}: {text}{f' → {note.target}' if note.target else ''}"


def _escaped(value: str) -> str:
    shown = printable(value)
    for character in "\\|*_`<>[]":
        shown = shown.replace(character, f"\\{character}")
    return shown


# --- for code scanners -----------------------------------------------------------------------------------------------


def as_sarif(report: ImportReport) -> str:
    rules = {
        str(category): sarif.SarifRule(
            title, "See the message.", SARIF_LEVELS[SEVERITIES[category]], SARIF_SEVERITIES[SEVERITIES[category]]
        )
        for category, title in MEANING.items()
    }
    results = []
    for note in report.result.notes:
        place = report.place(note.source)
        where = f"{note.source.object} {note.source.field} {note.reason}" if note.source else note.target
        message = f"{_where(note)}: {note.reason}: {with_remedy(note.text, note.remedy)}"
        file = place.file if place.line else ""
        results.append(
            sarif.result(rules, note.category, SARIF_LEVELS[note.level], printable(message), where, file, place.line)
        )
    return sarif.document(
        rules, results, [f"{problem.file}:{problem.line}: {problem.message}" for problem in report.result.problems]
    )


RENDERERS: Final = {"text": text, "json": as_json, "markdown": markdown, "sarif": as_sarif}
