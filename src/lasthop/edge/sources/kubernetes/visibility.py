"""Tracks what the user may not read of a cluster, and which findings may be due to that alone: not seen is not missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lasthop.base.api.meta import Key
from lasthop.edge.sources.kubernetes.findings import optional
from lasthop.edge.sources.kubernetes.snapshot import ListResult
from lasthop.engine.outputs.explain.explain import explain
from lasthop.engine.outputs.explain.reads import below
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import OBJECTS


class RBACVisibility:
    def __init__(self, listed: Iterable[ListResult]) -> None:
        self._refused = {each.kind.kind: each for each in listed if each.refusal is not None}
        self._findings = {kind: _finding(each) for kind, each in self._refused.items()}

    def said(self) -> list[str]:
        """Returns what the user may not list, a line for each namespace."""
        lines = []
        for namespace in sorted({each.namespace for each in self._refused.values()}):
            names = [
                each.kind.plural for each in self._refused.values() if each.namespace == namespace and not optional(each.kind)
            ]
            where = f" outside namespace {namespace}" if namespace else ""
            lines += [f"You may not list {', '.join(names)}{where}"] if names else []
        return lines

    def refusal(self, kind: str) -> str:
        """Returns why no object of a kind can be seen, and what to do; empty if some can, or could."""
        each = self._refused.get(kind)
        return "" if each is None or each.namespace else f"you may not list {_resource(each)}; ask for permission (RBAC)"

    def unseen(self, g: Graph, key: Key) -> list[Key]:
        """Objects that the explanation of `key` has asked for in vain, and that may well exist."""
        return [each for each in _missed(g, key) if self._hides(each)]

    def cause(self, finding: Finding) -> Finding | None:
        """Returns the refusal to which a finding may be due: then it says nothing about the objects."""
        return self.hides(finding.missing) or (None if finding.missing else self.may_hide(finding.reason))

    def hides(self, missing: Sequence[Key]) -> Finding | None:
        """Returns a refusal to which it may be due that all of these are missing."""
        causes = [self._hides(key) for key in missing]
        return causes[0] if causes and all(causes) else None

    def may_hide(self, reason: str) -> Finding | None:
        return next((self._findings[kind] for kind in reasons.entry_of(reason).needs if kind in self._findings), None)

    def _hides(self, key: Key) -> Finding | None:
        each = self._refused.get(key.kind)
        return None if each is None or (key.namespace and each.namespace == key.namespace) else self._findings[key.kind]

    def veiled(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Returns an explanation in which nothing is called bad that may only be unseen."""
        because = [self.veiled(each) for each in tree.get("because", ())]
        found = {**tree, "because": because} if because else dict(tree)
        missing = [Key(*key) for key in tree.get("missing", ())]
        if self.hides(missing):
            found["text"] = not_visible(missing)
            found["state"], found["unseen"] = "warning", True
        elif any(each.get("unseen") for each in because):
            found["unseen"] = True
            if tree.get("state") == "bad" and not any(each.get("state") == "bad" for each in because):
                found["state"] = "warning"
        return found


def not_visible(keys: Iterable[Key]) -> str:
    return f"{', '.join(map(str, keys))} is not visible with your permissions"


@query
def _missed(g: Graph, key: Key) -> tuple[Key, ...]:
    """Returns the objects that an explanation asked for and that are not there. A query, so that its reads are still known."""
    explain(g, key)
    asked = (node[1] for node in below(g, (explain, key)) if node[0] is OBJECTS)
    return tuple(each for each in asked if OBJECTS.peek(g, each) is None)


def _finding(each: ListResult) -> Finding:
    resource = _resource(each)
    where = f" outside namespace {each.namespace}" if each.namespace else ""
    message = f"you may not list {resource}{where}, so what refers to them cannot be judged"
    remedy = f"Ask for permission to get and list {resource} (RBAC)."
    return make_finding(None, reasons.FORBIDDEN, message, remedy, severity=Severity.WARNING)


def _resource(each: ListResult) -> str:
    return f"{each.kind.plural}.{each.kind.group}" if each.kind.group else each.kind.plural
