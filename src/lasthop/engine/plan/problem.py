"""Problems: why an object is invalid, as a reason, a message, a field, the objects concerned and a remedy.

    resolve ──> Problem ──> Condition (engine/plan/condition.py) ──> status
                       └──> Finding (engine/plan/finding.py) ──> log, `lasthop check`, Events

Each reason has its own constructor, so that a text that several modules need exists once. Code that needs the missing objects,
or the objects that a message is about, reads these fields and never parses the message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.messages import CRASHED, SEPARATOR
from lasthop.engine.plan.reasons import Reason

DOES_NOT_EXIST: Final = "does not exist"
"""The message for a missing object. It may exist if the user's permissions hide it."""


class Problem(msgspec.Struct, frozen=True):
    reason: Reason
    message: str
    """The problem, naming the reference or value at fault."""
    field: str = ""
    """Path inside the object that has the problem, e.g. `spec.rules[0].backendRefs[1]`."""
    remedy: str = ""
    """An imperative clause that ends the message."""
    about: tuple[Key, ...] = ()
    """The other objects that the message names, in its order."""
    missing: tuple[Key, ...] = ()
    """The objects among `about` that do not exist, cannot be read, or lack the content that is needed. An object inside a text
    that cannot be parsed has an empty name."""
    severity: Severity | None = None
    """None: the severity of its reason."""

    @property
    def text(self) -> str:
        return f"{self.message}{SEPARATOR}{self.remedy}" if self.remedy else self.message

    def __str__(self) -> str:
        return f"{self.field.removeprefix('spec.')}: {self.text}" if self.field else self.text

    def on(self, object: Key | None, remedy: str | None = None) -> Finding:
        """Returns the finding for an object. If the message ends with the problem's own remedy, the finding has no second
        one."""
        if remedy is None and self.remedy:
            remedy = ""
        about, missing = self.about, self.missing
        return make_finding(object, self.reason, self.text, remedy, self.field, self.severity, about=about, missing=missing)

    def at(self, field: str) -> Problem:
        return msgspec.structs.replace(self, field=field)

    def with_reason(self, reason: Reason) -> Problem:
        return msgspec.structs.replace(self, reason=reason)

    def within(self, where: str, *about: Key, reason: Reason | None = None) -> Problem:
        """Returns the same problem with a prefix, for the object that contains the faulty one. The reason may differ there."""
        return msgspec.structs.replace(
            self, reason=reason or self.reason, message=f"{where}: {self.message}", about=(*about, *self.about)
        )


def joined(problems: Sequence[Problem], reason: Reason | None = None, *, fields: bool = False) -> Problem:
    """Joins several problems into one, without repeated texts, and with their fields if `fields`. The reason defaults to the
    first problem's."""
    *first, last = {str(problem) if fields else problem.text: problem for problem in problems}.values()
    distinct = (*first, msgspec.structs.replace(last, remedy=""))
    return Problem(
        reason or problems[0].reason,
        SEPARATOR.join(str(problem) if fields else problem.text for problem in distinct),
        problems[0].field,
        last.remedy,
        _distinct(problem.about for problem in problems),
        _distinct(problem.missing for problem in problems),
    )


def _distinct(keys: Iterable[tuple[Key, ...]]) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(key for several in keys for key in several))


# --- references ------------------------------------------------------------------------------------------------------


def not_found(reason: Reason, key: Key, remedy: str = "", *, guess: str = "") -> Problem:
    """Reports an object that does not exist. `guess` is the closest existing name."""
    message, similar = f"{key} {DOES_NOT_EXIST}", (key._replace(name=guess),) if guess else ()
    message += f"; did you mean {guess}?" if guess else ""
    return Problem(reason, message, remedy=remedy, about=(key, *similar), missing=(key,))


def lacking(reason: Reason, key: Key, content: str, remedy: str = "") -> Problem:
    """Reports an object that lacks needed content: a key of a ConfigMap or Secret."""
    return Problem(reason, f"{key} has no {content}", remedy=remedy, about=(key,), missing=(key,))


def backend_not_found(key: Key) -> Problem:
    return not_found(reasons.BACKEND_NOT_FOUND, key)


def backend_port_not_found(service: Key, transport: str, port: int, ports: Iterable[int]) -> Problem:
    existing = ", ".join(map(str, ports)) or "none"
    return Problem(
        reasons.BACKEND_NOT_FOUND, f"{service} has no {transport} port {port} (it has {existing})", about=(service,)
    )


def invalid_kind(kind: str, group: str | None, use: str, reason: Reason = reasons.INVALID_KIND) -> Problem:
    """Reports an unsupported kind of a reference. With `group` None the message does not name the group."""
    group_part = "" if group is None else f" of group {group!r}"
    return Problem(reason, f"kind {kind}{group_part} is not supported", remedy=f"use {use}")


def ref_not_permitted(source: Key, target: Key) -> Problem:
    kinds = f"{source.kind[:-1]}ies" if source.kind.endswith("Policy") else f"{source.kind}s"
    message = (
        f"{target} is in another namespace and no ReferenceGrant there lets {kinds} of namespace "
        f"{source.namespace} refer to it"
    )
    return Problem(reasons.REF_NOT_PERMITTED, message, remedy=f"create one in {target.namespace}", about=(target,))


def invalid_certificate_ref(message: str, *about: Key, remedy: str = "") -> Problem:
    return Problem(reasons.INVALID_CERTIFICATE_REF, message, remedy=remedy, about=about)


def invalid_ca_certificate_ref(message: str, *about: Key, remedy: str = "") -> Problem:
    return Problem(reasons.INVALID_CA_CERTIFICATE_REF, message, remedy=remedy, about=about)


def listeners_not_valid(names: Sequence[str]) -> Problem:
    """Reports invalid listeners on their Gateway or ListenerSet, which names them."""
    if not names:
        return Problem(reasons.LISTENERS_NOT_VALID, "")
    return Problem(reasons.LISTENERS_NOT_VALID, f"not valid: {', '.join(names)}", remedy="see their own conditions")


# --- values ----------------------------------------------------------------------------------------------------------


def unsupported_value(message: str, field: str = "", remedy: str = "", *about: Key) -> Problem:
    return Problem(reasons.UNSUPPORTED_VALUE, message, field, remedy, about)


def unsupported_protocol(message: str, remedy: str = "", *about: Key) -> Problem:
    return Problem(reasons.UNSUPPORTED_PROTOCOL, message, remedy=remedy, about=about)


def incompatible_filters(message: str, field: str) -> Problem:
    return Problem(reasons.INCOMPATIBLE_FILTERS, message, field)


def invalid(message: str, *about: Key, remedy: str = "", missing: tuple[Key, ...] = ()) -> Problem:
    return Problem(reasons.INVALID, message, remedy=remedy, about=about, missing=missing)


def pending(message: str) -> Problem:
    """Reports a wait, not an error."""
    return Problem(reasons.PENDING, message)


# --- backends --------------------------------------------------------------------------------------------------------


def policy_unreadable(policy: Key, why: str) -> Problem:
    return invalid(f"{policy} could not be read: {why}", policy, missing=(policy,))


def invalid_backend_tls(backend: Key, port: int, problem: Problem) -> Problem:
    """Reports a backend that is refused because of its TLS. The reason stays if no policy is at fault."""
    kept = problem.reason in (reasons.PLAINTEXT_NOT_PERMITTED, reasons.POLICIES_UNKNOWN)
    reason = problem.reason if kept else reasons.INVALID_BACKEND_TLS
    return problem.within(f"backend {backend.path}:{port}", reason=reason)


def policies_unknown(unknown: Unknown, namespace: str) -> Problem:
    """Reports a backend that is closed because an unread BackendTLSPolicy may name it."""
    message = f"closed: an unread BackendTLSPolicy may target this port: {unknown.why}"
    unnamed = Key("BackendTLSPolicy", namespace, "")
    return Problem(reasons.POLICIES_UNKNOWN, message, remedy=unknown.remedy, missing=(unnamed,))


def internal_error() -> Problem:
    """Replaces the result of a query that raised an exception."""
    return Problem(reasons.INTERNAL_ERROR, CRASHED)
