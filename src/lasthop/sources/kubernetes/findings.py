"""Reports what keeps us from reading the cluster: the verb, the resource and the remedy."""

from __future__ import annotations

from collections.abc import Iterable

from lasthop.api.kinds import EXPERIMENTAL_API, POD, Kind
from lasthop.kubernetes.errors import ApiError
from lasthop.plan.finding import Finding, Severity

ReadError = tuple[Kind, ApiError, bool]
"""The kind, the error, and whether it has been read before."""


def optional(kind: Kind) -> bool:
    """Returns whether we can do without a kind: a reference to one that we may not read is invalid and fails closed."""
    return kind.kind in ("ClusterTrustBundle", "ServiceImport", POD.kind) or kind.group == EXPERIMENTAL_API


def trouble_findings(
    troubles: Iterable[ReadError], discovery: ApiError | None, started: bool, access: str
) -> tuple[Finding, ...]:
    found: list[Finding] = []
    away = discovery if discovery is not None and discovery.transient else None
    read = started
    if discovery is not None and away is None:
        found.append(_refused("discover the kinds of", "/apis", discovery, "", access))
    for kind, error, before in troubles:
        if error.transient:
            away, read = away or error, read and before
        else:
            found.append(_of_kind(kind, error, before, access))
    if away is not None:
        then = "the last known state is kept" if read else "nothing is programmed until it is"
        found.append(Finding(None, "APIServerUnavailable", f"the API server is not available, {then}: {away}."))
    return tuple(dict.fromkeys(found))


def _of_kind(kind: Kind, error: ApiError, before: bool, access: str) -> Finding:
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    if before:
        then = "the last known state is kept"
    elif optional(kind) and error.status == 403:
        then = "references to them are invalid"
    else:
        then = "nothing is programmed until they have been read"
    return _refused("list and watch", resource, error, then, access, warning=optional(kind) and error.status == 403)


def _refused(verb: str, resource: str, error: ApiError, then: str, access: str, *, warning: bool = False) -> Finding:
    message = f"cannot {verb} {resource}{', ' + then if then else ''}: {error}."
    severity = Severity.WARNING if warning else Severity.ERROR
    match error.status:
        case 401:
            return Finding(None, "Unauthorized", message, f"Check the credentials of {access}.", severity=severity)
        case 403:
            remedy = f"Grant get, list and watch on {resource} to this user (RBAC)."
            return Finding(None, "Forbidden", message, remedy, severity=severity)
        case 404:
            return Finding(None, "NotServed", message, severity=severity)
        case _:
            return Finding(None, "Unreadable", message, severity=severity)
