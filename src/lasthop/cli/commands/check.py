"""`lasthop check`: finds problems in a folder, a running gateway or a cluster, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lasthop.base.text.printable import clean
from lasthop.cli.args import jsonpath, target
from lasthop.cli.views.command_view import View, ask

if TYPE_CHECKING:
    from lasthop.engine.outputs.comparison import ComparedState, Comparison
    from lasthop.engine.outputs.findings.root_causes import RootCause

WEAKER: Final = 3
"""The exit code if a change introduces no error but weakens the verification of a backend."""
OTHER_TRUST: Final = "other-trust"


@click.command("check")
@target.folders
@target.files
@click.option(
    "--against",
    metavar="DIR|REF",
    help="Show only the difference to this folder, or to DIR at this commit, branch or tag of git.",
)
@click.option(
    "--fail-on",
    "causes",
    type=click.Choice([OTHER_TRUST]),
    multiple=True,
    help=f"With --against, exit with {WEAKER} also if a backend is verified against other CAs, names or pins.",
)
@target.output("text", "json", "github", help="github: annotations for a pull request.")
@target.on_folder
@target.admin
@target.allow_files
@target.options
def command(
    folders: tuple[Path, ...],
    files: tuple[Path, ...],
    against: str | None,
    causes: tuple[str, ...],
    output: str,
    cluster: target.ClusterOptions,
) -> None:
    """Find problems in the objects in DIR, without Envoy and without network access; or in a cluster.

    Objects in DIR are validated and resolved as by `lasthop run`: schemas and rules of the CRDs, references, permissions,
    certificates, conflicts. Each problem has its file and line, object, field and remedy; its consequences follow below it.
    Exits with 1 if there are errors, otherwise with 0. It does not connect to backends: for that, use
    lasthop probe.

    DIR may also be a file, several files, or - for standard input. Ignores objects that no gateway needs (Deployments,
    Ingresses, kustomizations) and names them once.

    With --against, shows new and fixed findings, and hops whose verification changes, with each added and removed CA, name,
    pin, TLS version, client certificate and end of a waiver. Exits with 1 if the change introduces errors, or if it could not
    compare something, which it names. Exits with 3 if the verification of a backend becomes weaker: plaintext, a waiver or
    pins instead of full verification; more CAs, names or pins; an older TLS version; or a waiver that ends later. Other CAs,
    names or pins fail only with --fail-on other-trust.

    Without DIR, checks the gateway that runs on this machine, or else the cluster. --context and --kubeconfig select a
    cluster, which the command reads with your permissions. It names the kinds that you may not read, and reports no errors
    that depend on them.

    \b
    Examples:
      lasthop check objects
      kustomize build overlays/prod | lasthop check -
      lasthop check objects --against origin/main        what a branch changes
      lasthop check objects -o json | jq '.findings[].message'
      lasthop check objects -o github        in a workflow: marks the lines of a pull request
      lasthop check -n shop --context prod   a namespace of a cluster
    """
    from lasthop.cli.render import report

    files = (*folders, *files)
    if against is not None:
        _compare(files, against, causes, output, cluster)
        return
    if causes:
        raise click.UsageError("--fail-on goes with --against")

    async def look(view: View) -> report.Report:
        listed = await _root_causes(view)
        objects, files = await view.size()
        where = view.where if files is None else report.count(files, "file")
        return report.Report(listed, where, objects, files or 0).of_namespace(view.namespace)

    result = ask(None, cluster, look, files=files)
    render = {"text": report.text, "json": report.as_json, "github": report.github}[output]
    if output == "json":
        jsonpath.echo_json(render(result))
    else:
        click.echo(render(clean(result)))
    if result.errors:
        raise click.exceptions.Exit(1)


async def _root_causes(view: View) -> tuple[RootCause, ...]:
    from lasthop.engine.outputs.findings.root_causes import root_causes

    findings = await view.findings()
    return tuple(root_causes(findings, view.broken_objects(findings), view.unseen))


def _compare(
    files: tuple[Path, ...], against: str, causes: tuple[str, ...], output: str, cluster: target.ClusterOptions
) -> None:
    import asyncio

    from lasthop.cli.render import comparison_report
    from lasthop.cli.views.folder import FolderView
    from lasthop.cli.views.selection import at
    from lasthop.engine.outputs.comparison import compare

    if len(files) != 1 or cluster.named or target.gateway_named():
        raise click.UsageError("--against compares one folder or file: lasthop check DIR --against DIR|REF")
    after = ask(None, cluster, _state, files=files)
    with at(against, files[0]) as chosen:
        before = asyncio.run(_state(FolderView(chosen.path, cluster.namespace or "", chosen)))
    comparison = compare(before, after)
    render = {"text": comparison_report.text, "json": comparison_report.as_json, "github": comparison_report.github}[output]
    if output == "json":
        jsonpath.echo_json(render(comparison))
    else:
        click.echo(render(clean(comparison)))
    if code := _exit_code(comparison, causes):
        raise click.exceptions.Exit(code)


def _exit_code(comparison: Comparison, causes: tuple[str, ...]) -> int:
    if comparison.errors or comparison.not_judged:
        return 1
    return WEAKER if comparison.weaker or (OTHER_TRUST in causes and comparison.other_trust) else 0


async def _state(view: View) -> ComparedState:
    from lasthop.cli.render.report import Report
    from lasthop.cli.views.folder import FolderView
    from lasthop.engine.outputs.comparison import ComparedState

    if not isinstance(view, FolderView):
        raise TypeError("--against compares folders only")
    listed = Report(await _root_causes(view), view.where, 0)
    hops = [hop for hop in (await view.audit()).hops if view.namespace in ("", hop.gateway.namespace, hop.backend.namespace)]
    shown = listed.of_namespace(view.namespace).root_causes
    return ComparedState(view.where, shown, tuple(hops), view.engine.verified(), view.unknown())
