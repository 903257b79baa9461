"""Reports BackendTLSPolicies whose Service does not exist: their status has no ancestor entry to carry the condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import typo_of
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.objects import identify
from lasthop.edge.sources.kubernetes.snapshot import look
from lasthop.engine.plan.problem import joined, not_found
from lasthop.engine.plan.reasons import TARGET_NOT_FOUND

Services = dict[str, set[str]]
"""Service names by namespace."""


def has_no_status_entry(document: Json) -> bool:
    """Returns whether the document is a policy without an entry of ours in its status."""
    ancestors = (document.get("status") or {}).get("ancestors") or ()
    ours = (entry for entry in ancestors if entry.get("controllerName") == CONTROLLER_NAME)
    return document["kind"] == "BackendTLSPolicy" and next(ours, None) is None


async def services(client: Client, documents: Iterable[Json], namespace: str) -> Services | None:
    """Returns the Services of the cluster if a policy may lack its Service; None if they may not be read."""
    if not any(map(has_no_status_entry, documents)):
        return None
    listed = (await look(client, [KINDS["Service"]], namespace, beyond=False)).get("Service")
    if listed is None or listed.refusal is not None:
        return None
    by_namespace: Services = {}
    for item in listed.items:
        key, _ = identify("Service", item)
        by_namespace.setdefault(key.namespace, set()).add(key.name)
    return by_namespace


def with_problem(document: Json, known: Services | None) -> Json:
    """Returns the document with a problem if all of its targets are missing."""
    if known is None or not has_no_status_entry(document):
        return document
    namespace = document["metadata"].get("namespace", "")
    existing = known.get(namespace, set())
    if not (missing := _all_missing((document.get("spec") or {}).get("targetRefs") or (), existing)):
        return document
    problems = [
        not_found(TARGET_NOT_FOUND, Key("Service", namespace, name), guess=typo_of(name, sorted(existing))) for name in missing
    ]
    return {**document, "problem": {"reason": TARGET_NOT_FOUND, "message": joined(problems).text}}


def _all_missing(targets: Sequence[Json], existing: set[str]) -> list[str]:
    """Returns the names of the targets if all of their Services are missing."""
    missing = [target["name"] for target in targets if target.get("kind") == "Service" and target["name"] not in existing]
    return missing if len(missing) == len(targets) else []
