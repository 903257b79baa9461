"""`lasthop status`: how the running gateway's objects stand."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import click

from lasthop.api.kinds import KINDS
from lasthop.cli import places
from lasthop.web.page import summary


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(admin_socket: Path, path: str) -> Any:
    connection = _UnixConnection(admin_socket)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except OSError as error:
        raise click.ClickException(f"the gateway does not answer on {admin_socket}: {error.strerror or error}") from error
    finally:
        connection.close()


@click.command("status")
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="The folder it runs on, if several run.")
@click.option("-n", "--namespace", help="Only this namespace.")
@click.option("-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="table", show_default=True)
def command(kind: str | None, name: str | None, folder: Path | None, namespace: str | None, output: str) -> None:
    """Show how the running gateway's objects stand: all of them, those of a KIND, or one by NAME.

    \b
    Examples:
      lasthop status
      lasthop status backendtlspolicy
      lasthop status httproute web -n shop -o yaml
    """
    wanted = _kind(kind) if kind else None
    query = f"?kind={wanted}" if wanted else ""
    documents = ask(places.running(folder), f"/api/objects{query}")
    documents = [d for d in documents if namespace in (None, d["metadata"].get("namespace", ""))]
    if name:
        documents = [d for d in documents if d["metadata"]["name"] == name]
        if not documents:
            raise click.ClickException(f"there is no {wanted} named {name}; see: lasthop status {wanted}")
    click.echo(_rendered(documents, output))


def _kind(text: str) -> str:
    for kind in KINDS.values():
        if text.lower() in (kind.kind.lower(), kind.plural):
            return kind.kind
    raise click.BadParameter(f"{text} is no kind that Lasthop knows; try one of {', '.join(KINDS)}", param_hint="KIND")


def _rendered(documents: list[dict[str, Any]], output: str) -> str:
    if output == "json":
        return json.dumps(documents, indent=2)
    if output == "yaml":
        import yaml

        return yaml.safe_dump_all(documents, sort_keys=False).rstrip()
    rows = [("NAME", "READY", "WHY")]
    for document in documents:
        metadata = document["metadata"]
        path = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
        rows.append((f"{document['kind'].lower()}/{path}", *summary(document)))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in rows)
