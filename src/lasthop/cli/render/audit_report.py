"""The result of `lasthop audit`: its hops, time and source, and its rendering for terminals."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

import click
import msgspec

from lasthop.base.api.times import rfc3339
from lasthop.cli.render import audit_observed
from lasthop.cli.render.report import count
from lasthop.cli.render.terminal import minute, wrapped
from lasthop.edge.probe.certificate_view import days_left
from lasthop.engine.memory.record import Entry, Record, RecordedHop
from lasthop.engine.outputs.audit.audit import STREAMS, Audit
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.audit.observed import leaves
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.plan.verdict import FAILING

DAY: Final = 86400.0
INDENT: Final = " " * 6
VERIFIED: Final = Strength.VERIFIED.group
WAIVED: Final = Strength.WAIVED_ALL.group
MEANING: Final[dict[str, str]] = {
    FAILING: "connections fail until it is fixed",
    WAIVED: "encrypted, but not fully verified",
    Strength.PLAINTEXT.group: "not encrypted",
    Strength.PINNED_ONLY.group: "by hash; names are not checked",
    Protocol.PASSTHROUGH: "TLS between client and backend, not verified by the Gateway",
    Protocol.UDP: "TLS is not possible",
    VERIFIED: "verified as the policy requires",
}
"""In order of urgency."""
ORDER: Final = {manner: number for number, manner in enumerate(MEANING)}
STANDINGS: Final[dict[str, str]] = {
    audit_observed.FAILING: "connections fail",
    **{manner: meaning for manner, meaning in MEANING.items() if manner != VERIFIED},
    audit_observed.UNTRIED: "not tried yet",
    VERIFIED: MEANING[VERIFIED],
}
"""MEANING with the observed states, in order of urgency."""
COLOURS: Final[dict[str, str]] = {
    **dict.fromkeys((audit_observed.FAILING, FAILING, WAIVED), "red"),
    **dict.fromkeys((VERIFIED, Strength.PINNED_ONLY.group), "green"),
}
ENDLESS: Final = float("inf")
UNRECORDED: Final = "not known"
UNREAD: Final = "not read"
"""Shown instead of the record of changes. A folder's record may be older than its files, and in a cluster the user may lack
the permission."""


class History(msgspec.Struct, frozen=True):
    last: Mapping[RecordedHop, Entry]
    """The last change of each hop; without an entry it is unknown."""
    since: float | None
    """Unix time from which the record is complete; None: not known."""
    head: str
    """The hash of the last entry."""
    faults: tuple[str, ...] = ()
    """Positions where its chain is broken."""

    def __str__(self) -> str:
        if self.faults:
            return f"BROKEN: {'; '.join(self.faults)}; head {self.head}"
        since = f"complete since {minute(self.since)}" if self.since else "its beginning is unknown"
        return f"{since}, head {self.head}"


def history(record: Record) -> History:
    return History(record.last_changes(), record.covered(), record.head, record.faults())


class AuditReport(msgspec.Struct, frozen=True):
    audit: Audit
    where: str
    """The folder, gateway or cluster that was audited."""
    origin: str
    """The same for a reader on another machine: an absolute path, or the address of an API server."""
    now: float
    expiring: int
    """Certificates with more remaining days than this are omitted."""
    incomplete: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Reasons why hops may be missing."""
    sort: str = "manner"
    history: History | None = None
    """None: there is no record."""
    host: str = ""
    """The machine on which the report was made."""

    @property
    def hops(self) -> tuple[HopReport, ...]:
        return self.audit.hops

    @property
    def certificates(self) -> list[CertificateReport]:
        certificates = sorted((*self.audit.certificates, *leaves(self.hops)), key=lambda certificate: certificate.order)
        return [certificate for certificate in certificates if certificate.due(self.now, self.expiring)]

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(hop.manner for hop in self.hops)
        return {manner: counted[manner] for manner in MEANING if counted[manner]}

    @property
    def causes(self) -> set[str]:
        """Returns the causes that `--fail-on` can match."""
        causes = {manner.replace(" ", "-") for manner in self.counts}
        causes |= {"waived-without-end" for hop in self.hops if hop.endless}
        causes |= {"failing" for hop in self.hops if audit_observed.standing(hop) in (audit_observed.FAILING, FAILING)}
        causes |= {"unverified" for hop in self.hops if audit_observed.unverified(hop)}
        return causes | ({"expiring"} if self.certificates else set())

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns a note that streams keep their first verification, if a hop is waived."""
        lasting = any(hop.waiver and route.kind in ("HTTPRoute", "GRPCRoute") for hop in self.hops for route in hop.routes)
        return (STREAMS,) if lasting else ()

    @property
    def standings(self) -> dict[str, int]:
        counted = Counter(audit_observed.standing(hop) for hop in self.hops)
        return {standing: counted[standing] for standing in STANDINGS if counted[standing]}

    def with_hops(self, hops: tuple[HopReport, ...]) -> AuditReport:
        return msgspec.structs.replace(self, audit=msgspec.structs.replace(self.audit, hops=hops))

    def sorted(self, by: str) -> AuditReport:
        hops = tuple(sorted(self.hops, key=lambda hop: (ORDERS[by](hop), ORDER[hop.manner], hop.order)))
        return msgspec.structs.replace(self.with_hops(hops), sort=by)

    def of_namespace(self, namespace: str) -> AuditReport:
        """Keeps hops that begin or end in this namespace; empty: all."""
        if not namespace:
            return self
        hops = (hop for hop in self.hops if namespace in (hop.gateway.namespace, hop.backend.namespace))
        held = (c for c in self.audit.certificates if any(key.namespace == namespace for key in (c.holder, *c.users)))
        return msgspec.structs.replace(
            self, audit=msgspec.structs.replace(self.audit, hops=tuple(hops), certificates=tuple(held))
        )

    def last_change(self, hop: HopReport) -> Entry | None:
        """Returns the last change of a hop; None: not recorded, or a later one may be missing."""
        where = RecordedHop(hop.gateway.path, hop.backend.kind, hop.backend.path, hop.port)
        record = self.history if hop.recorded else None
        return record.last.get(where) if record and not record.faults else None

    def since(self, hop: HopReport) -> str:
        """Returns `2026-11-16 10:00 UTC`, `before 2026-11-16 10:00 UTC`, or `not known`."""
        if last := self.last_change(hop):
            return minute(last.at)
        if not hop.recorded or self.history is None or self.history.since is None or self.history.faults:
            return UNRECORDED
        return f"before {minute(self.history.since)}"

    @property
    def header(self) -> dict[str, str]:
        history, inputs = self.history, self.audit.inputs
        return {
            "Made": rfc3339(self.now),
            "Of": f"{self.where} ({self.origin})" if self.origin != self.where else self.where,
            "By": f"lasthop {version('lasthop')} on {self.host}",
            "Inputs": f"{count(inputs.objects, 'object')}, SHA-256 {inputs.sha256}",
            "Record of changes": str(history) if history else UNREAD,
        }

    def __str__(self) -> str:
        if not self.hops and self.hidden:
            return f"the backends of the routes in {self.where} are unknown"
        if not self.hops:
            return f"no route refers to a backend in {self.where}"
        standings = ", ".join(f"{number} {manner}" for manner, number in self.standings.items())
        gateways = len({hop.gateway for hop in self.hops})
        soon = f"; {count(len(self.certificates), 'certificate')} to renew" if self.certificates else ""
        return f"{count(len(self.hops), 'hop')} from {count(gateways, 'Gateway')} in {self.where}: {standings}{soon}"


ORDERS: Final[dict[str, Callable[[HopReport], Any]]] = {
    "manner": lambda hop: list(STANDINGS).index(audit_observed.standing(hop)),
    "gateway": lambda hop: hop.gateway.path,
    "backend": lambda hop: (hop.backend.kind, hop.backend.path, hop.port),
    "policy": lambda hop: hop.policy_path or "~",
    "until": lambda hop: hop.until or ENDLESS,
}
GROUPS: Final[dict[str, Callable[[HopReport], str]]] = {
    "manner": audit_observed.standing,
    "gateway": lambda hop: str(hop.gateway),
    "backend": lambda hop: str(hop.backend),
    "policy": lambda hop: str(hop.policy or "no policy"),
    "until": lambda hop: "ends by itself" if hop.until else "without an end",
}


def label(hop: HopReport) -> str:
    """Returns the verification of a hop. It is "verified" only after a verified handshake, or if nothing observes the hop."""
    if hop.in_effect is Strength.PINNED_ONLY:
        return f"{hop.manner} (no name check)"
    how = hop.manner if audit_observed.standing(hop) == hop.manner else hop.required
    return f"{how} ({hop.source})" if hop.source else how


def validity(certificate: CertificateReport, now: float) -> str:
    """Returns `not valid before 2027-01-01`, or the days that are left."""
    return (
        f"not valid before {rfc3339(certificate.not_before)[:10]}"
        if now < certificate.not_before
        else days_left(certificate.not_after, now)
    )


def detail_line(hop: HopReport, now: float) -> str:
    """Returns the verification of a hop in one line, with the remaining days of a waiver."""
    return f"{hop.detail} ({days_left(hop.until, now)})" if hop.until else hop.detail


# --- for a terminal --------------------------------------------------------------------------------------------------


def text(report: AuditReport) -> str:
    blocks = [
        "\n".join(_group(report, title, list(hops))) for title, hops in itertools.groupby(report.hops, key=GROUPS[report.sort])
    ]
    if report.certificates:
        blocks.append("\n".join(_expiring(report)))
    blocks += ["\n".join(wrapped(f"Note: {note}")) for note in report.notes]
    bad = report.standings.keys() & {audit_observed.FAILING, FAILING, WAIVED}
    header = "\n".join(line for name, value in report.header.items() for line in wrapped(f"{name}: {value}", "", "  "))
    return "\n\n".join([*blocks, header, click.style(str(report), bold=True, fg="red" if bad else None)])


def _group(report: AuditReport, title: str, hops: list[HopReport]) -> Iterator[str]:
    by_manner = report.sort == "manner"
    meaning = f": {STANDINGS[title]}" if by_manner else ""
    colour = COLOURS.get(title, "yellow") if by_manner else None
    yield f"{click.style(f'{title} ({len(hops)})', bold=True, fg=colour)}{meaning}"
    for hop in hops:
        standing = audit_observed.standing(hop)
        how = click.style(label(hop), fg=COLOURS.get(standing, "yellow"))
        yield f"  {hop.gateway.path} -> {hop.address}  {how}"
        yield from wrapped(detail_line(hop, report.now), INDENT, INDENT)
        if observations := audit_observed.words(hop, report.now):
            colour = "red" if standing == audit_observed.FAILING else None
            yield from (click.style(line, fg=colour) for line in wrapped(f"observed: {observations}", INDENT, INDENT))
        for shown in audit_observed.shown_certificates(hop, report.now):
            yield from wrapped(shown, INDENT, INDENT)
        if basis := _basis(report, hop):
            yield from wrapped(basis, INDENT, INDENT)
        by = "; ".join(map(str, filter(None, (hop.policy, *hop.routes, place(hop)))))
        yield from (click.style(line, dim=True) for line in wrapped(by, INDENT, INDENT))


def _basis(report: AuditReport, hop: HopReport) -> str:
    """Returns the CAs with their fingerprints, the lowest TLS version, and the time and author of the last change."""
    parts = []
    if hop.basis and not hop.refused:
        parts = [f"trusts {', '.join(map(str, hop.basis.cas))}"] if hop.basis.cas else []
        parts += [f"TLS {hop.basis.versions[0]} or later"]
    if report.history:
        parts += [f"since {report.since(hop)}{_edit(report.last_change(hop))}"]
    return "; ".join(parts)


def _edit(last: Entry | None) -> str:
    by = f", by {last.by}" if last and last.by else ""
    return f"{by} ({', '.join(last.objects)})" if last and last.objects else by


def _expiring(report: AuditReport) -> Iterator[str]:
    certificates = report.certificates
    title = click.style(f"certificates ({len(certificates)})", bold=True, fg="yellow")
    yield f"{title}: out of date, or within {count(report.expiring, 'day')}"
    for certificate in certificates:
        valid = certificate.not_before <= report.now < certificate.not_after
        left = click.style(validity(certificate, report.now), fg="yellow" if valid else "red")
        yield f"  {certificate.subject}  {left}"
        yield from wrapped(
            f"{certificate.role}, in {certificate.place}, until {rfc3339(certificate.not_after)[:10]}", INDENT, INDENT
        )
        by = "; ".join(map(str, filter(None, (*certificate.users, place(certificate)))))
        yield from (click.style(line, dim=True) for line in wrapped(by, INDENT, INDENT))


def place(report: HopReport | CertificateReport) -> str:
    return f"{report.file}:{report.line}" if report.file else ""
