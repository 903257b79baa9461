"""Defines the result of an import: objects, a row for each hop, notes and open questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from lasthop.edge.admission.chain import AdmittedObject
from lasthop.engine.plan.strength import Strength
from lasthop_import.decisions import Question
from lasthop_import.documents import Unparsable
from lasthop_import.levels import VERIFYING, HopOutcome, NewState, OldLevel, over_believed
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.writer.objects import OutputFile, Written

OPEN: Final = 3
"""The exit code if decisions are open or served configuration is lost. Exit code 1: part of the input could not be read, or
an object could not be written."""
SERIOUS: Final = (NoteSeverity.ERROR, NoteSeverity.HIGH)


class ReportRow(msgspec.Struct, frozen=True):
    """One hop: the verification by the old gateway, the one its author believes in, and the new one."""

    source: SourceRef
    route: str
    """The written route, for example `HTTPRoute obs/grafana`; empty for a copied route."""
    backend: str
    """`Service obs/grafana:443`."""
    role: str
    """backend, mirror or auth."""
    old: OldLevel
    believed: OldLevel
    new: NewState
    why: str = ""
    target: str = ""
    detail: str = ""

    @property
    def misled(self) -> bool:
        return over_believed(self.old, self.believed)

    @property
    def order(self) -> tuple[object, ...]:
        urgency = (not self.new.todo, not self.misled, self.new.strength is Strength.PLAINTEXT)
        return (*urgency, self.backend, *self.source.order, self.role)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class ImportResult(msgspec.Struct, frozen=True):
    systems: tuple[str, ...]
    objects: tuple[Written, ...]
    """Sorted by namespace, kind and name."""
    admitted: tuple[AdmittedObject, ...]
    """The same, decoded."""
    context: tuple[AdmittedObject, ...]
    """Objects of the input that the others refer to and that are not written."""
    rows: tuple[ReportRow, ...]
    notes: tuple[Note, ...]
    questions: tuple[Question, ...]
    closed: tuple[Question, ...]
    """Routes that are closed because their access control is lost."""
    entries: tuple[str, ...]
    """Decisions from the command line, as entries for decisions.yaml."""
    missing: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names, by kind, of objects that the input refers to and does not contain."""
    problems: tuple[Unparsable, ...] = ()
    inadmissible: int = 0
    """Objects that were left out because our own admission refuses them."""

    def of_file(self, file: OutputFile) -> list[Written]:
        return [written for written in self.objects if written.file is file]

    def with_notes(self, notes: Iterable[Note]) -> ImportResult:
        return msgspec.structs.replace(self, notes=tuple(sorted(notes, key=lambda note: note.order)))

    @property
    def headline(self) -> str:
        """The import in one sentence."""
        levels = {row.backend: row.old for row in self.rows if row.old not in (OldLevel.PLAINTEXT, OldLevel.PASSTHROUGH)}
        count = Counter(levels.values())
        unknown, unverified, closed = count[OldLevel.UNKNOWN], count[OldLevel.UNVERIFIED], len(self.closed)
        known = len(levels) - unknown
        named = sum(level in VERIFYING and level is not OldLevel.CHAIN for level in levels.values())
        dropped = sum(row.new.how is HopOutcome.DROPPED for row in self.rows)
        parts = (
            (unverified > 0, f"{unverified} of {known} TLS backends {'was' if unverified == 1 else 'were'} never verified"),
            (known > 0 and not unverified, f"the name of {named} of {known} TLS backends was verified"),
            (count[OldLevel.CHAIN], f"{count[OldLevel.CHAIN]} without a check of the name"),
            (count[OldLevel.BROKEN], f"{count[OldLevel.BROKEN]} cannot have worked as configured"),
            (not levels, "no backend had TLS" if self.objects else "nothing was written"),
            (unknown, f"the input does not show whether {_counted(unknown, 'backend')} used TLS"),
            (closed, f"{_counted(closed, 'route')} with lost access control closed until you decide"),
            (dropped, f"{_counted(dropped, 'hop')} left out"),
            (
                any(problem.hides for problem in self.problems),
                "part of the input cannot be read, and all routes are closed until then",
            ),
        )
        return f"{'; '.join(text for applies, text in parts if applies)}."

    @property
    def summary(self) -> dict[str, int]:
        """Hops by old and new level, as `unverified -> TODO`."""
        counted = Counter((row.old, row.new) for row in self.rows)
        ordered = sorted(counted, key=lambda pair: (list(OldLevel).index(pair[0]), pair[1].order))
        return {f"{old} -> {new}": counted[old, new] for old, new in ordered}

    def open(self, accepted: Collection[str] = (), *, strict: bool = False) -> list[Note]:
        """Returns the notes that require action. `accepted`: categories or reasons."""
        more = (Category.CHANGED, Category.CANNOT, Category.UNKNOWN) if strict else ()
        return [
            note
            for note in self.notes
            if note.level in SERIOUS or note.category in more
            if note.category not in accepted and note.reason not in accepted
        ]

    def exit_code(self, accepted: Collection[str] = (), *, strict: bool = False) -> int:
        if self.problems or self.inadmissible:
            return 1
        return OPEN if self.open(accepted, strict=strict) or not self.objects else 0
