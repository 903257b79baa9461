"""BackendTLSPolicies of a cluster whose Service does not exist: no ancestor's entry could say it in their status."""

from __future__ import annotations

from collections.abc import Iterable

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import meant
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.objects import identify
from lasthop.edge.sources.kubernetes.snapshot import look
from lasthop.engine.plan.problem import joined, not_found
from lasthop.engine.plan.reasons import TARGET_NOT_FOUND

Services = dict[str, set[str]]
"""Names by namespace."""


def without_word(document: Json) -> bool:
    """Returns whether it is a policy without an entry of ours in its status."""
    ancestors = (document.get("status") or {}).get("ancestors") or ()
    ours = (entry for entry in ancestors if entry.get("controllerName") == CONTROLLER_NAME)
    return document["kind"] == "BackendTLSPolicy" and next(ours, None) is None


async def services(client: Client, documents: Iterable[Json], namespace: str) -> Services | None:
    """Returns the Services of the cluster if some policy may miss its own; None where they may not be read."""
    if not any(map(without_word, documents)):
        return None
    listed = (await look(client, [KINDS["Service"]], namespace, beyond=False)).get("Service")
    if listed is None or listed.refusal is not None:
        return None
    found: Services = {}
    for item in listed.items:
        key, _ = identify("Service", item)
        found.setdefault(key.namespace, set()).add(key.name)
    return found


def with_problem(document: Json, known: Services | None) -> Json:
    """Returns the document with what is wrong with its targets, if they are all missing."""
    if known is None or not without_word(document):
        return document
    namespace = document["metadata"].get("namespace", "")
    there = known.get(namespace, set())
    targets = (document.get("spec") or {}).get("targetRefs") or ()
    missing = [target["name"] for target in targets if target.get("kind") == "Service" and target["name"] not in there]
    if not missing or len(missing) < len(targets):
        return document
    found = [
        not_found(TARGET_NOT_FOUND, Key("Service", namespace, name), guess=meant(name, sorted(there))) for name in missing
    ]
    return {**document, "problem": f"{TARGET_NOT_FOUND}: {joined(found).text}"}
