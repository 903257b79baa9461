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
    """The objects that others refer to and that are not written."""
    dropped: tuple[ImportedRule, ...]
    """Rules that were left out."""
    notes: tuple[Note, ...]

    @property
    def inadmissible(self) -> int:
        """Objects that were left out."""
        return sum(note.reason == INADMISSIBLE for note in self.notes)


def admit_all(objects: Iterable[Written], context: Iterable[Written], progress: Progress) -> Admitted:
    """Admits the objects, each once, and then what they refer to."""
    admission = Admission()
    candidates = _unique(objects)
    written: list[Written] = []
    for number, candidate in enumerate(candidates, 1):
        if one := admission.admit(candidate):
            written.append(one)
        progress("Validating objects", number, len(candidates))
    notes, dropped, known = tuple(admission.notes), tuple(admission.dropped), dict(admission.objects)
    for candidate in _unique(context):
        admission.admit(candidate)
    return Admitted(
        written=tuple(sorted(written, key=lambda each: each.key)),
        objects=tuple(known.values()),
        context=tuple(each for key, each in admission.objects.items() if key not in known),
        dropped=dropped,
        notes=notes,
    )


def _unique(objects: Iterable[Written]) -> list[Written]:
    return list({each.key: each for each in reversed(list(objects))}.values())[::-1]


class Admission:
    """Admits what is written as an API server would. A rule that is refused is left out; so is any other object."""

    def __init__(self) -> None:
        self.objects: dict[Key, AdmittedObject] = {}
        self.notes: list[Note] = []
        self.dropped: list[ImportedRule] = []
        """Rules that were left out."""

    def admit(self, written: Written) -> Written | None:
        stored, problems = admit(written.document)
        if not problems:
            try:
                found = admitted(stored)
            except msgspec.ValidationError as error:
                self._note(written, str(error))
                return None
            self.objects[found.key] = found
            return written
        if written.rules and (rest := self._without_bad_rules(written)):
            return self.admit(rest) if rest.rules else None
        fewer = without_listeners(written.document, problems)
        for each in fewer.refused:
            text = f"a listener is left out, because Gateway API refuses it: {field(each.path)}: {each.message}"
            source = written.sources[0] if written.sources else None
            self.notes.append(
                Note(Category.CANNOT, "listener-refused", text, source, target=written.name, severity=NoteSeverity.HIGH)
            )
        if fewer.refused:
            return self.admit(written._replace(document=fewer.gateway))
        self._note(written, "; ".join(f"{field(each.path)}: {each.message}" for each in problems[:3]))
        return None

    def _without_bad_rules(self, written: Written) -> Written | None:
        """Returns the route without the rules that are refused by themselves; None if that is not why."""
        spec = written.document["spec"]
        kept, rules = [], []
        for rule, origin in zip(spec["rules"], written.rules, strict=True):
            _, problems = admit({**written.document, "spec": {**spec, "rules": [rule]}})
            bad = [each for each in problems if each.path[:2] == ("spec", "rules")]
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
