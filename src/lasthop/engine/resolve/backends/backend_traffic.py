"""XBackendTrafficPolicies: the one that applies to a backend, with its retry budget (GEP-3388) and session persistence
(GEP-1619).

If several policies name a backend, the oldest applies, then the first by {namespace}/{name}, even if it is invalid. Its parts
are validated separately, so that an unsupported session setting does not disable the budget. Session settings of a route's
rule take precedence over those of the XBackend, and these over those of a policy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.backends import GROUP as XBACKEND_GROUP
from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.core import Service
from lasthop.base.api.meta import Key
from lasthop.base.api.routes import SessionPersistence
from lasthop.base.api.traffic import LocalPolicyTargetReference, RetryConstraint, XBackendTrafficPolicy
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.problem import Problem, joined, not_found, unsupported_value
from lasthop.engine.plan.upstream import Hop, RetryBudget
from lasthop.engine.resolve.backends import xbackends
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.policies.ancestors import Ancestors
from lasthop.engine.resolve.policies.policy_kind import PolicyKind
from lasthop.engine.resolve.policies.targets import closest_service
from lasthop.engine.resolve.routing.http_syntax import is_duration, seconds, shown
from lasthop.engine.resolve.routing.refusals import long_session_name, session_problems
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

KIND: Final = "XBackendTrafficPolicy"
MAX_INTERVAL: Final = 3_600.0
MAX_COUNT: Final = 1_000_000
"""Both are limits of the CRD."""


def backend_of(policy: Key, target: LocalPolicyTargetReference) -> Key | None:
    """Returns the backend that a target names; None for kinds without traffic policies."""
    if target.kind == "Service" and target.group in ("", "core"):
        return Key("Service", policy.namespace, target.name)
    return Key(XBACKEND, policy.namespace, target.name) if (target.group, target.kind) == (XBACKEND_GROUP, XBACKEND) else None


def hops_to(g: Graph, backend: Key) -> list[Hop]:
    """Returns the HTTP hops to a target. Streams have neither retries nor cookies."""
    return [hop for hop in REACH.of(g, backend) if hop.protocol.http]


def _gateways(g: Graph, policy: Key, obj: XBackendTrafficPolicy) -> set[Key]:
    return {hop.gateway for backend in TRAFFIC.targets(policy, obj) for hop in hops_to(g, backend)}


TRAFFIC: Final = PolicyKind(KIND, XBackendTrafficPolicy, backend_of, _gateways, "name a Service or an XBackend")


# --- settings ------------------------------------------------------------------------------------------------


class TrafficJudgement(msgspec.Struct, frozen=True):
    """The settings of a policy that take effect at one Gateway, and the problems of its other settings."""

    budget: RetryBudget | None = None
    session: SessionPersistence | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def empty(self) -> bool:
        return self.budget is None and self.session is None


@query
def judgement(g: Graph, policy: Key, gateway: Key) -> TrafficJudgement:
    obj = read(g, policy, XBackendTrafficPolicy)
    if obj is None:
        return TrafficJudgement()
    constraint, session, field = obj.spec.retry_constraint, obj.spec.session_persistence, "spec.sessionPersistence"
    of_budget = tuple(_constraint_problems(constraint)) if constraint else ()
    of_session = (*session_problems(session, field), *long_session_name(session, field, limits(g, gateway))) if session else ()
    budget = _budget(constraint) if constraint and not of_budget else None
    return TrafficJudgement(budget, None if of_session else session, (*of_budget, *of_session))


def _constraint_problems(constraint: RetryConstraint) -> Iterator[Problem]:
    """Repeats checks of the CRD, because an API server may store objects that are older than the CRD."""
    budget, rate, field = constraint.budget, constraint.min_retry_rate, "spec.retryConstraint"
    if not 0 <= budget.percent <= 100:
        yield unsupported_value(f"percent {budget.percent} is not between 0 and 100", f"{field}.budget.percent")
    if not 1 <= rate.count <= MAX_COUNT:
        yield unsupported_value(f"count {rate.count} is not between 1 and {MAX_COUNT:,}", f"{field}.minRetryRate.count")
    for interval, place in ((budget.interval, "budget.interval"), (rate.interval, "minRetryRate.interval")):
        if not is_duration(interval):
            message = f"{shown(interval)} is not a duration (GEP-2257); write it like 10s"
            yield unsupported_value(message, f"{field}.{place}")
        elif not 0 < seconds(interval) <= MAX_INTERVAL:
            yield unsupported_value(f"{interval} is not between 1ms and 1h", f"{field}.{place}")


def _budget(constraint: RetryConstraint) -> RetryBudget:
    # Envoy limits concurrent retries, not a rate. The limit allows all retries that start within a second.
    rate = constraint.min_retry_rate.count / seconds(constraint.min_retry_rate.interval)
    minimum = min(max(1, math.ceil(rate)), MAX_COUNT)
    return RetryBudget(constraint.budget.percent, seconds(constraint.budget.interval), minimum)


def retry_budget(g: Graph, gateway: Key, backend: Key) -> RetryBudget | None:
    policy = TRAFFIC.applied(g, gateway, backend)
    return judgement(g, policy, gateway).budget if policy else None


class BackendSession(NamedTuple):
    """Session persistence of a backend, and the object that configures it."""

    persistence: SessionPersistence
    by: Key


def configured_session(g: Graph, backend: Key) -> BackendSession | None:
    """Returns the session persistence of an XBackend or of its policy, even if it is not supported."""
    own_session = xbackends.session(g, backend) if backend.kind == XBACKEND else None
    if own_session:
        return BackendSession(own_session, backend)
    policy = TRAFFIC.winner(g, backend)
    obj = read(g, policy, XBackendTrafficPolicy) if policy else None
    configured = obj.spec.session_persistence if obj else None
    return BackendSession(configured, policy) if policy and configured else None


def effective_session(g: Graph, gateway: Key, backend: Key) -> BackendSession | None:
    """Returns the session persistence of a backend, if it is supported at a Gateway."""
    session = configured_session(g, backend)
    if session is None:
        return None
    if session.by == backend:
        problems = (
            *session_problems(session.persistence, ""),
            *long_session_name(session.persistence, "", limits(g, gateway)),
        )
        return None if problems else session
    policy = TRAFFIC.applied(g, gateway, backend)
    return session if policy and judgement(g, policy, gateway).session else None


# --- status ----------------------------------------------------------------------------------------------


def target_problem(g: Graph, policy: Key, target: LocalPolicyTargetReference) -> Problem | None:
    """Returns why a policy does not apply to one of its targets."""
    backend = backend_of(policy, target)
    if backend is None:
        return TRAFFIC.unsupported(policy, target)
    if backend.kind == "Service" and read(g, backend, Service) is None:
        return not_found(reasons.TARGET_NOT_FOUND, backend, guess=closest_service(g, backend))
    if backend.kind == XBACKEND and read(g, backend, XBackend) is None:
        return not_found(reasons.TARGET_NOT_FOUND, backend)
    return TRAFFIC.conflict(g, policy, backend)


def conditions(g: Graph, policy: Key, gateway: Key) -> tuple[Condition, ...]:
    """Returns the conditions at one Gateway. The policy is accepted if any of its settings takes effect there."""
    obj = read(g, policy, XBackendTrafficPolicy)
    if obj is None:
        return ()
    judged_policy, effective = judgement(g, policy, gateway), False
    reached_problems: list[Problem] = []
    other_problems: list[Problem] = []
    for target in obj.spec.target_refs:
        backend = backend_of(policy, target)
        reached = backend is not None and any(hop.gateway == gateway for hop in hops_to(g, backend))
        if problem := target_problem(g, policy, target):
            (reached_problems if reached else other_problems).append(problem)
        else:
            effective |= reached
    problems = (*reached_problems, *other_problems, *judged_policy.problems)
    if reached_problems and not effective:
        return (failed(reasons.ACCEPTED, joined((*reached_problems, *other_problems))),)
    if judged_policy.problems and judged_policy.empty:
        return (failed(reasons.ACCEPTED, joined(judged_policy.problems, reasons.INVALID, fields=True)),)
    notes = [str(problem) for problem in problems] or (["it has no settings"] if judged_policy.empty else [])
    if judged_policy.session:
        backends = [backend for backend in TRAFFIC.targets(policy, obj) if xbackends.session(g, backend)]
        notes += [f"sessionPersistence of {backend} itself takes precedence" for backend in backends]
    result = [true(reasons.ACCEPTED, "; ".join(dict.fromkeys(notes)))]
    if problems:
        result.append(failed(reasons.PARTIALLY_INVALID, joined(problems, fields=True)))
    if unserved := serves_nothing(g, gateway):
        result.append(failed(reasons.PROGRAMMED, unserved))
    return tuple(result)


def unreached(g: Graph, policy: Key) -> Problem | None:
    """Returns why no Gateway uses a policy with valid targets."""
    if TRAFFIC.ancestors(g, policy) != Ancestors():
        return None
    message = "no Gateway reaches its targets through an HTTPRoute or GRPCRoute, so the policy has no effect yet"
    return Problem(reasons.NOT_REACHED, message)
