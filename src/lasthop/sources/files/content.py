"""One file's text to what it says: all of its objects, or why it is broken. Never some of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from lasthop.admission.chain import Admitted, admit, admitted, kind_of
from lasthop.admission.limits import MAX_FINDINGS, MAX_MESSAGE, MAX_OBJECTS
from lasthop.admission.problem import Path, Problem, field
from lasthop.admission.yaml import Mistake, Parsed, Span, field_lines, parse
from lasthop.api.documents import Json
from lasthop.api.meta import Key
from lasthop.api.policies import RejectedPolicy
from lasthop.plan.finding import Finding
from lasthop.sources.files.salvage import salvage


class Entry(NamedTuple):
    """An object in a file."""

    admitted: Admitted
    span: Span
    """The document it is in."""
    base: Path
    """Where in the document: empty, or ("items", n) in a List."""


class Content(msgspec.Struct, frozen=True):
    """A good file."""

    digest: bytes
    text: bytes
    entries: tuple[Entry, ...]

    @property
    def keys(self) -> set[Key]:
        return {entry.admitted.key for entry in self.entries}

    def line(self, entry: Entry, field_path: str = "") -> int:
        """Reads the document again: places are asked for seldom, and to keep them all would cost more than the objects."""
        lines = _named_lines(self.text, entry.span)
        base = field(entry.base)
        inside = f".{field_path}" if base and field_path and field_path[0] != "[" else field_path
        while inside and f"{base}{inside}" not in lines:
            inside = inside[: max(inside.rfind("."), inside.rfind("["), 0)]
        return lines.get(f"{base}{inside}", entry.span.line)


class Broken(msgspec.Struct, frozen=True):
    """A file that cannot be used, at least not whole."""

    digest: bytes
    findings: tuple[Finding, ...]
    policies: tuple[RejectedPolicy, ...] = ()
    """BackendTLSPolicies it seems to hold, by what they target."""
    opaque: bool = False
    """It might hold BackendTLSPolicies whose targets cannot be told."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """An admitted document as kept on disk, so that an unchanged file need not be admitted again at the next start."""

    span: Span
    base: Path
    value: Json


def digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def examine(file: str, text: bytes) -> tuple[Content | Broken, tuple[Stored, ...]]:
    """`file` is the name to show; its ending says whether the text is JSON."""
    parsed = parse(text, as_json=file.endswith(".json"))
    found = list(islice(_objects(parsed), MAX_OBJECTS + 1))
    if len(found) > MAX_OBJECTS:
        mistake = Mistake(found[-1][0].line, f"the file holds more than {MAX_OBJECTS} objects", limit=True)
        parsed = parsed._replace(mistakes=[mistake], complete=False)
    problems: list[tuple[Span, Path, Any, Problem]] = []
    stored: list[Stored] = []
    entries: list[Entry] = []
    first: dict[Key, Entry] = {}
    for span, base, value in found[:MAX_OBJECTS]:
        if len(problems) > MAX_FINDINGS:
            break
        kept, wrong = admit(value)
        if not wrong:
            try:
                entry = Entry(admitted(kept), span, base)
            except msgspec.ValidationError as error:
                wrong = [Problem(str(error))]
            else:
                stored.append(Stored(span, base, kept))
                entries.append(entry)
                if first.setdefault(entry.admitted.key, entry) is not entry:
                    wrong = [Problem("is already in this file", ("metadata", "name"), "Remove one.", "DuplicateObject")]
        problems.extend((span, base, value, problem) for problem in wrong)
    if not problems and not parsed.mistakes:
        return Content(digest(text), text, tuple(entries)), tuple(stored)

    findings = [_of_text(file, mistake) for mistake in parsed.mistakes]
    for span, base, value, problem in problems[: MAX_FINDINGS - len(findings)]:
        line = _nearest(field_lines(text, span), base + problem.path, span.line)
        # The remedy is read right after the message.
        where = _cut(field(problem.path))
        findings.append(
            Finding(key_in(value), problem.reason, _cut(problem.message), problem.remedy, where, file=file, line=line)
        )
    if len(parsed.mistakes) + len(problems) > MAX_FINDINGS:
        said = f"there are more than {MAX_FINDINGS} problems in this file; the others are not listed"
        findings.append(Finding(None, "TooLarge", said, file=file, line=findings[-1].line))
    policies, opaque = _salvaged(file, found, findings)
    return Broken(digest(text), tuple(findings), policies, opaque or not parsed.complete), ()


def restore(text: bytes, stored: Iterable[Stored]) -> Content:
    """A file that was admitted before, by this same version."""
    return Content(digest(text), text, tuple(Entry(admitted(s.value), s.span, s.base) for s in stored))


def _of_text(file: str, mistake: Mistake) -> Finding:
    if mistake.limit:
        remedy = "Split it into several files."
        return Finding(None, "TooLarge", f"{mistake.message}.", remedy, file=file, line=mistake.line)
    return Finding(None, "InvalidYAML", _cut(mistake.message), file=file, line=mistake.line)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


def key_in(value: Any) -> Key | None:
    """The key a document seems to have, for messages."""
    kind, _ = kind_of(value)
    if kind is None or not isinstance(metadata := value.get("metadata"), dict):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    if not isinstance(name, str) or not isinstance(namespace, str) or len(name) > 253 or len(namespace) > 253:
        return None
    return Key(kind.kind, namespace if kind.namespaced else "", name)


def _objects(parsed: Parsed) -> Iterator[tuple[Span, Path, Any]]:
    """Documents, and those inside a List. In a typed list (`HTTPRouteList`) the items need not say what they are."""
    for document, span in zip(parsed.documents, parsed.spans, strict=True):
        kind = document.get("kind") if isinstance(document, dict) else None
        items = document.get("items") if isinstance(kind, str) and kind.endswith("List") else None
        if not isinstance(items, list):
            yield span, (), document
            continue
        implied = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": str(kind)[: -len("List")]}
        for i, item in enumerate(items):
            yield span, ("items", i), {**implied, **item} if isinstance(item, dict) else item


@lru_cache(maxsize=1)
def _named_lines(text: bytes, span: Span) -> dict[str, int]:
    return {field(path): line for path, line in field_lines(text, span).items()}


def _nearest(lines: dict[Path, int], path: Path, otherwise: int) -> int:
    """The line of a field, or of what would hold it."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return otherwise


def _salvaged(
    file: str, found: list[tuple[Span, Path, Any]], findings: list[Finding]
) -> tuple[tuple[RejectedPolicy, ...], bool]:
    first = findings[0]
    message = f"its file is broken and was not applied: {first}"
    results = [salvage(value, f"document-{n}", message) for n, (_, _, value) in enumerate(found, 1)]
    policies = tuple(result.policy for result in results if result.policy is not None)
    return policies, any(result.opaque for result in results)
