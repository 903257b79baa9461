"""`lasthop audit`: how every backend is spoken to, of a folder, a running gateway or a cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from lasthop.cli.args import target
from lasthop.cli.args.suggestions import closest
from lasthop.cli.render.terminal import note
from lasthop.printable import clean

if TYPE_CHECKING:
    from lasthop.cli.hidden import Hidden
    from lasthop.cli.render.audit_report import Audited
    from lasthop.outputs.audit.hops import HopReport

CAUSES: Final = (
    "waived",
    "waived-without-end",
    "plaintext",
    "failing-closed",
    "pinned-only",
    "passthrough",
    "udp",
    "expiring",
)
"""What a pipeline can fail on: the manners of hops, and certificates."""
FOUND: Final = 3
"""The exit code for that; 1 is that it could not be looked at, as ever, and 2 that the command was typed wrongly."""


class Causes(click.ParamType[tuple[str, ...]]):
    """Some of `CAUSES`, with commas between."""

    name = "what"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        words = tuple(word.strip() for word in value.split(","))
        for word in words:
            if word not in CAUSES:
                close = closest(word, CAUSES)
                hint = f"did you mean {close}?" if close else f"known are {', '.join(CAUSES)}."
                self.fail(f"{word} is nothing to fail on; {hint}", param, ctx)
        return words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{word}") for word in CAUSES if word.startswith(last)]


@click.command("audit")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "markdown", "sarif"]),
    default="text",
    show_default=True,
    help="sarif: for code scanners.",
)
@click.option(
    "--sort",
    type=click.Choice(["manner", "gateway", "backend", "policy", "until"]),
    default="manner",
    show_default=True,
    help="What to group and order by; until: the waiver that ends first.",
)
@click.option(
    "--expiring",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Show certificates that expire within so many days.",
)
@click.option(
    "--fail-on",
    "causes",
    type=Causes(),
    multiple=True,
    metavar="WHAT,...",
    help=f"Exit with {FOUND} if there is any of {', '.join(CAUSES)}.",
)
@target.allow_files
@target.options
def command(
    folder: Path | None, output: str, sort: str, expiring: int, causes: tuple[tuple[str, ...], ...], reach: target.Reach
) -> None:
    """Show how every Gateway is to verify every backend that a route leads to, and which certificates will expire.

    A hop is verified (against a CA, the system's CAs, or a pinned certificate), pinned only (names are not checked), waived
    (what, why, whose, until when), plaintext, passthrough, udp, or failing closed (why).

    Of the objects in DIR, whether or not a gateway runs on them; without DIR of the gateway that runs on this machine; else,
    or with --context, --kubeconfig or -A, of a cluster, with your rights.

    Exits with 0; with --fail-on, with 3 if there is any of it, and with 1 if not everything could be looked at, or if nothing
    in DIR or of the running gateway is served. It says what is asked for; whether backends comply, lasthop probe tries.

    \b
    Examples:
      lasthop audit objects
      lasthop audit objects --fail-on waived,plaintext      in a pipeline
      lasthop audit objects -o sarif > lasthop.sarif        for a code scanner
      lasthop audit -A --context prod --sort until          a cluster; waivers that end soon first
      lasthop audit --expiring 90
    """
    from lasthop.cli.render import audit_report, sarif

    if folder and not reach.cluster:
        found = _of_folder(folder, expiring, reach.namespace)
    elif socket := target.choose(folder, reach):
        found = _of_gateway(socket, expiring, reach.namespace)
    else:
        found = _of_cluster(reach, expiring)
    if reach.namespace:
        found = found.of_namespace(reach.namespace)
    render = {
        "text": audit_report.text,
        "json": audit_report.as_json,
        "markdown": audit_report.markdown,
        "sarif": sarif.sarif,
    }[output]
    shown = found.sorted(sort)
    click.echo(render(clean(shown) if output in ("text", "markdown") else shown))
    wanted = {cause for group in causes for cause in group}
    if there := [cause for cause in CAUSES if cause in wanted & found.causes]:
        note(f"Failing because of --fail-on {','.join(there)}")
        raise click.exceptions.Exit(FOUND)
    if wanted and found.incomplete:
        raise click.ClickException(
            f"not everything could be looked at, so there may be more than is shown: {found.incomplete[0]}"
        )


def _of_folder(path: Path, expiring: int, namespace: str | None) -> Audited:
    from lasthop.cli.folder import Folder
    from lasthop.cli.render.audit_report import Audited
    from lasthop.outputs.audit.audit import audit
    from lasthop.plan.finding import Severity

    folder = Folder(path)
    target.demand_namespace(namespace, folder.namespaces, str(path))
    found = audit(folder.engine.hops(), folder.engine.certificates(), folder.locate)
    broken = any(finding.severity is Severity.ERROR for finding in folder.source_findings)
    incomplete: tuple[str, ...] = (f"some of {path} is not applied; see: lasthop check {path}",) if broken else ()
    incomplete += () if found.hops else (f"no route of {path} leads to a backend; see: lasthop check {path}",)
    for line in incomplete:
        note(line)
    return Audited(found, str(path), time.time(), expiring, incomplete)


def _of_gateway(socket: Path, expiring: int, namespace: str | None) -> Audited:
    import msgspec

    from lasthop.cli.admin import ask, namespaces
    from lasthop.cli.render.audit_report import Audited
    from lasthop.outputs.audit.audit import Audit

    target.demand_namespace(namespace, namespaces(socket), "the running gateway")
    found = msgspec.convert(ask(socket, "/api/audit"), Audit)
    incomplete = tuple(ask(socket, "/api/readiness")["problems"])
    for line in incomplete:
        note(line)
    return Audited(found, "the running gateway", time.time(), expiring, incomplete)


def _of_cluster(reach: target.Reach, expiring: int) -> Audited:
    from lasthop.cli import cluster
    from lasthop.cli.render.audit_report import Audited
    from lasthop.outputs.audit.audit import audit

    found, namespace = cluster.objects(reach)
    hops = (_veiled(hop, found.hidden) for hop in found.engine.hops())
    looked = audit(hops, found.engine.certificates(), lambda _: None)
    where = f"namespace {namespace}" if namespace else "the cluster"
    return Audited(looked, where, time.time(), expiring, tuple(found.hidden.said())).of_namespace(namespace)


def _veiled(hop: HopReport, hidden: Hidden) -> HopReport:
    """What is missing may only be unseen."""
    import msgspec

    from lasthop.outputs.audit.hops import Manner
    from lasthop.plan.finding import Finding

    reason = "PlaintextBackend" if hop.manner is Manner.PLAINTEXT else ""
    if hop.manner not in (Manner.PLAINTEXT, Manner.FAILING) or not hidden.cause(Finding(None, reason, hop.detail)):
        return hop
    return msgspec.structs.replace(hop, detail=f"{hop.detail}, as far as your rights show")
