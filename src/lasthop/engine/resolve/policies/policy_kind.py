"""Common behaviour of XBackendTrafficPolicy and XTelemetryPolicy: precedence and ancestors.

The oldest policy that names a target applies to it, then the first by {namespace}/{name}, even if it is invalid. The status
has an entry for each Gateway that uses the policy. BackendTLSPolicy also has sections and unreadable texts (`targets.py`), so
it shares only `Ancestors` and the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from lasthop.base.api.meta import Key
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.base.api.traffic import LocalPolicyTargetReference, XBackendTrafficPolicy
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid
from lasthop.engine.resolve.policies.ancestors import Ancestors, with_room
from lasthop.engine.resolve.policies.targets import rule_of
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

P = TypeVar("P", XBackendTrafficPolicy, XTelemetryPolicy)


class AgedPolicy(NamedTuple):
    """A policy in the order of precedence."""

    age: tuple[str, str]
    policy: Key


class PolicyKind(Generic[P]):
    def __init__(
        self,
        kind: str,
        struct: type[P],
        named: Callable[[Key, LocalPolicyTargetReference], Key | None],
        gateways: Callable[[Graph, Key, P], Iterable[Key]],
        remedy: str,
    ) -> None:
        """`named` returns the object that a target names, or None for an unsupported kind. `gateways` returns the Gateways
        that use a policy. `remedy` lists the supported kinds."""
        self.kind = kind
        self._struct: type[P] = struct
        self._named, self._remedy = named, remedy
        claims = Index[Key, AgedPolicy](f"{kind} claim")

        def index_claims(g: Graph, key: Key) -> Iterator[Entry]:
            obj = read(g, key, struct)
            if obj is not None:
                yield from (claims.entry((target,), AgedPolicy(obj.age, key)) for target in self.targets(key, obj))

        @query
        def ancestors(g: Graph, policy: Key) -> Ancestors:
            obj = read(g, policy, struct)
            return with_room(g, gateways(g, policy, obj), obj.status) if obj else Ancestors()

        index_claims.__name__ = f"index_{kind}_claims"
        self.index_claims = indexer(kind)(index_claims)
        self.ancestors = ancestors
        self._first = claims.summary("winner", lambda claims: min(claims, default=None))

    def targets(self, policy: Key, obj: P) -> tuple[Key, ...]:
        """Returns the distinct objects that a policy names."""
        return tuple(dict.fromkeys(key for target in obj.spec.target_refs if (key := self._named(policy, target))))

    def winner(self, g: Graph, target: Key) -> Key | None:
        first = self._first.of(g, target)
        return first.policy if first else None

    def applied(self, g: Graph, gateway: Key, target: Key) -> Key | None:
        """Returns the policy that a Gateway applies to a target. A policy whose status has no free entry for the Gateway does
        not apply, because no status would report it."""
        policy = self.winner(g, target)
        return policy if policy and gateway not in self.ancestors(g, policy).without_room else None

    def unsupported(self, policy: Key, target: LocalPolicyTargetReference) -> Problem | None:
        """Returns why a policy does not apply to a target of that kind."""
        if self._named(policy, target):
            return None
        kind = f"{target.kind} of group {target.group!r}" if target.group else target.kind
        return invalid(
            f"target {target.name}: kind {kind} is not supported; the policy has no effect on it", remedy=self._remedy
        )

    def conflict(self, g: Graph, policy: Key, target: Key) -> Problem | None:
        """Returns the conflict with another policy that applies to a target."""
        first, obj = self._first.of(g, target), read(g, policy, self._struct)
        if first is None or first.policy == policy:
            return None
        rule = rule_of(first.age, obj.age if obj else first.age)
        message = f"{target} is already targeted by {self.kind} {first.policy.path}, which {rule}"
        return Problem(reasons.CONFLICTED, message, about=(target, first.policy))
