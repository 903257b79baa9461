"""A folder of YAML files, read once, with nothing running."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from lasthop.api.documents import Json
from lasthop.api.meta import Key, Object
from lasthop.api.policies import RejectedPolicy
from lasthop.cli.args import paths, target
from lasthop.cli.broken_files import broken_objects
from lasthop.cli.guesses import guessed
from lasthop.cli.render.report import placed
from lasthop.cli.render.terminal import note, note_once
from lasthop.cli.views.admin_socket import AdminSocketView
from lasthop.cli.views.command_view import Size
from lasthop.cli.views.dry_run import serve_all
from lasthop.engine import Engine
from lasthop.infra.system_store import host_store
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.request import Request
from lasthop.probe.result import ProbeResult
from lasthop.resolve.settings import SYSTEM_STORE
from lasthop.sources.files.folder import FilesError, scan
from lasthop.sources.files.source import FilesSource
from lasthop.web.engine_view import EngineView


class FolderView(EngineView):
    """Answers as a first `lasthop run` would, which has no last good contents, on a host whose ports are free and with proxies
    that acknowledge everything. Notes on standard error if a gateway that runs on the folder still applies an older text."""

    def __init__(self, path: Path, namespace: str = "") -> None:
        source = FilesSource(path, allow_files=target.allowed_files())
        try:
            batch = source.load()
            self._files = len(scan(path).files)
        except FilesError as error:
            raise click.ClickException(str(error)) from None
        super().__init__(Engine(now=time.time()), source.locate)
        self.path, self.where, self.namespace = path, str(path), namespace
        self.source_findings = batch.findings
        self._objects = sum(self._written(key, obj) for key, obj in batch.changes.items())
        SYSTEM_STORE.set(self.engine.graph, host_store())
        self.engine.policies.set_known(batch.policies_known)
        self.engine.apply(batch.changes)
        serve_all(self.engine)
        for line in _older_text(path):
            note(line)

    def _written(self, key: Key, obj: Object | None) -> bool:
        """Returns whether a file that is applied holds it: the loader adds Namespaces and rejected policies."""
        applied = not isinstance(obj, RejectedPolicy) or obj.last_good is not None
        return applied and (key.kind != "Namespace" or self.locate(key) is not None)

    async def size(self) -> Size:
        return Size(self._objects, self._files)

    async def namespaces(self) -> set[str]:
        """Includes those of objects in files that are not applied."""
        return {*await super().namespaces(), *(key.namespace for key in broken_objects(self.source_findings))}

    async def findings(self) -> list[Finding]:
        resolved = [guessed(finding, self.engine) for finding in self.engine.findings()]
        found = [*self.source_findings, *(placed(finding, self.locate, self.where) for finding in resolved)]
        if not self.engine.store.keys("Gateway"):
            remedy = "Write one; lasthop init makes a small working folder."
            message = "there is no Gateway, so nothing is served."
            found.append(Finding(None, "NothingServed", message, remedy, file=self.where, line=1))
        return found

    def unseen(self, finding: Finding) -> Finding | None:
        return None

    async def problems(self) -> tuple[str, ...]:
        broken = any(finding.severity is Severity.ERROR for finding in self.source_findings)
        lines = (f"some of {self.path} is not applied; see: lasthop check {self.path}",) if broken else ()
        return (
            lines
            if await self.hops()
            else (*lines, f"no route of {self.path} leads to a backend; see: lasthop check {self.path}")
        )

    async def explain(self, key: Key, *, reads: bool = False) -> Json | None:
        self._warn()
        return await super().explain(key, reads=reads)

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        self._warn()
        return await super().explain_request(request, gateway)

    async def probe(self, key: Key, address: str) -> ProbeResult:
        self._warn()
        return await super().probe(key, address)

    def _warn(self) -> None:
        """Warns that something is not applied: the answer may rest on it."""
        if self.source_findings:
            note_once(f"some of {self.path} is not applied; see: lasthop check {self.path}")


def _older_text(path: Path) -> Iterator[str]:
    try:
        refused = AdminSocketView(paths.running(path)).ask("/api/not-applied")
    except click.ClickException:
        return  # none runs, or not for this user
    for each in refused:
        if each["since"]:
            yield (
                f"the gateway that runs on {path} has an older text in force, of {each['since']}, because of "
                f"{each['file']}:{each['line']}: {each['why']}; below is what a start without it would do"
            )
