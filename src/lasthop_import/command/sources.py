"""Reads the input of an import: files and folders, standard input, or a cluster with the rights of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import click

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Key
from lasthop.cli.views.selection import read_stdin
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.sources.files.folder import FilesError, TooLarge, UnreadableFile, read, scan
from lasthop.edge.sources.kubernetes.snapshot import look, plain
from lasthop_import.documents import Document, ReadTexts, SourceText, Unparsable, read_texts
from lasthop_import.inputs import SHARED
from lasthop_import.run import SystemsRead
from lasthop_import.settings import Progress, System
from lasthop_import.unread import READ_ALONG

STDIN: Final = "-"
MAX_FILE: Final = 512 * 1024 * 1024
"""Maximum bytes of a file. Higher than in files mode, because the import reads it once and delays no other work."""
ROUNDS: Final = 4
"""Maximum rounds of fetching Secrets from a cluster: a fetched object may refer to another one."""
HARMLESS: Final = (*READ_ALONG, "GatewayClass", "ReferenceGrant")
"""Kinds that restrict nothing: configuration that depends on missing objects is unknown, or refused."""
PLURALS: Final = {"Secret": "secrets", "ConfigMap": "configmaps"}


class ImportInput(NamedTuple):
    documents: tuple[Document, ...]
    problems: tuple[Unparsable, ...] = ()
    hidden: Mapping[Key, str] = MappingProxyType({})
    """Objects that the user may not read, with reasons."""
    reading: SystemsRead | None = None
    """The result of the importers for these documents."""


def from_paths(paths: Sequence[str], namespace: str, progress: Progress) -> ImportInput:
    """Reads files, folders (recursive) and standard input. An unreadable file does not end the import."""
    texts: list[SourceText] = []
    problems: list[Unparsable] = []
    files = [file for path in paths for file in _files(path, problems)]
    for number, file in enumerate(files, 1):
        progress("Reading files", number, len(files))
        if file == STDIN:
            text = read_stdin(MAX_FILE + 1)
            if len(text) > MAX_FILE:
                problems.append(Unparsable("standard input", 0, f"is not read: it is larger than {MAX_FILE} bytes; split it"))
            else:
                texts.append(SourceText("standard input", text))
            continue
        try:
            texts.append(SourceText(file, read(Path(file), MAX_FILE)[0]))
        except FileNotFoundError:
            problems.append(Unparsable(file, 0, "does not exist"))
        except TooLarge as error:
            problems.append(Unparsable(file, 0, f"is not read: {error}; split it"))
        except UnreadableFile as error:
            problems.append(Unparsable(file, 0, f"cannot be read: {error}"))
    progress("Parsing", 0, len(texts))
    parsed = _parsed(texts, namespace, progress)
    return ImportInput(parsed.documents, (*problems, *parsed.problems))


def _parsed(texts: Sequence[SourceText], namespace: str, progress: Progress) -> ReadTexts:
    def announced() -> Iterable[SourceText]:
        for number, text in enumerate(texts, 1):
            progress("Parsing", number, len(texts))
            yield text

    return read_texts(announced(), namespace)


def _files(path: str, problems: list[Unparsable]) -> list[str]:
    if path == STDIN or not Path(path).is_dir():
        return [path]
    try:
        listing = scan(Path(path))
    except FilesError as error:
        raise click.ClickException(str(error)) from None
    problems += [Unparsable(f"{path}/{below}", 0, f"cannot be read: {why}") for below, why in listing.closed.items()]
    return [str(Path(path) / below) for below in listing.files]


async def from_cluster(
    client: Client,
    namespace: str,
    systems: Sequence[System],
    interpret: Callable[[ImportInput], SystemsRead],
    progress: Progress,
) -> ImportInput:
    """Lists the systems' kinds, then gets the referenced ConfigMaps and Secrets one by one."""
    text = SourceText(client.access.name)
    import_input = await _listed(client, namespace, systems, text, progress)
    documents, hidden = list(import_input.documents), dict[Key, str]()
    fetched: set[Key] = set()
    for _ in range(ROUNDS):
        reading = interpret(import_input)
        missing = sorted(reading.missing - fetched)
        if not missing:
            return import_input._replace(reading=reading)
        for number, key in enumerate(missing, 1):
            progress("Getting Secrets and ConfigMaps", number, len(missing))
            fetched.add(key)
            if document := await _get(client, key, text, hidden):
                documents.append(document)
        import_input = import_input._replace(documents=tuple(documents), hidden=hidden)
    return import_input._replace(reading=interpret(import_input))


async def _listed(
    client: Client, namespace: str, systems: Sequence[System], text: SourceText, progress: Progress
) -> ImportInput:
    """Returns the objects of all kinds that the systems read, with a problem for each kind that the user may not list."""
    kinds = {(kind.group, kind.kind): kind for system in systems for kind in (*system.kinds, *SHARED)}
    progress("Listing the cluster", 0, len(kinds))
    listed = await look(client, kinds.values(), namespace, beyond=False)
    documents: list[Document] = []
    problems: list[Unparsable] = []
    where = f"in namespace {namespace}" if namespace else "in the cluster"
    for result in listed.values():
        if result.refusal is not None and not result.items:
            message = f"you may not list {result.kind.plural} {where}, so they are not imported"
            problems.append(Unparsable(text.name, 0, message, hides=result.kind.kind not in HARMLESS))
        documents += [Document(_versioned(result.kind, result.path, plain(result.kind, item)), text) for item in result.items]
    return ImportInput(tuple(documents), tuple(problems))


def _versioned(kind: Kind, path: str, document: dict[str, object]) -> dict[str, object]:
    """Sets the version of a list on items without one."""
    version = path.split("/")[3 if kind.group else 2]
    return {**document, "apiVersion": f"{kind.group}/{version}" if kind.group else version}


async def _get(client: Client, key: Key, text: SourceText, hidden: dict[Key, str]) -> Document | None:
    try:
        value = await client.get(path_of("", "v1", PLURALS[key.kind], key.namespace, key.name))
    except ApiError as error:
        if error.status == 403:
            hidden[key] = "may not be read with your rights"
        elif not error.not_found:
            raise
        else:
            hidden[key] = "does not exist"
        return None
    value.get("metadata", {}).pop("managedFields", None)
    return Document({"apiVersion": "v1", "kind": key.kind, **value}, text)
