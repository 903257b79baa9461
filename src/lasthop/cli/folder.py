"""A folder of objects looked at once, with nothing running: what `check` and `explain` work on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from lasthop.api.gateway import Gateway
from lasthop.api.meta import Key
from lasthop.cli import admin
from lasthop.cli.args import paths, target
from lasthop.cli.causes import broken_objects
from lasthop.cli.render.terminal import note
from lasthop.engine import Engine
from lasthop.infra.system_store import host_store
from lasthop.outputs.findings.foreign import class_finding
from lasthop.plan.finding import Finding
from lasthop.plan.infrastructure import Infrastructure
from lasthop.plan.proxy import ProxyState
from lasthop.resolve.gateways import gateway
from lasthop.resolve.ports import Probe
from lasthop.sources.files.errors import FilesError
from lasthop.sources.files.folder import scan
from lasthop.sources.files.source import FilesSource
from lasthop.store.graph import Crash


class Folder:
    """The same admission and resolution as a first `lasthop run`, which has no last good contents, on a host whose ports are
    free and with proxies that obey. Where a gateway that runs on the folder has an older text in force, that is noted."""

    def __init__(self, path: Path, now: float | None = None) -> None:
        self._source = FilesSource(path, allow_files=target.allowed_files())
        try:
            batch = self._source.load()
            self.files = [str(path / name) for name in scan(path).files]
        except FilesError as error:
            raise click.ClickException(str(error)) from None
        self.source_findings = batch.findings
        self.objects = sum(self._written(key) for key in batch.changes)
        self.engine = Engine(now=time.time() if now is None else now)
        self.engine.set_system_store(host_store())
        self.engine.set_policies_known(batch.policies_known)
        self.engine.apply(batch.changes)
        let_gateways_run(self.engine)
        for line in _older_in_force(path):
            note(line)

    def _written(self, key: Key) -> bool:
        """Namespaces that nobody wrote are made up."""
        return key.kind != "RejectedPolicy" and (key.kind != "Namespace" or self.locate(key) is not None)

    @property
    def namespaces(self) -> set[str]:
        """Those of its objects, also of those that are not applied."""
        written = {key.namespace for key in broken_objects(self.source_findings)}
        return {key.name for key in self.engine.store.keys("Namespace")} | written

    def locate(self, key: Key, field: str = "") -> tuple[str, int] | None:
        return self._source.locate(key, field)


def _older_in_force(path: Path) -> Iterator[str]:
    try:
        told = admin.ask(paths.running(path), "/api/not-applied")
    except click.ClickException:
        return  # none runs, or not for this user
    for each in told:
        if each["since"]:
            yield (
                f"the gateway that runs on {path} has an older text in force, of {each['since']}, because of "
                f"{each['file']}:{each['line']}: {each['why']}; below is what a start without it would do"
            )


def names(engine: Engine, kind: str) -> set[tuple[str, str]]:
    """(namespace, name) of every object of a kind, policies that could not be read whole among them."""
    faces = (kind, "RejectedPolicy") if kind == "BackendTLSPolicy" else (kind,)
    return {(key.namespace, key.name) for face in faces for key in engine.store.keys(face)}


def let_gateways_run(engine: Engine) -> None:
    """As if every Gateway had its ports, an address and a proxy that obeys: what is wrong then is wrong with the objects."""
    engine.settle()
    for key in engine.store.keys("Gateway"):
        found = gateway.attempt(engine.graph, key)
        if found is None or isinstance(found, Crash):
            continue
        for address in found.addresses:
            for listener in found.listeners:
                engine.set_probe(key, address, listener.port, Probe(), listener.transport)
        engine.set_infrastructure(key, Infrastructure((("IPAddress", "0.0.0.0"),)))
        engine.set_proxy(key, ProxyState.serving(found.listeners))
    engine.settle()


def unclassed(engine: Engine) -> Iterator[Finding]:
    """Gateways of a cluster whose class is missing. Its controllers leave them alone, but whoever checks wants to know."""
    classes = {key.name for key in engine.store.keys("GatewayClass")}
    for key in engine.store.keys("Gateway"):
        found = engine.store.get(key)
        if isinstance(found, Gateway) and found.spec.gateway_class_name not in classes:
            yield from filter(None, [class_finding(engine.graph, key)])


def nothing_served(engine: Engine, where: str) -> Iterator[Finding]:
    """A folder without any Gateway: nothing in it may be wrong, and nothing comes of it."""
    if not engine.store.keys("Gateway"):
        message = "there is no Gateway, so nothing is served."
        yield Finding(
            None, "NothingServed", message, "Write one; lasthop init makes a small working folder.", file=where, line=1
        )
