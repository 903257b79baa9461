"""Reads and writes the folder of an import: its decisions, objects and report."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from lasthop_import.command.report import ImportReport, markdown
from lasthop_import.decisions import DecisionError, Decisions, appended, read_decisions
from lasthop_import.result import ImportResult
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.objects import OutputFile
from lasthop_import.writer.text import render

DECISIONS: Final = "decisions.yaml"
REPORT: Final = "REPORT.md"
OBJECTS: Final = "objects"
DIGEST: Final = "# sha256 of the text below: "


def load_decisions(file: Path | None, folder: Path | None) -> Decisions:
    """Reads the decisions from a file, or from an earlier import in the folder, with the files that they name."""
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
    """Raises if a folder has files and contains no earlier import."""
    ours = {DECISIONS, REPORT, OBJECTS}
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if names and not ours & set(names):
        raise click.ClickException(f"{folder} is not empty and contains no earlier import; choose another --to DIR")


def write_folder(
    folder: Path,
    result: ImportResult,
    report: ImportReport,
    decisions_file: Path | None,
    settings: ImportSettings,
    observations: Mapping[str, tuple[str, ...]],
) -> list[Path]:
    """Writes objects, decisions and the report. Returns the files that were edited by hand."""
    try:
        edited = _write_objects(folder / OBJECTS, result)
        (folder / REPORT).write_text(f"{markdown(report)}\n")
        path = decisions_file or folder / DECISIONS
        before = path.read_text() if path.exists() else ""
        after = appended(
            before, (*result.questions, *result.closed), result.entries, settings.now, settings.waiver_days, observations
        )
        if after != before:
            path.write_text(after)
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be written: {error.strerror}") from None
    return edited


def _write_objects(folder: Path, result: ImportResult) -> list[Path]:
    """Writes a file for each group of objects, and removes files of an earlier import without objects. Keeps each file that
    was edited by hand, writes the new text beside it, and returns the edited files."""
    folder.mkdir(parents=True, exist_ok=True)
    edited = []
    for file in OutputFile:
        path = folder / file
        path.with_name(f"{file}.new").unlink(missing_ok=True)
        if objects := result.of_file(file):
            text = _with_heading(render(objects), result.systems)
            if _is_edited(path) and path.read_bytes() != text.encode():
                edited.append(path)
                path = path.with_name(f"{path.name}.new")
            path.touch(mode=0o600 if file is OutputFile.SECRETS else 0o644)
            path.write_text(text)
        elif _is_edited(path):
            edited.append(path)
        else:
            path.unlink(missing_ok=True)
    return edited


def _with_heading(body: str, systems: Sequence[str]) -> str:
    origin = (
        f"# Generated from {', '.join(systems)} by lasthop import; do not edit: decide in ../{DECISIONS}. See ../{REPORT}.\n"
    )
    return f"{origin}{DIGEST}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def _is_edited(path: Path) -> bool:
    """Returns whether the text of a file does not match its digest from an earlier import."""
    if not path.exists():
        return False
    _, _, hashed = path.read_bytes().replace(b"\r\n", b"\n").partition(b"\n")
    digest, _, body = hashed.partition(b"\n")
    return digest != f"{DIGEST}{hashlib.sha256(body).hexdigest()}".encode()
