"""`lasthop import`: converts the configuration of another gateway into Gateway API objects, with a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lasthop.base import gc_pause
from lasthop.base.text.suggestions import closest
from lasthop.cli.args import target
from lasthop.cli.render.progress import ProgressLine
from lasthop.cli.render.terminal import note
from lasthop_import.model import ObjectName
from lasthop_import.registry import AUTO, SYSTEMS
from lasthop_import.settings import Flag, ImportSettings

if TYPE_CHECKING:
    from lasthop_import.command.sources import ImportInput
    from lasthop_import.result import ImportResult
    from lasthop_import.run import SystemsRead
    from lasthop_import.settings import System

FLAGS: Final = tuple(flag for system in SYSTEMS.values() for flag in system.flags)


class NamespacedName(click.ParamType[ObjectName]):
    name = "ns/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ObjectName:
        if isinstance(value, ObjectName):
            return value
        namespace, slash, name = value.partition("/")
        if not slash or not namespace or not name or "/" in name:
            self.fail(f"{value!r} must be NAMESPACE/NAME", param, ctx)
        return ObjectName(namespace, name)


class SystemName(click.Choice[str]):
    """The name of a system. The error for an unknown name suggests the closest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices and (close := closest(str(value), self.choices)):
            self.fail(f"unknown system {value}; did you mean {close}?", param, ctx)
        return super().convert(value, param, ctx)


def _systems_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the systems' own options; the command receives them as keyword arguments."""
    for flag in reversed(FLAGS):
        command = _flag_option(flag)(command)
    return command


def _flag_option(flag: Flag) -> Callable[..., Any]:
    if flag.metavar is None:
        return click.option(flag.name, is_flag=True, help=flag.help)
    kind = click.Path(exists=True, dir_okay=False, path_type=Path) if flag.file else None
    default = f"  [default: {flag.default}]" if flag.default else ""
    return click.option(flag.name, metavar=flag.metavar, multiple=flag.multiple, type=kind, help=f"{flag.help}{default}")


@click.command("import")
@click.argument("system", type=SystemName([*SYSTEMS, AUTO]), metavar="SYSTEM")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write decisions.yaml, the report and objects/*.yaml there.  [default: objects to standard output]",
)
@click.option(
    "--decisions",
    "decisions_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read decisions from FILE.  [default: decisions.yaml in DIR]",
)
@click.option(
    "--unverified",
    type=click.Choice(["todo", "waive"]),
    default="todo",
    show_default=True,
    help="For backends whose certificates were not verified: fail closed, or write a waiver for each; needs --reason.",
)
@click.option(
    "--chain-only",
    type=click.Choice(["todo", "strict", "waive"]),
    default="todo",
    show_default=True,
    help="For backends whose names were not checked: fail closed, check them, or write a waiver for each; needs --reason.",
)
@click.option("--reason", metavar="TEXT", default="", help="Reason for the waivers that the two options above write.")
@click.option(
    "--waiver-days", type=click.IntRange(0), default=90, show_default=True, help="Days until these waivers end; 0: never."
)
@click.option("--allow-waivers", is_flag=True, help="Allow waivers in the GatewayProfile; only the operator should do this.")
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="NAME",
    help="Accept notes of this category or reason (access-control, limit-rps): they neither close routes nor cause exit "
    "code 3.  "
    "[may be repeated]",
)
@click.option("--strict", is_flag=True, help="Exit with 3 also if something changed, is unknown or has no equivalent.")
@click.option("--gateway", default="imported", show_default=True, metavar="NAME", help="Name of the Gateway to write.")
@click.option("--gateway-namespace", default="gateways", show_default=True, metavar="NS", help="Namespace of that Gateway.")
@click.option("--gateway-class", default="lasthop", show_default=True, metavar="NAME", help="Its GatewayClass.")
@click.option("--parent", metavar="NS/NAME[:LISTENER]", help="Write only routes, attached to this existing Gateway.")
@click.option(
    "--ingress-class", multiple=True, metavar="NAME", help="Import Ingresses of this class, or all.  [may be repeated]"
)
@click.option("--domain", default="", metavar="DOMAIN", help="The domain of hosts that the old gateway generates.")
@click.option(
    "--default-certificate", type=NamespacedName(), metavar="NS/SECRET", help="Secret for hosts without a certificate."
)
@click.option("--ca", "cas", multiple=True, metavar="PATH=FILE", help="The CA that the old proxy reads from PATH.")
@click.option(
    "--only",
    multiple=True,
    metavar="NS[/NAME]",
    help="Import only these routes and their policies.  [may be repeated]",
)
@click.option("--split-conflicts", is_flag=True, help="If routes disagree on a port, write a second Service for some.")
@click.option("--with-secrets", is_flag=True, help="Write private keys too, as Secrets.")
@click.option(
    "--experimental/--standard", default=True, show_default=True, help="The Gateway API channel of the written objects."
)
@click.option("--probe", is_flag=True, help="Connect to the backends in question and propose answers, as comments.")
@target.output("text", "json", "markdown", "sarif", help="The report's format; others than text go to standard output.")
@_systems_options
@target.options
def command(
    system: str,
    paths: tuple[str, ...],
    folder: Path | None,
    decisions_file: Path | None,
    accepted: tuple[str, ...],
    strict: bool,
    probe: bool,
    output: str,
    cluster: target.ClusterOptions,
    **options: Any,
) -> None:
    """Import the configuration of another gateway: routes, listeners, and above all how backends are verified.

    SYSTEM is one of those below, or auto, which detects it. PATH is a file or a folder; - is standard input. Without PATH,
    reads the cluster of --context with your permissions. It names the kinds that you may not read, and reads only the Secrets
    that objects refer to.

    Objects go to standard output, or to DIR/objects; the report to standard error. For each backend it lists the checks of the
    old gateway, those that its configuration suggests, and those of the new gateway. A backend that had TLS always gets a
    BackendTLSPolicy. If its certificate was not verified, the policy fails closed until you decide, in decisions.yaml: a CA
    and a name, a pin, or a waiver with a reason. A route whose login, IP list or other access control is lost answers 500
    until you open it there. Keep that file in git; the next import reads it.

    Exits with 0 if no decision is open and all traffic is still served. Exits with 3 if the report has a line of severity
    error or high that --accept does not name, or if it writes nothing; with 1 if it could not read everything.

    \b
    Examples:
      lasthop import ingress-nginx manifests --to gateway     a folder
      helm template shop | lasthop import auto -              standard input
      lasthop import ingress-nginx -A --context prod --to gateway
      lasthop import auto manifests -o json | jq .summary
    """
    from lasthop_import.check import with_check
    from lasthop_import.command import folder as import_folder
    from lasthop_import.command import report as import_report
    from lasthop_import.result import OPEN
    from lasthop_import.run import write
    from lasthop_import.writer.text import render

    settings = _settings(options, accepted, in_cluster=not paths)
    decisions = import_folder.load_decisions(decisions_file, folder)
    with ProgressLine() as progress, gc_pause.paused():
        systems, import_input = _read(system, paths, settings, cluster, progress)
        assert import_input.reading is not None
        names = [chosen.name for chosen in systems]
        result = write(
            names,
            import_input.reading,
            import_input.documents,
            settings,
            decisions,
            import_input.problems,
            import_input.hidden,
            progress=progress,
        )
        observations: dict[str, tuple[str, ...]] = {}
        if probe:
            from lasthop_import.command.probe import proposals, with_probes

            progress("Probing backends", 0, len(result.questions))
            observations = proposals(result, import_input.documents, settings)
            result = with_probes(result, observations)
        result = with_check(result, settings)
    code = result.exit_code(accepted, strict=strict)
    report = import_report.ImportReport.of(result, code, accepted)
    edited = import_folder.write_folder(folder, result, report, decisions_file, settings, observations) if folder else []
    if output == "text" and not folder:
        click.echo(render(result.objects), nl=False)
    click.echo(import_report.RENDERERS[output](report), err=output == "text")
    for path in edited:
        note(
            f"{path} was edited by hand and is kept; the import wrote {path.name}.new next to it: compare them, and remove one"
        )
    for line in _next(result, folder, paths):
        note(line)
    if code or edited:
        raise click.exceptions.Exit(code or OPEN)


def _read(
    system: str, paths: tuple[str, ...], settings: ImportSettings, cluster: target.ClusterOptions, progress: Any
) -> tuple[list[System], ImportInput]:
    """Returns the systems to import from, and the input with the result of their importers."""
    from lasthop_import.registry import detected
    from lasthop_import.run import read

    candidates = list(SYSTEMS.values()) if system == AUTO else [SYSTEMS[system]]
    chosen = list(candidates)

    def interpret(import_input: ImportInput) -> SystemsRead:
        if system == AUTO:
            chosen[:] = detected(import_input.documents)
        return read(chosen, import_input.documents, settings, import_input.hidden)

    import_input = (
        _read_paths(paths, cluster, interpret, progress) if paths else _read_cluster(candidates, cluster, interpret, progress)
    )
    if system == AUTO:
        _check_detected(chosen, import_input)
    return chosen, import_input


def _read_paths(
    paths: tuple[str, ...], cluster: target.ClusterOptions, interpret: Callable[[ImportInput], SystemsRead], progress: Any
) -> ImportInput:
    from lasthop_import.command.sources import from_paths

    if cluster.named:
        raise click.UsageError("both files and a cluster are given; remove one of them")
    import_input = from_paths(paths, cluster.namespace or "default", progress)
    if not import_input.documents and not import_input.problems:
        raise click.ClickException(f"no objects in {', '.join(paths)}")
    progress("Importing", 0, 1)
    return import_input._replace(reading=interpret(import_input))


def _read_cluster(
    systems: list[System], cluster: target.ClusterOptions, interpret: Callable[[ImportInput], SystemsRead], progress: Any
) -> ImportInput:
    from lasthop.cli.views import cluster as clusters
    from lasthop_import.command.sources import from_cluster

    if not cluster.named and not target.configured():
        raise click.UsageError("give files, a folder or - for standard input; or a cluster, with --context")
    return clusters.run(cluster, lambda client, ns: from_cluster(client, ns, systems, interpret, progress))


def _check_detected(chosen: list[System], import_input: ImportInput) -> None:
    """Raises if no object belongs to a known system."""
    if not import_input.documents and import_input.problems:
        file, line, message, _ = import_input.problems[0]
        raise click.ClickException(f"nothing to import: {file}{f':{line}' if line else ''} {message}")
    if not chosen:
        names = ", ".join(SYSTEMS)
        raise click.ClickException(f"no object belongs to a known system; if you know the system, name it: {names}")


def _settings(options: dict[str, Any], accepted: tuple[str, ...], *, in_cluster: bool) -> ImportSettings:
    flags = {flag.key: _flag_value(flag, options.pop(flag.key.replace("-", "_"))) for flag in FLAGS}
    waives = "waive" in (options["unverified"], options["chain_only"])
    if waives and not options["reason"].strip():
        raise click.UsageError("a waiver needs a reason: add --reason TEXT")
    parent = options.pop("parent") or ""
    name, _, listener = parent.partition(":")
    return ImportSettings(
        now=time.time(),
        gateway=ObjectName(options.pop("gateway_namespace"), options.pop("gateway")),
        parent=NamespacedName().convert(name, None, None) if parent else None,
        parent_listener=listener,
        ingress_classes=options.pop("ingress_class"),
        ca_files=dict(map(_ca_file, options.pop("cas"))),
        accepted=accepted,
        in_cluster=in_cluster,
        flags=flags,
        **options,
    )


def _flag_value(flag: Flag, value: Any) -> Any:
    return value.read_bytes() if flag.file and value else value or flag.default


def _ca_file(option: str) -> tuple[str, bytes]:
    """Returns the path in the old proxy and the content of the file, from `PATH=FILE`."""
    path, equals, file = option.partition("=")
    if not equals or not Path(file).is_file():
        raise click.BadParameter(f"{option!r} must be PATH=FILE, with a file that exists", param_hint="--ca")
    return path, Path(file).read_bytes()


def _next(result: ImportResult, folder: Path | None, paths: tuple[str, ...]) -> list[str]:
    if not sys.stderr.isatty():
        return []
    if folder is None:
        return ["", "To keep decisions and write files: add --to DIR"] if result.questions else []
    lines = ["", f"wrote {folder}/objects, {folder}/decisions.yaml, {folder}/REPORT.md"]
    if result.questions:
        lines.append(f"Answer the questions in {folder}/decisions.yaml, then run the same command again.")
    return [*lines, f"Check the result: lasthop check {folder}/objects"]
