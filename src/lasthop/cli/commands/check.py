"""`lasthop check`: the problems of a folder, a running gateway or a cluster, without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from lasthop.cli.args import target
from lasthop.cli.views.command_view import View, ask
from lasthop.printable import clean


@click.command("check")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@target.output("text", "json", "github", help="github: annotations for a pull request.")
@target.on_folder
@target.admin
@target.allow_files
@target.options
def command(folder: Path | None, output: str, cluster: target.ClusterOptions) -> None:
    """Find problems in the objects in DIR, without Envoy and without network access; or in a cluster.

    Objects in DIR are validated and resolved as by `lasthop run`: schemas and rules of the CRDs, references, permissions,
    certificates, conflicts. Each problem is listed with its file and line, the object and field, and what to do; its
    consequences are listed below it. Exits with 1 if there are errors, with 0 if there are none or only warnings. It does not
    connect to backends: for that, use lasthop probe.

    Without DIR, checks the gateway that runs on this machine, or else the cluster. --context and --kubeconfig select a
    cluster, which is read with your permissions: what you may not read is named, and what depends on it is not an error.

    \b
    Examples:
      lasthop check objects
      lasthop check objects -o json | jq '.findings[].message'
      lasthop check objects -o github        in a workflow: marks the lines of a pull request
      lasthop check -n shop --context prod   a namespace of a cluster
    """
    from lasthop.cli.broken_files import broken_objects
    from lasthop.cli.render import report
    from lasthop.outputs.findings.root_causes import mistakes

    async def look(view: View) -> report.Report:
        findings = await view.findings()
        listed = tuple(mistakes(findings, broken_objects(findings), view.unseen))
        objects, files = await view.size()
        where = view.where if files is None else report.count(files, "file")
        return report.Report(listed, where, objects, files or 0).of_namespace(view.namespace)

    found = ask(folder, cluster, look)
    render = {"text": report.text, "json": report.as_json, "github": report.github}[output]
    click.echo(render(found if output == "json" else clean(found)))
    if found.errors:
        raise click.exceptions.Exit(1)
