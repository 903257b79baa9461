"""Checks and audits the objects of an import, as `lasthop check` and `lasthop audit` do, before anybody applies them."""

from __future__ import annotations

from typing import NamedTuple

from lasthop.api.core import Namespace
from lasthop.api.meta import Key, ObjectMeta, StringMap
from lasthop.cli.views.dry_run import serve_all
from lasthop.engine import Engine
from lasthop.importers.result import Result
from lasthop.outputs.audit.hops import HopReport
from lasthop.outputs.findings.root_causes import Mistake, mistakes
from lasthop.plan.finding import Severity
from lasthop.plan.tls import SystemStore
from lasthop.resolve.settings import IN_CLUSTER, SYSTEM_STORE

NAMESPACE_LABEL = "kubernetes.io/metadata.name"


class Checked(NamedTuple):
    errors: tuple[Mistake, ...]
    hops: tuple[HopReport, ...]


def check(result: Result, now: float, *, in_cluster: bool = False) -> Checked:
    """Returns what is wrong with the objects, and how each hop is verified."""
    engine = engine_of(result, now, in_cluster=in_cluster)
    found = mistakes(engine.findings(), {})
    return Checked(
        tuple(each for each in found if each.finding.severity is Severity.ERROR),
        tuple(engine.hops()),
    )


def engine_of(result: Result, now: float, *, in_cluster: bool = False) -> Engine:
    """Returns an engine with the objects, and with what they refer to in the input."""
    engine = Engine(IN_CLUSTER, now=now) if in_cluster else Engine(now=now)
    SYSTEM_STORE.set(engine.graph, SystemStore("/etc/ssl/system.pem", "unknown"))
    engine.policies.set_known(True)
    objects = {each.key: each.object for each in (*result.context, *result.admitted)}
    for name in {key.namespace for key in objects if key.namespace}:
        labels = StringMap.of({NAMESPACE_LABEL: name})
        objects.setdefault(Key("Namespace", "", name), Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    engine.apply(objects)
    serve_all(engine)
    return engine
