"""`lasthop probe OBJECT`: the backends of a policy or a route, tried as a gateway would."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from lasthop.cli.args import target
from lasthop.cli.args.address import host_port
from lasthop.cli.args.objects import Wanted, complete_path, kind_of, one_of
from lasthop.cli.render.terminal import width
from lasthop.printable import printable

if TYPE_CHECKING:
    from lasthop.engine import Engine
    from lasthop.probe.plan import Probed

KIND = "BackendTLSPolicy"
KINDS = (KIND, "Service", "XBackend", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute")
PATIENCE = 120.0
"""Seconds for a running gateway to try backends that may not answer."""
MARKS = {"pass": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("-", None)}


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return complete_path(ctx, KIND, incomplete)


@click.command("probe")
@click.argument("object", required=False, shell_complete=_complete)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Look at this folder, running or not.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@target.allow_files
@target.options
def command(object: str | None, address: str | None, folder: Path | None, output: str, reach: target.Reach) -> None:
    """Try backends as the gateway would, check by check, and say what to change.

    Connects to each endpoint with the gateway's own TLS settings for it and shows what passes and what fails: connection, TLS
    version, ALPN, chain, dates, names, pins, client certificate. It ends after the handshake; nothing is sent, so that ! marks
    what a backend may refuse later. With HOST:PORT that address is tried with the same settings instead. Exits with 1 if the
    gateway would fail, or uses none of it.

    OBJECT is a BackendTLSPolicy (NAME or NAMESPACE/NAME), or what `lasthop status` prints: KIND/NAMESPACE/NAME or KIND/NAME of
    a BackendTLSPolicy, Service, XBackend, or a route, whose backends are tried. Without one all BackendTLSPolicies are. They
    are those of the gateway that runs on this machine, which does the trying then; with --dir of a folder, whether or not a
    gateway runs on it; else, or with --context, --kubeconfig or -A, of a cluster, whose addresses must be reachable from here.

    \b
    Examples:
      lasthop probe --dir objects                          all policies of a folder
      lasthop probe api --dir objects
      lasthop probe backendtlspolicy/shop/api              of the running gateway
      lasthop probe httproute/shop/web                     all that a route leads to
      lasthop probe shop/api 10.0.0.7:8443                 before a backend goes into service
      lasthop probe shop/api --context prod -o json | jq .passes
    """
    namespace = reach.namespace or ""
    want, address = _meant(object, address, namespace) if object else (Wanted(KIND, namespace), None)
    if address:
        host_port(address, "HOST:PORT")
    if folder and not reach.cluster:
        found = _of_folder(folder, want, address)
    elif socket := target.choose(folder, reach):
        found = _of_gateway(socket, want, address)
    else:
        found = _of_cluster(reach, want, address)
    if output == "json":
        documents = [plain(each) for each in found]
        click.echo(json.dumps(documents[0] if object else documents, indent=2))
    else:
        click.echo("\n\n".join("\n".join(_drawn(each)) for each in found) or "there are no BackendTLSPolicies")
    # A policy that no gateway uses fails nobody, unless it was asked for.
    if any(each.fails or (object and not each.passes) for each in found):
        raise click.exceptions.Exit(1)


def _meant(text: str, address: str | None, namespace: str) -> tuple[Wanted, str | None]:
    """The object and the address. `KIND NAME` is understood too, as `lasthop explain` has it; a namespace with the name of a
    kind needs -n."""
    if ":" in text:
        raise click.UsageError(f"which object? Write: lasthop probe POLICY {text}")
    first, slash, rest = text.partition("/")
    kind = _kind(first)
    if kind and not slash and address and ":" not in address:
        rest, address = address, None
    elif not kind or not slash:
        kind, rest = KIND, text
    prefix, _, name = rest.rpartition("/")
    if "/" in prefix:
        raise click.UsageError(f"{text} is not KIND/NAMESPACE/NAME; KIND is one of {', '.join(map(str.lower, KINDS))}")
    if prefix and namespace and prefix != namespace:
        raise click.UsageError(f"two namespaces: {prefix} and {namespace}")
    return Wanted(kind, prefix or namespace, name), address


def _kind(text: str) -> str:
    """Empty for what is no kind that leads to backends."""
    try:
        found = kind_of(text)
    except click.BadParameter:
        return ""
    return found if found in KINDS else ""


def _of_folder(path: Path, want: Wanted, address: str | None) -> list[Probed]:
    from lasthop.cli.folder import Folder

    folder = Folder(path)
    if folder.source_findings:
        click.echo(f"some of {path} is not applied; see: lasthop check {path}", err=True)
    return _probed(folder.engine, want, address)


def _of_cluster(reach: target.Reach, want: Wanted, address: str | None) -> list[Probed]:
    from lasthop.api.meta import Key
    from lasthop.cli import cluster

    found, namespace = cluster.objects(reach._replace(namespace=want.namespace or None))
    want = want._replace(namespace=want.namespace or ("" if reach.everywhere and not want.name else namespace))
    notes = ("From this machine, with its system store; the proxy in the cluster has its own.",)
    probed = _probed(found.engine, want, address, notes)
    paths = (each.object.partition(" ")[2].rpartition("/") for each in probed)
    keys = [Key(want.kind, namespace, name) for namespace, _, name in paths]
    if unseen := dict.fromkeys(each for key in keys for each in found.hidden.unseen(found.engine.graph, key)):
        click.echo(f"Not seen with your rights, so what depends on it may be wrong: {', '.join(map(str, unseen))}", err=True)
    return probed


def _probed(engine: Engine, want: Wanted, address: str | None, notes: tuple[str, ...] = ()) -> list[Probed]:
    from lasthop.api.meta import Key
    from lasthop.cli.folder import names
    from lasthop.probe.plan import aims, probe

    keys = [Key(want.kind, *each) for each in _fitting(names(engine, want.kind), want)]
    return [probe(key, aims(engine, key, endpoint(address)), notes=notes) for key in keys]


def _fitting(known: Iterable[tuple[str, str]], want: Wanted) -> list[tuple[str, str]]:
    """The object that is meant; all of the namespace if none is named."""
    return [one_of(known, want)] if want.name else sorted(each for each in known if want.namespace in ("", each[0]))


def endpoint(address: str | None) -> Any:
    from lasthop.plan.upstream import Endpoint

    return Endpoint(*host_port(address, "HOST:PORT")) if address else None


def _of_gateway(socket: Path, want: Wanted, address: str | None) -> list[Probed]:
    import msgspec

    from lasthop.cli.admin import ask
    from lasthop.probe.plan import Probed

    documents = ask(socket, "/api/objects", kind=want.kind)
    known = [(d["metadata"].get("namespace", ""), d["metadata"]["name"]) for d in documents]
    found = []
    for namespace, name in _fitting(known, want):
        asked = {"kind": want.kind, "namespace": namespace, "name": name, "address": address or ""}
        found.append(msgspec.convert(ask(socket, "/api/probe", PATIENCE, **asked), Probed))
    return found


def plain(found: Probed) -> dict[str, Any]:
    """With the verdicts, which are worked out."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(found)
    document["passes"] = found.passes
    for entry, aimed in zip(document["targets"], found.targets, strict=True):
        entry["passes"] = aimed.passes
        for tried, each in zip(entry["endpoints"], aimed.endpoints, strict=True):
            tried["passes"] = each.passes
    return document


def _drawn(found: Probed) -> Iterator[str]:
    yield click.style(found.object, bold=True)
    for result in found.targets:
        yield ""
        port = f" port {result.port}" if result.port else ""
        lead = f"Gateway {result.gateway} to " if result.gateway else ""
        by = f", as {result.policy} asks" if result.policy not in ("", found.object, result.service) else ""
        bare = not (result.gateway or result.refused or result.unused)
        yield f"{lead}{result.service}{port}{by}{' (no route leads there; as the policy by itself asks)' if bare else ''}"
        if result.unused:
            yield from _wrapped(f"{_mark('skip')} not used: {printable(result.unused)}", 4)
        if result.refused:
            yield from _wrapped(f"{_mark('fail')} refused: {printable(result.refused)}", 4)
        for tried in result.endpoints:
            yield f"  {tried.address}"
            for check in tried.checks:
                yield from _wrapped(f"{_mark(check.state)} {check.name:18}  {printable(check.found)}", 26)
                if check.state in ("fail", "warn") and check.remedy:
                    yield from (click.style(line, fg="green") for line in _wrapped(" " * 22 + printable(check.remedy), 26))
        if result.more:
            yield f"  and {result.more} more, which were not tried"
    yield from ("", *(f"Note: {note}" for note in found.notes)) if found.notes else ()
    yield ""
    yield click.style(_verdict(found), bold=True, fg="green" if found.passes else "red")


def _verdict(found: Probed) -> str:
    tried = [each for result in found.targets for each in result.endpoints]
    fails = sorted({result.gateway for result in found.used if not result.passes})
    connects = sorted({result.gateway for result in found.used} - set(fails))
    if not found.used:
        words = "no gateway makes a TLS connection because of it" if found.targets else "it leads to no backend"
    elif fails and connects:
        words = f"Gateway {', '.join(connects)} would connect, Gateway {', '.join(fails)} would fail"
    else:
        words = "the gateway would fail" if fails else "the gateway would connect"
    if tried:
        words += f"; {sum(each.passes for each in tried)} of {len(tried)} tried endpoints pass"
    if any(check.state == "warn" for each in tried for check in each.checks):
        words += ", but may refuse requests (!)"
    return words


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
