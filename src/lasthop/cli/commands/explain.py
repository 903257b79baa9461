"""`lasthop explain KIND NAME`: what applies to an object, to what it applies, and why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lasthop.cli.args import target
from lasthop.cli.args.objects import Wanted, complete_kind, complete_name, one_of, wanted
from lasthop.cli.render.terminal import note
from lasthop.printable import clean

MARKS = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}


@click.command("explain")
@click.argument("kind", shell_complete=complete_kind)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Look at this folder, running or not.")
@click.option("--reads", is_flag=True, help="Show the recorded reads themselves: queries and objects, no contents.")
@click.option("-o", "--output", type=click.Choice(["tree", "json"]), default="tree", show_default=True)
@target.allow_files
@target.options
def command(kind: str, name: str | None, folder: Path | None, reads: bool, output: str, reach: target.Reach) -> None:
    """Explain an object: what applies to it, to what it applies, and why not.

    Of the gateway that runs on this machine; with --dir of a folder, whether or not a gateway runs on it; else, or with
    --context, --kubeconfig or -A, of a cluster. Every line rests on the ones beneath it; ✓ is as it should be, ! deserves a
    look, ✗ does not work.

    \b
    Examples:
      lasthop explain backendtlspolicy api -n shop      where it rules, who wins, what is checked
      lasthop explain httproute/shop/web --dir objects  each rule's backends: TLS by which policy, or why not
      lasthop explain service api --dir objects         who routes to it, and under which policy
      lasthop explain configmap corp-ca                 which policies take their CAs from it
      lasthop explain gateway web -n shop --context prod
    """
    want = wanted(kind, name, reach.namespace)
    if not want.name:
        raise click.UsageError(f"which {want.kind}? Add its name: lasthop explain {want.kind.lower()} NAME")
    if folder and not reach.cluster:
        tree = _of_folder(folder, want, reads)
    elif socket := target.choose(folder, reach):
        tree = _of_gateway(socket, want, reads)
    else:
        tree = _of_cluster(reach, want, reads)
    if output == "json":
        click.echo(json.dumps(tree, indent=2))
    else:
        click.echo("\n".join(drawn(clean(tree))))


def _of_folder(path: Path, want: Wanted, reads: bool) -> dict[str, Any]:
    from lasthop.api.meta import Key
    from lasthop.cli.folder import Folder, names
    from lasthop.outputs.explain.tree import tree

    folder = Folder(path)
    if folder.source_findings:
        note(f"some of {path} is not applied; see: lasthop check {path}")
    key = Key(want.kind, *one_of(names(folder.engine, want.kind), want))
    found = tree(folder.engine.graph, key, folder.locate, reads=reads)
    assert found is not None
    return found


def _of_cluster(reach: target.Reach, want: Wanted, reads: bool) -> dict[str, Any]:
    from lasthop.api.kinds import KINDS
    from lasthop.api.meta import Key
    from lasthop.cli import cluster
    from lasthop.cli.folder import names
    from lasthop.outputs.explain.tree import tree

    found, namespace = cluster.objects(reach._replace(namespace=want.namespace or None))
    scope = (want.namespace or namespace) if KINDS[want.kind].namespaced else ""
    key = Key(want.kind, *one_of(names(found.engine, want.kind), want._replace(namespace=scope)))
    explained = tree(found.engine.graph, key, lambda _: None, reads=reads)
    assert explained is not None
    if unseen := found.hidden.unseen(found.engine.graph, key):
        note(f"Not seen with your rights, so what depends on it may be wrong: {', '.join(map(str, unseen))}")
    return found.hidden.veiled(explained)


def _of_gateway(socket: Path, want: Wanted, reads: bool) -> dict[str, Any]:
    from lasthop.cli.admin import ask

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
