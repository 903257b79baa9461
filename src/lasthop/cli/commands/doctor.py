"""`lasthop doctor`: checks the requirements of Lasthop on this machine or in a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lasthop.base.text.printable import clean
from lasthop.cli.args import jsonpath, target
from lasthop.cli.doctor.result import CheckResult, CheckState

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client

SIGNS: Final = {CheckState.OK: ("✓", "green"), CheckState.WARNING: ("!", "yellow"), CheckState.FAILED: ("✗", "red")}


@click.command("doctor")
@click.argument("folder", metavar="[DIR]", required=False, type=target.PATH)
@target.output("text", "json")
@target.controller_namespace("Where the controller runs.")
@target.same_folder
@target.allow_files
@target.options
def command(
    folder: Path | None, output: str, controller_namespace: str, by_option: Path | None, cluster: target.ClusterOptions
) -> None:
    """Check the requirements of Lasthop, and show a remedy for each that fails.

    On this machine: the Envoy binary, the CA bundle, the clock, inotify, limits, the run and the state directory; with DIR
    also the ports of its Gateways. In a cluster, with --context, --kubeconfig, -A or $KUBECONFIG, and as kubectl lasthop
    doctor: the CRDs and their versions, the GatewayClass, the controller, its rights and yours. It changes nothing.

    Exits with 1 if a check has failed; a warning (!) does not count.

    \b
    Examples:
      lasthop doctor
      lasthop doctor objects
      lasthop doctor --context prod
      lasthop doctor -o json | jq -r '.[] | select(.verdict != "ok") | .remedy'
    """
    folder = target.folder_or_dir(folder, by_option)
    results = _of_cluster(cluster, controller_namespace) if _means_cluster(folder, cluster) else _of_machine(folder)
    if output == "json":
        jsonpath.echo_json(json.dumps([result._asdict() for result in results], indent=2))
    else:
        click.echo(_text(clean(results)))
    if any(result.verdict is CheckState.FAILED for result in results):
        raise click.exceptions.Exit(1)


def _means_cluster(folder: Path | None, cluster: target.ClusterOptions) -> bool:
    chosen = cluster.named or cluster.all_namespaces
    if folder and chosen:
        raise click.UsageError(f"a folder ({folder}) and a cluster are given; remove one of them")
    configured = bool(os.environ.get("KUBECONFIG")) or (target.is_plugin() and target.configured())
    return chosen or (folder is None and configured)


def _text(results: list[CheckResult]) -> str:
    lines = []
    for result in results:
        sign, colour = SIGNS[result.verdict]
        lines.append(f"{click.style(sign, fg=colour)} {result.what}: {result.found}")
        lines += [f"    {result.remedy}"] if result.remedy else []
    return "\n".join(lines)


def _of_machine(folder: Path | None) -> list[CheckResult]:
    from lasthop.cli.doctor.machine import machine

    return list(machine(folder))


def _of_cluster(options: target.ClusterOptions, controller_namespace: str) -> list[CheckResult]:
    from lasthop.cli.doctor.cluster import cluster
    from lasthop.cli.views import cluster as clusters

    async def look(client: Client, namespace: str) -> list[CheckResult]:
        return [result async for result in cluster(client, controller_namespace, namespace)]

    return clusters.run(options, look)
