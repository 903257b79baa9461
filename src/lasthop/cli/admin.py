"""Asks a running gateway over its admin socket."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

TIMEOUT = 10.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


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
