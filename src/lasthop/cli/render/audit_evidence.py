"""Renders the audit as evidence: one row per hop with all facts for an auditor, as JSON, CSV, Markdown and HTML.

`ReportDocument` is the JSON, with the schema docs/audit.schema.json. docs/audit.md maps its fields to the controls of PCI DSS
and SOC 2. The other formats show the same rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.base.api.times import rfc3339
from lasthop.cli.render import audit_observed
from lasthop.cli.render.audit_report import DAY, AuditReport, detail_line, label, place, validity
from lasthop.engine.outputs.audit.audit import AuditInputs
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.verdict import Basis

VERSION: Final = 1
"""Increases when a field is removed or changes its meaning."""
TEMPLATE: Final = Path(__file__).with_name("audit.html")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Characters at the start of a cell that a spreadsheet may execute."""


class EvidencePart(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the parts of the report: field names as in Kubernetes objects."""


class CAEntry(EvidencePart, frozen=True):
    subject: str
    sha256: str


class WaiverEntry(EvidencePart, frozen=True):
    name: str
    waives: str
    reason: str
    owner: str
    expires: str | None


class HopEntry(EvidencePart, frozen=True):
    gateway: str
    kind: str
    """Kind of the backend: Service, ServiceImport or XBackend."""
    service: str
    port: int
    manner: str
    mode: str
    """The verification mode, as in metrics; for a waiver, the waived checks."""
    standing: str
    """The verification mode, or instead that connections fail, or that none was tried."""
    source: str
    detail: str
    cas: tuple[CAEntry, ...]
    system_cas: bool
    pins: tuple[str, ...]
    names: tuple[str, ...]
    min_tls_version: str
    """Empty: no TLS, or a policy that cannot be fulfilled."""
    max_tls_version: str
    revocation_lists: bool
    client_certificate: str
    client_certificate_sha256: str
    policy: str
    waiver: WaiverEntry | None
    acknowledged: str
    since: str | None
    """Time of the last change; null: before the record began, or without a record."""
    changed_by: str
    changed_objects: tuple[str, ...]
    routes: tuple[str, ...]
    observed: dict[str, Any] | None
    observed_tls_versions: tuple[str, ...]
    file: str
    line: int


class CertificateEntry(EvidencePart, frozen=True):
    role: str
    holder: str
    port: int | None
    subject: str
    not_before: str
    not_after: str
    days_left: int
    users: tuple[str, ...]
    file: str
    line: int


class RecordEntry(EvidencePart, frozen=True):
    complete_since: str | None
    head: str
    """The hash of the last entry of the record of changes."""
    faults: tuple[str, ...]


class ReportDocument(EvidencePart, frozen=True):
    version: int
    made_at: str
    where: str
    origin: str
    host: str
    lasthop: str
    inputs: AuditInputs
    record: RecordEntry | None
    counts: dict[str, int]
    hops: tuple[HopEntry, ...]
    certificates: tuple[CertificateEntry, ...]
    notes: tuple[str, ...]
    incomplete: tuple[str, ...]


def document(report: AuditReport) -> ReportDocument:
    history = report.history
    since = rfc3339(history.since) if history and history.since else None
    return ReportDocument(
        VERSION,
        rfc3339(report.now),
        report.where,
        report.origin,
        report.host,
        version("lasthop"),
        report.audit.inputs,
        RecordEntry(since, history.head, history.faults) if history else None,
        report.counts,
        tuple(_hop(report, hop) for hop in report.hops),
        tuple(_certificate(certificate, report.now) for certificate in report.certificates),
        report.notes,
        (*report.incomplete, *report.hidden),
    )


def _hop(report: AuditReport, hop: HopReport) -> HopEntry:
    basis, last, observed = hop.basis or Basis(versions=("", "")), report.last_change(hop), hop.observed
    return HopEntry(
        hop.gateway.path,
        hop.backend.kind,
        hop.backend.path,
        hop.port,
        hop.manner,
        hop.mode,
        audit_observed.standing(hop),
        hop.source,
        hop.detail,
        tuple(CAEntry(ca.subject, ca.sha256) for ca in basis.cas),
        basis.system,
        basis.pins,
        hop.names,
        *basis.versions,
        basis.revocation,
        basis.client_certificate,
        basis.client_sha256,
        hop.policy_path,
        _waiver(hop),
        hop.acknowledged,
        rfc3339(last.at) if last else None,
        last.by if last else "",
        last.objects if last else (),
        tuple(map(str, hop.routes)),
        audit_observed.document(observed) if observed else None,
        observed.tls_versions if observed else (),
        hop.file,
        hop.line,
    )


def _waiver(hop: HopReport) -> WaiverEntry | None:
    expires = rfc3339(hop.until) if hop.until else None
    return WaiverEntry(hop.waiver.path, hop.waives, hop.why, hop.owner, expires) if hop.waiver else None


def _certificate(certificate: CertificateReport, now: float) -> CertificateEntry:
    return CertificateEntry(
        certificate.role,
        str(certificate.holder),
        certificate.port or None,
        certificate.subject,
        rfc3339(certificate.not_before),
        rfc3339(certificate.not_after),
        int((certificate.not_after - now) // DAY),
        tuple(map(str, certificate.users)),
        certificate.file,
        certificate.line,
    )


def as_json(report: AuditReport) -> str:
    return msgspec.json.format(msgspec.json.encode(document(report)), indent=2).decode()


def schema() -> dict[str, Any]:
    return {"title": f"Report of lasthop audit, version {VERSION}", **msgspec.json.schema(ReportDocument)}


# --- as a table -------------------------------------------------------------------------------------------------------


Table = tuple[list[str], list[list[str]]]
"""Titles and rows."""


class EvidenceRow(NamedTuple):
    report: AuditReport
    hop: HopReport
    entry: HopEntry

    @property
    def waiver(self) -> WaiverEntry:
        return self.entry.waiver or WaiverEntry("", "", "", "", "")


COLUMNS: Final[dict[str, Callable[[EvidenceRow], str]]] = {
    "Gateway": lambda row: row.entry.gateway,
    "Backend": lambda row: row.hop.address,
    "How": lambda row: label(row.hop),
    "Why": lambda row: detail_line(row.hop, row.report.now),
    "CAs": lambda row: ", ".join(_cas(row.entry)),
    "Pins": lambda row: ", ".join(row.entry.pins),
    "Names": lambda row: " or ".join(row.entry.names),
    "Lowest TLS": lambda row: row.entry.min_tls_version,
    "Observed TLS": lambda row: ", ".join(row.entry.observed_tls_versions),
    "Client certificate": lambda row: row.hop.basis.shown if row.hop.basis else "",
    "Observed": lambda row: audit_observed.words(row.hop, row.report.now),
    "Since": lambda row: row.report.since(row.hop),
    "Changed by": lambda row: row.entry.changed_by,
    "Changed object": lambda row: ", ".join(row.entry.changed_objects),
    "Policy": lambda row: row.entry.policy,
    "Waiver": lambda row: row.waiver.name,
    "Reason": lambda row: row.waiver.reason,
    "Owner": lambda row: row.waiver.owner,
    "Ends": lambda row: "never" if row.waiver.expires is None else row.waiver.expires,
    "Acknowledged": lambda row: row.entry.acknowledged,
    "Routes": lambda row: ", ".join(row.entry.routes),
    "Place": lambda row: place(row.hop),
}
"""The columns of CSV, Markdown and HTML."""
HEADLINE: Final = ("Gateway", "Backend", "How", "Why", "Observed", "Since")
"""The columns that HTML shows side by side; the others follow below them."""


def _cas(entry: HopEntry) -> list[str]:
    return [f"{ca.subject} (SHA-256 {ca.sha256})" for ca in entry.cas] + ["the system's CAs"] * entry.system_cas


def _rows(report: AuditReport) -> list[dict[str, str]]:
    rows = [EvidenceRow(report, hop, _hop(report, hop)) for hop in report.hops]
    return [{title: cell(row) for title, cell in COLUMNS.items()} for row in rows]


def _filled(report: AuditReport) -> Table:
    """Returns the table without columns that are empty in every row."""
    rows = _rows(report)
    titles = [title for title in COLUMNS if any(row[title] for row in rows)]
    return titles, [[row[title] for title in titles] for row in rows]


def _renewals(report: AuditReport) -> Table:
    rows = [
        [
            certificate.subject,
            validity(certificate, report.now),
            str(certificate.role),
            certificate.place,
            ", ".join(map(str, certificate.users)),
            place(certificate),
        ]
        for certificate in report.certificates
    ]
    return ["Certificate", "Left", "Is", "In", "For", "Place"], rows


def _bad(hop: HopReport) -> bool:
    return hop.refused or bool(hop.waiver) or audit_observed.standing(hop) == audit_observed.FAILING


def as_csv(report: AuditReport) -> str:
    """Returns the table with the report's header in the last columns, so that a copied row keeps its origin."""
    written = io.StringIO()
    header = {**report.header, "Incomplete": "; ".join((*report.incomplete, *report.hidden))}
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([*COLUMNS, *header])
    writer.writerows([_inert(cell) for cell in (*row.values(), *header.values())] for row in _rows(report))
    return written.getvalue().rstrip("\n")


def _inert(cell: str) -> str:
    """Prevents a spreadsheet from executing users' texts."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def markdown(report: AuditReport) -> str:
    lines = ["# How backends are verified", "", f"{_escaped(str(report))}.", ""]
    lines += (f"- {name}: {_escaped(value)}" for name, value in report.header.items())
    lines += (f"- Not everything could be read: {_escaped(line)}." for line in (*report.incomplete, *report.hidden))
    if report.hops:
        lines += ["", *_markdown_table(*_filled(report), bold=[_bad(hop) for hop in report.hops])]
    if report.certificates:
        lines += ["", "## Certificates to renew", "", *_markdown_table(*_renewals(report))]
    lines += (line for note in report.notes for line in ("", note))
    return "\n".join(lines)


def _markdown_table(titles: list[str], rows: list[list[str]], bold: Sequence[bool] = ()) -> Iterator[str]:
    """Yields the lines of a table; `bold` marks the rows whose column How stands out."""
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for index, row in enumerate(rows):
        cells = [_escaped(cell) for cell in row]
        if bold and bold[index]:
            cells[titles.index("How")] = f"**{cells[titles.index('How')]}**"
        yield f"| {' | '.join(cells)} |"


def _escaped(value: str) -> str:
    """Escapes users' texts, such as a reason or a subject."""
    for character in "\\`*_{}[]<>|#":
        value = value.replace(character, f"\\{character}")
    return " ".join(value.split())


def html(report: AuditReport) -> str:
    """Returns one page without scripts, which prints on landscape paper."""
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE.read_text())
    return template.render(
        summary=str(report),
        header=report.header,
        incomplete=(*report.incomplete, *report.hidden),
        headline=HEADLINE,
        rows=list(zip(_rows(report), map(_bad, report.hops), strict=True)),
        renewals=_renewals(report) if report.certificates else None,
        notes=report.notes,
    )
