"""Groups findings by root cause: a finding that follows from another one is listed beneath it and not counted.

The entry of a reason in engine/plan/reasons.py (`ReasonEntry.follows`) lists possible causes; this module looks for them. In a
cluster, an object may also seem missing because the user may not read it (`unseen`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.reasons import Cause, entry_of

MAX_DEPTH: Final = 3
"""Length of a chain of causes: a local file, the policy that needs it, the route that needs the policy."""


class RootCause(msgspec.Struct, frozen=True):
    finding: Finding
    follows: tuple[Finding, ...] = ()
    """Findings that disappear with this one."""


def root_causes(
    findings: Iterable[Finding], broken: Mapping[Key, str], unseen: Callable[[Finding], Finding | None] = lambda _: None
) -> list[RootCause]:
    """Groups findings by their causes. `findings` have file and line. `broken` maps objects to the file that is not applied
    and probably contains them. `unseen` returns the finding on an unreadable kind that may cause a finding."""
    unique = list(dict.fromkeys(findings))
    index = CauseIndex(unique, broken)
    causes = {finding: cause for finding in unique if (cause := unseen(finding) or index.cause(finding)) and cause != finding}
    roots: dict[Finding, list[Finding]] = {finding: [] for finding in unique if finding not in causes}
    for finding, cause in causes.items():
        for _ in range(MAX_DEPTH):
            cause = causes.get(cause, cause)
        roots.setdefault(cause, []).append(finding)
    ordered = sorted(roots.items(), key=lambda item: _place(item[0]))
    return [RootCause(finding, tuple(follows)) for finding, follows in ordered]


def _place(finding: Finding) -> tuple[str, int, str, str]:
    return (finding.file, finding.line, "" if finding.file else str(finding.object or ""), finding.message)


class _FindingIndex(dict[Hashable, dict[Finding, None]]):
    """Findings by a key, in order of arrival; `first` returns the oldest one."""

    def put(self, key: Hashable, finding: Finding, present: bool) -> None:
        if present:
            self.setdefault(key, {})[finding] = None
        elif bucket := self.get(key):
            bucket.pop(finding, None)
            if not bucket:
                del self[key]

    def first(self, key: Hashable) -> Finding | None:
        return next(iter(self.get(key, ())), None)


class CauseIndex:
    """Indexes errors by the findings that may follow from them. The cost of an update or a lookup is independent of their
    number."""

    def __init__(self, findings: Iterable[Finding] = (), broken: Mapping[Key, str] = MappingProxyType({})) -> None:
        """`broken` maps objects to the files, not applied, that contain them."""
        self._of_object, self._of_file, self._local, self._mistargeted = (
            _FindingIndex(),
            _FindingIndex(),
            _FindingIndex(),
            _FindingIndex(),
        )
        self._at_gateways, self._unserved, self._opaque = _FindingIndex(), _FindingIndex(), _FindingIndex()
        """`_opaque`: files that may contain a policy, by namespace, empty for all."""
        self._broken = broken
        for finding in findings:
            self.put(finding)

    def put(self, finding: Finding, present: bool = True) -> None:
        """Adds a finding, or removes it."""
        if (key := finding.object) is None:
            for policy in finding.missing:
                self._opaque.put(policy.namespace, finding, present)
        if finding.severity is not Severity.ERROR or not entry_of(finding.reason).causes_others:
            return
        self._of_file.put(finding.file, finding, present)
        if key is None:
            return
        if not _not_accepted(finding):
            (self._local if finding.reason == reasons.LOCAL_FILE else self._of_object).put(key, finding, present)
        if key.kind == "BackendTLSPolicy" and any(_gateways(finding)):
            self._at_gateways.put(key, finding, present)
        if finding.field.startswith("spec.targetRefs"):
            self._mistargeted.put(key, finding, present)
        if finding.reason == reasons.NO_GATEWAY_CLASS:
            self._unserved.put(finding.reason, finding, present)

    def cause(self, finding: Finding) -> Finding | None:
        look: dict[Cause, Callable[[Finding], Finding | None]] = {
            Cause.SAME_FILE: lambda finding: self._of_file.first(finding.file),
            Cause.UNREAD_POLICY: self._unread_policy,
            Cause.NOT_ACCEPTED: lambda finding: self._of_any([finding.object]) if _not_accepted(finding) else None,
            Cause.OWN_TARGET: lambda finding: self._mistargeted.first(finding.object),
            Cause.AT_GATEWAY: self._at_gateway,
            Cause.NAMED: lambda finding: self._of_any(_others(finding)),
            Cause.MISSING: self._missing,
            Cause.UNSERVED: lambda finding: (
                self._unserved.first(reasons.NO_GATEWAY_CLASS) if _names_nothing(finding) else None
            ),
            Cause.BROKEN_NEED: self._broken_need,
        }
        return next((error for cause in entry_of(finding.reason).follows if (error := look[cause](finding))), None)

    def root(self, finding: Finding) -> Finding | None:
        cause = None
        for _ in range(MAX_DEPTH):
            following = self.cause(cause or finding)
            if following is None or following in (cause, finding):
                break
            cause = following
        return cause

    def _of_any(self, keys: Iterable[Key | None]) -> Finding | None:
        return next((error for key in keys if key and (error := self._of_object.first(key))), None)

    def _unread_policy(self, finding: Finding) -> Finding | None:
        namespaces = ("", *(policy.namespace for policy in finding.missing))
        return self._in_file(opaque.file for namespace in namespaces if (opaque := self._opaque.first(namespace)))

    def _at_gateway(self, finding: Finding) -> Finding | None:
        gateways = set(_gateways(finding))
        errors = (error for key in _others(finding) for error in self._at_gateways.get(key, ()))
        return next((error for error in errors if gateways.intersection(_gateways(error))), None)

    def _missing(self, finding: Finding) -> Finding | None:
        """Returns the error of the first missing object that is in a broken file, or whose local file is missing."""
        for key in finding.missing:
            if key in self._broken:
                return self._of_file.first(self._broken[key])
            if local := self._local.first(key):
                return local
        return None

    def _broken_need(self, finding: Finding) -> Finding | None:
        needs = entry_of(finding.reason).needs if _names_nothing(finding) else ()
        return self._in_file(file for key, file in self._broken.items() if key.kind in needs)

    def _in_file(self, files: Iterator[str]) -> Finding | None:
        return self._of_file.first(next(files, ""))


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
