"""Finds the record of changes: for a folder in the state directory, for a running gateway by its admin socket, for a cluster
in the controller's ConfigMap."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from lasthop.cli.args import paths
from lasthop.cli.args.target import CLUSTER, ClusterOptions, admin_socket, gateway_named
from lasthop.engine.memory.record import Record

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client
    from lasthop.engine.memory.codec import Damaged, Memory


class Recorded(NamedTuple):
    record: Record
    where: str


def recorded(folder: Path | None, cluster: ClusterOptions, controller_namespace: str) -> Recorded:
    """Returns the whole record. Raises if it does not exist."""
    if folder and not cluster.named and not gateway_named():
        return _of_folder(folder)
    if socket := admin_socket(folder, cluster):
        from lasthop.cli.views.admin_socket import AdminSocketView
        from lasthop.cli.views.command_view import without_loop

        view = AdminSocketView(socket)
        return Recorded(without_loop(view.record()), view.where)
    from lasthop.cli.views import cluster as clusters

    async def ask(client: Client, namespace: str) -> Recorded:
        return Recorded(await of_cluster(client, controller_namespace), f"namespace {namespace}" if namespace else CLUSTER)

    return clusters.run(cluster, ask)


def _of_folder(folder: Path) -> Recorded:
    from lasthop.run.infra import memory

    if not folder.is_dir():
        raise click.ClickException(f"folder {folder} does not exist")
    path = paths.of_folder(paths.state_root(), folder) / memory.FILE
    stored = memory.load(path)
    if stored is None:
        raise click.ClickException(
            f"{folder} has no record of changes: a gateway records them while it runs on the folder, for the user who runs it"
        )
    return Recorded(_readable(stored, str(path)), str(folder))


def _readable(stored: Memory | Damaged, place: str) -> Record:
    from lasthop.engine.memory.codec import Memory

    if not isinstance(stored, Memory):
        raise click.ClickException(
            f"the record in {place} {stored.why}, so the changes are unknown; a running gateway writes it again from memory"
        )
    return stored.record


async def of_cluster(client: Client, namespace: str) -> Record:
    from lasthop.edge.kubernetes.errors import ApiError
    from lasthop.engine.memory.codec import Damaged
    from lasthop.run.infra.kubernetes.verification_memory import CONFIG_MAP, config_map, content

    try:
        stored = content(await client.get(config_map(namespace)))
        return _readable(stored or Damaged("is empty"), f"ConfigMap {namespace}/{CONFIG_MAP}")
    except ApiError as error:
        if error.not_found:
            raise click.ClickException(
                f"ConfigMap {namespace}/{CONFIG_MAP} of the controller does not exist; is Lasthop installed in another "
                "namespace? Choose that with --controller-namespace"
            ) from None
        raise
