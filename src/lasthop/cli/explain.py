"""`lasthop explain KIND NAME`: what applies to an object, to what it applies, and why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lasthop.cli import places
from lasthop.cli.objects import Wanted, complete_kind, complete_name, one_of, wanted

MARKS = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}


@click.command("explain")
@click.argument("kind", shell_complete=complete_kind)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("-n", "--namespace", metavar="NS", help="Its namespace, if the name is not the only one.")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Look at this folder instead of a running gateway."
)
@click.option("--reads", is_flag=True, help="Show the recorded reads themselves: queries and objects, no contents.")
@click.option("-o", "--output", type=click.Choice(["tree", "json"]), default="tree", show_default=True)
def command(kind: str, name: str | None, namespace: str | None, folder: Path | None, reads: bool, output: str) -> None:
    """Explain an object: what applies to it, to what it applies, and why not.

    Of the gateway that runs on this machine or, with --dir, of a folder, whether or not a gateway runs on it. Every line
    rests on the ones beneath it; ✓ is as it should be, ! deserves a look, ✗ does not work.

    \b
    Examples:
      lasthop explain backendtlspolicy api -n shop      where it rules, who wins, what is checked
      lasthop explain httproute/shop/web --dir objects  each rule's backends: TLS by which policy, or why not
      lasthop explain service api --dir objects         who routes to it, and under which policy
      lasthop explain configmap corp-ca                 which policies take their CAs from it
    """
    want = wanted(kind, name, namespace)
    if not want.name:
        raise click.UsageError(f"which {want.kind}? Add its name: lasthop explain {want.kind.lower()} NAME")
    tree = _of_folder(folder, want, reads) if folder else _of_gateway(want, reads)
    if output == "json":
        click.echo(json.dumps(tree, indent=2))
    else:
        click.echo("\n".join(drawn(tree)))


def _of_folder(path: Path, want: Wanted, reads: bool) -> dict[str, Any]:
    from lasthop.api.meta import Key
    from lasthop.cli.folder import Folder
    from lasthop.outputs.explain.tree import tree

    folder = Folder(path)
    if folder.source_findings:
        click.echo(f"some of {path} is not applied; see: lasthop check {path}", err=True)
    keys = folder.engine.store.keys(want.kind)
    key = Key(want.kind, *one_of(((key.namespace, key.name) for key in keys), want))
    found = tree(folder.engine.graph, key, folder.locate, reads=reads)
    assert found is not None
    return found


def _of_gateway(want: Wanted, reads: bool) -> dict[str, Any]:
    from lasthop.cli.admin import ask

    socket = places.running(None)
    documents = ask(socket, "/api/objects", kind=want.kind)
    known = ((d["metadata"].get("namespace", ""), d["metadata"]["name"]) for d in documents)
    namespace, name = one_of(known, want)
    found: dict[str, Any] = ask(
        socket, "/api/explain", kind=want.kind, namespace=namespace, name=name, reads="true" if reads else ""
    )
    return found


def drawn(fact: dict[str, Any], first: str = "", rest: str = "") -> Iterator[str]:
    mark, colour = MARKS.get(fact.get("state", ""), ("", None))
    shown = f"{click.style(mark, fg=colour, bold=True)} {fact['text']}" if mark else fact["text"]
    place = click.style(f"  {fact['place']}", dim=True) if fact.get("place") else ""
    yield f"{first}{shown}{place}"
    because = fact.get("because", ())
    for number, each in enumerate(because, 1):
        branch, trunk = ("└─ ", "   ") if number == len(because) else ("├─ ", "│  ")
        yield from drawn(each, rest + branch, rest + trunk)
