"""Parses one file's text: returns all its objects, or its problems, never a part of the objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import RejectedPolicy
from lasthop.edge.admission.chain import AdmittedObject, admit, admitted, admitted_again, kind_of
from lasthop.edge.admission.foreign import embedded_policy, foreign_kind, may_embed_policy
from lasthop.edge.admission.limits import MAX_FINDINGS, MAX_MESSAGE, MAX_OBJECTS
from lasthop.edge.admission.problem import FieldProblem, Path, field
from lasthop.edge.admission.yaml import Parsed, Span, YamlMistake, field_lines, first_line, parse
from lasthop.edge.sources.files.salvage import salvage
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding

EVERYWHERE: Final = ("",)
"""Every namespace."""
_Object = tuple[Span, Path, Any]
"""The document that contains an object, the path in it, and the object's value."""
_ObjectProblem = tuple[Span, Path, Any, FieldProblem]
"""An `_Object` with one of its problems."""


class ObjectEntry(NamedTuple):
    admitted: AdmittedObject
    span: Span
    """The document that contains it."""
    base: Path
    """The path in the document: empty, or ("items", n) in a List, which may be nested."""


class FileContent(msgspec.Struct, frozen=True):
    """Holds the objects of a valid file."""

    digest: bytes
    text: bytes
    entries: tuple[ObjectEntry, ...]
    others: tuple[str, ...] = ()
    """Foreign documents, as `Deployment (apps/v1)`; they are skipped."""

    @property
    def objects(self) -> dict[Key, Object]:
        return {entry.admitted.key: entry.admitted.object for entry in self.entries}

    @property
    def keys(self) -> set[Key]:
        return {entry.admitted.key for entry in self.entries}

    def line(self, entry: ObjectEntry, field_path: str = "") -> int:
        """Returns the line of a field. Parses the document again, because lines are rarely needed and would take more memory
        than the objects."""
        if not entry.base and not field_path:
            return first_line(self.text, entry.span)
        lines = _named_lines(self.text, entry.span)
        base = field(entry.base)
        inside = f".{field_path}" if base and field_path and field_path[0] != "[" else field_path
        while inside and f"{base}{inside}" not in lines:
            inside = inside[: max(inside.rfind("."), inside.rfind("["), 0)]
        return lines.get(f"{base}{inside}", entry.span.line)


class BrokenFile(msgspec.Struct, frozen=True):
    """Describes an invalid file, which is not applied, not even in part."""

    digest: bytes
    findings: tuple[Finding, ...]
    policies: tuple[RejectedPolicy, ...] = ()
    """The BackendTLSPolicies that it appears to contain, with their targets."""
    opaque: tuple[str, ...] = ()
    """The namespaces in which it may contain BackendTLSPolicies with unknown targets; an empty one means all."""


class StoredDocument(msgspec.Struct, frozen=True, array_like=True):
    """Stores an admitted object on disk, so that an unchanged file need not be admitted again at the next start."""

    span: Span
    base: Path
    kind: str
    digest: bytes
    value: msgspec.Raw
    """The whole document as JSON, which is decoded directly into structs."""


def digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def examine(file: str, text: bytes) -> tuple[FileContent | BrokenFile, tuple[StoredDocument, ...]]:
    """Admits every object of a file. `file` is the displayed name; its extension decides whether the text is JSON."""
    parsed = parse(text, as_json=file.endswith(".json"))
    objects = list(islice(_objects(parsed), MAX_OBJECTS + 1))
    if len(objects) > MAX_OBJECTS:
        mistake = YamlMistake(objects[-1][0].line, f"the file has more than {MAX_OBJECTS} objects", limit=True)
        parsed = parsed._replace(mistakes=[mistake], complete=False)
    admission = _Admission(may_embed_policy(text, (value for _, _, value in objects)))
    for entry in objects[:MAX_OBJECTS]:
        if len(admission.problems) > MAX_FINDINGS:
            break
        admission.take(*entry)
    if admission.problems or parsed.mistakes:
        return _broken(file, text, parsed, objects, admission.problems), ()
    return FileContent(digest(text), text, tuple(admission.entries), tuple(admission.others)), tuple(admission.stored)


class _Admission:
    def __init__(self, hides: bool) -> None:
        """`hides`: an object may contain a policy."""
        self._hides = hides
        self.problems: list[_ObjectProblem] = []
        self.stored: list[StoredDocument] = []
        self.entries: list[ObjectEntry] = []
        self.others: list[str] = []
        self._keys: set[Key] = set()

    def take(self, span: Span, base: Path, value: Any) -> None:
        problems: list[FieldProblem] = []
        if self._hides and (path := embedded_policy(value)) is not None:
            remedy = "Write it as a document of its own, or move this one to another folder."
            problems.append(FieldProblem("a BackendTLSPolicy inside another object is not read", path, remedy))
        if foreign := foreign_kind(value):
            self.others.append(_cut(foreign))
        else:
            problems += self._admit(span, base, value)
        self.problems.extend((span, base, value, problem) for problem in problems)

    def _admit(self, span: Span, base: Path, value: Any) -> list[FieldProblem]:
        document, problems = admit(value)
        if problems:
            return problems
        try:
            entry = ObjectEntry(admitted(document), span, base)
        except msgspec.ValidationError as error:
            return [FieldProblem(str(error))]
        key = entry.admitted.key
        self.stored.append(
            StoredDocument(span, base, key.kind, entry.admitted.digest, msgspec.Raw(msgspec.json.encode(document)))
        )
        self.entries.append(entry)
        if key in self._keys:
            return [FieldProblem("is a duplicate in this file", ("metadata", "name"), "Remove one.", reasons.DUPLICATE_OBJECT)]
        self._keys.add(key)
        return []


def _broken(file: str, text: bytes, parsed: Parsed, objects: list[_Object], problems: list[_ObjectProblem]) -> BrokenFile:
    lines = text.split(b"\n")
    findings = [_of_text(file, mistake, lines) for mistake in parsed.mistakes]
    for span, base, value, problem in problems[: MAX_FINDINGS - len(findings)]:
        line = _nearest(field_lines(text, span), base + problem.path, span.line)
        where = _cut(field(problem.path))
        findings.append(
            make_finding(
                key_in(value), problem.reason, _cut(problem.message), problem.remedy or None, where, file=file, line=line
            )
        )
    if len(parsed.mistakes) + len(problems) > MAX_FINDINGS:
        message = f"this file has more than {MAX_FINDINGS} problems; the rest is not listed"
        findings.append(make_finding(None, reasons.TOO_LARGE, message, file=file, line=findings[-1].line))
    policies, opaque = _salvaged(objects, findings[0])
    return BrokenFile(digest(text), tuple(findings), policies, opaque if parsed.complete else EVERYWHERE)


def restore(text: bytes, stored: Iterable[StoredDocument]) -> FileContent | None:
    """Restores a file that this same version has admitted before; None if the state is not valid."""
    try:
        entries = [ObjectEntry(admitted_again(s.kind, s.value, s.digest), s.span, s.base) for s in stored]
    except (msgspec.MsgspecError, KeyError):
        return None
    return FileContent(digest(text), text, tuple(entries))


def _of_text(file: str, mistake: YamlMistake, lines: list[bytes]) -> Finding:
    if mistake.limit:
        remedy = "Split it into several files."
        return make_finding(None, reasons.TOO_LARGE, f"{mistake.message}.", remedy, file=file, line=mistake.line)
    advice = _advice(mistake, lines[mistake.line - 1] if mistake.line <= len(lines) else b"")
    return make_finding(None, reasons.INVALID_YAML, _cut(mistake.message), advice or None, file=file, line=mistake.line)


def _advice(mistake: YamlMistake, line: bytes) -> str:
    """Returns the remedy of common mistakes, or an empty text."""
    if b"{{" in line:
        return "This seems to be a template: check its output, as in helm template CHART | lasthop check -"
    if line.lstrip(b" ").startswith(b"\t"):
        return "Indent with spaces; YAML does not allow tabs there."
    if mistake.repeats == "apiVersion":
        return "Write a line --- between two objects."
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


def key_in(value: Any) -> Key | None:
    """Returns the key of a document for messages, if it is recognizable."""
    kind, _ = kind_of(value)
    if kind is None or not isinstance(metadata := value.get("metadata"), dict):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    if not isinstance(name, str) or not isinstance(namespace, str) or len(name) > 253 or len(namespace) > 253:
        return None
    return Key(kind.kind, namespace if kind.namespaced else "", name)


def _objects(parsed: Parsed) -> Iterator[_Object]:
    """Yields documents and the items of Lists, at any depth, like kubectl."""
    for document, span in zip(parsed.documents, parsed.spans, strict=True):
        for path, value in _items((), document):
            yield span, path, value


def _items(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Yields the items of a List. In a typed List (`HTTPRouteList`) items may omit apiVersion and kind. A List that cannot be
    split is yielded unchanged, and rejected later."""
    kind = value.get("kind") if isinstance(value, dict) else None
    items = value.get("items") if isinstance(kind, str) and kind.endswith("List") else None
    if not isinstance(items, list):
        yield path, value
        return
    implied = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": str(kind)[: -len("List")]}
    for i, item in enumerate(items):
        yield from _items((*path, "items", i), {**implied, **item} if isinstance(item, dict) else item)


@lru_cache(maxsize=1)
def _named_lines(text: bytes, span: Span) -> dict[str, int]:
    return {field(path): line for path, line in field_lines(text, span).items()}


def _nearest(lines: dict[Path, int], path: Path, otherwise: int) -> int:
    """Returns the line of a field, or of its nearest parent."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return otherwise


def _salvaged(objects: list[_Object], first: Finding) -> tuple[tuple[RejectedPolicy, ...], tuple[str, ...]]:
    """Returns the policies of a broken file, and the namespaces in which it may contain more."""
    message = f"its file is broken and was not applied: {first}"
    policies: list[RejectedPolicy] = []
    opaque: set[str] = set()
    for number, (_, _, value) in enumerate(objects, 1):
        if embedded_policy(value) is not None:
            opaque.add("")
        if foreign_kind(value):
            continue
        result = salvage(value, f"document-{number}", message, last=number == len(objects))
        if result.policy is not None:
            policies.append(result.policy)
        if result.opaque is not None:
            opaque.add(result.opaque)
    return tuple(policies), EVERYWHERE if "" in opaque else tuple(sorted(opaque))
