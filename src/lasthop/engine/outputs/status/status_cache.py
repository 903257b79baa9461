"""Caches the latest status of each object, with the times of its conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from lasthop.base.api import status as api
from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import document
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.base.api.status import Status
from lasthop.base.api.times import rfc3339
from lasthop.engine.outputs.status.conditions import timed
from lasthop.engine.plan.finding import Finding, FindingChanges, Severity
from lasthop.engine.store.store import Store

replace = msgspec.structs.replace
E = TypeVar("E", api.ParentStatus, api.AncestorStatus, api.ListenerStatus)


class StatusCache:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._statuses: dict[Key, Status] = {}
        self._names: dict[str, Key] = {}
        """The keys of the statuses by their text."""
        self._errors: dict[Key, set[Finding]] = {}
        """Errors of objects, which may have no status or no condition to report them."""

    def take(self, changes: Mapping[Key, Status | None], now: float) -> None:
        stamp = rfc3339(now)
        for key, status in changes.items():
            old = self._statuses.pop(key, None)
            new = timed_status(status, old, stamp) if status else None
            if new is not None:
                self._statuses[key] = new
                self._names[str(key)] = key
            else:
                self._names.pop(str(key), None)

    def find(self, changes: FindingChanges) -> None:
        for finding in changes.new:
            if finding.object and finding.severity is Severity.ERROR:
                self._errors.setdefault(finding.object, set()).add(finding)
        for finding in changes.gone:
            if finding.object and (errors := self._errors.get(finding.object)):
                errors.discard(finding)
                if not errors:
                    del self._errors[finding.object]

    def get(self, key: Key) -> Status | None:
        return self._statuses.get(key)

    def key_of(self, name: str) -> Key | None:
        """Returns the key of an object with a status by its text, for example `HTTPRoute shop/api`."""
        return self._names.get(name)

    def keys(self) -> list[Key]:
        return sorted(self._statuses)

    def document(self, key: Key) -> Json | None:
        """Returns the object with its status, as a cluster would show it. An unreadable policy is shown as rejected, unless an
        older text is in force."""
        obj = self._store.get(key)
        if obj is None:
            return None
        if isinstance(obj, RejectedPolicy):
            shown = document(key.kind, obj.last_good or BackendTLSPolicy(metadata=obj.metadata))
            if obj.last_good is None:
                shown |= {"spec": {"targetRefs": msgspec.to_builtins(obj.targets)}, "rejected": obj.message}
        else:
            shown = document(key.kind, obj)
        shown.pop("status", None)
        if errors := self._errors.get(key):
            last = max(errors, key=str)
            shown["problem"] = {"reason": last.reason, "message": last.message}
        if status := self._statuses.get(key):
            shown["status"] = msgspec.to_builtins(status)
        return shown


def timed_status(new: Status, old: Status | None, now: str) -> Status:
    """Returns the new status, with the times of conditions whose status is unchanged."""
    match new, old:
        case api.RouteStatus(), api.RouteStatus() | None:
            parents = {p.parent_ref: p.conditions for p in old.parents} if old else {}
            return api.RouteStatus(tuple(_at(p, parents.get(p.parent_ref, ()), now) for p in new.parents))
        case api.PolicyStatus(), api.PolicyStatus() | None:
            ancestors = {a.ancestor_ref: a.conditions for a in old.ancestors} if old else {}
            return api.PolicyStatus(tuple(_at(a, ancestors.get(a.ancestor_ref, ()), now) for a in new.ancestors))
        case api.GatewayStatus() | api.ListenerSetStatus(), api.GatewayStatus() | api.ListenerSetStatus() | None:
            listeners = {x.name: x.conditions for x in old.listeners} if old else {}
            at = tuple(_at(x, listeners.get(x.name, ()), now) for x in new.listeners)
            conditions = timed(new.conditions, old.conditions if old else (), now)
            return replace(new, conditions=conditions, listeners=at)
        case api.GatewayClassStatus(), api.GatewayClassStatus() | None:
            return replace(new, conditions=timed(new.conditions, old.conditions if old else (), now))
        case _:
            raise TypeError(f"a {type(new).__name__} cannot follow a {type(old).__name__}")


def _at(entry: E, old: Any, now: str) -> E:
    return replace(entry, conditions=timed(entry.conditions, old, now))
