"""Tracks the kinds that the user may not read, and the findings that may result only from missing permissions."""

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
        self._refused = {result.kind.kind: result for result in listed if result.refusal is not None}
        self._findings = {kind: _finding(result) for kind, result in self._refused.items()}

    def refusal_lines(self) -> list[str]:
        """Returns the kinds that the user may not list, a line for each namespace."""
        lines = []
        for namespace in sorted({result.namespace for result in self._refused.values()}):
            names = [
                result.kind.plural
                for result in self._refused.values()
                if result.namespace == namespace and not optional(result.kind)
            ]
            where = f" outside namespace {namespace}" if namespace else ""
            lines += [f"You may not list {', '.join(names)}{where}"] if names else []
        return lines

    def refusal(self, kind: str) -> str:
        """Returns the reason why no object of a kind is visible, and the remedy; empty if objects are visible, or could be."""
        result = self._refused.get(kind)
        return "" if result is None or result.namespace else f"you may not list {_resource(result)}; request permission (RBAC)"

    def unseen(self, g: Graph, key: Key) -> list[Key]:
        """Returns the missing objects in the explanation of `key` that may exist without being visible."""
        return [missing for missing in _missed(g, key) if self._hides(missing)]

    def cause(self, finding: Finding) -> Finding | None:
        """Returns the refusal that may have caused a finding. Such a finding proves nothing about the objects."""
        return self.hides(finding.missing) or (None if finding.missing else self.may_hide(finding.reason))

    def hides(self, missing: Sequence[Key]) -> Finding | None:
        """Returns a refusal that may explain why all of these are missing."""
        causes = [self._hides(key) for key in missing]
        return causes[0] if causes and all(causes) else None

    def may_hide(self, reason: str) -> Finding | None:
        return next((self._findings[kind] for kind in reasons.entry_of(reason).needs if kind in self._findings), None)

    def _hides(self, key: Key) -> Finding | None:
        result = self._refused.get(key.kind)
        return None if result is None or (key.namespace and result.namespace == key.namespace) else self._findings[key.kind]

    def mark_invisible(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Returns an explanation in which objects that may only be invisible do not count as bad."""
        because = [self.mark_invisible(child) for child in tree.get("because", ())]
        shown = {**tree, "because": because} if because else dict(tree)
        missing = [Key(*key) for key in tree.get("missing", ())]
        if self.hides(missing):
            shown["text"] = not_visible(missing)
            shown["state"], shown["unseen"] = "warning", True
        elif any(child.get("unseen") for child in because):
            shown["unseen"] = True
            if tree.get("state") == "bad" and not any(child.get("state") == "bad" for child in because):
                shown["state"] = "warning"
        return shown


def not_visible(keys: Iterable[Key]) -> str:
    return f"{', '.join(map(str, keys))} is not visible with your permissions"


@query
def _missed(g: Graph, key: Key) -> tuple[Key, ...]:
    """Returns the missing objects that an explanation reads. It is a query, so that its reads are recorded."""
    explain(g, key)
    reads = (node[1] for node in below(g, (explain, key)) if node[0] is OBJECTS)
    return tuple(read for read in reads if OBJECTS.peek(g, read) is None)


def _finding(result: ListResult) -> Finding:
    resource = _resource(result)
    where = f" outside namespace {result.namespace}" if result.namespace else ""
    message = f"you may not list {resource}{where}, so references to them cannot be checked"
    remedy = f"Request permission to get and list {resource} (RBAC)."
    return make_finding(None, reasons.FORBIDDEN, message, remedy, severity=Severity.WARNING)


def _resource(result: ListResult) -> str:
    return f"{result.kind.plural}.{result.kind.group}" if result.kind.group else result.kind.plural
