"""Explains an XBackendTrafficPolicy: its settings, and the Gateways and backends where they take effect."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.base.api.traffic import LocalPolicyTargetReference, XBackendTrafficPolicy
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain, warning, worst
from lasthop.engine.plan.connecting import RetryBudget
from lasthop.engine.resolve.backends.backend_traffic import TRAFFIC, backend_of, hops_to, judgement, target_problem
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read


def explain_traffic_policy(g: Graph, key: Key) -> Fact:
    obj = read(g, key, XBackendTrafficPolicy)
    assert obj is not None
    facts = [_target(g, key, target) for target in obj.spec.target_refs]
    reached = TRAFFIC.ancestors(g, key)
    facts += [
        warning(f"its status has no free entry for {gateway}, which does not apply it", object=gateway)
        for gateway in reached.without_room
    ]
    return Fact(str(key), worst(facts), tuple(facts), key)


def _target(g: Graph, key: Key, target: LocalPolicyTargetReference) -> Fact:
    named, backend = f"target {target.kind} {key.namespace}/{target.name}", backend_of(key, target)
    if problem := target_problem(g, key, target):
        return bad(f"{named}: no effect, ", object=backend, why=problem)
    reached = {hop.gateway for hop in hops_to(g, backend)} if backend else set()
    here = [gateway for gateway in TRAFFIC.ancestors(g, key).gateways if gateway in reached]
    if not here:
        return warning(f"{named}: not used", plain("no HTTPRoute or GRPCRoute of a Gateway uses it"), object=backend)
    facts = [Fact(f"at {gateway}", worst(found), found, gateway) for gateway in here if (found := (*_wants(g, key, gateway),))]
    return Fact(f"{named}: under this policy", worst(facts), tuple(facts), backend)


def _wants(g: Graph, key: Key, gateway: Key) -> Iterator[Fact]:
    judged = judgement(g, key, gateway)
    if judged.budget:
        yield good(words(judged.budget))
    if judged.session:
        by = "header" if judged.session.type == "Header" else "cookie"
        yield good(f"clients keep an endpoint by a {by}, in rules with this backend only and without sessionPersistence")
    for problem in judged.problems:
        yield bad("not supported: ", why=problem)
    if judged.empty and not judged.problems:
        yield plain("has no settings")


def words(budget: RetryBudget) -> str:
    return (
        f"retries may be {budget.percent:g} % of the requests of the last {budget.interval:g} s, "
        f"and {budget.minimum} at a time in any case"
    )
