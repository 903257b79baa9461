"""Resolves `caCertificateRefs`: trust anchors, at most one PinSet and at most one waiver.

    CAs (a union), or the system store                  chain, dates, names
    one PinSet                                          its pins, and chain, dates and names with its own CAs
    either of these + a waiver of Names or Expiry       all except the names or the dates
    a waiver of All                                     nothing
    anything else                                       the policy is invalid

An unusable reference that might have narrowed the trust (an unknown kind, a PinSet, a waiver, a revocation list) invalidates
the policy. Only a CA can be omitted, and only while another one remains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicyValidation, LocalObjectReference
from lasthop.base.api.profiles import GROUP
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid, invalid_kind, joined
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, Pins, Trust, Waiver
from lasthop.engine.resolve.settings import SYSTEM_STORE
from lasthop.engine.resolve.trust.certificates import trusted, union, weakest
from lasthop.engine.resolve.trust.pins import PinnedTrust, pinned
from lasthop.engine.resolve.trust.trust import CA_KINDS, KNOWN_CA_KINDS, OUT_OF_DATE, SYSTEM, bundle, dates, ref_state, revokes
from lasthop.engine.resolve.trust.waivers import waiver
from lasthop.engine.store.graph import Graph

CA: Final = "CA"
WELL_KNOWN: Final = SYSTEM.kind
WELL_KNOWN_FIELD: Final = "wellKnownCACertificates"
PIN_SET: Final = "PinSet"
WAIVER: Final = "VerificationWaiver"
NO_PINS: Final = Pins()
ORDER: Final = (reasons.INVALID_KIND, reasons.INVALID_CA_CERTIFICATE_REF)
"""The precedence of reasons in a condition; our own reasons follow."""


class Verification(msgspec.Struct, frozen=True):
    """The trust source with its bytes, the pins and the waiver, or their problems."""

    trust: Trust | None
    pins: Pins
    waiver: Waiver | None
    names: bool
    """Whether names are checked."""
    problem: Problem | None
    """Why the policy is invalid."""
    unresolved: Problem | None
    """The problem of unusable references."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


class _Entry(msgspec.Struct, frozen=True):
    ref: LocalObjectReference
    field: str
    inside: str = ""
    """The field inside the PinSet that contains the reference."""

    @property
    def place(self) -> str:
        return f"{self.field}: {self.inside}" if self.inside else self.field

    @property
    def kind(self) -> str:
        """The kind of the reference: CA, PinSet, waiver or system store; empty if unknown."""
        group, kind = self.ref.group, self.ref.kind
        if (group, kind) in CA_KINDS:
            return CA
        return kind if group == GROUP and not self.inside and kind in (PIN_SET, WAIVER, WELL_KNOWN) else ""

    def fault(self, problem: Problem) -> Problem:
        return problem.within(self.place).at(self.field)


class _References(msgspec.Struct, frozen=True):
    """The references by kind, with the PinSet and the waiver resolved."""

    entries: Sequence[_Entry]
    """The references in their order; `cas` also contains the references inside the PinSet."""
    pin_sets: Sequence[_Entry]
    waivers: Sequence[_Entry]
    well_known: Sequence[_Entry]
    cas: Sequence[_Entry]
    pinned: PinnedTrust | None
    waiver: Waiver | None

    @property
    def waived(self) -> Strength | None:
        return self.waiver.strength if self.waiver else None

    @property
    def system(self) -> bool:
        return bool(self.well_known) or bool(self.pinned and self.pinned.system)

    @property
    def only_pins(self) -> bool:
        return self.pinned is not None and self.pinned.only

    @property
    def names(self) -> bool:
        return self.waived not in (Strength.WAIVED_ALL, Strength.WAIVED_NAMES) and not self.only_pins


def verification(g: Graph, namespace: str, validation: BackendTLSPolicyValidation, field: str) -> Verification:
    """Resolves the references of a validation. `field` is its path in the object."""
    refs, fatal = _read(g, namespace, validation)
    usable: list[LocalObjectReference] = []
    omitted: list[Problem] = []
    warnings: list[str] = []
    for entry in refs.cas:
        state = ref_state(g, namespace, entry.ref)
        warnings += state.warnings
        # A waiver of Expiry permits anchors that are out of date.
        if state.problem is None or (refs.waived is Strength.WAIVED_EXPIRY and state.problem.reason in OUT_OF_DATE):
            usable.append(entry.ref)
        else:
            (fatal if revokes(g, namespace, entry.ref) else omitted).append(entry.fault(state.problem))
    anchors, pins = bool(usable) or not refs.cas, refs.pinned
    if pins and pins.leaves and not (pins.cas or pins.system):
        out_of_date, soon = dates(g, pins.anchors, f"PinSet {refs.pin_sets[0].ref.name}", "certificate")
        warnings += soon
        if out_of_date and refs.waived is not Strength.WAIVED_EXPIRY:
            omitted.append(refs.pin_sets[0].fault(out_of_date))
            anchors = False
    errors = [*_source(validation)] or [*_combination(refs), *_system(g, refs), *_unchecked(refs, validation)]
    problem = _problem(refs, [invalid(message) for message in errors], fatal, omitted, anchors)
    trust = None if problem else SYSTEM_STORE.of(g) if refs.system else _anchors(g, namespace, usable, pins)
    # Only a waiver of All permits an empty trust source.
    if not (problem or trust or refs.only_pins or refs.waived is Strength.WAIVED_ALL):
        problem = invalid("no trust anchor remains")
    faults = [*fatal, *omitted]
    where = f"{field}.{faults[0].field}" if faults else field
    return Verification(
        trust=trust,
        pins=pins.pins if pins else NO_PINS,
        waiver=refs.waiver,
        names=refs.names,
        problem=problem.at(where) if problem else None,
        unresolved=joined(faults, min((fault.reason for fault in faults), key=_rank)).at(where) if faults else None,
        warnings=tuple(warnings),
        notes=tuple(_notes(refs)),
    )


def _anchors(g: Graph, namespace: str, cas: list[LocalObjectReference], pins: PinnedTrust | None) -> Anchors | None:
    if cas:
        bundles = [bundle(g, namespace, ref) for ref in cas]
        return union(ca_bundle for ca_bundle in bundles if not isinstance(ca_bundle, Problem))
    return Anchors(pins.leaves, trusted(pins.anchors), weak=weakest(pins.anchors)) if pins and pins.leaves else None


def _read(g: Graph, namespace: str, validation: BackendTLSPolicyValidation) -> tuple[_References, list[Problem]]:
    """Groups the references by kind, and returns the problems of those that cannot be omitted."""
    entries = [_Entry(ref, f"caCertificateRefs[{n}]") for n, ref in enumerate(validation.ca_certificate_refs)]
    if validation.well_known_ca_certificates:
        well_known = LocalObjectReference(GROUP, WELL_KNOWN, validation.well_known_ca_certificates)
        entries.append(_Entry(well_known, WELL_KNOWN_FIELD))
    fatal: list[Problem] = []
    pins: list[PinnedTrust] = []
    waivers: list[Waiver] = []
    inner: list[_Entry] = []
    by_kind: dict[str, list[_Entry]] = {PIN_SET: [], WAIVER: [], WELL_KNOWN: [], CA: [], "": []}
    for entry in entries:
        kind = entry.kind
        by_kind[kind].append(entry)
        if kind not in (PIN_SET, WAIVER):
            continue
        key = Key(entry.ref.kind, namespace, entry.ref.name)
        match pinned(g, key) if kind == PIN_SET else waiver(g, key):
            case Problem() as problem:
                fatal.append(entry.fault(problem))
            case PinnedTrust() as pin_set:
                pins.append(pin_set)
                inside = f"PinSet {entry.ref.name},"
                inner += (_Entry(ref, entry.field, f"{inside} caCertificateRefs[{n}]") for n, ref in enumerate(pin_set.cas))
            case Waiver() as active_waiver:
                waivers.append(active_waiver)
    for entry in inner:
        by_kind[entry.kind].append(entry)
    refs = _References(
        entries=entries,
        pin_sets=by_kind[PIN_SET],
        waivers=by_kind[WAIVER],
        well_known=by_kind[WELL_KNOWN],
        cas=by_kind[CA],
        pinned=pins[0] if pins else None,
        waiver=waivers[0] if waivers else None,
    )
    return refs, [entry.fault(_unknown(entry)) for entry in by_kind[""]] + fatal


def _unknown(entry: _Entry) -> Problem:
    use = KNOWN_CA_KINDS if entry.inside else f"{KNOWN_CA_KINDS}, or a lasthop.dev PinSet"
    return invalid_kind(entry.ref.kind, entry.ref.group, f"a {use}")


def _source(validation: BackendTLSPolicyValidation) -> Iterator[str]:
    """Repeats the checks of admission on the sources of trust, because an API server may store objects that are older than the
    CRD. An empty list or string counts as a missing field (GEP-1897)."""
    refs, well_known = validation.ca_certificate_refs, validation.well_known_ca_certificates
    if refs and well_known:
        yield f"caCertificateRefs and {WELL_KNOWN_FIELD} exclude each other; remove one of them"
    if not refs and not well_known:
        yield f"no CAs are configured; set caCertificateRefs, or {WELL_KNOWN_FIELD}: System"


def _combination(refs: _References) -> Iterator[str]:
    if not (refs.pin_sets or refs.waivers or refs.well_known):
        return  # CAs alone
    cas = [entry for entry in refs.cas if not entry.inside]
    if cas and refs.well_known:
        yield "the system store cannot be combined with other CAs; use one of the two"
    if len(refs.pin_sets) > 1:
        yield "several PinSets are listed; put all pins into one"
    if len(refs.waivers) > 1:
        yield "several VerificationWaivers are listed; use one"
    if refs.pin_sets and (cas or refs.well_known):
        name = refs.pin_sets[0].ref.name
        yield f"PinSet {name} cannot be combined with CAs, because a list of CAs means any of them; put them into the PinSet"
    if refs.waiver is None:
        return
    if refs.waived is Strength.WAIVED_ALL and len(refs.entries) > len(refs.waivers):
        yield "a waiver of All must be the only reference, as nothing else would be checked; remove it or the other references"
    elif refs.waived is not Strength.WAIVED_ALL and len(refs.entries) == len(refs.waivers):
        virtual = f"{{group: {SYSTEM.group}, kind: {SYSTEM.kind}, name: {SYSTEM.name}}}"
        yield f"only a waiver is listed; add a CA, a PinSet or {virtual} for the remaining checks"
    elif refs.only_pins:
        yield "pins alone check neither names nor dates, so there is nothing to waive; remove the waiver"


def _system(g: Graph, refs: _References) -> Iterator[str]:
    unknown = [entry.ref.name for entry in refs.well_known if entry.ref.name != SYSTEM.name]
    if unknown:
        yield f"wellKnownCACertificates {unknown[0]} is unknown here; connections fail. Use System or caCertificateRefs"
    elif refs.system and SYSTEM_STORE.of(g) is None:
        yield "the proxy's host has no CA bundle; connections fail. Install one (ca-certificates) or use caCertificateRefs"


def _unchecked(refs: _References, validation: BackendTLSPolicyValidation) -> Iterator[str]:
    if validation.subject_alt_names and not refs.names:
        by = "pins alone cannot check them" if refs.waived is None else "the waiver waives them"
        yield f"subjectAltNames are set but not checked, because {by}; remove them"


def _rank(reason: str) -> int:
    return ORDER.index(reason) if reason in ORDER else len(ORDER)


def _problem(
    refs: _References, invalid_settings: list[Problem], fatal: list[Problem], omitted: list[Problem], anchors: bool
) -> Problem | None:
    everything = [*invalid_settings, *fatal, *omitted]
    if fatal:
        has_source = (refs.cas and anchors) or refs.well_known or refs.pinned or refs.waiver
        reason = reasons.INVALID if has_source else reasons.NO_VALID_CA_CERTIFICATE
        return joined(everything).within("connections fail", reason=reason)
    if invalid_settings:
        return joined(everything, reasons.INVALID)
    if not anchors:
        where = f"no valid {'CA' if refs.cas else 'certificate'} remains, connections fail"
        return joined(omitted).within(where, reason=reasons.NO_VALID_CA_CERTIFICATE)
    return None


def _notes(refs: _References) -> Iterator[str]:
    if refs.only_pins:
        yield f"PinSet {refs.pin_sets[0].ref.name} contains pins only, so the certificate's names and dates are not checked"
