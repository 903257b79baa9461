"""One value for "why not": a reason, a sentence, the field and the objects that it concerns, and what to do.

    resolve ──> Problem ──> Condition (engine/plan/condition.py) ──> status
                       └──> Finding (engine/plan/finding.py) ──> log, `lasthop check`, Events

Each reason has a constructor of its own, so that a sentence that several places need is written once. What has to know which
object is missing, or which objects a message is about, reads that from here and never from the message.
"""

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
"""What is said of an object that is missing; with the permissions of some users it is only out of sight."""


class Problem(msgspec.Struct, frozen=True):
    reason: Reason
    message: str
    """What is wrong, naming the reference or value at fault."""
    field: str = ""
    """Path inside the object that has the problem, e.g. `spec.rules[0].backendRefs[1]`."""
    remedy: str = ""
    """What to do, as a clause in the imperative that ends the message."""
    about: tuple[Key, ...] = ()
    """The other objects that the message names, in its order."""
    missing: tuple[Key, ...] = ()
    """Those of them that do not exist, cannot be read, or lack the content that is asked of them. One whose name is not known,
    because it is in a text that cannot be read, has none."""
    severity: Severity | None = None
    """None: that of its reason."""

    @property
    def text(self) -> str:
        return f"{self.message}{SEPARATOR}{self.remedy}" if self.remedy else self.message

    def __str__(self) -> str:
        return f"{self.field.removeprefix('spec.')}: {self.text}" if self.field else self.text

    def on(self, object: Key | None, remedy: str | None = None) -> Finding:
        """Returns the finding. Its message ends in the problem's own remedy, so that it has no second one."""
        if remedy is None and self.remedy:
            remedy = ""
        about, missing = self.about, self.missing
        return make_finding(object, self.reason, self.text, remedy, self.field, self.severity, about=about, missing=missing)

    def at(self, field: str) -> Problem:
        return msgspec.structs.replace(self, field=field)

    def with_reason(self, reason: Reason) -> Problem:
        return msgspec.structs.replace(self, reason=reason)

    def within(self, where: str, *about: Key, reason: Reason | None = None) -> Problem:
        """Returns the same problem as part of something else, for which the reason may be another."""
        return msgspec.structs.replace(
            self, reason=reason or self.reason, message=f"{where}: {self.message}", about=(*about, *self.about)
        )


def joined(problems: Sequence[Problem], reason: Reason | None = None, *, fields: bool = False) -> Problem:
    """Returns several problems as one, each sentence once, with its field if asked to; its reason is that of the first unless
    another is given."""
    *first, last = {str(problem) if fields else problem.text: problem for problem in problems}.values()
    sentences = (*first, msgspec.structs.replace(last, remedy=""))
    return Problem(
        reason or problems[0].reason,
        SEPARATOR.join(str(each) if fields else each.text for each in sentences),
        problems[0].field,
        last.remedy,
        _each(problem.about for problem in problems),
        _each(problem.missing for problem in problems),
    )


def _each(keys: Iterable[tuple[Key, ...]]) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(key for several in keys for key in several))


# --- references ------------------------------------------------------------------------------------------------------


def not_found(reason: Reason, key: Key, remedy: str = "", *, guess: str = "") -> Problem:
    """Returns the problem of an object that does not exist. `guess` is the name that was probably meant."""
    message, meant = f"{key} {DOES_NOT_EXIST}", (key._replace(name=guess),) if guess else ()
    message += f"; did you mean {guess}?" if guess else ""
    return Problem(reason, message, remedy=remedy, about=(key, *meant), missing=(key,))


def lacking(reason: Reason, key: Key, what: str, remedy: str = "") -> Problem:
    """Reports content that an object should have: a key of a ConfigMap or Secret."""
    return Problem(reason, f"{key} has no {what}", remedy=remedy, about=(key,), missing=(key,))


def backend_not_found(key: Key) -> Problem:
    return not_found(reasons.BACKEND_NOT_FOUND, key)


def backend_port_not_found(service: Key, transport: str, port: int, ports: Iterable[int]) -> Problem:
    has = ", ".join(map(str, ports)) or "none"
    return Problem(reasons.BACKEND_NOT_FOUND, f"{service} has no {transport} port {port} (it has {has})", about=(service,))


def invalid_kind(kind: str, group: str | None, use: str, reason: Reason = reasons.INVALID_KIND) -> Problem:
    """Reports the kind of a reference. `group` None: it goes without saying."""
    of = "" if group is None else f" of group {group!r}"
    return Problem(reason, f"kind {kind}{of} is not supported", remedy=f"use {use}")


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
    """Reports it on a Gateway or ListenerSet, which only point to the listeners."""
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
    """Says that nothing is wrong yet."""
    return Problem(reasons.PENDING, message)


# --- backends --------------------------------------------------------------------------------------------------------


def policy_unreadable(policy: Key, why: str) -> Problem:
    return invalid(f"{policy} could not be read: {why}", policy, missing=(policy,))


def invalid_backend_tls(backend: Key, port: int, problem: Problem) -> Problem:
    """Reports a backend that is refused because of its TLS. Where no policy is at fault the reason stays."""
    kept = problem.reason in (reasons.PLAINTEXT_NOT_PERMITTED, reasons.POLICIES_UNKNOWN)
    reason = problem.reason if kept else reasons.INVALID_BACKEND_TLS
    return problem.within(f"backend {backend.path}:{port}", reason=reason)


def policies_unknown(unknown: Unknown, namespace: str) -> Problem:
    """Reports a backend that is closed because a BackendTLSPolicy may name it that has not been read."""
    message = f"closed, because it is not known whether a BackendTLSPolicy names it: {unknown.why}"
    unnamed = Key("BackendTLSPolicy", namespace, "")
    return Problem(reasons.POLICIES_UNKNOWN, message, remedy=unknown.remedy, missing=(unnamed,))


def internal_error() -> Problem:
    """Stands for what a query that raised should have made."""
    return Problem(reasons.INTERNAL_ERROR, CRASHED)
