"""Writes what an import leaves: the folder and its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.reasons import kind
from lasthop_import.check import check, way_of
from lasthop_import.command import report as import_report
from lasthop_import.decisions import DecisionError, Decisions, appended, read_decisions
from lasthop_import.notes import Category, Note, Severity
from lasthop_import.result import Result
from lasthop_import.settings import Settings
from lasthop_import.writer.objects import File
from lasthop_import.writer.text import render

DECISIONS: Final = "decisions.yaml"
REPORT: Final = "REPORT.md"
OBJECTS: Final = "objects"


def load_decisions(file: Path | None, folder: Path | None) -> Decisions:
    """Reads the decisions that are named, or those of an earlier import, with the files that they name."""
    if folder and folder.exists():
        _check_folder(folder)
    path = file or (folder / DECISIONS if folder and (folder / DECISIONS).exists() else None)
    if path is None:
        return Decisions()
    try:
        decisions = read_decisions(str(path), path.read_bytes())
        files = {name: (path.parent / name).read_bytes() for name in decisions.named_files}
    except DecisionError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{path} names {error.filename}, which cannot be read: {error.strerror}") from None
    return msgspec.structs.replace(decisions, files=files)


def _check_folder(folder: Path) -> None:
    """Raises if a folder holds something else than an earlier import."""
    ours = {DECISIONS, REPORT, OBJECTS}
    others = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    if others and not ours & set(others):
        raise click.ClickException(f"{folder} is not empty and holds no earlier import; choose another --to DIR")


def with_probes(result: Result, seen: Mapping[str, tuple[str, ...]]) -> Result:
    """Returns the result with what was seen at the ports in question."""
    notes = [
        Note(Category.DECISION, "probed", "; ".join(lines), None, "", "", port, Severity.INFO) for port, lines in seen.items()
    ]
    merged = sorted([*result.notes, *notes], key=lambda note: note.order)
    return msgspec.structs.replace(result, notes=tuple(merged))


def with_check(result: Result, settings: Settings) -> Result:
    """Returns the result with what `lasthop check` would say, besides what the report says already."""
    told = {note.target for note in result.notes if note.category in (Category.DECISION, Category.TODO)}
    notes = list(result.notes)
    for mistake in check(result, settings.now, way_of(settings)).errors:
        finding = mistake.finding
        if finding.missing or str(finding.object) in told or _untold(finding):
            continue
        text = f"lasthop check: {finding.field}: {finding.message}" if finding.field else f"lasthop check: {finding.message}"
        notes.append(Note(Category.TODO, "check", text, None, "", finding.remedy, str(finding.object)))
    return msgspec.structs.replace(result, notes=tuple(sorted(notes, key=lambda note: note.order)))


def _untold(finding: Finding) -> bool:
    """Returns whether it says only that the input has no EndpointSlices or, as the report does, that the operator has yet to
    allow waivers."""
    return kind(finding.reason).passes or finding.reason == reasons.WAIVER_NOT_PERMITTED


def write_folder(
    folder: Path,
    result: Result,
    report: import_report.ImportReport,
    decisions_file: Path | None,
    settings: Settings,
    seen: Mapping[str, tuple[str, ...]],
) -> None:
    """Writes objects, decisions and the report. Files of an earlier import that are empty now are removed."""
    try:
        (folder / OBJECTS).mkdir(parents=True, exist_ok=True)
        for file in File:
            path = folder / OBJECTS / file
            if found := result.of_file(file):
                heading = f"# Imported from {', '.join(result.systems)} by lasthop import; see ../{REPORT}.\n"
                path.touch(mode=0o600 if file is File.SECRETS else 0o644)
                path.write_text(heading + render(found))
            else:
                path.unlink(missing_ok=True)
        (folder / REPORT).write_text(f"{import_report.markdown(report)}\n")
        path = decisions_file or folder / DECISIONS
        before = path.read_text() if path.exists() else ""
        after = appended(before, result.questions, result.entries, settings.now, settings.waiver_days, seen)
        if after != before:
            path.write_text(after)
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be written: {error.strerror}") from None
