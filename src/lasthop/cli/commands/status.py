"""`lasthop status`: the status of objects of a running gateway or a cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import click

from lasthop.api.documents import Json
from lasthop.cli.args import target
from lasthop.cli.args.objects import Wanted, complete_kind, complete_name, one_of, wanted
from lasthop.cli.args.target import require_namespace
from lasthop.cli.render.table import Columns, Row, class_owners, row
from lasthop.cli.views.command_view import StatusView, ask_status
from lasthop.printable import printable


@click.command("status")
@click.argument("kind", required=False, shell_complete=complete_kind)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("-w", "--watch", is_flag=True, help="Keep running and show changes.")
@target.output("table", "yaml", "json")
@click.option("--exit-code", is_flag=True, help="Exit with 1 unless everything is ready and every file is applied.")
@target.folder("The gateway that runs on this folder.")
@target.options
def command(
    kind: str | None,
    name: str | None,
    watch: bool,
    output: str,
    exit_code: bool,
    folder: Path | None,
    cluster: target.ClusterOptions,
) -> None:
    """Show the status of objects: all of them, those of a KIND, or one by NAME.

    Reads the gateway that runs on this machine; otherwise, or with --context, --kubeconfig or -A, a cluster, and shows the
    status that the controller has written. READY is True if no condition reports a problem; otherwise WHY is the first that
    does. It is about the configuration, not about the backends (for those, use lasthop probe). Files that are not applied are
    listed first. Names are accepted as they are printed, so they can be copied into the next command.

    \b
    Examples:
      lasthop status
      lasthop status backendtlspolicy -n shop
      lasthop status httproute/shop/web -o yaml
      lasthop status -A --context prod           everything that a cluster has
      lasthop status -w                          shows changes until Ctrl-C
      lasthop status --exit-code || exit 1       in a script
    """
    want = wanted(kind, name, cluster.namespace)
    shown = _StatusPrinter(want, output)

    async def look(view: StatusView) -> None:
        if want.namespace and not want.name:
            require_namespace(want.namespace, await view.namespaces(), view.where)
        shown.tell(await view.problems(), await view.not_applied())
        shown.first(await view.objects(want.kind))

        async def again() -> None:
            shown.tell(await view.problems(), await view.not_applied())
            shown.again(await view.objects(want.kind))

        if watch:
            await view.follow(again)

    with contextlib.suppress(KeyboardInterrupt):
        # A namespace that is typed before a name takes precedence over the context's.
        ask_status(folder, cluster._replace(namespace=want.namespace or None), look)
    if exit_code and not shown.fine:
        raise click.exceptions.Exit(1)


class _StatusPrinter:
    """Prints objects, and later only what has changed."""

    def __init__(self, want: Wanted, output: str) -> None:
        self.want, self._output = want, output
        self.rows: dict[str, Row] = {}
        self._documents: dict[str, Json] = {}
        self._columns = Columns.of(())
        self._problems: tuple[str, ...] = ()
        self._older: dict[str, str] = {}
        """Objects of which an older version is in force, with the place of the version that is not applied."""

    @property
    def fine(self) -> bool:
        """Unknown is not ready: a script that asks for an exit code wants to know that everything works."""
        return not self._problems and all(each.ready in ("True", "-") for each in self.rows.values())

    def tell(self, problems: tuple[str, ...], refused: list[Json]) -> None:
        """Prints the files that are not applied, and why nothing is served: no object's status may say it."""
        for line in problems:
            if line not in self._problems:
                click.echo(click.style(printable(line), fg="red"), err=self._output != "table")
        self._problems = problems
        self._older = {_path(key): f"{each['file']}:{each['line']}" for each in refused for key in each.get("objects", ())}

    def first(self, documents: list[Json]) -> None:
        if self.want.name:
            named = (
                (d["metadata"].get("namespace", ""), d["metadata"]["name"]) for d in self._fitting(documents, any_name=True)
            )
            self.want = Wanted(self.want.kind, *one_of(named, self.want))
        found = self._take(documents)
        if self._output == "json":
            click.echo(json.dumps(found, indent=2))
        elif self._output == "yaml":
            click.echo(_yaml(found))
        elif found:
            self._columns = Columns.of(self.rows.values())
            click.echo("\n".join((self._columns.head(), *map(self._columns.line, self.rows.values()))))
        else:
            click.echo("no objects")

    def again(self, documents: list[Json]) -> None:
        """Prints the rows or documents that have changed."""
        rows, known = self.rows, self._documents
        self._take(documents)
        for name, document in self._documents.items():
            if self._output == "table" and rows.get(name) != self.rows[name]:
                click.echo(self._columns.line(self.rows[name]))
            elif self._output != "table" and known.get(name) != document:
                click.echo(json.dumps(document) if self._output == "json" else f"---\n{_yaml([document])}")
        for name in known.keys() - self._documents.keys():
            click.echo(self._columns.gone(name), err=self._output != "table")

    def _take(self, documents: list[Json]) -> list[Json]:
        owners = class_owners(documents)
        found = list(self._fitting(documents))
        self.rows = {each.name: self._dated(each) for each in (row(document, owners) for document in found)}
        self._documents = dict(zip(self.rows, found, strict=True))
        return found

    def _dated(self, row: Row) -> Row:
        """Shows Unknown if only an older version is in force: the status says nothing about the new one."""
        place = self._older.get(row.name)
        if place is None or row.ready != "True":
            return row
        return row._replace(ready="Unknown", why=f"an older version is in force; {place} is not applied")

    def _fitting(self, documents: list[Json], *, any_name: bool = False) -> Iterator[Json]:
        for document in documents:
            metadata = document["metadata"]
            if self.want.kind not in ("", document["kind"]):
                continue
            # Cluster-scoped objects belong to every namespace.
            if any_name or (
                self.want.namespace in ("", metadata.get("namespace") or self.want.namespace)
                and self.want.name in ("", metadata["name"])
            ):
                yield document


def _path(key: str) -> str:
    """`Gateway shop/web` as a row has it."""
    kind, _, path = key.partition(" ")
    return f"{kind.lower()}/{path}"


def _yaml(documents: list[Json]) -> str:
    import yaml

    return yaml.safe_dump_all(documents, sort_keys=False).rstrip()
