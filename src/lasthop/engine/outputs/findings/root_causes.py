"""Groups findings by root cause: a finding that follows from another one is listed beneath it and not counted.

The entry of a reason in engine/plan/reasons.py (`ReasonEntry.follows`) lists possible causes; this module looks for them. In a
cluster, an object may also seem missing because the user may not read it (`unseen`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.reasons import Cause, entry_of


class Mistake(msgspec.Struct, frozen=True):
    finding: Finding
    follows: tuple[Finding, ...] = ()
    """Findings that disappear with this one."""


def mistakes(
    findings: Iterable[Finding], broken: Mapping[Key, str], unseen: Callable[[Finding], Finding | None] = lambda _: None
) -> list[Mistake]:
    """Groups findings by their causes. `findings` have file and line. `broken` maps objects to the file that is not applied
    and probably contains them. `unseen` returns the finding on an unreadable kind that may cause a finding."""
    found = list(dict.fromkeys(findings))
    known = _CauseIndex(found, broken)
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


class _CauseIndex:
    """Indexes errors by the objects and files through which other findings refer to them."""

    def __init__(self, findings: list[Finding], broken: Mapping[Key, str]) -> None:
        self._of_object: dict[Key, Finding] = {}
        self._at_gateways: dict[Key, list[Finding]] = {}
        self._of_file: dict[str, Finding] = {}
        self._local: dict[Key, Finding] = {}
        self._mistargeted: dict[Key, Finding] = {}
        self._unserved: Finding | None = None
        self._broken = broken
        self._opaque: dict[str, str] = {}
        """A file that may contain a policy, by namespace (empty: all namespaces)."""
        for each in findings:
            if each.object is None:
                for policy in each.missing:
                    self._opaque.setdefault(policy.namespace, each.file)
            if each.severity is Severity.ERROR and entry_of(each.reason).causes_others:
                self._of_file.setdefault(each.file, each)
                if each.object is not None:
                    self._add(each.object, each)

    def _add(self, key: Key, error: Finding) -> None:
        if not _not_accepted(error):
            (self._local if error.reason == reasons.LOCAL_FILE else self._of_object).setdefault(key, error)
        if key.kind == "BackendTLSPolicy" and any(_gateways(error)):
            self._at_gateways.setdefault(key, []).append(error)
        if error.field.startswith("spec.targetRefs"):
            self._mistargeted.setdefault(key, error)
        if error.reason == reasons.NO_GATEWAY_CLASS:
            self._unserved = self._unserved or error

    def cause(self, finding: Finding) -> Finding | None:
        look: dict[Cause, Callable[[Finding], Finding | None]] = {
            Cause.SAME_FILE: lambda each: self._of_file.get(each.file),
            Cause.UNREAD_POLICY: self._unread_policy,
            Cause.NOT_ACCEPTED: lambda each: self._of_any([each.object]) if _not_accepted(each) else None,
            Cause.OWN_TARGET: lambda each: self._mistargeted.get(each.object) if each.object else None,
            Cause.AT_GATEWAY: self._at_gateway,
            Cause.NAMED: lambda each: self._of_any(_others(each)),
            Cause.MISSING: self._missing,
            Cause.UNSERVED: lambda each: self._unserved if _names_nothing(each) else None,
            Cause.BROKEN_NEED: self._broken_need,
        }
        return next((found for cause in entry_of(finding.reason).follows if (found := look[cause](finding))), None)

    def _of_any(self, keys: Iterable[Key | None]) -> Finding | None:
        return next((error for key in keys if key and (error := self._of_object.get(key))), None)

    def _unread_policy(self, finding: Finding) -> Finding | None:
        namespaces = ("", *(policy.namespace for policy in finding.missing))
        return self._in_file(self._opaque[each] for each in namespaces if each in self._opaque)

    def _at_gateway(self, finding: Finding) -> Finding | None:
        gateways = set(_gateways(finding))
        found = (error for key in _others(finding) for error in self._at_gateways.get(key, ()))
        return next((error for error in found if gateways.intersection(_gateways(error))), None)

    def _missing(self, finding: Finding) -> Finding | None:
        """Returns the error of the first missing object that is in a broken file, or whose local file is missing."""
        for key in finding.missing:
            if key in self._broken:
                return self._of_file.get(self._broken[key])
            if key in self._local:
                return self._local[key]
        return None

    def _broken_need(self, finding: Finding) -> Finding | None:
        needs = entry_of(finding.reason).needs if _names_nothing(finding) else ()
        return self._in_file(file for key, file in self._broken.items() if key.kind in needs)

    def _in_file(self, files: Iterator[str]) -> Finding | None:
        return self._of_file.get(next(files, ""))


def _not_accepted(finding: Finding) -> bool:
    """Returns whether a finding only reports that a Gateway is not programmed because it is not accepted, which is a separate
    finding."""
    return finding.object is not None and (finding.object.kind, finding.reason) == ("Gateway", reasons.INVALID)


def _names_nothing(finding: Finding) -> bool:
    """Returns whether a finding names no other object, so that an unnamed one may be its cause."""
    return not finding.about and (finding.object is None or finding.severity is Severity.WARNING)


def _others(finding: Finding) -> Iterator[Key]:
    return (key for key in finding.about if key != finding.object)


def _gateways(finding: Finding) -> Iterator[Key]:
    return (key for key in finding.about if key.kind == "Gateway")
