"""Reports errors that prevent reading the cluster (verb, resource, remedy), and policies whose targets are all missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, EXPERIMENTAL_API, KINDS, POD, Kind
from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import typo_of
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.objects import POLICY, identify
from lasthop.edge.sources.kubernetes.snapshot import look
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.problem import joined, not_found
from lasthop.engine.plan.reasons import TARGET_NOT_FOUND

ReadError = tuple[Kind, ApiError, bool]
"""The kind, the error, and whether the kind was read before."""


def optional(kind: Kind) -> bool:
    """Returns whether Lasthop works without a kind. References to objects that may not be read are invalid and fail
    closed."""
    return kind.kind in ("ClusterTrustBundle", "ServiceImport", POD.kind) or kind.group == EXPERIMENTAL_API


def trouble_findings(
    troubles: Iterable[ReadError], discovery: ApiError | None, started: bool, access: str
) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    transient: list[tuple[ApiError, bool]] = []
    if discovery is not None and discovery.transient:
        transient.append((discovery, True))
    elif discovery is not None:
        findings.append(_refused("discover the kinds of", "/apis", discovery, "", access))
    for kind, error, was_read in troubles:
        if error.transient:
            transient.append((error, was_read))
        else:
            findings.append(_of_kind(kind, error, was_read, access))
    if transient:
        read = started and all(was_read for _, was_read in transient)
        consequence = "the last known state is kept" if read else "nothing is programmed until then"
        message = f"the API server is not available, {consequence}: {transient[0][0]}."
        findings.append(make_finding(None, reasons.API_SERVER_UNAVAILABLE, message))
    return tuple(dict.fromkeys(findings))


def not_served(kind: Kind, why: str, *, read: bool = False) -> Finding:
    """Reports a kind that may have unreadable objects. `read` means that they were read before."""
    if read:
        consequence = f"the last known state is kept{_closed(kind)}"
    elif kind.kind == POLICY:
        consequence = "nothing is programmed until they have been read"
    else:
        consequence = "they are ignored"
    severity = Severity.ERROR if read or kind.kind == POLICY else Severity.WARNING
    message = f"cannot read {resource_name(kind)}, {consequence}: {why}."
    return make_finding(None, reasons.NOT_SERVED, message, install(kind), severity=severity)


def install(kind: Kind) -> str:
    return f"Install a CRD of {resource_name(kind)} that serves {' or '.join(kind.versions)}."


def unproven(error: ApiError, access: str, *, started: bool) -> Finding:
    """Reports that no port can become plaintext, because the absence of policies cannot be proven."""
    resource = resource_name(KINDS[POLICY])
    consequence = "backends that were not plaintext before stay closed" if started else "nothing is programmed until they can"
    message = f"{resource} cannot be listed, and {consequence}: {error}."
    return make_finding(None, reasons.POLICIES_UNKNOWN, message, remedy(error, KINDS[POLICY], access))


def unreadable_targets(policy: Key) -> Unknown:
    """Reports a policy that may target any port of its namespace."""
    then = "use fields that this version knows, or upgrade Lasthop"
    return Unknown(provable=False, namespace=policy.namespace, why=f"the targets of {policy} cannot be decoded", remedy=then)


def resource_name(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def remedy(error: ApiError, kind: Kind, access: str) -> str:
    return _remedy(error, resource_name(kind), access)


def _remedy(error: ApiError, resource: str, access: str) -> str:
    match error.status:
        case 401:
            return f"Check the credentials of {access}."
        case 403:
            return f"Grant get, list and watch on {resource} to this user (RBAC)."
        case _:
            return ""


def _closed(kind: Kind) -> str:
    return ", and no further backend becomes plaintext" if kind.kind == POLICY else ""


def _of_kind(kind: Kind, error: ApiError, was_read: bool, access: str) -> Finding:
    resource = resource_name(kind)
    if was_read:
        consequence = f"the last known state is kept{_closed(kind)}"
    elif optional(kind) and error.status == 403:
        consequence = "references to them are invalid"
    else:
        consequence = "nothing is programmed until they have been read"
    return _refused("list and watch", resource, error, consequence, access, warning=optional(kind) and error.status == 403)


def _refused(verb: str, resource: str, error: ApiError, consequence: str, access: str, *, warning: bool = False) -> Finding:
    message = f"cannot {verb} {resource}{', ' + consequence if consequence else ''}: {error}."
    severity = Severity.WARNING if warning else Severity.ERROR
    error_remedy = _remedy(error, resource, access)
    match error.status:
        case 401:
            return make_finding(None, reasons.UNAUTHORIZED, message, error_remedy, severity=severity)
        case 403:
            return make_finding(None, reasons.FORBIDDEN, message, error_remedy, severity=severity)
        case 404:
            return make_finding(None, reasons.NOT_SERVED, message, error_remedy, severity=severity)
        case _:
            return make_finding(None, reasons.UNREADABLE, message, error_remedy, severity=severity)


# --- policies whose targets are all missing -----------------------------------------------------------------------------


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


def with_problem(document: Json, existing_services: Services | None) -> Json:
    """Returns the document with a problem if all of its targets are missing."""
    if existing_services is None or not has_no_status_entry(document):
        return document
    namespace = document["metadata"].get("namespace", "")
    existing_names = existing_services.get(namespace, set())
    if not (missing := _all_missing((document.get("spec") or {}).get("targetRefs") or (), existing_names)):
        return document
    problems = [
        not_found(TARGET_NOT_FOUND, Key("Service", namespace, name), guess=typo_of(name, sorted(existing_names)))
        for name in missing
    ]
    return {**document, "problem": {"reason": TARGET_NOT_FOUND, "message": joined(problems).text}}


def _all_missing(targets: Sequence[Json], existing: set[str]) -> list[str]:
    """Returns the names of the targets if all of their Services are missing."""
    missing = [target["name"] for target in targets if target.get("kind") == "Service" and target["name"] not in existing]
    return missing if len(missing) == len(targets) else []
