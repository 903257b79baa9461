"""Admits the written objects as an API server would, and lists those that it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.admission.chain import AdmittedObject, admit, admitted
from lasthop.edge.admission.problem import field
from lasthop_import.copies import without_listeners
from lasthop_import.model import ImportedRule
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.settings import Progress
from lasthop_import.writer.objects import Written
from lasthop_import.writer.routes import RULE_REFUSED

INADMISSIBLE: Final = "inadmissible"


class Admitted(NamedTuple):
    written: tuple[Written, ...]
    """Sorted by namespace, kind and name."""
    objects: tuple[AdmittedObject, ...]
    """The same, decoded."""
    context: tuple[AdmittedObject, ...]
    """Referenced objects that are not written."""
    dropped: tuple[ImportedRule, ...]
    """Rules that were left out."""
    notes: tuple[Note, ...]

    @property
    def inadmissible(self) -> int:
        """Number of objects that were left out."""
        return sum(note.reason == INADMISSIBLE for note in self.notes)


def admit_all(objects: Iterable[Written], context: Iterable[Written], progress: Progress) -> Admitted:
    """Admits each object once, and then the objects that they refer to."""
    admission = Admission()
    candidates = _unique(objects)
    written: list[Written] = []
    for number, candidate in enumerate(candidates, 1):
        if accepted := admission.admit(candidate):
            written.append(accepted)
        progress("Validating objects", number, len(candidates))
    notes, dropped, decoded = tuple(admission.notes), tuple(admission.dropped), dict(admission.objects)
    for candidate in _unique(context):
        admission.admit(candidate)
    return Admitted(
        written=tuple(sorted(written, key=lambda output: output.key)),
        objects=tuple(decoded.values()),
        context=tuple(context_object for key, context_object in admission.objects.items() if key not in decoded),
        dropped=dropped,
        notes=notes,
    )


def _unique(objects: Iterable[Written]) -> list[Written]:
    return list({output.key: output for output in reversed(list(objects))}.values())[::-1]


class Admission:
    """Admits written objects as an API server would. Leaves out refused rules, and other refused objects as a whole."""

    def __init__(self) -> None:
        self.objects: dict[Key, AdmittedObject] = {}
        self.notes: list[Note] = []
        self.dropped: list[ImportedRule] = []
        """Rules that were left out."""

    def admit(self, written: Written) -> Written | None:
        stored, problems = admit(written.document)
        if not problems:
            try:
                decoded = admitted(stored)
            except msgspec.ValidationError as error:
                self._note(written, str(error))
                return None
            self.objects[decoded.key] = decoded
            return written
        if written.rules and (sound := self._without_bad_rules(written)):
            return self.admit(sound) if sound.rules else None
        fewer = without_listeners(written.document, problems)
        for problem in fewer.refused:
            text = f"a listener is left out, because Gateway API refuses it: {field(problem.path)}: {problem.message}"
            source = written.sources[0] if written.sources else None
            self.notes.append(
                Note(Category.CANNOT, "listener-refused", text, source, target=written.name, severity=NoteSeverity.HIGH)
            )
        if fewer.refused:
            return self.admit(written._replace(document=fewer.gateway))
        self._note(written, "; ".join(f"{field(problem.path)}: {problem.message}" for problem in problems[:3]))
        return None

    def _without_bad_rules(self, written: Written) -> Written | None:
        """Returns the route without its refused rules; None if no single rule is the reason of the refusal."""
        spec = written.document["spec"]
        kept, rules = [], []
        for rule, origin in zip(spec["rules"], written.rules, strict=True):
            _, problems = admit({**written.document, "spec": {**spec, "rules": [rule]}})
            bad = [problem for problem in problems if problem.path[:2] == ("spec", "rules")]
            if not bad:
                kept.append(rule)
                rules.append(origin)
                continue
            self.dropped.append(origin)
            text = f"the rule is left out, because Gateway API refuses it: {field(bad[0].path)}: {bad[0].message}"
            self.notes.append(Note(Category.CANNOT, RULE_REFUSED, text, origin.source, severity=NoteSeverity.HIGH))
        if len(kept) == len(spec["rules"]):
            return None
        document = {**written.document, "spec": {**spec, "rules": kept}}
        return written._replace(document=document, rules=tuple(rules))

    def _note(self, written: Written, text: str) -> None:
        source = written.sources[0] if written.sources else None
        self.dropped += written.rules
        message = f"{written.name} is left out, because admission refuses it: {text}"
        self.notes.append(Note(Category.TODO, INADMISSIBLE, message, source, target=written.name))
