"""Checks and audits the objects of an import, as `lasthop check` and `lasthop audit` do, before anybody applies them."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.core import Namespace
from lasthop.base.api.meta import Key, ObjectMeta, StringMap
from lasthop.engine.dry_run import serve_all
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.findings.root_causes import Mistake, mistakes
from lasthop.engine.plan.finding import Severity
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.settings import IN_CLUSTER, SYSTEM_STORE, Settings
from lasthop_import.result import Result
from lasthop_import.settings import Settings as ImportSettings

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
ON_A_HOST: Final = Settings()


class Checked(NamedTuple):
    errors: tuple[Mistake, ...]
    hops: tuple[HopReport, ...]


def way_of(settings: ImportSettings) -> Settings:
    """Returns how the objects will be served: where they were read, or on a host."""
    return IN_CLUSTER if settings.in_cluster else ON_A_HOST


def check(result: Result, now: float, way: Settings = ON_A_HOST) -> Checked:
    """Returns what is wrong with the objects, and how each hop is verified."""
    engine = engine_of(result, now, way)
    found = mistakes(engine.findings(), {})
    return Checked(
        tuple(each for each in found if each.finding.severity is Severity.ERROR),
        tuple(engine.hops()),
    )


def engine_of(result: Result, now: float, way: Settings = ON_A_HOST) -> Engine:
    """Returns an engine with the objects, and with what they refer to in the input."""
    engine = Engine(way, now=now)
    SYSTEM_STORE.set(engine.graph, SystemStore("/etc/ssl/system.pem", "unknown"))
    objects = {each.key: each.object for each in (*result.context, *result.admitted)}
    for name in {key.namespace for key in objects if key.namespace}:
        labels = StringMap.of({NAMESPACE_LABEL: name})
        objects.setdefault(Key("Namespace", "", name), Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    engine.apply(objects)
    serve_all(engine, judge=True)
    return engine
