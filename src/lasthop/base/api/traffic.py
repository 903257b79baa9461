"""XBackendTrafficPolicy: retry budget and session persistence of a backend."""

from __future__ import annotations

from lasthop.base.api.meta import Object, Struct
from lasthop.base.api.policies import ForeignPolicyStatus
from lasthop.base.api.routes import SessionPersistence


class LocalPolicyTargetReference(Struct, frozen=True):
    group: str
    kind: str
    name: str


class BudgetDetails(Struct, frozen=True):
    percent: int = 20
    interval: str = "10s"


class RequestRate(Struct, frozen=True):
    count: int = 10
    interval: str = "1s"


class RetryConstraint(Struct, frozen=True):
    budget: BudgetDetails = BudgetDetails()
    min_retry_rate: RequestRate = RequestRate()


class XBackendTrafficPolicySpec(Struct, frozen=True):
    target_refs: tuple[LocalPolicyTargetReference, ...] = ()
    retry_constraint: RetryConstraint | None = None
    session_persistence: SessionPersistence | None = None


class XBackendTrafficPolicy(Object, frozen=True):
    spec: XBackendTrafficPolicySpec = XBackendTrafficPolicySpec()
    status: ForeignPolicyStatus = ForeignPolicyStatus()
    """Only the entries of other controllers matter."""
