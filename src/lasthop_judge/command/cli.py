"""The command `lasthop judge`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lasthop.cli.args import target
from lasthop.cli.args.values import host_port
from lasthop.cli.render.progress import LOG_INTERVAL, ProgressLine
from lasthop.cli.render.terminal import note

if TYPE_CHECKING:
    from lasthop_judge.model import Case, CaseVerdict
    from lasthop_judge.report.document import JudgedGateway, RunReport
    from lasthop_judge.trial import Patience

FORMATS: Final = ("text", "json", "junit", "markdown", "html")
SUFFIXES: Final = {".txt": "text", ".json": "json", ".xml": "junit", ".md": "markdown", ".html": "html"}
ADAPTERS: Final = ("auto", "none", "lasthop", "envoy-gateway")
IMAGE: Final = "lasthop"
START_WITHIN: Final = 600.0
"""Seconds to wait until a gateway outside a cluster is started."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    cases: tuple[Case, ...]
    adapter: str
    features: str | None
    patience: Patience
    gateway_class: str


@click.command("judge")
@click.option("--context", metavar="NAME", help="The cluster of this kubeconfig context.")
@click.option("--kubeconfig", type=target.PATH, metavar="FILE", help="The cluster of this kubeconfig.")
@click.option("--gateway-class", metavar="NAME", help="Judge this GatewayClass of the cluster.")
@click.option("--address", metavar="HOST:PORT", help="Judge a gateway outside a cluster, whose first listener is there.")
@click.option("--write", "folder", type=target.PATH, metavar="DIR", help="Write the objects of that gateway there.")
@click.option("--cases", metavar="RE", default="", help="Only cases whose id matches this regular expression.")
@click.option("--list", "listing", is_flag=True, help="List the cases and their requirements without judging.")
@click.option("--adapter", type=click.Choice(ADAPTERS), default="auto", show_default=True, help="Adapter for GEP-4152.")
@click.option("--features", metavar="A,B", help="Claimed features.  [default: those of the GatewayClass; if none, all]")
@click.option("--namespace", "-n", metavar="NS", help="Namespace to create and delete.  [default: judge-RANDOM]")
@click.option("--backend-image", default=IMAGE, show_default=True, metavar="IMAGE", help="Any image with Python 3.9.")
@click.option("--dial", metavar="HOST", default="", help="Reach Gateways there, not at the address in their status.")
@click.option("--version-judged", metavar="TEXT", default="", help="Version of the implementation, for the report.")
@click.option("--patience", type=click.FloatRange(5), default=60, show_default=True, help="Seconds for a change to show.")
@click.option("--keep", is_flag=True, help="At the end keep the namespace, or the backend on this machine.")
@click.option(
    "--report",
    "files",
    multiple=True,
    type=target.PATH,
    metavar="FILE",
    help="Write .txt, .json, .xml, .md or .html.  [may be repeated]",
)
@target.output(*FORMATS, help="Format of the report on standard output.")
def command(
    context: str | None,
    kubeconfig: Path | None,
    gateway_class: str | None,
    address: str | None,
    folder: Path | None,
    cases: str,
    listing: bool,
    adapter: str,
    features: str | None,
    namespace: str | None,
    backend_image: str,
    dial: str,
    version_judged: str,
    patience: float,
    keep: bool,
    files: tuple[Path, ...],
    output: str,
) -> None:
    """Test how any Gateway API implementation verifies its backends, case by case.

    In a cluster: creates a namespace with a backend that has a port for each case, Gateways of the class, and for each case
    a Service, policies and a route. Sends requests, reads the backend's record and the status, and deletes the namespace.
    Needs the permissions to create a namespace and everything in it, and to proxy to its Pods.

    Outside a cluster: runs the backend on this machine, writes the objects into DIR, waits until the gateway that you
    start on it answers at HOST:PORT, and judges by traffic alone. Further listeners take the ports after PORT. For a gateway
    other than Lasthop, give its --gateway-class.

    Each case cites a sentence of GEP-1897, of the API or of an RFC. Severities: plaintext (bytes without TLS reached a
    targeted backend), open (a request reached a backend although its connection must fail), closed (a request failed that
    must succeed), status. Cases that need a feature which the GatewayClass does not claim do not run.

    Exits with 0 if cases passed and none failed, otherwise by the worst fault: 6 plaintext, 5 open, 4 closed, 3 status.
    Exits with 1 if the run failed or no case passed. The same holds if cases did not run because the gateway did not serve
    their routes or accepted no valid certificate, or because the cluster rejected their objects.

    \b
    Examples:
      lasthop judge --context staging --gateway-class envoy-gateway --report judged.html
      lasthop judge --context kind --gateway-class lasthop --cases '^(names|invalid)/'
      lasthop judge --address 127.0.0.1:8080 --write objects      then, elsewhere: lasthop run objects
      lasthop judge --list --cases ^changes/
    """
    from lasthop_judge.report.document import report_of
    from lasthop_judge.run import with_controls

    chosen = _selected(cases)
    renderings = [(path, _format_of(path)) for path in files]
    if listing:
        _list(chosen, output)
        return
    if bool(address) != bool(folder):
        raise click.UsageError("--address and --write go together")
    if not address and not gateway_class:
        raise click.UsageError("give --gateway-class for a cluster, or --address and --write for a gateway outside one")
    if adapter == "auto" and address:
        adapter = "none" if gateway_class else "lasthop"
    order = RunOptions(with_controls(chosen), adapter, features, _patience(patience), gateway_class or "lasthop")
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # a cancelled CI job cleans up as well
    with contextlib.ExitStack() as running:
        if address and folder:
            verdicts, gateway = _judge_outside(order, host_port(address, "--address"), folder, running)
        else:
            verdicts, gateway = _judge_inside(order, kubeconfig, context, namespace, backend_image, dial, keep)
        date = f"{datetime.datetime.now(datetime.UTC):%F}"
        report = report_of(dataclasses.replace(gateway, date=date, version=version_judged), verdicts)
        click.echo(_rendered(report, output))
        for path, name in renderings:
            with _writing(path):
                path.write_text(_rendered(report, name) + "\n")
        if keep and address:
            note("The backend keeps running; Ctrl-C ends it")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
    if report.exit_code:
        raise click.exceptions.Exit(report.exit_code)


class _Progress(ProgressLine):
    """Prints a line every few seconds without a terminal."""

    _printed = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        super().__call__(stage, done, total)
        now = time.monotonic()
        if not self.shown and (now - self._printed > LOG_INTERVAL or done == total):
            self._printed = now
            note(f"{stage}: {done} of {total}")


def _patience(seconds: float) -> Patience:
    from lasthop_judge.trial import Patience

    return Patience(first=seconds, passes=seconds / 2, refused=seconds / 6, change=seconds, status=seconds / 3)


def _selected(pattern: str) -> tuple[Case, ...]:
    from lasthop_judge.cases import ALL

    try:
        matcher = re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}", param_hint="--cases") from None
    matches = tuple(case for case in ALL if matcher.search(case.id))
    if not matches:
        raise click.BadParameter(f"no case matches {pattern!r}; see: lasthop judge --list", param_hint="--cases")
    return matches


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None


def _format_of(path: Path) -> str:
    if not path.parent.is_dir():
        raise click.BadParameter(f"{path}: there is no folder {path.parent}", param_hint="--report")
    if path.suffix not in SUFFIXES:
        raise click.BadParameter(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}", param_hint="--report")
    return SUFFIXES[path.suffix]


def _rendered(report: RunReport, name: str) -> str:
    match name:
        case "json":
            from lasthop_judge.report.document import as_json as render
        case "junit":
            from lasthop_judge.report.junit import as_junit as render
        case "markdown":
            from lasthop_judge.report.markdown import as_markdown as render
        case "html":
            from lasthop_judge.report.page import as_html as render
        case _:
            from lasthop_judge.report.text import as_text as render
    return render(report)


def _list(cases: Sequence[Case], output: str) -> None:
    if output == "json":
        from lasthop_judge.model import CaseVerdict, Outcome
        from lasthop_judge.report.document import JudgedGateway, as_json, report_of

        listed = [CaseVerdict(case, Outcome.NOT_RUN, why="listed") for case in cases]
        click.echo(as_json(report_of(JudgedGateway(""), listed)))
        return
    for case in cases:
        steps = "".join(f"; {step.title}: {step.expect}" for step in case.steps)
        click.echo(f"{case.id:<44} {case.title}: {case.expect}{steps}")
        click.echo(f"{'':<44} {case.requirement.source}; can find: {', '.join(case.severities)}")
    click.echo(f"{len(cases)} cases")


def _claimed(order: RunOptions, published: Sequence[str], unpublished: str) -> tuple[frozenset[str] | None, str]:
    if order.features is not None:
        return frozenset(order.features.split(",")), "Features as given by --features"
    if published:
        return frozenset(published), "Features as the GatewayClass claims them"
    return None, f"{unpublished}; every one is judged as claimed"


# --- outside a cluster ------------------------------------------------------------------------------------------------


def _judge_outside(
    order: RunOptions, address: tuple[str, int], folder: Path, running: contextlib.ExitStack
) -> tuple[list[CaseVerdict], JudgedGateway]:
    """Judges a gateway outside a cluster. `running` ends the backend."""
    from lasthop_judge.adapters import ADAPTERS as KNOWN
    from lasthop_judge.certificates import Issuer
    from lasthop_judge.files import LOOPBACK, FilesTestbed, backend_process
    from lasthop_judge.objects import RunSettings, gateways, servings, wanted_listeners
    from lasthop_judge.report.document import JudgedGateway
    from lasthop_judge.run import choose, judge

    adapter = KNOWN[order.adapter]
    issuer, (host, first) = Issuer(), address
    claimed, source = _claimed(order, (), "No features are published outside a cluster")
    backend = running.enter_context(backend_process(servings(order.cases), issuer))
    settings = RunSettings("judge", order.gateway_class, adapter, issuer, backend.ports, {}, LOOPBACK, bind=host, dated=True)
    chosen = choose(order.cases, claimed, settings)
    listeners = wanted_listeners(chosen.cases, gateways(settings, chosen.cases))
    settings = dataclasses.replace(settings, listeners={listener: first + number for number, listener in enumerate(listeners)})
    testbed = FilesTestbed(folder, settings, backend.control)
    with _writing(folder):
        testbed.write(chosen.cases)
    note(f"Wrote the objects of {len(chosen.cases)} cases to {folder}. Start the gateway on it, or leave it running")
    _await_gateway(address)
    begun = time.monotonic()
    with _Progress() as progress:
        verdicts = asyncio.run(judge(testbed, settings, chosen, order.patience, progress))
    seconds = round(time.monotonic() - begun, 1)
    method = "Outside a cluster, by traffic alone"
    named = f"Gateway at {host}:{first}"
    return verdicts, JudgedGateway(named, adapter=adapter.name, features=source, method=method, seconds=seconds)


def _await_gateway(address: tuple[str, int]) -> None:
    """Waits until the user has started the gateway in another terminal."""
    from lasthop_judge.client import accepts

    deadline = time.monotonic() + START_WITHIN
    while not accepts(address):
        if time.monotonic() > deadline:
            raise click.ClickException(
                f"nothing has listened at {address[0]}:{address[1]} for {START_WITHIN / 60:.0f} minutes"
            )
        time.sleep(0.3)


# --- in a cluster -----------------------------------------------------------------------------------------------------


def _judge_inside(
    order: RunOptions,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    image: str,
    dial: str,
    keep: bool,
) -> tuple[list[CaseVerdict], JudgedGateway]:
    from lasthop.edge.kubernetes import config
    from lasthop.edge.kubernetes.errors import ApiError, ConfigError
    from lasthop_judge.trial import JudgeError

    name = namespace or f"judge-{secrets.token_hex(3)}"

    async def run() -> Any:
        access = config.load(str(kubeconfig) if kubeconfig else None, context)
        return await _run_inside(order, access, name, image, dial, keep)

    try:
        return asyncio.run(run())  # type: ignore[no-any-return]
    except* (JudgeError, ApiError, ConfigError) as group:
        raise click.ClickException(str(_first(group))) from group


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _run_inside(
    order: RunOptions, access: Any, name: str, image: str, dial: str, keep: bool
) -> tuple[list[CaseVerdict], JudgedGateway]:
    from lasthop.edge.kubernetes.client import Client
    from lasthop_judge import cluster
    from lasthop_judge.adapters import ADAPTERS as KNOWN
    from lasthop_judge.adapters import adapter_of
    from lasthop_judge.certificates import Issuer
    from lasthop_judge.objects import RunSettings, gateways, wanted_listeners
    from lasthop_judge.report.document import JudgedGateway
    from lasthop_judge.run import choose, judge

    begun = time.monotonic()
    async with Client(access) as client:
        controller, published = await cluster.gateway_class(client, order.gateway_class)
        adapter = adapter_of(controller) if order.adapter == "auto" else KNOWN[order.adapter]
        claimed, source = _claimed(order, published, "The GatewayClass claims no features")
        settings = RunSettings(name, order.gateway_class, adapter, Issuer(), {}, {})
        chosen = choose(order.cases, claimed, settings)
        listeners = wanted_listeners(chosen.cases, gateways(settings, chosen.cases))
        settings = dataclasses.replace(
            settings, ports=cluster.ports_of(chosen.cases), listeners=cluster.listener_ports(listeners)
        )
        async with cluster.namespace(client, name, keep, note):
            with _Progress() as progress:
                testbed = cluster.ClusterTestbed(client, settings, image, dial)
                await testbed.start(chosen.cases, progress)
                verdicts = await judge(testbed, testbed.settings, chosen, order.patience, progress)
    method, seconds = "In a cluster, by traffic and status", round(time.monotonic() - begun, 1)
    return verdicts, JudgedGateway(
        order.gateway_class, controller, adapter=adapter.name, features=source, method=method, seconds=seconds
    )
