"""`lasthop status`: how the running gateway's objects stand."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lasthop.cli import places
from lasthop.cli.objects import Wanted, complete_kind, complete_name, one_of, wanted
from lasthop.cli.table import Columns, row

POLL = 0.5
"""Seconds between two looks of --watch."""

Document = dict[str, Any]


@click.command("status")
@click.argument("kind", required=False, shell_complete=complete_kind)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("-n", "--namespace", metavar="NS", help="Only this namespace.  [default: all]")
@click.option("-w", "--watch", is_flag=True, help="Go on, and show what changes.")
@click.option("-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="table", show_default=True)
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything is not ready.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The folder it runs on, if several run.")
def command(
    kind: str | None,
    name: str | None,
    namespace: str | None,
    watch: bool,
    output: str,
    exit_code: bool,
    folder: Path | None,
) -> None:
    """Show how the running gateway's objects stand: all of them, those of a KIND, or one by NAME.

    READY is True if there is no bad news in an object's status, and WHY is the first of it. A name is understood as it is
    shown, so a line of the table can be copied into the next command.

    \b
    Examples:
      lasthop status
      lasthop status backendtlspolicy -n shop
      lasthop status httproute/shop/web -o yaml
      lasthop status -w                          follows until Ctrl-C
      lasthop status --exit-code || exit 1       in a script
    """
    want = wanted(kind, name, namespace)
    socket = places.running(folder)
    documents = _ask(socket, want)
    if want.name:
        found = {(d["metadata"].get("namespace", ""), d["metadata"]["name"]): d for d in _ask(socket, Wanted(want.kind))}
        documents = [found[one_of(found, want)]]
    _show(documents, output)
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(socket, want, output, documents)
    if exit_code and any(row(document).ready == "False" for document in documents):
        raise click.exceptions.Exit(1)


def _ask(socket: Path, want: Wanted) -> list[Document]:
    from lasthop.cli.admin import ask

    documents: list[Document] = ask(socket, "/api/objects", **({"kind": want.kind} if want.kind else {}))
    return list(_fitting(documents, want))


def _fitting(documents: list[Document], want: Wanted) -> Iterator[Document]:
    for document in documents:
        metadata = document["metadata"]
        if want.namespace in ("", metadata.get("namespace", "")) and want.name in ("", metadata["name"]):
            yield document


def _show(documents: list[Document], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(documents, indent=2))
    elif output == "yaml":
        click.echo(_yaml(documents))
    elif documents:
        columns = Columns.of([row(document) for document in documents])
        click.echo("\n".join((columns.head(), *(columns.line(row(document)) for document in documents))))
    else:
        click.echo("no objects")


def _follow(socket: Path, want: Wanted, output: str, documents: list[Document]) -> None:
    """Prints what is other than before, as rows, or as one document a time."""
    known = {row(document).name: document for document in documents}
    columns = Columns.of([row(document) for document in documents])
    while True:
        time.sleep(POLL)
        now = {row(document).name: document for document in _ask(socket, want)}
        for name, document in now.items():
            if output != "table" and known.get(name) != document:
                click.echo(json.dumps(document) if output == "json" else f"---\n{_yaml([document])}")
            elif output == "table" and (name not in known or row(known[name]) != row(document)):
                click.echo(columns.line(row(document)))
        for name in known.keys() - now.keys():
            click.echo(columns.gone(name), err=output != "table")
        known = now


def _yaml(documents: list[Document]) -> str:
    import yaml

    return yaml.safe_dump_all(documents, sort_keys=False).rstrip()
