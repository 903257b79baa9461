"""`lasthop check DIR`: everything that is wrong with a folder, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lasthop.cli.report import Report


@click.command("check")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="github: annotations for a pull request.",
)
def command(folder: Path, output: str) -> None:
    """Find everything that is wrong with the objects in DIR, without Envoy and without the network.

    They are admitted and resolved as `lasthop run` would: schemas and rules of the CRDs, references, permissions,
    certificates, conflicts. Each mistake is listed with its file and line, the object and field, and what to do; what only
    follows from it is said beneath. Exits with 1 if there are errors, with 0 if there are none or only warnings.

    \b
    Examples:
      lasthop check objects
      lasthop check objects -o json | jq '.findings[].message'
      lasthop check objects -o github        in a workflow: marks the lines of a pull request
    """
    from lasthop.cli import report

    found = _report(folder)
    render = {"text": report.text, "json": report.as_json, "github": report.github}[output]
    click.echo(render(found))
    if found.errors:
        raise click.exceptions.Exit(1)


def _report(path: Path) -> Report:
    from lasthop.cli.causes import broken_objects, mistakes
    from lasthop.cli.folder import Folder, unclassed
    from lasthop.cli.report import Report, placed

    folder = Folder(path)
    resolved = [*folder.engine.findings(), *unclassed(folder.engine)]
    findings = [*folder.source_findings, *(placed(finding, folder.locate, str(path)) for finding in resolved)]
    listed = mistakes(findings, broken_objects(folder.source_findings))
    return Report(tuple(listed), len(folder.files), folder.objects)
