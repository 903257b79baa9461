"""Asks a running gateway over its admin socket."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

TIMEOUT = 10.0
_CREDENTIALS = struct.Struct("3i")
"""pid, uid and gid of the process that listens, as the kernel knows them (SO_PEERCRED)."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
        _, uid, _ = _CREDENTIALS.unpack(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid not in (0, os.geteuid()):
            self.sock.close()
            raise PermissionError(errno.EACCES, f"the process that listens there is uid {uid}'s, not yours")


def namespaces(admin_socket: Path) -> list[str]:
    """Those that a running gateway knows."""
    return [document["metadata"]["name"] for document in ask(admin_socket, "/api/objects", kind="Namespace")]


def ask(admin_socket: Path, path: str, timeout: float = TIMEOUT, /, **query: str) -> Any:
    connection = _UnixConnection(admin_socket, timeout)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}" if query else path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise click.ClickException(f"the gateway does not answer on {admin_socket}: {why}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise click.ClickException(body.decode(errors="replace").strip() or f"the gateway answers {response.status}")
    return json.loads(body)
