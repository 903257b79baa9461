"""`lasthop status`: the status of objects of a running gateway or a cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from lasthop.base.api.documents import Json
from lasthop.base.text.printable import printable
from lasthop.cli.args import jsonpath, target
from lasthop.cli.args.objects import ObjectRef, common_namespace, complete_kind, complete_name, one_of, parse_refs, raise_all
from lasthop.cli.args.target import require_namespace
from lasthop.cli.args.values import Selector, Selects
from lasthop.cli.render.status_table import Columns, Row, arranged, failing_services, row, with_observation
from lasthop.cli.views.command_view import StatusView, ask_status

ALL: Final = "all"
"""As in `kubectl get all`."""


@click.command("status")
@click.argument("kind", required=False, shell_complete=complete_kind)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)
@click.option("-w", "--watch", is_flag=True, help="Keep running and show changes.")
@target.output("table", "wide", "name", "yaml", "json", help="wide: more columns, and WHY in full.")
@click.option("--no-headers", is_flag=True, help="Leave out the first line of the table.")
@click.option(
    "-l", "--selector", type=Selector(), metavar="LABELS", help="Only objects with these labels, in kubectl's syntax."
)
@click.option("--exit-code", is_flag=True, help="Exit with 1 unless everything is ready and every file is applied.")
@target.running_folder
@target.admin
@target.options
def command(
    kind: str | None,
    names: tuple[str, ...],
    watch: bool,
    output: str,
    no_headers: bool,
    selector: Selects | None,
    exit_code: bool,
    folder: Path | None,
    cluster: target.ClusterOptions,
) -> None:
    """Show the status of objects: all of them, those of a KIND (or several, with commas), or some by NAME.

    Reads the gateway that runs on this machine; otherwise, or with --context or --kubeconfig, a cluster, and shows the
    status that the controller has written. Files that are not applied and objects that are not ready come first. READY is True
    if no condition reports a problem and every hop with traffic works; otherwise WHY is the first problem, or the object that
    explains it. You can copy printed names into the next command. If one of several names does not exist, the command shows
    the others and exits with 1.

    \b
    Examples:
      lasthop status
      lasthop status backendtlspolicy -n shop
      lasthop status hr,btp                      several kinds
      lasthop status hr web cart                 several names; or: hr/web btp/api
      lasthop status httproute/shop/web -o yaml
      lasthop status gateway -o wide             with class, addresses, ports, hostnames and age
      lasthop status -A --context prod           all objects of a cluster
      lasthop status hr -l app=web -o name       with these labels, only names
      lasthop status hr -o jsonpath='[*].metadata.name'
      lasthop status -w                          shows changes until Ctrl-C
      lasthop status --exit-code || exit 1       in a script
    """
    if watch and jsonpath.chosen():
        raise click.UsageError("-w shows changes as a table, names, YAML or JSON, not by -o jsonpath; remove one of them")
    if kind and (kind.casefold() != ALL or names):
        refs = parse_refs(kind, names, cluster.namespace)
    else:
        refs = [ObjectRef(namespace=cluster.namespace or "")]
    shown = _StatusPrinter(refs, output, headers=not no_headers, selector=selector)

    async def read(view: StatusView) -> list[Json]:
        documents = await view.objects(*dict.fromkeys(ref.kind for ref in refs if ref.kind))
        if not all(ref.name for ref in refs):
            shown.print_problems(await view.problems())
        return documents

    # A namespace typed before a name takes precedence over the context's; with two different ones, search all.
    several = len({ref.namespace for ref in refs}) > 1
    options = cluster._replace(namespace=common_namespace(refs), all_namespaces=several or cluster.all_namespaces)

    async def look(view: StatusView) -> None:
        if several and not cluster.all_namespaces:
            shown.set_namespace(view.home)
        for namespace in {ref.namespace for ref in refs if not ref.name} - {""}:
            require_namespace(namespace, await view.namespaces(), view.where)
        shown.print_first(await read(view))

        async def print_changes() -> None:
            shown.print_changes(await read(view))

        if watch and not shown.missing:
            await view.follow(print_changes)

    with contextlib.suppress(KeyboardInterrupt):
        ask_status(folder, options, look)
    raise_all(shown.missing)
    if exit_code and not shown.fine:
        raise click.exceptions.Exit(1)


class _StatusPrinter:
    """Prints objects, and later only changes."""

    def __init__(self, refs: list[ObjectRef], output: str, *, headers: bool, selector: Selects | None = None) -> None:
        self._wants, self._output, self._headers, self._selector = refs, output, headers, selector
        self._tabular = output in ("table", "wide")
        self.rows: dict[str, Row] = {}
        self._documents: dict[str, Json] = {}
        self._columns = Columns.of(())
        self._problems: tuple[str, ...] = ()
        self._failing: tuple[str, ...] = ()
        """The lines about Services that make shown objects not ready."""
        self.missing: list[click.ClickException] = []
        """An error for each name that does not exist."""

    @property
    def fine(self) -> bool:
        """Unknown counts as not ready: exit code 0 means that everything works."""
        return not self._problems and all(entry.ready in ("True", "-") for entry in self.rows.values())

    def print_problems(self, problems: tuple[str, ...]) -> None:
        """Prints the files that are not applied, and why nothing is served: the status of objects may not contain it."""
        self._echo(problems, self._problems)
        self._problems = problems

    def _echo(self, lines: Iterable[str], known: Collection[str]) -> None:
        for line in lines:
            if line not in known:
                click.echo(click.style(printable(line), fg="red"), err=not self._tabular)

    def set_namespace(self, namespace: str) -> None:
        """Searches this namespace for names without a namespace; empty: all."""
        self._wants = [ref if ref.namespace else ref._replace(namespace=namespace) for ref in self._wants]

    def print_first(self, documents: list[Json]) -> None:
        self._wants = list(self._resolved(documents))
        if not self._wants:
            return
        shown = self._take(documents)
        if self._output == "json":
            jsonpath.echo_json(json.dumps(shown, indent=2))
        elif self._output == "yaml":
            click.echo(_yaml(shown))
        elif self._output == "name":
            click.echo("\n".join(map(printable, self.rows)))
        elif shown:
            self._columns = Columns.of(self.rows.values(), wide=self._output == "wide")
            lines = [self._columns.line(entry) for entry in self.rows.values()]
            click.echo("\n".join([self._columns.head(), *lines] if self._headers else lines))
        else:
            click.echo("no objects")

    def print_changes(self, documents: list[Json]) -> None:
        rows, before = self.rows, self._documents
        self._take(documents)
        for name, document in self._documents.items():
            if self._tabular and _news(rows.get(name)) != _news(self.rows[name]):
                click.echo(self._columns.line(self.rows[name]))
            elif self._output == "name" and name not in before:
                click.echo(printable(name))
            elif self._output in ("json", "yaml") and before.get(name) != document:
                click.echo(json.dumps(document) if self._output == "json" else f"---\n{_yaml([document])}")
        for name in before.keys() - self._documents.keys():
            click.echo(self._columns.gone(name), err=not self._tabular)

    def _take(self, documents: list[Json]) -> list[Json]:
        matching = list(self._fitting(documents))
        shown = [row(document) for document in matching]
        if self._output == "wide":
            shown = [with_observation(entry, document) for entry, document in zip(shown, matching, strict=True)]
        self._documents = {entry.name: document for entry, document in zip(shown, matching, strict=True)}
        self.rows = {entry.name: entry for entry in arranged(shown)}
        failing = tuple(f"{name}: {why}" for name, why in failing_services(shown).items())
        self._echo(failing, self._failing)
        self._failing = failing
        return matching

    def _resolved(self, documents: list[Json]) -> Iterator[ObjectRef]:
        """Yields the requested objects that exist, each name with the namespace of its only match."""
        for ref in self._wants:
            if not ref.name:
                yield ref
                continue
            from lasthop.base.api.kinds import KINDS  # importing it takes time; a name has already loaded it

            metadata = [d["metadata"] for d in documents if d["kind"] == ref.kind and self._selected(d)]
            scoped = ref if KINDS[ref.kind].namespaced else ref._replace(namespace="")
            try:
                yield ObjectRef(ref.kind, *one_of(((item.get("namespace", ""), item["name"]) for item in metadata), scoped))
            except click.ClickException as error:
                self.missing.append(error)

    def _fitting(self, documents: list[Json]) -> Iterator[Json]:
        for document in documents:
            if self._selected(document) and any(_fits(ref, document) for ref in self._wants):
                yield document

    def _selected(self, document: Json) -> bool:
        return self._selector is None or self._selector(document["metadata"].get("labels") or {})


def _fits(ref: ObjectRef, document: Json) -> bool:
    metadata = document["metadata"]
    # Cluster-scoped objects belong to every namespace.
    return (
        ref.kind in ("", document["kind"])
        and ref.namespace in ("", metadata.get("namespace") or ref.namespace)
        and ref.name in ("", metadata["name"])
    )


def _news(row: Row | None) -> tuple[str, str] | None:
    """Returns the cells of a row whose change is worth a line; its age is not."""
    return (row.ready, row.why) if row else None


def _yaml(documents: list[Json]) -> str:
    import yaml

    return yaml.safe_dump_all(documents, sort_keys=False).rstrip()
