"""Parses YAML and JSON text into documents, like kubectl.

PyYAML's C parser supplies the events. This module interprets them, because PyYAML's own constructor differs from kubectl (Go's
YAML 1.1). Here timestamps stay strings, `12:30` is a string and not 750, and `1e3` is a number. Keys become strings, and a
repeated key is an error. Values are built directly from the events. That is faster than nodes, and a deeply nested file ends
in an error, where PyYAML's composer overflows the C stack and kills the process.

Parsing keeps no positions. If something is wrong, `field_lines` parses the text again and records all of them.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)
from yaml.reader import ReaderError

from lasthop.base.api.documents import Json
from lasthop.edge.admission.limits import MAX_ALIASED, MAX_ALIASED_VALUES, MAX_DEPTH, MAX_FINDINGS, MAX_TAGS, MAX_VALUES
from lasthop.edge.admission.problem import Path
from lasthop.edge.admission.scalars import integer, plain, real

_TAGS: Final = "tag:yaml.org,2002:"
UNLIMITED: Final = float("inf")


class YamlMistake(NamedTuple):
    line: int
    message: str
    limit: bool = False
    """The file exceeds a limit."""
    repeats: str = ""
    """The key that is written twice."""


class Span(NamedTuple):
    """The position of a document in its text, in characters, and its first line."""

    start: int
    end: int
    line: int


class Parsed(NamedTuple):
    documents: list[Any]
    """The documents up to the first syntax error, without empty ones."""
    spans: list[Span]
    """The position of each document."""
    mistakes: list[YamlMistake]
    complete: bool
    """False after a syntax error, or if a key is written twice and one value hides another. The file may then contain more
    than `documents`."""


class _SyntaxError(Exception):
    def __init__(self, line: int, message: str, *, limit: bool = False) -> None:
        super().__init__(message)
        self.mistake = YamlMistake(line, message, limit)


def parse(text: bytes, *, as_json: bool = False, max_values: int | None = None) -> Parsed:
    """Parses a text up to its first syntax error. `max_values` limits its mappings, lists and scalars, instead of
    `MAX_VALUES`."""
    limit = MAX_VALUES if max_values is None else max_values
    try:
        decoded = decode(text)
    except _SyntaxError as error:
        return Parsed([], [], [error.mistake], complete=False)
    return _parse_json(decoded, limit) if as_json else _parse_yaml(_Reader(decoded, limit))


@lru_cache(maxsize=1)  # several lookups in a row often concern one document, perhaps a List of thousands
def field_lines(text: bytes, span: Span) -> dict[Path, int]:
    """Returns the line of every field in one document of a text that `parse` accepted."""
    # JSON allows tabs between tokens, YAML does not. Replacing them moves no line.
    reader = _Reader(_decoded(text)[span.start : span.end].replace("\t", " "), UNLIMITED, record=True)
    _parse_yaml(reader)
    return {path: line + span.line - 1 for path, line in reader.lines.items()}


def first_line(text: bytes, span: Span) -> int:
    """Returns the first line of a document without parsing it, because hundreds of files may have the same object."""
    for number, line in enumerate(io.StringIO(_decoded(text)[span.start : span.end])):
        content = line.removeprefix("---").strip()
        if content and not content.startswith(("#", "%")):
            return span.line + number
    return span.line


@lru_cache(maxsize=1)  # the next lookup often concerns another document of the same file
def _decoded(text: bytes) -> str:
    return decode(text)


UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""The first bytes of a text in UTF-16."""


def decode(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        wide = "; it seems to be UTF-16, as PowerShell writes it: save it as UTF-8" if text.startswith(UTF_16) else ""
        raise _SyntaxError(line, f"byte 0x{text[error.start]:02x} is not UTF-8{wide}") from None


def _parse_json(text: str, max_values: int) -> Parsed:
    mistakes: list[YamlMistake] = []

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        result = dict(pairs)
        if len(result) != len(pairs) and len(mistakes) < MAX_FINDINGS:
            repeated = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
            mistakes.append(YamlMistake(1, f"key {repeated!r} is written twice in one object", repeats=repeated))
        return result

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    if not text.strip():
        return Parsed([], [], [], complete=True)
    # An upper bound, known before parsing, because the parser does not release the GIL.
    if sum(map(text.count, "[{,")) > max_values:
        return Parsed([], [], [_too_many(1, max_values)], complete=False)
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_int=integer, parse_float=real, parse_constant=refuse)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # fails on half a surrogate pair, which is not valid text
        if text.count("[") + text.count("{") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
            return Parsed([], [], [_too_deep(1)], complete=False)
    except json.JSONDecodeError as error:
        return Parsed([], [], [YamlMistake(error.lineno, f"not JSON: {error.msg}")], complete=False)
    except RecursionError:
        return Parsed([], [], [_too_deep(1)], complete=False)
    except ValueError as error:
        return Parsed([], [], [YamlMistake(1, str(error))], complete=False)
    return Parsed([value], [Span(0, len(text), 1)], mistakes, complete=not mistakes)


def _deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            below
            for parent in level
            for below in (parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ())
            if isinstance(below, dict | list)
        ]
        if not level:
            return False
    return True


def _too_deep(line: int) -> YamlMistake:
    return YamlMistake(line, f"nested more than {MAX_DEPTH} levels deep", limit=True)


def _too_many(line: int, max_values: float) -> YamlMistake:
    return YamlMistake(line, f"the file has more than {max_values:.0f} values", limit=True)


def _parse_yaml(reader: _Reader) -> Parsed:
    # The C parser compares each %TAG directive with all earlier ones, without releasing the GIL.
    if reader.text.count("%TAG") > MAX_TAGS and f"\n{reader.text}".count("\n%TAG") > MAX_TAGS:
        mistake = YamlMistake(1, f"more than {MAX_TAGS} lines begin with %TAG", limit=True)
        return Parsed([], [], [mistake], complete=False)
    try:
        reader.run()
    except _SyntaxError as error:
        mistakes = [*reader.mistakes, error.mistake]
    except yaml.YAMLError as error:
        mistakes = [*reader.mistakes, _mistake(error, reader.text)]
    else:
        return Parsed(reader.documents, reader.spans, reader.mistakes, complete=not reader.mistakes)
    return Parsed(reader.documents, reader.spans, mistakes, complete=False)


def _mistake(error: yaml.YAMLError, text: str) -> YamlMistake:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        context = f" {error.context}" if error.context else ""
        return YamlMistake(error.problem_mark.line + 1, f"not YAML: {error.problem}{context}")
    if isinstance(error, ReaderError):
        line = text.encode().count(b"\n", 0, error.position) + 1
        return YamlMistake(line, f"not YAML: {error.reason}")
    return YamlMistake(1, f"not YAML: {error}")


class _Pieces:
    """Feeds a text to the C parser in pieces. Between pieces other threads can run; a scalar or comment of megabytes would
    otherwise be scanned without releasing the GIL."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self, size: int = 0, /) -> str:
        begin = self._position
        self._position += size
        return self._text[begin : self._position]


class _Reader:
    def __init__(self, text: str, max_values: float, record: bool = False) -> None:
        self.text = text
        self._max_values = max_values
        # Never returns None: the stream's end is an event too, and the last one requested.
        self._next = cast("Callable[[], Event]", yaml.CSafeLoader(_Pieces(text)).get_event)
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        """Anchors by name: the value, the number of values in it, and the number of their characters."""
        self._count = 0
        self._size = 0
        self._aliased = 0
        self._aliased_size = 0
        self._record = record
        self.documents: list[Any] = []
        self.spans: list[Span] = []
        self.mistakes: list[YamlMistake] = []
        self.lines: dict[Path, int] = {}

    def run(self) -> None:
        while not isinstance(event := self._next(), StreamEndEvent):
            if isinstance(event, StreamStartEvent):
                continue
            assert isinstance(event, DocumentStartEvent)
            self._anchors = {}
            self._counted(event)
            value = self._value(self._next(), 0, ())
            end = self._next()
            if value is not None:
                self.documents.append(value)
                self.spans.append(_span(event, end))

    def _value(self, event: Event, depth: int, path: Path) -> Any:
        self._counted(event)
        if self._record:
            self.lines.setdefault(path, _line(event))
        if isinstance(event, ScalarEvent):
            value = self._scalar(event)
            self._size += len(event.value)
            if event.anchor:
                self._anchors[event.anchor] = (value, 1, len(event.value))
            return value
        if isinstance(event, AliasEvent):
            return self._alias(event)
        if depth == MAX_DEPTH:
            raise _SyntaxError(*_too_deep(_line(event))[:2], limit=True)
        before, size_before = self._count, self._size
        if isinstance(event, MappingStartEvent):
            value = self._mapping(depth + 1, path)
        else:
            assert isinstance(event, SequenceStartEvent)
            value = self._sequence(depth + 1, path)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._count - before + 1, self._size - size_before)
        return value

    def _counted(self, event: Event) -> None:
        self._count += 1
        if self._count - self._aliased > self._max_values:
            raise _SyntaxError(*_too_many(_line(event), self._max_values)[:2], limit=True)

    def _alias(self, event: AliasEvent) -> Any:
        # An anchor is defined after its value's end, so a value never contains itself.
        if event.anchor not in self._anchors:
            raise _SyntaxError(_line(event), f"alias *{event.anchor} names no anchor before it")
        value, count, size = self._anchors[event.anchor]
        self._count += count
        self._size += size
        self._aliased += count
        self._aliased_size += size
        if self._aliased > MAX_ALIASED_VALUES:
            raise _SyntaxError(_line(event), f"aliases expand to more than {MAX_ALIASED_VALUES} values", limit=True)
        if self._aliased_size > MAX_ALIASED:
            raise _SyntaxError(_line(event), f"aliases expand to more than {MAX_ALIASED} characters", limit=True)
        return value

    def _sequence(self, depth: int, path: Path) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            result.append(self._value(event, depth, (*path, len(result)) if self._record else path))
        return result

    def _mapping(self, depth: int, path: Path) -> Json:
        result: Json = {}
        merged: Json = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise _SyntaxError(_line(event), "a key must be plain text, not a list, mapping or alias")
            if event.value == "<<" and event.implicit[0]:
                merged = self._merged(event, {**merged, **result}, depth, path) | merged
                continue
            key = self._key(event)
            self._size += len(key)
            if key in result and len(self.mistakes) < MAX_FINDINGS:
                message = f"key {key!r} is written twice in one mapping"
                self.mistakes.append(YamlMistake(_line(event), message, repeats=key))
            if self._record:
                below = (*path, key)
                self.lines.setdefault(below, _line(event))
                result[key] = self._value(self._next(), depth, below)
            else:
                result[key] = self._value(self._next(), depth, path)
        return {**merged, **result} if merged else result

    def _merged(self, event: Event, written: Json, depth: int, path: Path) -> Json:
        """Returns the fields that `<<` adds. If a field was written before with another value, kubectl takes the value from
        `<<`, and YAML the written one."""
        added = self._merge(event, depth, path)
        for key in added.keys() & written.keys():
            if added[key] != written[key] and len(self.mistakes) < MAX_FINDINGS:
                message = f"key {key!r} is written before << and has another value in it"
                self.mistakes.append(YamlMistake(_line(event), message, repeats=key))
        return added

    def _merge(self, event: Event, depth: int, path: Path) -> Json:
        value = self._value(self._next(), depth, path)
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise _SyntaxError(_line(event), "<< takes a mapping, or a list of mappings")
        return {key: value for part in reversed(parts) for key, value in part.items()}

    def _key(self, event: ScalarEvent) -> str:
        value = self._scalar(event)
        if isinstance(value, bool):
            return "true" if value else "false"
        return "null" if value is None else str(value)

    def _scalar(self, event: ScalarEvent) -> Any:
        text: str = event.value
        if event.tag is None:
            return self._plain(event, text) if event.implicit[0] else text
        tag = event.tag.removeprefix(_TAGS)
        if tag in ("str", "!"):
            return text
        value = self._plain(event, text)
        # Like Go's YAML, which rejects a tag that does not match the text.
        if {"int": int, "float": float, "bool": bool, "null": type(None)}.get(tag) is type(value):
            return value
        raise _SyntaxError(_line(event), f"{_shown_tag(event.tag)} is not allowed; only plain JSON values are")

    def _plain(self, event: ScalarEvent, text: str) -> Any:
        try:
            return plain(text)
        except ValueError as error:
            raise _SyntaxError(_line(event), str(error)) from None


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _span(start: Event, end: Event) -> Span:
    """Returns the span of a document from the beginning of a line, because its indentation may change its meaning."""
    first, last = start.start_mark, end.end_mark
    assert first is not None and last is not None
    return Span(first.index - first.column, last.index, first.line + 1)


def _shown_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAGS)}" if tag.startswith(_TAGS) else tag
