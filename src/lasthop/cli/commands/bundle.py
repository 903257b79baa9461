"""`lasthop bundle`: writes an archive for support, without secrets."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from lasthop.base.text.printable import printable
from lasthop.cli.args import local, target
from lasthop.cli.render.terminal import note
from lasthop.edge.unix_http import Endpoint

PARTS: Final = ("about", "readiness", "findings", "not-applied", "audit", "changes", "traffic")
"""Paths of the admin API."""
MESSAGE: Final = re.compile(rb"\[\d{4}-\d\d-\d\d [^\]]+\]\[\d+\]\[(\w+)\]")
"""The beginning of a message in Envoy's log: time, thread, level."""
LOG_BYTES: Final = 256 * 1024
TIMEOUT: Final = 120.0
ELSEWHERE: Final = (
    "collect the output of lasthop doctor, lasthop status -A -o yaml and lasthop audit -A with --context, "
    "and the controller's log"
)


@click.command("bundle")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The archive.  [default: lasthop-TIME.tar.gz]",
)
@target.running_folder
@target.admin
def command(output: Path | None, folder: Path | None) -> None:
    """Collect data for support into an archive: versions and checks of this machine; of the gateway that runs here, its
    objects with their status, findings, audit, metrics and the configuration of its Envoys.

    The archive contains no private keys, Secrets' data or requests. It omits ConfigMaps' data except CA certificates, and
    values of headers that are sent to backends or carry credentials. It does contain names, hostnames, addresses and paths of
    routes: review it before you pass it on. Without a gateway, it describes this machine only.

    \b
    Examples:
      lasthop bundle
      lasthop bundle --dir objects -o /tmp/problem.tar.gz
    """
    path = output or Path(time.strftime("lasthop-%Y%m%d-%H%M%S.tar.gz"))
    try:
        with _created(path) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in _contents(folder):
                info = tarfile.TarInfo(f"lasthop/{name}")
                info.size, info.mtime, info.mode = len(content), int(time.time()), 0o600
                archive.addfile(info, io.BytesIO(content))
    except FileExistsError:
        raise click.ClickException(f"{path} exists; choose another file with -o") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"Wrote {printable(str(path))} ({path.stat().st_size >> 10} KB)")
    note("It contains names and addresses, but no secrets; review it before you pass it on.")


@contextlib.contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    """Creates a file for this user alone; removes it if writing fails."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        try:
            yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _contents(folder: Path | None) -> Iterator[tuple[str, bytes]]:
    from lasthop.cli.commands.ps import described
    from lasthop.cli.commands.version import versions
    from lasthop.cli.doctor.machine import machine

    yield "version.json", _json(versions)
    yield "doctor.json", _json(lambda: [result._asdict() for result in machine(folder)])
    yield "ps.json", _json(lambda: [described(gateway, local.state(gateway)) for gateway in local.gateways()])
    try:
        socket = target.running_gateway(folder, ELSEWHERE)
    except click.ClickException as error:
        note(f"It describes this machine only: {printable(error.message)}")
        yield "no-gateway.txt", f"{error.message}\n".encode()
        return
    yield from _of_gateway(socket)


def _of_gateway(socket: Endpoint) -> Iterator[tuple[str, bytes]]:
    from lasthop.base.api.kinds import KINDS
    from lasthop.cli.views.admin_socket import AdminSocketView
    from lasthop.edge import unix_http
    from lasthop.web.redaction import redacted, without_secrets

    view = AdminSocketView(socket)

    def answer(path: str) -> Any:
        return redacted(view.ask(path, TIMEOUT))

    def objects(kind: str) -> list[Any]:
        return [without_secrets(document) for document in view.ask("/api/objects", TIMEOUT, kind=kind)]

    for part in PARTS:
        yield f"{part}.json", _json(partial(answer, f"/api/{part}"))
    for kind in KINDS:
        if (content := _json(partial(objects, kind))) != b"[]":
            yield f"objects/{kind.lower()}.json", content
    yield "envoy-config.json", _json(partial(answer, "/api/envoy-config"))
    yield "metrics.txt", _attempted(lambda: unix_http.get(socket, "/metrics", TIMEOUT)[1])
    if isinstance(socket, Path):
        uid = socket.parent.stat().st_uid
        for log in sorted(socket.parent.glob("*/envoy.log")):
            yield f"envoy-{log.parent.name}.log", _attempted(partial(_tail, log, uid))


def _json(read: Callable[[], Any]) -> bytes:
    return _attempted(lambda: json.dumps(read(), indent=1).encode())


def _attempted(read: Callable[[], bytes]) -> bytes:
    """Collects a part; other parts are collected even if it fails."""
    try:
        return read()
    except (click.ClickException, OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'message', error)}\n".encode()


def _tail(path: Path, uid: int) -> bytes:
    """Reads the end of a log of user `uid`. Follows no links, because root also collects files that other users control."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != uid:
            raise OSError(f"{path} is not a file of the gateway's user")
        file.seek(max(0, info.st_size - LOG_BYTES))
        return b"".join(_without_headers(file.read(LOG_BYTES)))


def _without_headers(log: bytes) -> Iterator[bytes]:
    """Yields Envoy's log without trace and debug messages, which contain request headers and so credentials. It omits text
    before the first message, which may be the end of such a message."""
    kept = False
    for line in log.splitlines(keepends=True):
        if match := MESSAGE.match(line):
            kept = match[1] not in (b"trace", b"debug")
        if kept:
            yield line
