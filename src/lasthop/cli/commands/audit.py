"""`lasthop audit`: how each backend of a folder, a running gateway or a cluster is verified."""

from __future__ import annotations

import time
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from lasthop.base.text.printable import clean
from lasthop.base.text.suggestions import closest
from lasthop.cli.args import jsonpath, target
from lasthop.cli.args.values import Since
from lasthop.cli.render.terminal import note, note_once
from lasthop.cli.views.command_view import View, ask

if TYPE_CHECKING:
    from lasthop.cli.render.audit_report import AuditReport

CAUSES: Final = (
    "waived",
    "waived-without-end",
    "plaintext",
    "failing-closed",
    "pinned-only",
    "passthrough",
    "udp",
    "expiring",
    "failing",
    "unverified",
)
"""Conditions that can fail a pipeline: the verification of a hop, a certificate, or an observation."""
FORMATS: Final = ("text", "json", "csv", "markdown", "html", "sarif")
EXIT_CONDITION_MET: Final = 3
"""Exit code if a condition holds; 1 means that the audit failed or is incomplete, 2 a usage error."""

REQUEST_ACCESS_TEXT: Final = "Request the ClusterRole lasthop-tenant, which the installation contains for this purpose"


class FailOn(click.ParamType[tuple[str, ...]]):
    name = "what"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        words = tuple(word.strip() for word in value.split(","))
        for word in words:
            if word not in CAUSES:
                close = closest(word, CAUSES)
                hint = f"did you mean {close}?" if close else f"choose from {', '.join(CAUSES)}."
                self.fail(f"{word} is not a value of --fail-on; {hint}", param, ctx)
        return words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{word}") for word in CAUSES if word.startswith(last)]


@click.command("audit")
@target.folders
@target.output(*FORMATS, help="html: one page to print; csv: for spreadsheets; sarif: for code scanners.")
@click.option(
    "--sort",
    type=click.Choice(["manner", "gateway", "backend", "policy", "until"]),
    default="manner",
    show_default=True,
    help="Group and sort by this; until: waivers that expire first.",
)
@click.option(
    "--expiring",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Show certificates that expire within this many days.",
)
@click.option("--probe", is_flag=True, help="Connect to the backends without traffic, as lasthop probe does.")
@click.option(
    "--fail-on",
    "causes",
    type=FailOn(),
    multiple=True,
    metavar="WHAT,...",
    help=f"Exit with {EXIT_CONDITION_MET} if any of these is found: {', '.join(CAUSES)}.",
)
@click.option(
    "--since",
    type=Since(),
    metavar="24h|DATE",
    help="Show the changes since that time: old and new verification of each backend, added and removed CAs, names and pins, "
    "the edit and its author. Prints the start of the complete record, and exits with 1 if the record was edited.",
)
@target.controller_namespace("Namespace of the record of a cluster's changes.")
@target.files
@target.on_folder
@target.admin
@target.allow_files
@target.options
def command(
    folders: tuple[Path, ...],
    output: str,
    sort: str,
    expiring: int,
    probe: bool,
    causes: tuple[tuple[str, ...], ...],
    since: float | None,
    controller_namespace: str,
    files: tuple[Path, ...],
    cluster: target.ClusterOptions,
) -> None:
    """Show how each Gateway verifies each backend that a route refers to, and which certificates expire soon.

    A hop is verified (against a CA, the system's CAs, or a pinned certificate), pinned only (names are not checked), waived
    (what, why, by whom, until when), plaintext, passthrough, udp, or failing closed (why). For a running gateway, the audit
    also shows observations: verified 2 s ago, failing since when and why, never tried; and the backends' certificates with
    their remaining days. --probe connects to the backends without traffic; for a folder or a cluster, to all.

    Reads the objects in DIR (also files, or - for standard input), whether or not a gateway runs on them; without DIR, the
    gateway that runs on this machine, or else the cluster. --context and --kubeconfig select a cluster, which is read
    with your permissions.

    Exits with 0; with 1 if you may not list the kinds that decide which backends exist (GatewayClasses, Gateways, Namespaces).
    With --fail-on, exits with 3 if there is a match, and with 1 if not everything could be read, or if nothing in DIR or of
    the running gateway is served. failing: connections fail, or are refused; unverified: plaintext, waived, or (if observed or
    probed) without a verified handshake; expiring: also certificates that backends present.

    \b
    Examples:
      lasthop audit objects
      kustomize build overlays/prod | lasthop audit -
      lasthop audit objects --fail-on waived,plaintext      in a pipeline
      lasthop audit objects -o sarif > lasthop.sarif        for a code scanner
      lasthop audit -A --context prod -o html > audit.html  evidence for an auditor: docs/audit.md
      lasthop audit -A --context prod --sort until          a cluster; waivers that expire first
      lasthop audit --expiring 90
      lasthop audit --probe --fail-on failing,unverified,expiring     is everything as it should be, now?
      lasthop audit --since 24h                             who weakened what
    """
    if since is not None:
        if causes or output not in ("text", "json"):
            raise click.UsageError("--since goes with -o text or json, and not with --fail-on")
        _show_changes(next(iter(folders), None), cluster, since, controller_namespace, output)
        return
    from lasthop.cli.render import audit_evidence, audit_report, sarif
    from lasthop.cli.render.audit_observed import with_untried

    async def look(view: View) -> audit_report.AuditReport:
        audit, now = await view.audit(), time.time()
        record = await view.record(controller_namespace)
        history = audit_report.history(record) if record else None
        broken = tuple(f"the record of changes was edited: {fault}" for fault in history.faults) if history else ()
        gaps = (*await view.problems(), *broken), await view.hidden()
        report = audit_report.AuditReport(
            audit, view.where, await view.origin(), now, expiring, *gaps, history=history, host=gethostname()
        ).of_namespace(view.namespace)
        hops = with_untried(report.hops) if view.observes else report.hops
        if probe:
            from lasthop.edge.probe.observed import with_probes

            hops = await with_probes(lambda key: view.probe(key, ""), hops, now)
        return report.with_hops(hops)

    report = ask(None, cluster, look, files=(*folders, *files))
    for line in report.incomplete:
        note_once(line)
    render = {
        "text": audit_report.text,
        "json": audit_evidence.as_json,
        "csv": audit_evidence.as_csv,
        "markdown": audit_evidence.markdown,
        "html": audit_evidence.html,
        "sarif": sarif.sarif,
    }[output]
    shown = report.sorted(sort)
    if output == "json":
        jsonpath.echo_json(render(shown))
    else:
        click.echo(render(shown if output == "sarif" else clean(shown)))
    _fail_on({cause for group in causes for cause in group}, report)


def _fail_on(causes: set[str], report: AuditReport) -> None:
    """Exits if a condition of --fail-on holds, or cannot be decided."""
    if matches := [cause for cause in CAUSES if cause in causes & report.causes]:
        note(f"Failed because of --fail-on {','.join(matches)}")
        raise click.exceptions.Exit(EXIT_CONDITION_MET)
    if report.hidden:
        raise click.ClickException(f"backends may be missing: {'; '.join(report.hidden)}. {REQUEST_ACCESS_TEXT}")
    if causes and report.incomplete:
        raise click.ClickException(f"not everything could be read, so the result may be incomplete: {report.incomplete[0]}")


def _show_changes(folder: Path | None, cluster: target.ClusterOptions, start: float, controller: str, output: str) -> None:
    from lasthop.cli.render import change_report
    from lasthop.cli.views.changes import recorded

    changes = recorded(folder, cluster, controller)
    report = change_report.change_report(changes.record, changes.where, start, cluster.namespace or "")
    if output == "json":
        jsonpath.echo_json(change_report.as_json(report))
    else:
        click.echo(change_report.text(clean(report)))
    if report.chain.faults:
        raise click.ClickException(f"the record in {changes.where} was edited: {report.chain.faults[0]}")
