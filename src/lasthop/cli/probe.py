"""`lasthop probe POLICY`: the backends of a policy, tried as a gateway would."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from lasthop.cli import choice
from lasthop.cli.address import host_port
from lasthop.cli.objects import Wanted, complete_path, one_of
from lasthop.cli.terminal import printable, width

if TYPE_CHECKING:
    from lasthop.cli.probing import Probed
    from lasthop.engine import Engine

KIND = "BackendTLSPolicy"
PATIENCE = 120.0
"""Seconds for a running gateway to try backends that may not answer."""
MARKS = {"pass": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("-", None)}


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return complete_path(ctx, KIND, incomplete)


@click.command("probe")
@click.argument("policy", shell_complete=_complete)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Look at this folder, running or not.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@choice.options
def command(policy: str, address: str | None, folder: Path | None, output: str, reach: choice.Reach) -> None:
    """Try the backends of a BackendTLSPolicy as the gateway would, check by check, and say what to change.

    Connects to each endpoint of each target with the gateway's own TLS settings for it and shows what passes and what fails:
    connection, TLS version, ALPN, chain, dates, names, pins, client certificate. It ends after the handshake; nothing is sent.
    With HOST:PORT that address is tried with the policy instead. Exits with 1 if the gateway would fail.

    The policy is NAME or NAMESPACE/NAME, of the gateway that runs on this machine, which does the trying then; with --dir of
    a folder, whether or not a gateway runs on it; else, or with --context, --kubeconfig or -A, of a cluster, whose addresses
    must be reachable from here.

    \b
    Examples:
      lasthop probe api --dir objects
      lasthop probe shop/api                               of the running gateway
      lasthop probe shop/api 10.0.0.7:8443                 before a backend goes into service
      lasthop probe shop/api --context prod -o json | jq .passes
    """
    namespace, _, name = policy.rpartition("/")
    if namespace and reach.namespace and namespace != reach.namespace:
        raise click.UsageError(f"two namespaces: {namespace} and {reach.namespace}")
    if ":" in policy:
        raise click.UsageError(f"which policy? Write: lasthop probe POLICY {policy}")
    want = Wanted(KIND, namespace or reach.namespace or "", name)
    if address:
        host_port(address, "HOST:PORT")
    if folder and not reach.cluster:
        found = _of_folder(folder, want, address)
    elif socket := choice.choose(folder, reach):
        found = _of_gateway(socket, want, address)
    else:
        found = _of_cluster(reach, want, address)
    click.echo(json.dumps(plain(found), indent=2) if output == "json" else "\n".join(_drawn(found)))
    if not found.passes:
        raise click.exceptions.Exit(1)


def _of_folder(path: Path, want: Wanted, address: str | None) -> Probed:
    from lasthop.cli.folder import Folder

    folder = Folder(path)
    if folder.source_findings:
        click.echo(f"some of {path} is not applied; see: lasthop check {path}", err=True)
    return _probed(folder.engine, want, address)


def _of_cluster(reach: choice.Reach, want: Wanted, address: str | None) -> Probed:
    from lasthop.api.meta import Key
    from lasthop.cli import cluster

    found, namespace = cluster.objects(reach._replace(namespace=want.namespace or None))
    want = want._replace(namespace=want.namespace or namespace)
    notes = ("From this machine, with its system store; the proxy in the cluster has its own.",)
    probed = _probed(found.engine, want, address, notes)
    namespace, _, name = probed.policy.rpartition("/")
    if unseen := found.hidden.unseen(found.engine.graph, Key(KIND, namespace, name)):
        click.echo(f"Not seen with your rights, so what depends on it may be wrong: {', '.join(map(str, unseen))}", err=True)
    return probed


def _probed(engine: Engine, want: Wanted, address: str | None, notes: tuple[str, ...] = ()) -> Probed:
    from lasthop.api.meta import Key
    from lasthop.cli.folder import names
    from lasthop.cli.probing import aims, probe

    key = Key(KIND, *one_of(names(engine, KIND), want))
    return probe(key, aims(engine, key, endpoint(address)), notes=notes)


def endpoint(address: str | None) -> Any:
    from lasthop.plan.upstream import Endpoint

    return Endpoint(*host_port(address, "HOST:PORT")) if address else None


def _of_gateway(socket: Path, want: Wanted, address: str | None) -> Probed:
    import msgspec

    from lasthop.cli.admin import ask
    from lasthop.cli.probing import Probed

    documents = ask(socket, "/api/objects", kind=KIND)
    known = ((d["metadata"].get("namespace", ""), d["metadata"]["name"]) for d in documents)
    namespace, name = one_of(known, want)
    answer = ask(socket, "/api/probe", PATIENCE, namespace=namespace, name=name, address=address or "")
    return msgspec.convert(answer, Probed)


def plain(found: Probed) -> dict[str, Any]:
    """With the verdicts, which are worked out."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(found)
    document["passes"] = found.passes
    for target, aimed in zip(document["targets"], found.targets, strict=True):
        target["passes"] = aimed.passes
        for tried, each in zip(target["endpoints"], aimed.endpoints, strict=True):
            tried["passes"] = each.passes
    return document


def _drawn(found: Probed) -> Iterator[str]:
    yield click.style(f"BackendTLSPolicy {found.policy}", bold=True)
    for target in found.targets:
        yield ""
        port = f" port {target.port}" if target.port else ""
        lead = f"Gateway {target.gateway} to " if target.gateway else ""
        alone = "" if target.gateway or target.refused else " (no route leads there; as the policy by itself asks)"
        yield f"{lead}Service {target.service}{port}{alone}"
        if target.refused:
            yield from _wrapped(f"{_mark('fail')} refused: {printable(target.refused)}", 4)
        for tried in target.endpoints:
            yield f"  {tried.address}"
            for check in tried.checks:
                yield from _wrapped(f"{_mark(check.state)} {check.name:18}  {printable(check.found)}", 26)
                if check.state in ("fail", "warn") and check.remedy:
                    yield from (click.style(line, fg="green") for line in _wrapped(" " * 22 + printable(check.remedy), 26))
        if target.more:
            yield f"  and {target.more} more, which were not tried"
    if not found.targets:
        yield "it has no targets"
    yield from ("", *(f"Note: {note}" for note in found.notes)) if found.notes else ()
    yield ""
    passed = sum(each.passes for target in found.targets for each in target.endpoints)
    total = sum(len(target.endpoints) for target in found.targets)
    words = "the gateway would connect" if found.passes else "the gateway would fail"
    told = f"{words}; {passed} of {total} endpoints pass" if total else words
    yield click.style(told, bold=True, fg="green" if found.passes else "red")


def _mark(state: str) -> str:
    mark, colour = MARKS[state]
    return click.style(mark, fg=colour, bold=True)


def _wrapped(line: str, indent: int) -> list[str]:
    return textwrap.wrap(
        line,
        width(),
        initial_indent="    ",
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
