"""`lasthop install`: installs Lasthop into a cluster, or prints the manifests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from lasthop.base.api.documents import Json
from lasthop.base.api.names import DNS_LABEL, is_dns_label
from lasthop.cli.render.terminal import note
from lasthop.edge.kubernetes import config
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.config import Access
from lasthop.edge.kubernetes.errors import ApiError, ConfigError
from lasthop.run.infra.kubernetes import installation
from lasthop.run.infra.kubernetes.installation import Options, default_image


@click.command("install")
@click.option("-n", "--namespace", default=installation.NAMESPACE, show_default=True, help="Namespace of the controller.")
@click.option("--image", default=default_image, show_default=default_image(), help="Image of the controller and the proxies.")
@click.option("--replicas", type=click.IntRange(1), default=2, show_default=True, help="Replicas of the controller.")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    metavar="NAMESPACE",
    help="Watch only this namespace; may be repeated.  [default: all]",
)
@click.option(
    "-A",
    "--all-namespaces",
    "everywhere",
    is_flag=True,
    help="Watch all namespaces from now on, where --watch has named some.",
)
@click.option("--crds-only", is_flag=True, help="Only Lasthop's own CRDs, as before `helm upgrade`.")
@click.option("--dry-run", is_flag=True, help="Print the manifests without applying them.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="The cluster.  [default: as kubectl]")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def command(
    namespace: str,
    image: str,
    replicas: int,
    watched: tuple[str, ...],
    everywhere: bool,
    crds_only: bool,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Install Lasthop into the cluster of your kubeconfig, or change an existing installation.

    With --watch the controller gets a Role in each of these namespaces instead of a ClusterRole: it can neither read Secrets
    nor create Deployments anywhere else. Permissions that an earlier install granted beyond that are removed.
    To change such an installation, name its namespaces again, or widen it with -A. deploy/README.md lists who can read what.

    \b
    Examples:
      lasthop install --dry-run | kubectl diff -f -
      lasthop install --watch shop --watch blog
      lasthop install --crds-only

    The Gateway API CRDs are not included; install those of v1.7.0 first.
    """
    _require_valid(namespace, image, watched, everywhere)
    options = Options(image, namespace, replicas, watched)
    if dry_run:
        text = "---\n".join(installation.crds().values()) if crds_only else installation.rendered(options)
        click.echo(text, nl=False)
        return
    try:
        access = config.load(str(kubeconfig) if kubeconfig else None, context)
        note(f"Installing into the cluster of {access.name}")
        asyncio.run(_apply_crds(access) if crds_only else _apply(options, access, everywhere))
    except (ConfigError, ApiError) as error:
        raise click.ClickException(str(error)) from None


def _require_valid(namespace: str, image: str, watched: tuple[str, ...], everywhere: bool) -> None:
    for name in (namespace, *watched):
        if not is_dns_label(name):
            raise click.UsageError(f"{name!r} is not the name of a namespace; use {DNS_LABEL}")
    if watched and everywhere:
        raise click.UsageError("--watch names the only namespaces, -A means all of them")
    if not image or any(map(str.isspace, image)):
        raise click.UsageError(f"{image!r} is not the name of an image; use REGISTRY/NAME:TAG")


async def _apply(options: Options, access: Access, everywhere: bool) -> None:
    async with Client(access) as client:
        await _check_first(client, options, everywhere)
        for document in installation.documents(options):
            await _apply_one(client, document)
        await _delete_surplus(client, options)


async def _check_first(client: Client, options: Options, everywhere: bool) -> None:
    """Raises before anything is applied if the installation would fail halfway, or change more than requested."""
    if missing := [
        watched for watched in options.watched if await _get(client, path_of("", "v1", "namespaces", "", watched)) is None
    ]:
        raise click.ClickException(
            f"{_namespaces(missing)} not exist, so nothing was applied; create the namespaces of --watch first"
        )
    controller = await _get(client, path_of("apps", "v1", "deployments", options.namespace, installation.CONTROLLER))
    if release := installation.helm_release(controller):
        raise click.ClickException(f"Helm has installed this, as release {release}; change it with helm upgrade {release}")
    before = installation.watched_by(controller)
    if before and not options.watched and not everywhere:
        flags = " ".join(f"--watch {watched}" for watched in before)
        raise click.ClickException(
            f"this installation watches only {', '.join(before)}; add {flags} to leave it so, or -A to let it read Secrets in "
            "all namespaces"
        )


def _namespaces(names: list[str]) -> str:
    return f"namespace {names[0]} does" if len(names) == 1 else f"namespaces {', '.join(names)} do"


async def _get(client: Client, where: str) -> Json | None:
    """Returns an object; an empty one if the user may not read it, None if it does not exist."""
    try:
        return await client.get(where)
    except ApiError as error:
        if error.not_found:
            return None
        if error.status == 403:
            return {}
        raise


async def _apply_crds(access: Access) -> None:
    async with Client(access) as client:
        for document in installation.crd_documents():
            await _apply_one(client, document)


async def _apply_one(client: Client, document: Json) -> None:
    where = installation.path(document)
    try:
        await client.apply(where, document)
    except ApiError as error:
        hint = "; install the Gateway API CRDs first" if document["kind"] == "GatewayClass" and error.not_found else ""
        raise ApiError(error.status, error.reason, f"{where}: {error.message}{hint}") from error
    click.echo(f"{document['kind'].lower()}/{document['metadata']['name']} applied")


async def _delete_surplus(client: Client, options: Options) -> None:
    """Removes permissions that an earlier install granted in other namespaces; otherwise they would remain unnoticed."""
    existing = {}
    for plural in installation.RBAC:
        answer = await client.get(
            path_of("rbac.authorization.k8s.io", "v1", plural), {"labelSelector": installation.OWN_LABEL}
        )
        existing[plural] = answer.get("items") or ()
    for where in installation.surplus(options, existing):
        await client.delete(where)
        click.echo(f"{where.partition('/v1/')[2]} deleted: no longer needed")
