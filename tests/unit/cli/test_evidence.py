"""`lasthop audit` as evidence: the header, the CAs, the versions, since when and by whom, in every format."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from docs.generate import AUDIT_SCHEMA, audit_schema
from lasthop.base.api.meta import Key
from lasthop.cli.render import audit_evidence, audit_report
from lasthop.cli.render.audit_report import AuditReport, history
from lasthop.cli.render.sarif import sarif
from lasthop.engine.memory.causes import EditKind
from lasthop.engine.memory.record import Entry, Record, RecordedCause, chained
from lasthop.engine.outputs.audit.audit import Audit, AuditInputs
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import TrustedCA
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.plan.verdict import Basis
from tests.folders import config_map, good_folder, lasthop

NOW = 1_800_000_000.0
CA = TrustedCA("corp", "ab" * 32)
PROD, DEV = Key("Gateway", "edge", "prod"), Key("Gateway", "edge", "dev")
HOSTILE = ("=cmd|' /C calc'!A1", "+1", "-1", "@x", "<script>alert(1)</script>", "a | b", "**b**", 'x","y', "a\nb")


def mk_hop(gateway: Key = PROD, why: str = "", strength: Strength = Strength.VERIFIED) -> HopReport:
    basis = Basis(cas=(CA,), versions=("1.0", "1.3"))
    waiver = Key("VerificationWaiver", "shop", "w") if why else None
    service = Key("Service", "shop", "api")
    return HopReport(gateway, service, 443, strength, "CA corp", ("api.example",), basis, waiver=waiver, why=why)


def mk_report(*hops: HopReport, record: Record | None = None) -> AuditReport:
    audit = Audit(hops, (), AuditInputs(3, "cd" * 32))
    kept = history(record) if record else None
    return AuditReport(audit, "the cluster", "https://api.example:6443", NOW, 30, history=kept, host="desk")


def mk_record(*entries: Entry) -> Record:
    chain = tuple(chained((Entry(NOW - 900, "", "", 0, "", "", "", effect="Began"), *entries)))
    return Record(chain, chain[-1].hash)


def changed(at: float, *gateways: str, who: str = "kubectl") -> Entry:
    causes = (RecordedCause("GatewayProfile edge/prod", EditKind.CHANGED, who),)
    return Entry(at, "Service", "shop/api", 443, "verified", "waived", "x", gateways=gateways, causes=causes)


FORMATS = {
    "text": audit_report.text,
    "json": audit_evidence.as_json,
    "csv": audit_evidence.as_csv,
    "markdown": audit_evidence.markdown,
    "html": audit_evidence.html,
}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_the_header_the_ca_the_version_and_the_history(format: str) -> None:
    record = mk_record(changed(NOW - 60, "edge/prod", who="alice"))
    shown = html.unescape(FORMATS[format](mk_report(mk_hop(), record=record))).replace("\\", "")
    for part in ("https://api.example:6443", "desk", "cd" * 32, record.head, "corp", CA.sha256[:16], "1.0", "alice"):
        assert part in shown, part
    assert "GatewayProfile edge/prod" in shown


def test_sarif_has_the_header() -> None:
    report = mk_report(mk_hop(), record=mk_record())
    (run,) = json.loads(sarif(report))["runs"]
    assert run["properties"] == report.header and report.header["Made"]


def test_since_has_the_time_of_each_gateway() -> None:
    record = mk_record(changed(NOW - 60, "edge/dev"))
    report = mk_report(mk_hop(PROD), mk_hop(DEV), record=record)
    assert [report.since(hop) for hop in report.hops] == ["before 2027-01-15 07:45 UTC", "2027-01-15 07:59 UTC"]


@pytest.mark.parametrize("fields", [{"outside": Protocol.UDP}, {"outside": Protocol.PASSTHROUGH}, {"beyond": True}])
def test_since_is_not_known_of_what_the_record_does_not_have(fields: dict[str, Any]) -> None:
    hop = msgspec.structs.replace(mk_hop(), **fields)
    report = mk_report(hop, record=mk_record(changed(NOW - 60, "edge/prod")))
    assert report.since(hop) == "not known" and report.last_change(hop) is None


def test_without_a_record_since_is_not_known() -> None:
    report = mk_report(mk_hop())
    assert report.since(report.hops[0]) == "not known"
    assert json.loads(audit_evidence.as_json(report))["record"] is None


def test_an_edited_record_is_named_in_the_header() -> None:
    record = mk_record(changed(NOW - 60, "edge/prod"), changed(NOW - 30, "edge/prod"))
    cut = Record((record.entries[0], record.entries[2]), record.head)
    report = mk_report(mk_hop(), record=cut)
    assert report.header["Record of changes"].startswith("BROKEN: ")
    assert report.since(report.hops[0]) == "not known", "the last change may be one that is missing"


@pytest.mark.parametrize("why", HOSTILE)
def test_cells_stay_text(why: str) -> None:
    report = mk_report(mk_hop(why=why, strength=Strength.WAIVED_ALL))
    (row,) = csv.DictReader(io.StringIO(audit_evidence.as_csv(report)))
    assert row["Reason"].lstrip("'") == why and row["Reason"][0] not in "=+-@"
    assert "<script" not in audit_evidence.html(report)
    table = [line for line in audit_evidence.markdown(report).splitlines() if line.startswith("| edge/prod")]
    assert len(table) == 1 and not re.search(r"(?<!\\)<script| a \| b ", table[0])


def test_the_json_is_as_its_schema_says(tmp_path: Path) -> None:
    schema = json.loads(AUDIT_SCHEMA.read_text())
    assert AUDIT_SCHEMA.read_text() == audit_schema(), "make docs"
    validator = jsonschema_rs.validator_for(schema)
    record = mk_record(changed(NOW - 60, "edge/prod"))
    for report in (mk_report(), mk_report(mk_hop()), mk_report(mk_hop(why="x"), record=record)):
        validator.validate(json.loads(audit_evidence.as_json(report)))
    folder = good_folder(tmp_path)
    validator.validate(json.loads(lasthop("audit", folder, "-o", "json").stdout))


def test_the_digest_changes_with_every_object_and_not_with_the_files(tmp_path: Path) -> None:
    folder = good_folder(tmp_path)

    def digest() -> str:
        document: str = json.loads(lasthop("audit", folder, "-o", "json").stdout)["inputs"]["sha256"]
        return document

    before = digest()
    file = next(path for path in sorted(folder.glob("*.yaml")) if "kind: BackendTLSPolicy" in path.read_text())
    file.rename(folder / "other.yaml")
    assert digest() == before
    (folder / "more.yaml").write_text(config_map("more"))
    assert digest() != before


@pytest.mark.parametrize("strength", Strength)
@pytest.mark.parametrize("why", ["", *HOSTILE])
def test_html_shows_every_cell_of_the_csv(strength: Strength, why: str) -> None:
    report = mk_report(mk_hop(why=why, strength=strength), record=mk_record(changed(NOW - 60, "edge/prod", who="alice")))
    (row,) = csv.DictReader(io.StringIO(audit_evidence.as_csv(report)))
    page = html.unescape(audit_evidence.html(report))
    for title in audit_evidence.COLUMNS:
        assert f"<th>{title}</th>" in page or f"<dt>{title}</dt>" in page or not row[title], title
        assert row[title] in page or row[title].removeprefix("'") in page, title
