"""Findings as a list of mistakes: what only follows from another finding is listed there, in one line, and not counted.

There are ten cases of a finding that follows from another:
1. a broken file is not applied, which its own errors imply;
2. an object is missing because it is in a broken file;
3. a ConfigMap or Secret lacks a key because the local file for it cannot be read;
4. a backend is refused because its policy is invalid or misses its target, or the Gateway's client certificate is invalid;
5. a Gateway is not programmed because it is not accepted;
6. a policy that misses its target is not reached, and nothing is while a Gateway is missing or not ours;
7. something is missing in a cluster because the user may not see it;
8. a route has no parent because its ListenerSet is not allowed, or its Gateway is not served;
9. nothing is served because the Gateway is in a broken file;
10. a backend is closed because a file that may contain a policy for it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.not_applied import NOT_APPLIED

LOCAL_FILE = "LocalFile"
UNREADABLE = "Unreadable"


class Mistake(msgspec.Struct, frozen=True):
    finding: Finding
    follows: tuple[Finding, ...] = ()
    """What would be right if this were."""


def mistakes(
    findings: Iterable[Finding], broken: Mapping[Key, str], unseen: Callable[[Finding], Finding | None] = lambda _: None
) -> list[Mistake]:
    """Groups findings by their causes. `findings` have their places; `broken`: the objects that seem to be in files which are
    not applied; `unseen`: what of a cluster could not be read, if a finding may be due to that."""
    found = list(dict.fromkeys(findings))
    known = _Known(found, broken)
    causes = {each: cause for each in found if (cause := unseen(each) or known.cause(each)) and cause != each}
    roots: dict[Finding, list[Finding]] = {finding: [] for finding in found if finding not in causes}
    for finding, cause in causes.items():
        for _ in range(3):  # a local file, the policy that needs it, the route that needs the policy
            cause = causes.get(cause, cause)
        roots.setdefault(cause, []).append(finding)
    ordered = sorted(roots.items(), key=lambda item: _place(item[0]))
    return [Mistake(finding, tuple(follows)) for finding, follows in ordered]


def _place(finding: Finding) -> tuple[str, int, str, str]:
    return (finding.file, finding.line, "" if finding.file else str(finding.object or ""), finding.message)


class _Known:
    """The errors by what others are about."""

    def __init__(self, findings: list[Finding], broken: Mapping[Key, str]) -> None:
        self._of_object: dict[Key, Finding] = {}
        self._at_gateways: dict[Key, list[Finding]] = {}
        self._of_file: dict[str, Finding] = {}
        self._local: dict[Key, Finding] = {}
        self._mistargeted: dict[Key, Finding] = {}
        self._unserved: Finding | None = None
        self._broken = broken
        self._opaque: dict[str, str] = {}
        """By namespace, empty for all: a file that may contain a policy."""
        for error in findings:
            if error.reason in (*NOT_APPLIED, UNREADABLE):
                for policy in error.missing:
                    self._opaque.setdefault(policy.namespace, error.file)
            # What happens on the wire is not the cause of anything that is written.
            if error.severity is not Severity.ERROR or error.reason == reasons.BACKEND_FAILING:
                continue
            self._of_file.setdefault(error.file, error)
            if error.object is None:
                continue
            if not _not_accepted(error):
                (self._local if error.reason == LOCAL_FILE else self._of_object).setdefault(error.object, error)
            if error.object.kind == "BackendTLSPolicy" and any(_gateways(error)):
                self._at_gateways.setdefault(error.object, []).append(error)
            if error.field.startswith("spec.targetRefs"):
                self._mistargeted.setdefault(error.object, error)
            if error.reason == "NoGatewayClass":
                self._unserved = self._unserved or error

    def cause(self, finding: Finding) -> Finding | None:
        match finding.reason:
            case reason if reason in NOT_APPLIED:
                return self._of_file.get(finding.file)
            case reasons.POLICIES_UNKNOWN:
                namespaces = ("", *(policy.namespace for policy in finding.missing))
                files = (self._opaque[namespace] for namespace in namespaces if namespace in self._opaque)
                return self._of_file.get(next(files, ""))
            case reasons.INVALID_BACKEND_TLS | reasons.PLAINTEXT_NOT_PERMITTED:
                return self._of_gateway(finding) or self._of_any(_others(finding)) or self._missing(finding)
            case "NotReached":
                own_target = self._mistargeted.get(finding.object) if finding.object else None
                return own_target or self._unserved or self._first_broken((*ROUTE_KINDS, "Gateway", "GatewayClass"))
            case "NothingServed":
                return self._first_broken(("Gateway",))
            case reasons.NO_MATCHING_PARENT if finding.field == "spec.parentRefs":
                return self._of_any(key for key in _others(finding) if key.kind == "ListenerSet")
            case reasons.NO_MATCHING_PARENT:
                cause = self._of_any(_others(finding))
                if cause or finding.severity is Severity.ERROR:
                    return cause or self._missing(finding)
                return self._unserved or self._first_broken(("ListenerSet", "Gateway", "GatewayClass"))
            case _ if _not_accepted(finding):
                return self._of_object.get(finding.object) if finding.object else None
            case _:
                return self._missing(finding)

    def _of_any(self, keys: Iterable[Key]) -> Finding | None:
        return next((error for key in keys if (error := self._of_object.get(key))), None)

    def _of_gateway(self, finding: Finding) -> Finding | None:
        """Returns what a policy is refused for at one Gateway, where others may refuse it too."""
        gateways = set(_gateways(finding))
        found = (error for key in _others(finding) for error in self._at_gateways.get(key, ()))
        return next((error for error in found if gateways.intersection(_gateways(error))), None)

    def _missing(self, finding: Finding) -> Finding | None:
        """Returns the broken file that has what is missing, or the local file that cannot be read."""
        for key in finding.missing:
            if key in self._broken:
                return self._of_file.get(self._broken[key])
            if key in self._local:
                return self._local[key]
        return None

    def _first_broken(self, kinds: tuple[str, ...]) -> Finding | None:
        files = (file for key, file in self._broken.items() if key.kind in kinds)
        return self._of_file.get(next(files, ""))


def _not_accepted(finding: Finding) -> bool:
    """Returns whether it only says that a Gateway is not programmed because it is not accepted, which is a finding of its
    own."""
    return finding.object is not None and (finding.object.kind, finding.reason) == ("Gateway", reasons.INVALID)


def _others(finding: Finding) -> Iterator[Key]:
    return (key for key in finding.about if key != finding.object)


def _gateways(finding: Finding) -> Iterator[Key]:
    return (key for key in finding.about if key.kind == "Gateway")
