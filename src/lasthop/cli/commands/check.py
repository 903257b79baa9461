"""`lasthop check`: everything that is wrong with a folder, a running gateway or a cluster, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lasthop.cli.args import target
from lasthop.printable import clean

if TYPE_CHECKING:
    from lasthop.cli.render.report import Report


@click.command("check")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="github: annotations for a pull request.",
)
@target.allow_files
@target.options
def command(folder: Path | None, output: str, reach: target.Reach) -> None:
    """Find what is wrong with the objects in DIR, without Envoy and without the network; or in a cluster.

    Those in DIR are admitted and resolved as `lasthop run` would: schemas and rules of the CRDs, references, permissions,
    certificates, conflicts. Each mistake is listed with its file and line, the object and field, and what to do; what only
    follows from it is said beneath. Exits with 1 if there are errors, with 0 if there are none or only warnings. Whether
    backends answer, and with which certificate, it cannot know: see lasthop probe.

    Without DIR it is the gateway that runs on this machine; else, or with --context, --kubeconfig or -A, a cluster, with your
    rights: what you may not read is named, and what depends on it is not called wrong.

    \b
    Examples:
      lasthop check objects
      lasthop check objects -o json | jq '.findings[].message'
      lasthop check objects -o github        in a workflow: marks the lines of a pull request
      lasthop check -n shop --context prod   a namespace of a cluster
    """
    from lasthop.cli.render import report

    if folder and not reach.cluster:
        found = _of_folder(folder, reach.namespace)
    elif socket := target.choose(folder, reach):
        found = _of_gateway(socket, reach.namespace)
    else:
        found = _of_cluster(reach)
    if reach.namespace:
        found = found.of_namespace(reach.namespace)
    render = {"text": report.text, "json": report.as_json, "github": report.github}[output]
    click.echo(render(found if output == "json" else clean(found)))
    if found.errors:
        raise click.exceptions.Exit(1)


def _of_folder(path: Path, namespace: str | None) -> Report:
    from lasthop.cli.causes import broken_objects, mistakes
    from lasthop.cli.folder import Folder, nothing_served
    from lasthop.cli.guesses import guessed
    from lasthop.cli.render.report import Report, count, placed

    folder = Folder(path)
    target.demand_namespace(namespace, folder.namespaces, str(path))
    resolved = [guessed(finding, folder.engine) for finding in folder.engine.findings()]
    findings = [*folder.source_findings, *(placed(finding, folder.locate, str(path)) for finding in resolved)]
    findings += nothing_served(folder.engine, str(path))
    listed = mistakes(findings, broken_objects(folder.source_findings))
    return Report(tuple(listed), count(len(folder.files), "file"), folder.objects, files=len(folder.files))


def _of_gateway(socket: Path, namespace: str | None) -> Report:
    import msgspec

    from lasthop.api.meta import Key
    from lasthop.cli.admin import ask, namespaces
    from lasthop.cli.causes import broken_objects, mistakes
    from lasthop.cli.render.report import Report
    from lasthop.plan.finding import Finding

    target.demand_namespace(namespace, namespaces(socket), "the running gateway")
    findings = []
    for each in ask(socket, "/api/findings"):
        kind, _, path = (each["object"] or "").partition(" ")
        namespace, _, name = path.rpartition("/")
        findings.append(msgspec.convert({**each, "object": Key(kind, namespace, name) if kind else None}, Finding))
    listed = mistakes(findings, broken_objects(findings))
    return Report(tuple(listed), "the running gateway", len(ask(socket, "/api/objects")))


def _of_cluster(reach: target.Reach) -> Report:
    from lasthop.cli import cluster
    from lasthop.cli.causes import mistakes
    from lasthop.cli.folder import unclassed
    from lasthop.cli.guesses import guessed
    from lasthop.cli.render.report import Report

    found, namespace = cluster.objects(reach)
    known = [*found.engine.findings(), *unclassed(found.engine)]
    resolved = [*found.source_findings, *(guessed(finding, found.engine) for finding in known)]
    listed = mistakes(resolved, {}, found.hidden.cause)
    objects = sum(not namespace or key.namespace in ("", namespace) for key in found.objects)
    report = Report(tuple(listed), f"namespace {namespace}" if namespace else "the cluster", objects)
    return report.of_namespace(namespace)
