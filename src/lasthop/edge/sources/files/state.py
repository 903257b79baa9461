"""Saves the last good content of every file, so that it stays in force if the file is broken at the next start.

It uses one SQLite database, mode 0600 in a folder of mode 0700, because it contains copies of the files, including Secrets and
local key files. Deleted content is overwritten. The database stores each text with its admitted documents, so that an
unchanged file need not be parsed and admitted again. A seal proves that this version of the rules has admitted them and that
they are unchanged. Without a valid seal, or if the database is damaged, the files are read as for the first time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lasthop.edge.sources.files.content import StoredDocument
from lasthop.edge.sources.files.folder import FilesError

_TABLES: Final = """
create table if not exists last_good (
  path text primary key, digest blob, text blob, written integer, seal blob, stored blob
) without rowid;
create table if not exists local_file (path text primary key, content blob) without rowid;
create table if not exists pair (
  certificate_path text, key_path text, certificate blob, key blob, written integer, primary key (certificate_path, key_path)
) without rowid;
pragma user_version = 3;
"""
_LAYOUT: Final = 3
"""The version of these tables. A database with another version is discarded."""
_DOCUMENTS: Final = msgspec.json.Decoder(tuple[StoredDocument, ...])


K = TypeVar("K", bound=tuple[str, ...])


class SavedFile(NamedTuple):
    digest: bytes
    text: bytes
    written: int
    """The file's modification time, in nanoseconds."""
    stored: tuple[StoredDocument, ...] | None
    """None if another version of the rules admitted them, or they are damaged."""


class PairPaths(NamedTuple):
    certificate: str
    key: str


class Pair(NamedTuple):
    certificate: bytes
    key: bytes
    written: int
    """The modification time of the later file, in nanoseconds."""


class NoState:
    def paths(self) -> Iterable[str]:
        return ()

    def last_good(self, path: str) -> SavedFile | None:
        return None

    def local_file(self, path: str) -> bytes | None:
        return None

    def pair(self, paths: PairPaths) -> Pair | None:
        return None

    def save(
        self,
        contents: Mapping[str, SavedFile | None],
        local: Mapping[str, bytes | None],
        pairs: Mapping[PairPaths, Pair | None] = MappingProxyType({}),
    ) -> None:
        """Saves in one transaction; None deletes. Raises `sqlite3.Error`."""


class StateDirectory(NoState):
    def __init__(self, directory: Path) -> None:
        path = directory / "files.sqlite"
        self._lock = threading.Lock()
        """One thread may read a large file while another applies and saves the others."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(directory, 0o700)
            try:
                self._database = _open(path)
            except sqlite3.DatabaseError:
                # The file is not a database, is damaged, or belongs to another user. Its loss must not prevent the start. The
                # journal is removed too, because SQLite would otherwise replay it into the new database.
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
                self._database = _open(path)
        except (OSError, sqlite3.Error) as error:
            raise FilesError(f"Cannot keep state in {directory}: {error}.") from error

    def close(self) -> None:
        self._database.close()

    def paths(self) -> Iterable[str]:
        return [path for (path,) in self._rows("select path from last_good")]

    def last_good(self, path: str) -> SavedFile | None:
        query = "select digest, text, written, seal, stored from last_good where path = ?"
        for row in self._rows(query, path):
            if tuple(map(type, row)) != (bytes, bytes, int, bytes, bytes):  # a column of SQLite may hold anything
                return None
            digest, text, written, seal, stored = row
            return SavedFile(digest, text, written, _DOCUMENTS.decode(stored) if seal == _seal(digest, stored) else None)
        return None

    def local_file(self, path: str) -> bytes | None:
        for (content,) in self._rows("select content from local_file where path = ?", path):
            return bytes(content)
        return None

    def pair(self, paths: PairPaths) -> Pair | None:
        query = "select certificate, key, written from pair where certificate_path = ? and key_path = ?"
        return next((Pair(*row) for row in self._rows(query, *paths)), None)

    def save(
        self,
        contents: Mapping[str, SavedFile | None],
        local: Mapping[str, bytes | None],
        pairs: Mapping[PairPaths, Pair | None] = MappingProxyType({}),
    ) -> None:
        with self._lock, self._database as database:
            files = {(path,): None if saved is None else _sealed(saved) for path, saved in contents.items()}
            _save(database, "last_good", ("path",), files)
            _save(database, "pair", PairPaths("certificate_path", "key_path"), pairs)
            local_rows = {(path,): None if content is None else (content,) for path, content in local.items()}
            _save(database, "local_file", ("path",), local_rows)

    def _rows(self, query: str, *values: str) -> list[Any]:
        """Returns the rows, or none from a damaged database. The failure of the next save is reported."""
        with self._lock, contextlib.suppress(sqlite3.DatabaseError):
            return self._database.execute(query, values).fetchall()
        return []


def _save(
    database: sqlite3.Connection,
    table: str,
    columns: K,
    rows: Mapping[K, tuple[bytes | int, ...] | None],
) -> None:
    """Inserts rows by their primary key, or deletes those without values."""
    key = " and ".join(f"{column} = ?" for column in columns)
    database.executemany(f"delete from {table} where {key}", [path for path, values in rows.items() if values is None])
    inserted = [(*path, *values) for path, values in rows.items() if values is not None]
    if inserted:
        database.executemany(f"insert or replace into {table} values ({', '.join('?' * len(inserted[0]))})", inserted)


def _sealed(saved: SavedFile) -> tuple[bytes | int, ...]:
    stored = msgspec.json.encode(saved.stored)
    return saved.digest, saved.text, saved.written, _seal(saved.digest, stored), stored


def _seal(digest: bytes, stored: bytes) -> bytes:
    """Returns a keyed digest of these documents, for a file with this digest, admitted by these rules."""
    return hashlib.blake2b(digest + stored, key=rules_version().encode(), digest_size=16).digest()


def _open(path: Path) -> sqlite3.Connection:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    owner = os.fstat(descriptor).st_uid
    os.close(descriptor)
    if owner != os.geteuid():
        raise sqlite3.DatabaseError("it belongs to another user")
    database = sqlite3.connect(path, check_same_thread=False)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = normal")
    database.execute("pragma secure_delete = on")
    (layout,), (tables,) = (
        database.execute(query).fetchone() for query in ("pragma user_version", "select count(*) from sqlite_schema")
    )
    if tables and layout != _LAYOUT:
        database.close()
        raise sqlite3.DatabaseError(f"its layout is {layout}, not {_LAYOUT}")
    database.executescript(_TABLES)
    return database


@cache
def rules_version() -> str:
    """Returns a digest of the code and the schemas that admit files, released or not."""
    digest = hashlib.blake2b(digest_size=16)
    api = files("lasthop.base.api")
    folders = (
        files("lasthop.edge.admission"),
        files(__package__),
        api,
        api / "crds",
        api / "crds" / "gateway-api" / "experimental",
    )
    for folder in folders:
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.name.endswith((".py", ".yaml")):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
