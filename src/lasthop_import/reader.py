"""Reads the fields of an object and records each read, so that the report lists unread fields as unknown.

A getter consumes the field with everything below it; `child` and `children` consume nothing by themselves, so that each field
of a mapping is accounted for. `cannot` and its siblings consume a field and list it. For a field of the wrong type, the getter
lists it and returns the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from lasthop.edge.admission.problem import Path, field
from lasthop_import.documents import Document
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef, shown_value

IGNORED_ANNOTATIONS: Final = (
    "kubectl.kubernetes.io/",
    "meta.helm.sh/",
    "helm.sh/",
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "app.kubernetes.io/",
    "deployment.kubernetes.io/",
    "field.cattle.io/",
)
"""Prefixes of annotations that tools use for their own bookkeeping."""
UNREAD: Final = "unread-field"
"""The reason of notes about fields that nothing has read."""
WRONG_TYPE: Final = "wrong-type"
T = TypeVar("T")
D = TypeVar("D")
_TYPES: Final = {str: "a text", bool: "true or false", int: "a number", dict: "a mapping", list: "a list"}


class Account:
    """Records which fields of one object were read, and the notes about it."""

    def __init__(self, document: Document, notes: list[Note]) -> None:
        self.document = document
        self.read: set[Path] = set()
        self.requested: set[Path] = set()
        """Mappings with at least one requested field, present or not. Most mappings have none."""
        self.notes = notes

    def unread(self) -> list[Path]:
        entered = {path[:length] for path in self.read for length in range(len(path))}
        entered |= {path[:length] for path in self.requested for length in range(len(path) + 1)}
        return list(self._unread(self.document.value, (), entered))

    def _unread(self, value: Any, path: Path, entered: set[Path]) -> Iterator[Path]:
        if path in self.read or value is None or _exempt(path):
            return
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        if len(path) < 1 or path in entered or path in (("metadata",), ("metadata", "annotations")):
            for step, below in inside:
                yield from self._unread(below, (*path, step), entered)
        else:
            yield path


def _exempt(path: Path) -> bool:
    """Returns whether a field needs no account: metadata other than annotations does not concern gateways, and controllers
    write the status."""
    match path:
        case ("apiVersion" | "kind" | "status",):
            return True
        case ("metadata", name):
            return name != "annotations"
        case ("metadata", "annotations", str() as name):
            return name.startswith(IGNORED_ANNOTATIONS)
        case _:
            return False


class FieldReader:
    """Reads one mapping of an object."""

    def __init__(self, account: Account, value: dict[str, Any], path: Path = ()) -> None:
        self.account = account
        self.value = value
        self.path = path

    @property
    def document(self) -> Document:
        return self.account.document

    @property
    def namespace(self) -> str:
        return self.document.namespace

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def source(self, *steps: str | int) -> SourceRef:
        return SourceRef(self.document, (*self.path, *steps))

    # --- values ------------------------------------------------------------------------------------------------------

    def raw(self, key: str) -> Any:
        """Returns a field unchanged, and consumes all of it."""
        self.account.requested.add(self.path)
        if key in self.value:
            self.account.read.add((*self.path, key))
        return self.value.get(key)

    def text(self, key: str, default: str = "") -> str:
        return self._typed(key, str, default)

    def integer(self, key: str, default: int | None = None) -> int | None:
        return self._typed(key, int, default)

    def boolean(self, key: str, default: bool = False) -> bool:
        return self._typed(key, bool, default)

    def texts(self, key: str) -> tuple[str, ...]:
        items: list[Any] = self._typed(key, list, [])
        for number, item in enumerate(items):
            if not isinstance(item, str):
                self._wrong_type((key, number), item, str)
        return tuple(item for item in items if isinstance(item, str))

    def mapping(self, key: str) -> dict[str, Any]:
        """Returns a mapping unchanged, and consumes all of it."""
        return self._typed(key, dict, {})

    def text_map(self, key: str) -> dict[str, str]:
        """Returns a mapping of texts, as labels or headers; other values are listed."""
        return self._map(key, str)

    def number_map(self, key: str) -> dict[str, int]:
        return self._map(key, int)

    def _map(self, key: str, value_type: type[T]) -> dict[str, T]:
        values = self.mapping(key)
        good = {name: value for name, value in values.items() if isinstance(value, value_type) and not isinstance(value, bool)}
        for name in values:
            if name not in good:
                self._wrong_type((key, name), values[name], value_type)
        return good

    def port(self, key: str) -> int | str | None:
        """Returns an IntOrString: a number, which may be written as a text, or a name."""
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int | str | None):
            self._wrong_type((key,), value, int)
            return None
        return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value

    # --- below -------------------------------------------------------------------------------------------------------

    def child(self, key: str) -> FieldReader:
        """Returns the mapping in a field, by default an empty one."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, dict):
            self._wrong_type((key,), value, dict)
        if not value or not isinstance(value, dict):
            self.account.read.add((*self.path, key))
            return FieldReader(self.account, {}, (*self.path, key))
        return FieldReader(self.account, value, (*self.path, key))

    def children(self, key: str) -> list[FieldReader]:
        items = self.value.get(key)
        if items is not None and not isinstance(items, list):
            self._wrong_type((key,), items, list)
        if not items or not isinstance(items, list):
            self.account.read.add((*self.path, key))
            return []
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                self._wrong_type((key, number), item, dict)
            elif not item:
                self.account.read.add((*self.path, key, number))
        return [
            FieldReader(self.account, item, (*self.path, key, number))
            for number, item in enumerate(items)
            if isinstance(item, dict)
        ]

    def annotations(self) -> FieldReader:
        """Returns the annotations. An API server refuses values that are not strings; the method lists them and reads them as
        YAML 1.1: `on` without quotes is true."""
        path = ("metadata", "annotations")
        texts = {}
        for name, value in self.document.annotations.items():
            if value is not None and not isinstance(value, str):
                text = f"is {shown_value(value)}, not a text, so an API server refuses the object; put it in quotes"
                self.account.notes.append(
                    Note(Category.CANNOT, "not-a-text", text, SourceRef(self.document, (*path, name)), shown_value(value))
                )
                value = shown_value(value)
            texts[name] = value
        return FieldReader(self.account, texts, path)

    # --- accounts ----------------------------------------------------------------------------------------------------

    def ignore(self, *keys: str) -> None:
        """Consumes fields that are irrelevant to the new gateway, so that their loss has no effect."""
        self.account.read.update((*self.path, key) for key in keys)

    def note(
        self,
        category: Category,
        reason: str,
        text: str,
        key: str | None = None,
        *,
        remedy: str = "",
        severity: NoteSeverity | None = None,
        everywhere: bool = False,
    ) -> None:
        """Adds a note about a field, or about this mapping."""
        path = self.path if key is None else (*self.path, key)
        value = "" if key is None else shown_value(self.value.get(key))
        if key is not None:
            self.account.read.add(path)
        source = SourceRef(self.document, path)
        self.account.notes.append(Note(category, reason, text, source, value, remedy, "", severity, everywhere))

    def cannot(self, key: str, text: str, reason: str = "no-equivalent", *, remedy: str = "") -> None:
        """Consumes a field, if present, and lists it as one without an equivalent."""
        if key in self:
            self.note(Category.CANNOT, reason, text, key, remedy=remedy)

    def access_control(self, key: str, text: str, *, remedy: str = "") -> None:
        """Consumes a field, if present, and lists it as access control that is not carried over."""
        if key in self:
            self.note(Category.ACCESS_CONTROL, key.rpartition("/")[2], text, key, remedy=remedy)

    # --- underneath --------------------------------------------------------------------------------------------------

    def _typed(self, key: str, value_type: type[T], default: D) -> T | D:
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, value_type) or (value_type is int and isinstance(value, bool)):
            self._wrong_type((key,), value, value_type)
            return default
        return value

    def _wrong_type(self, steps: Path, value: Any, value_type: type) -> None:
        path = (*self.path, *steps)
        self.account.read.add(path)
        text = f"must be {_TYPES[value_type]}; it is not used"
        self.account.notes.append(
            Note(Category.CANNOT, WRONG_TYPE, text, SourceRef(self.document, path), shown_value(value), "Correct it.")
        )

    def __repr__(self) -> str:
        return f"<{self.document.name} {field(self.path)}>"
