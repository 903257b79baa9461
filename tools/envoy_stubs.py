"""Writes `stubs/`: the part of Envoy's API that Lasthop uses, typed for mypy. `make stubs` runs it.

    imports and names in src, tests, bench ──> descriptors in xds-protos ──> stubs/{envoy,xds,...}/**/*_pb2.pyi

xds-protos has no types. Without stubs every message is `Any`, and a misspelt field is found by a test or not at all.

A stub has a message if the code names it or reaches it through a field. It has a field or an enum value if a file that imports
Envoy's messages has an attribute or a keyword argument of that name. So a field that nothing has used before is an error for
mypy until `make stubs` has found it in the descriptors, and the new line in the stub shows a reviewer which part of Envoy's
API a change begins to use.

`stubs/_protobuf.pyi` is written by hand: how each kind of field is typed. google.protobuf itself has types-protobuf.
"""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ("src", "tests", "bench")
PACKAGES: Final = ("envoy.", "xds.", "google.rpc.", "cel.", "opentelemetry.")
HEAD: Final = """\
# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from typing import ClassVar
from _protobuf import Many, MapOf, Message, One, ScalarMapOf, Scalars
"""
_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_STRING: "str",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
}
"""All others are integers."""

Type = Descriptor | EnumDescriptor


def write(directory: Path) -> None:
    """Writes all stubs anew, and removes those of modules that are no longer used."""
    uses = collect(path.read_text() for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    modules = {path.partition("_pb2")[0] + "_pb2" for path in uses.paths}
    files = {module: importlib.import_module(module).DESCRIPTOR for module in modules}
    named = [type_ for file in files.values() for type_ in _all_types(file) if _path(type_) in uses.paths]
    types = _reached(named, uses.names)
    files |= {_module(type_.file): type_.file for type_ in types.values()}
    for package in PACKAGES:
        shutil.rmtree(directory / package.replace(".", "/"), ignore_errors=True)
    for module, file in files.items():
        stub = directory / f"{module.replace('.', '/')}.pyi"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(str(_Stub(file, types, uses)))
    for command in (("check", "--fix", "--select=F401,I"), ("format",)):
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", f"--config={ROOT / 'pyproject.toml'}", directory], check=True
        )


# --- uses in the code ------------------------------------------------------------------------------------------------


class Uses(NamedTuple):
    paths: set[str]
    """What is named from its module on, such as `envoy.config.cluster.v3.cluster_pb2.Cluster.EDS`."""
    names: set[str]
    """Attributes of anything, and keyword arguments: what a field or an enum value could be used by."""


def collect(sources: Iterable[str]) -> Uses:
    paths, names = set[str](), set[str]()
    for tree in (ast.parse(source) for source in sources if "_pb2" in source):
        aliases = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(PACKAGES)
            for alias in node.names
            if not alias.name.endswith("_pb2_grpc")
        }
        paths.update(aliases.values())
        for node in ast.walk(tree) if aliases else ():
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
                alias, _, rest = ast.unparse(node).partition(".")
                paths.update([f"{aliases[alias]}.{rest}"] if alias in aliases else [])
            elif isinstance(node, ast.keyword) and node.arg:
                names.add(node.arg)
    return Uses(paths, names)


# --- which types that makes ------------------------------------------------------------------------------------------


def _reached(todo: list[Type], names: set[str]) -> dict[str, Type]:
    """Returns these types, those of their fields that are used, and so on, and the messages that they are nested in."""
    reached: dict[str, Type] = {}
    while todo:
        type_ = todo.pop()
        if type_.full_name in reached or type_.file.package == "google.protobuf":
            continue
        reached[type_.full_name] = type_
        fields = _fields(type_, names) if isinstance(type_, Descriptor) else []
        values = [entry[1] if (entry := _map_entry(field)) else field for field in fields]
        types = (type_.containing_type, *(field.message_type or field.enum_type for field in values))
        todo.extend(related for related in types if related is not None)
    return reached


def _all_types(owner: FileDescriptor | Descriptor) -> Iterator[Type]:
    for type_ in _types_of(owner):
        yield type_
        if isinstance(type_, Descriptor):
            yield from _all_types(type_)


def _types_of(owner: FileDescriptor | Descriptor) -> list[Type]:
    messages = owner.message_types_by_name if isinstance(owner, FileDescriptor) else owner.nested_types_by_name
    return [*owner.enum_types_by_name.values(), *messages.values()]


def _fields(message: Descriptor, names: set[str]) -> list[FieldDescriptor]:
    return [field for field in message.fields if field.name in names]


def _map_entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Returns the key and the value of a map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def _module(file: FileDescriptor) -> str:
    return file.name.removesuffix(".proto").replace("/", ".") + "_pb2"


def _name(type_: Type) -> str:
    """Returns the name inside its module, such as `Cluster.LbPolicy`."""
    return type_.full_name.removeprefix(f"{type_.file.package}.")


def _path(type_: Type) -> str:
    return f"{_module(type_.file)}.{_name(type_)}"


# --- their text ------------------------------------------------------------------------------------------------------


class _Stub:
    """The text of one module, before ruff has formatted it and removed the imports that it does not need."""

    def __init__(self, file: FileDescriptor, types: dict[str, Type], uses: Uses) -> None:
        self._file, self._types, self._uses = file, types, uses
        self._imports: set[str] = set()
        self._known = {type_.name: _path(type_) for type_ in _all_types(file)}
        self._classes = [line for type_ in _types_of(file) for line in self._class(type_)]

    def __str__(self) -> str:
        return "\n".join((HEAD, *self._imports, *self._classes, ""))

    def _class(self, type_: Type) -> Iterator[str]:
        if type_.full_name not in self._types:
            return
        if isinstance(type_, EnumDescriptor):
            yield f"class {type_.name}(int): ..."
            # In a message a bare annotation would be one more field.
            annotation = f"ClassVar[{_name(type_)}]" if type_.containing_type else type_.name
            yield from (f"{value.name}: {annotation}" for value in type_.values if value.name in self._uses.names)
            return
        yield f"class {type_.name}(Message):"
        lines = [line for nested in _types_of(type_) for line in self._class(nested)]
        numbers = (f"{field.name.upper()}_FIELD_NUMBER" for field in type_.fields)
        lines += [f"{number}: ClassVar[int]" for number in numbers if f"{_path(type_)}.{number}" in self._uses.paths]
        lines += [f"{field.name}: {self._annotation(field)} = ..." for field in _fields(type_, self._uses.names)]
        yield from (f"    {line}" for line in lines or ["..."])

    def _annotation(self, field: FieldDescriptor) -> str:
        if entry := _map_entry(field):
            key, value = entry
            return f"{'MapOf' if value.message_type else 'ScalarMapOf'}[{self._type(key)}, {self._type(value)}]"
        if field.is_repeated:
            return f"{'Many' if field.message_type else 'Scalars'}[{self._type(field)}]"
        return f"One[{self._type(field)}]" if field.message_type else self._type(field)

    def _type(self, field: FieldDescriptor) -> str:
        type_ = field.message_type or field.enum_type
        if type_ is None:
            return "bytes" if field.type == FieldDescriptor.TYPE_BYTES else _SCALARS.get(field.cpp_type, "int")
        if type_.file.name == self._file.name:
            return _name(type_)
        outer, dot, inner = _name(type_).partition(".")
        path = f"{_module(type_.file)}.{outer}"
        alias = outer if self._known.setdefault(outer, path) == path else path.replace(".", "_")
        self._imports.add(f"from {_module(type_.file)} import {outer}" + (f" as {alias}" if alias != outer else ""))
        return f"{alias}{dot}{inner}"


if __name__ == "__main__":
    write(ROOT / "stubs")
