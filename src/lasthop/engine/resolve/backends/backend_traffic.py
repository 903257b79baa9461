"""XBackendTrafficPolicies: which one applies to a backend, and the retry budget (GEP-3388) and sessions (GEP-1619) that it
asks for.

Of several that name a backend the oldest applies, then {namespace}/{name} decides, whatever state it is in. What it asks for
is judged part by part: sessions that cannot be kept do not cost a backend its budget. For sessions, a rule of a route goes
before an XBackend's own setting, and that before a policy.
"""

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
from lasthop.engine.plan.connecting import RetryBudget
from lasthop.engine.plan.problem import Problem, joined, not_found, unsupported_value
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.backends import xbackends
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.policies.ancestors import Ancestors
from lasthop.engine.resolve.policies.policy_kind import PolicyKind
from lasthop.engine.resolve.policies.targets import service_meant
from lasthop.engine.resolve.routing.http_syntax import is_duration, seconds, shown
from lasthop.engine.resolve.routing.refusals import long_session_name, session_problems
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

KIND: Final = "XBackendTrafficPolicy"
MAX_INTERVAL: Final = 3_600.0
MAX_COUNT: Final = 1_000_000
"""The CRD's own limits, these two."""


def backend_of(policy: Key, target: LocalPolicyTargetReference) -> Key | None:
    """Returns the backend that a target names; None if it is of a kind that no policy applies to."""
    if target.kind == "Service" and target.group in ("", "core"):
        return Key("Service", policy.namespace, target.name)
    return Key(XBACKEND, policy.namespace, target.name) if (target.group, target.kind) == (XBACKEND_GROUP, XBACKEND) else None


def hops_to(g: Graph, backend: Key) -> list[Hop]:
    """Returns the hops of requests that lead to a target: connections are not retried, and have no cookies."""
    return [hop for hop in REACH.of(g, backend) if hop.protocol.http]


def _gateways(g: Graph, policy: Key, obj: XBackendTrafficPolicy) -> set[Key]:
    return {hop.gateway for backend in TRAFFIC.targets(policy, obj) for hop in hops_to(g, backend)}


TRAFFIC: Final = PolicyKind(KIND, XBackendTrafficPolicy, backend_of, _gateways, "name a Service or an XBackend")


# --- what it asks for ------------------------------------------------------------------------------------------------


class TrafficJudgement(msgspec.Struct, frozen=True):
    """What a policy asks for and can have at one Gateway, and what it cannot have."""

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
    """Yields what the CRD refuses too: an API server may hold objects that are older than it."""
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
    # Envoy knows no rate of retries, only how many are under way: those that begin within a second.
    rate = constraint.min_retry_rate.count / seconds(constraint.min_retry_rate.interval)
    minimum = min(max(1, math.ceil(rate)), MAX_COUNT)
    return RetryBudget(constraint.budget.percent, seconds(constraint.budget.interval), minimum)


def retry_budget(g: Graph, gateway: Key, backend: Key) -> RetryBudget | None:
    policy = TRAFFIC.applied(g, gateway, backend)
    return judgement(g, policy, gateway).budget if policy else None


class Kept(NamedTuple):
    """Sessions that a backend asks for, and by which object."""

    wanted: SessionPersistence
    by: Key


def asked_session(g: Graph, backend: Key) -> Kept | None:
    """Returns the sessions that an XBackend asks for itself, or those of its policy; whether they can be kept is open."""
    own = xbackends.session(g, backend) if backend.kind == XBACKEND else None
    if own:
        return Kept(own, backend)
    policy = TRAFFIC.winner(g, backend)
    obj = read(g, policy, XBackendTrafficPolicy) if policy else None
    return Kept(obj.spec.session_persistence, policy) if policy and obj and obj.spec.session_persistence else None


def kept_session(g: Graph, gateway: Key, backend: Key) -> Kept | None:
    """Returns the sessions of a backend that can be kept at a Gateway."""
    asked = asked_session(g, backend)
    if asked is None:
        return None
    if asked.by == backend:
        problems = (*session_problems(asked.wanted, ""), *long_session_name(asked.wanted, "", limits(g, gateway)))
        return None if problems else asked
    policy = TRAFFIC.applied(g, gateway, backend)
    return asked if policy and judgement(g, policy, gateway).session else None


# --- what is said of it ----------------------------------------------------------------------------------------------


def target_problem(g: Graph, policy: Key, target: LocalPolicyTargetReference) -> Problem | None:
    """Returns why a policy has no effect on one of its targets."""
    backend = backend_of(policy, target)
    if backend is None:
        return TRAFFIC.unsupported(policy, target)
    if backend.kind == "Service" and read(g, backend, Service) is None:
        return not_found(reasons.TARGET_NOT_FOUND, backend, guess=service_meant(g, backend))
    if backend.kind == XBACKEND and read(g, backend, XBackend) is None:
        return not_found(reasons.TARGET_NOT_FOUND, backend)
    return TRAFFIC.conflict(g, policy, backend)


def conditions(g: Graph, policy: Key, gateway: Key) -> tuple[Condition, ...]:
    """Returns the conditions at one Gateway: accepted if anything that it asks for takes effect there."""
    obj = read(g, policy, XBackendTrafficPolicy)
    if obj is None:
        return ()
    judged, effective = judgement(g, policy, gateway), False
    here: list[Problem] = []
    elsewhere: list[Problem] = []
    for target in obj.spec.target_refs:
        backend = backend_of(policy, target)
        reached = backend is not None and any(hop.gateway == gateway for hop in hops_to(g, backend))
        if problem := target_problem(g, policy, target):
            (here if reached else elsewhere).append(problem)
        else:
            effective |= reached
    problems = (*here, *elsewhere, *judged.problems)
    if here and not effective:
        return (failed(reasons.ACCEPTED, joined((*here, *elsewhere))),)
    if judged.problems and judged.empty:
        return (failed(reasons.ACCEPTED, joined(judged.problems, reasons.INVALID, fields=True)),)
    said = [str(problem) for problem in problems] or (["it asks for nothing"] if judged.empty else [])
    if judged.session:
        own = [each for each in TRAFFIC.targets(policy, obj) if xbackends.session(g, each)]
        said += [f"the sessions that {each} asks for itself go first" for each in own]
    found = [true(reasons.ACCEPTED, "; ".join(dict.fromkeys(said)))]
    if problems:
        found.append(failed(reasons.PARTIALLY_INVALID, joined(problems, fields=True)))
    if unserved := serves_nothing(g, gateway):
        found.append(failed(reasons.PROGRAMMED, unserved))
    return tuple(found)


def unreached(g: Graph, policy: Key) -> Problem | None:
    """Returns why no Gateway uses a policy whose targets are all right."""
    if TRAFFIC.ancestors(g, policy) != Ancestors():
        return None
    message = "no Gateway reaches its targets through an HTTPRoute or GRPCRoute, so the policy has no effect yet"
    return Problem(reasons.NOT_REACHED, message)
