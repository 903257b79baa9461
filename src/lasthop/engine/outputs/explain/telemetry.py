"""Explains an XTelemetryPolicy: sampling, attributes, and the connection to the collector."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.hops import context_facts, tls_fact
from lasthop.engine.plan.problem import joined
from lasthop.engine.plan.telemetry import SAMPLED, TracingPlan
from lasthop.engine.resolve.gateways.telemetry import (
    TELEMETRY,
    collector_problem,
    gateway_problem,
    tracing,
    tracing_problems,
    unknown_attributes,
)
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read


def explain_telemetry_policy(g: Graph, key: Key) -> Fact:
    obj, reached = read(g, key, XTelemetryPolicy), TELEMETRY.ancestors(g, key)
    assert obj is not None
    facts = [
        bad("no effect: ", why=problem) for target in obj.spec.target_refs if (problem := TELEMETRY.unsupported(key, target))
    ]
    facts += [_at(g, key, gateway) for gateway in reached.gateways]
    facts += [
        warning(f"{gateway}: nothing is traced: the policy's status has no free entry for it")
        for gateway in reached.without_room
    ]
    facts += [warning("", why=problem) for problem in unknown_attributes(obj)]
    return Fact(str(key), worst(facts), tuple(facts), key)


def _at(g: Graph, key: Key, gateway: Key) -> Fact:
    if problem := gateway_problem(g, key, gateway):
        return bad(f"{gateway}: no effect, ", object=gateway, why=problem)
    if problems := tracing_problems(g, key, gateway):
        return bad(f"{gateway}: nothing is traced, ", object=gateway, why=joined(problems, fields=True))
    if problem := collector_problem(g, key, gateway):
        return bad(f"{gateway}: nothing is exported, ", object=gateway, why=problem)
    found = tracing(g, gateway)
    if found is None:
        return plain(f"{gateway}: nothing is traced", object=gateway)
    facts = (
        *_words(found),
        tls_fact(g, found.collector),
        *context_facts(g, found.collector),
    )
    to = f"{found.collector.backend}:{found.collector.port}"
    return Fact(f"{gateway}: traced, and exported by OTLP over gRPC to {to}", worst(facts), facts, gateway)


def _words(found: TracingPlan) -> Iterator[Fact]:
    yield good(f"{_percent(found.share)} of the requests without a parent trace")
    if found.parents_share is None:
        yield plain("the client's sampling decision is ignored: the same share of all requests")
    else:
        yield plain(f"{_percent(found.parents_share)} of the requests whose client has sampled the trace, and no others")


def _percent(share: int) -> str:
    return f"{100 * share / SAMPLED:g} %"
