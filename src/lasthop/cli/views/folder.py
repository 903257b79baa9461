"""Reads a folder of YAML files once, without a running gateway."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from lasthop.base.api.core import Service
from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.cli.args import paths, target
from lasthop.cli.render.report import placed
from lasthop.cli.render.terminal import note_once
from lasthop.cli.views.admin_socket import AdminSocketView
from lasthop.cli.views.command_view import Size
from lasthop.cli.views.selection import Selection
from lasthop.edge.probe.result import ProbeResult
from lasthop.edge.sources.files.folder import FilesError, scan
from lasthop.edge.sources.files.report import broken_objects
from lasthop.edge.sources.files.source import FilesSource
from lasthop.edge.sources.source import Batch
from lasthop.engine.dry_run import serve_all
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.comparison import NotCompared
from lasthop.engine.outputs.findings.guesses import with_suggestion
from lasthop.engine.outputs.status.crashed import query_name
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.request import Request
from lasthop.engine.resolve.backends.backends import slices
from lasthop.engine.resolve.settings import SYSTEM_STORE
from lasthop.run.infra.system_store import host_store
from lasthop.web.engine_view import EngineView

SHOWN_KINDS: Final = 8


class FolderView(EngineView):
    """Answers like a first `lasthop run` without last good contents, with free ports and proxies that acknowledge everything.
    Prints a note on standard error if a gateway on the folder still applies an older text."""

    def __init__(self, path: Path, namespace: str = "", chosen: Selection | None = None) -> None:
        """`chosen` has the names of the files if they come from other places."""
        self._chosen = chosen or Selection(path, str(path))
        source = FilesSource(path, allow_files=target.allowed_files())
        try:
            batch = source.load()
            self._files = len(scan(path).files)
        except FilesError as error:
            raise click.ClickException(str(error)) from None

        def locate(key: Key, field: str = "") -> tuple[str, int] | None:
            place = source.locate(key, field)
            return (self._chosen.shown(place[0]), place[1]) if place else None

        super().__init__(Engine(now=time.time()), locate)
        self.path, self.where, self.namespace = path, self._chosen.where, namespace
        self.source_findings = tuple(map(self._renamed, batch.findings))
        self._unread = tuple(self._unreadable(batch))
        self._broken = {key: self._chosen.shown(file) for key, file in broken_objects(batch.findings).items()}
        SYSTEM_STORE.set(self.engine.graph, host_store())
        self.engine.policies.set_unknown(batch.unknown)
        self.engine.apply(batch.changes)
        serve_all(self.engine)
        for line in (*_older_text(path), *_other_kinds(source.others)):
            note_once(line)

    def _unreadable(self, batch: Batch) -> Iterator[NotCompared]:
        """Yields each file once that is not applied, or may contain policies that have not been read."""
        errors = [finding for finding in batch.findings if finding.severity is Severity.ERROR]
        problems = {
            finding.file: f"{finding.file}:{finding.line} cannot be read" if finding.file else str(finding)
            for finding in errors
        }
        for unknown in batch.unknown:
            problems.setdefault(unknown.file, unknown.why)
        for file, problem in problems.items():
            yield NotCompared(self._chosen.shown(problem), _digest(Path(file)))

    def _renamed(self, finding: Finding) -> Finding:
        if not self._chosen.names:
            return finding
        texts = {name: self._chosen.shown(getattr(finding, name)) for name in ("file", "message", "remedy")}
        return msgspec.structs.replace(finding, **texts)

    async def origin(self) -> str:
        return self.where if self._chosen.names else str(self.path.absolute())

    async def record(self, controller_namespace: str) -> None:
        """Returns None: the files may have changed since a gateway read them."""

    async def size(self) -> Size:
        return Size(await self.count(self.namespace), self._files)

    async def namespaces(self) -> set[str]:
        """Includes namespaces of objects in files that are not applied."""
        return {*await super().namespaces(), *(key.namespace for key in self._broken)}

    def broken_objects(self, findings: list[Finding]) -> dict[Key, str]:
        return self._broken

    async def findings(self) -> list[Finding]:
        resolved = [with_suggestion(finding, self.engine.store) for finding in self._decidable(self.engine.findings())]
        findings = [*self.source_findings, *(placed(finding, self.locate, self.where) for finding in resolved)]
        if not self.engine.store.keys("Gateway"):
            message = "no Gateway exists, so nothing is served."
            findings.append(make_finding(None, reasons.NOTHING_SERVED, message, file=self.where, line=1))
        return findings

    def _decidable(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Omits findings that need a cluster: the Pods of a selector."""
        selecting = set()
        for finding in findings:
            key = finding.object
            service = self.engine.store.get(key) if key and finding.reason == reasons.NO_ENDPOINTS else None
            if key and isinstance(service, Service) and service.spec.selector and not slices(self.engine.graph, key):
                selecting.add(key)
            else:
                yield finding
        if selecting:
            note_once(
                f"{len(selecting)} Service{'s have' if len(selecting) > 1 else ' has'} a selector and no EndpointSlice: their "
                "endpoints are known to a cluster only, and lasthop run would need EndpointSlices"
            )

    def unknown(self) -> tuple[NotCompared, ...]:
        crashes = (NotCompared(f"Lasthop failed in {query_name(crash)}") for crash in self.engine.graph.crashes)
        return (*self._unread, *crashes)

    async def problems(self) -> tuple[str, ...]:
        broken = any(finding.severity is Severity.ERROR for finding in self.source_findings)
        lines = (f"some of {self.path} is not applied; see: lasthop check {self.path}",) if broken else ()
        return (
            lines if await self.hops() else (*lines, f"no route of {self.path} has a backend; see: lasthop check {self.path}")
        )

    async def explain(self, key: Key) -> Json | None:
        self._warn()
        return await super().explain(key)

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        self._warn()
        return await super().explain_request(request, gateway)

    async def probe(self, key: Key, address: str) -> ProbeResult:
        self._warn()
        return await super().probe(key, address)

    def _warn(self) -> None:
        """Warns about files that are not applied, because the answer may depend on them."""
        if self.source_findings:
            note_once(f"some of {self.path} is not applied; see: lasthop check {self.path}")


def _digest(path: Path) -> str:
    """Returns the digest of a file's text; empty if it is not a regular file, or cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    except OSError:
        return ""


def _other_kinds(others: Counter[str]) -> Iterator[str]:
    """Prints once which kinds Lasthop does not read."""
    if others:
        listed = [f"{number} {kind}" for kind, number in sorted(others.items())]
        more = f" and {len(listed) - SHOWN_KINDS} more kinds" if len(listed) > SHOWN_KINDS else ""
        yield f"Ignored, because no gateway needs them: {', '.join(listed[:SHOWN_KINDS])}{more}"
    if any(kind.startswith(("Kustomization (", "Component (")) for kind in others):
        yield "A kustomization is not applied; to check what it builds: kustomize build DIR | lasthop check -"


def _older_text(path: Path) -> Iterator[str]:
    try:
        refused = AdminSocketView(paths.running(path)).ask("/api/not-applied")
    except click.ClickException:
        return  # no gateway runs, or not for this user
    for entry in refused:
        if entry["since"]:
            yield (
                f"the gateway that runs on {path} still applies the version of {entry['since']}, because "
                f"{entry['file']}:{entry['line']} cannot be applied: {entry['why']}; the output below shows a start without it"
            )
