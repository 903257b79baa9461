"""Findings as a list of mistakes: what only follows from another finding is said there, in one line, and not counted.

There are ten cases of a finding that follows from another:
1. a broken file is not applied, which its own errors imply;
2. an object is missing because it stands in a broken file;
3. a ConfigMap or Secret lacks a key because the local file for it cannot be read;
4. a backend is refused because its policy is invalid or misses its target, or the Gateway's client certificate is invalid;
5. a Gateway is not programmed because it is not accepted;
6. a policy that misses its target is not reached, and nothing is while a Gateway is missing or not ours;
7. something is missing in a cluster because the user may not see it;
8. a route has no parent because its ListenerSet is not let in, or its Gateway is not served;
9. nothing is served because the Gateway stands in a broken file;
10. a backend is withheld because a file that may hold a policy for it cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from lasthop.admission.yaml import parse
from lasthop.api.kinds import KINDS
from lasthop.api.meta import Json, Key
from lasthop.api.route_kinds import ROUTE_KINDS
from lasthop.cli.args.suggestions import closest
from lasthop.plan import reasons
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.not_applied import FILE_NOT_APPLIED, OLDER_TEXT_IN_FORCE
from lasthop.sources.files.content import key_in
from lasthop.sources.files.folder import Unreadable, read

NOT_APPLIED = (FILE_NOT_APPLIED, OLDER_TEXT_IN_FORCE)
LOCAL_FILE = "LocalFile"
WITHHELD = "withheld: a file that may hold a BackendTLSPolicy"

_OBJECT = re.compile(r"\b[A-Z]\w+ [a-z0-9][\w./-]*\w")
"""An object as messages name it: `Service shop/api`."""


class Mistake(msgspec.Struct, frozen=True):
    finding: Finding
    follows: tuple[Finding, ...] = ()
    """What would be right if this were."""


def mistakes(
    findings: Iterable[Finding], broken: Mapping[Key, str], unseen: Callable[[Finding], Finding | None] = lambda _: None
) -> list[Mistake]:
    """`findings` with their places; `broken`: the objects that seem to stand in files which are not applied; `unseen`: what
    of a cluster could not be read, if a finding may be due to that."""
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
    """The errors by what others say of them."""

    def __init__(self, findings: list[Finding], broken: Mapping[Key, str]) -> None:
        self._of_object: dict[str, Finding] = {}
        self._at_gateways: dict[str, list[Finding]] = {}
        self._of_file: dict[str, Finding] = {}
        self._local: dict[str, Finding] = {}
        self._mistargeted: dict[Key, Finding] = {}
        self._unserved: Finding | None = None
        self._broken = {str(key): file for key, file in broken.items()}
        self._opaque = next((each.file for each in findings if each.reason == FILE_NOT_APPLIED and each.remedy), "")
        for error in findings:
            if error.severity is not Severity.ERROR:
                continue
            self._of_file.setdefault(error.file, error)
            if error.object is None:
                continue
            if not _of_no_own(error):
                (self._local if error.reason == LOCAL_FILE else self._of_object).setdefault(str(error.object), error)
            if error.object.kind == "BackendTLSPolicy" and error.message.startswith("at Gateway "):
                self._at_gateways.setdefault(str(error.object), []).append(error)
            if error.field.startswith("spec.targetRefs"):
                self._mistargeted.setdefault(error.object, error)
            if error.reason == "NoGatewayClass":
                self._unserved = self._unserved or error

    def cause(self, finding: Finding) -> Finding | None:
        match finding.reason:
            case reason if reason in NOT_APPLIED:
                return self._of_file.get(finding.file)
            case reasons.INVALID_BACKEND_TLS | reasons.PLAINTEXT_NOT_PERMITTED:
                if WITHHELD in finding.message:
                    return self._of_file.get(self._opaque)
                return self._of_gateway(finding) or self._of_named(finding) or self._missing(finding)
            case "NotReached":
                own_target = self._mistargeted.get(finding.object) if finding.object else None
                return own_target or self._unserved or self._first_broken((*ROUTE_KINDS, "Gateway", "GatewayClass"))
            case "NothingServed":
                return self._first_broken(("Gateway",))
            case reasons.NO_MATCHING_PARENT if finding.field != "spec.parentRefs":
                named = next((cause for name in _named(finding) if (cause := self._of_object.get(name))), None)
                if named or finding.severity is Severity.ERROR:
                    return named or self._missing(finding)
                return self._unserved or self._first_broken(("ListenerSet", "Gateway", "GatewayClass"))
            case reasons.NO_MATCHING_PARENT if finding.field == "spec.parentRefs":
                sets = (name for name in _named(finding) if name.startswith("ListenerSet "))
                return next((cause for name in sets if (cause := self._of_object.get(name))), None)
            case _ if _of_no_own(finding):
                return self._of_object.get(str(finding.object))
            case _:
                return self._missing(finding)

    def _of_named(self, finding: Finding) -> Finding | None:
        return next((error for name in _named(finding) if (error := self._of_object.get(name))), None)

    def _of_gateway(self, finding: Finding) -> Finding | None:
        """What a policy is refused for at one Gateway, where others may refuse it too."""
        names = list(_named(finding))
        gateways = {name for name in names if name.startswith("Gateway ")}
        found = (error for name in names for error in self._at_gateways.get(name, ()))
        return next((error for error in found if gateways.intersection(_named(error))), None)

    def _missing(self, finding: Finding) -> Finding | None:
        """What it misses stands in a broken file, or in a local file that cannot be read."""
        for name in _named(finding):
            if name in self._broken and re.search(rf"{re.escape(name)} (does not exist|could not be read)", finding.message):
                return self._of_file.get(self._broken[name])
            if name in self._local and f"{name} has no" in finding.message:
                return self._local[name]
        return None

    def _first_broken(self, kinds: tuple[str, ...]) -> Finding | None:
        files = (file for name, file in self._broken.items() if name.split(" ")[0] in kinds)
        return self._of_file.get(next(files, ""))


def _of_no_own(finding: Finding) -> bool:
    """A Gateway that is not programmed because it is not accepted, which it says as well."""
    return finding.object is not None and (finding.object.kind, finding.reason) == ("Gateway", reasons.INVALID)


def _named(finding: Finding) -> Iterator[str]:
    """The other objects in its message."""
    own = str(finding.object)
    return (name for name in _OBJECT.findall(finding.message) if name != own)


def _as_meant(document: Json) -> Json:
    """With the kind that was meant: a mistyped one, or its apiVersion, is why the object is missing."""
    written = str(document.get("kind"))
    kind = KINDS.get(written if written in KINDS else closest(written, KINDS))
    return {**document, "kind": kind.kind, "apiVersion": kind.api_versions[0]} if kind else document


def broken_objects(findings: Iterable[Finding]) -> dict[Key, str]:
    """The objects in files that are not applied, as far as they can be told, with the file."""
    found: dict[Key, str] = {}
    for file in dict.fromkeys(finding.file for finding in findings if finding.reason in NOT_APPLIED):
        try:
            text, _ = read(Path(file))
            parsed = parse(text, as_json=file.endswith(".json"))
        except (OSError, Unreadable):
            continue
        for document in parsed.documents:
            items = document.get("items") if isinstance(document, dict) else None
            for each in items if isinstance(items, list) else [document]:
                if isinstance(each, dict) and (key := key_in(_as_meant(each))):
                    found.setdefault(key, file)
    return found
