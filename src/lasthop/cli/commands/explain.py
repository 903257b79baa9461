"""`lasthop explain KIND NAME`: what applies to an object, what it applies to, and why."""

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
@target.folder("Read this folder, whether or not a gateway runs on it.")
@click.option("--reads", is_flag=True, help="Show the recorded reads: queries and objects, without contents.")
@target.output("tree", "json")
@target.allow_files
@target.options
def command(
    kind: str, name: str | None, folder: Path | None, reads: bool, output: str, cluster: target.ClusterOptions
) -> None:
    """Explain an object: what applies to it, what it applies to, and why.

    Reads the gateway that runs on this machine; with --dir, a folder, whether or not a gateway runs on it; otherwise, or with
    --context, --kubeconfig or -A, a cluster. Each line follows from the lines below it; ✓ works, ! deserves attention, ✗ does
    not work.

    \b
    Examples:
      lasthop explain backendtlspolicy api -n shop      where it applies, who wins, what is verified
      lasthop explain httproute/shop/web --dir objects  the backends of each rule, and their policies
      lasthop explain service api --dir objects         which routes refer to it, and its policy
      lasthop explain configmap corp-ca                 which policies use its CAs
      lasthop explain gateway web -n shop --context prod
    """
    want = wanted(kind, name, cluster.namespace)
    if not want.name:
        raise click.UsageError(f"which {want.kind}? Add the name: lasthop explain {want.kind.lower()} NAME")

    async def look(view: View) -> Json:
        found = await view.explain(await one(view, want), reads=reads)
        assert found is not None
        return found

    found = ask(folder, cluster._replace(namespace=want.namespace or None), look, object_named=True)
    click.echo(json.dumps(found, indent=2) if output == "json" else "\n".join(drawn(clean(found))))
