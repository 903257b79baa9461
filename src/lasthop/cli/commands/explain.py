"""`lasthop explain KIND NAME`: what applies to an object, to what it applies, and why not."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lasthop.api.documents import Json
from lasthop.cli.args import target
from lasthop.cli.args.objects import complete_kind, complete_name, one, wanted
from lasthop.cli.render.tree import drawn
from lasthop.cli.views.command_view import View, ask
from lasthop.printable import clean


@click.command("explain")
@click.argument("kind", shell_complete=complete_kind)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Look at this folder, running or not.")
@click.option("--reads", is_flag=True, help="Show the recorded reads themselves: queries and objects, no contents.")
@target.output("tree", "json")
@target.allow_files
@target.options
def command(
    kind: str, name: str | None, folder: Path | None, reads: bool, output: str, cluster: target.ClusterOptions
) -> None:
    """Explain an object: what applies to it, to what it applies, and why not.

    Of the gateway that runs on this machine; with --dir of a folder, whether or not a gateway runs on it; else, or with
    --context, --kubeconfig or -A, of a cluster. Every line follows from those below it; ✓ is fine, ! needs a look,
    ✗ does not work.

    \b
    Examples:
      lasthop explain backendtlspolicy api -n shop      where it applies, which policy wins, what is verified
      lasthop explain httproute/shop/web --dir objects  each rule's backends: TLS by which policy, or why not
      lasthop explain service api --dir objects         which routes use it, and under which policy
      lasthop explain configmap corp-ca                 which policies take their CAs from it
      lasthop explain gateway web -n shop --context prod
    """
    want = wanted(kind, name, cluster.namespace)
    if not want.name:
        raise click.UsageError(f"which {want.kind}? Add its name: lasthop explain {want.kind.lower()} NAME")

    async def look(view: View) -> Json:
        found = await view.explain(await one(view, want), reads=reads)
        assert found is not None
        return found

    found = ask(folder, cluster._replace(namespace=want.namespace or None), look, object_named=True)
    click.echo(json.dumps(found, indent=2) if output == "json" else "\n".join(drawn(clean(found))))
