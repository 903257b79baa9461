"""Renders an audit, or another report, as SARIF 2.1.0, so that code scanners show each result at the line that causes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from lasthop.cli.render import audit_observed
from lasthop.cli.render.audit_observed import FAILING
from lasthop.cli.render.audit_report import AuditReport, detail_line, label, validity
from lasthop.cli.render.report import in_workspace
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.strength import Strength

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
EXPIRING: Final = "expiring-certificate"


class SarifRule(NamedTuple):
    title: str
    help: str
    level: str
    severity: str
    """Severity for GitHub, 0 to 10."""


RULES: Final = {
    "waived": SarifRule(
        "A backend's certificate is not fully verified",
        "Fix the certificate or pin it, then remove the VerificationWaiver.",
        "warning",
        "7.0",
    ),
    "plaintext": SarifRule(
        "A connection to a backend uses plaintext",
        "Create a BackendTLSPolicy for the port, or correct the sectionName of the one that misses it.",
        "warning",
        "7.0",
    ),
    "failing-closed": SarifRule("A backend cannot be reached", "Fix the problem in the message.", "error", "3.0"),
    "pinned-only": SarifRule(
        "A backend is verified by hash only", "Pin the whole certificate to verify its names and dates too.", "note", "2.0"
    ),
    "passthrough": SarifRule(
        "TLS to a backend is passed through", "Nothing to do, unless the Gateway should verify it.", "note", "1.0"
    ),
    "udp": SarifRule("A connection to a backend uses UDP", "Nothing to do: TLS is not possible.", "note", "1.0"),
    FAILING: SarifRule(
        "Connections to a backend fail",
        "See which check fails with lasthop probe, and fix the backend or its policy.",
        "error",
        "5.0",
    ),
    EXPIRING: SarifRule("A certificate expires", "Renew it, and add the new one beside the old one first.", "warning", "5.0"),
}
"""A verified hop yields no result."""


def sarif(report: AuditReport) -> str:
    results = [_of_hop(hop, report.now) for hop in report.hops if hop.in_effect is not Strength.VERIFIED]
    results += [_of_failing(hop, report.now) for hop in report.hops if audit_observed.standing(hop) == FAILING]
    results += [_of_certificate(certificate, report.now) for certificate in report.certificates]
    return document(RULES, results, (*report.incomplete, *report.hidden), report.header)


def document(
    rules: Mapping[str, SarifRule],
    results: list[dict[str, Any]],
    incomplete: Iterable[str],
    header: Mapping[str, str] | None = None,
) -> str:
    """Returns a complete document; `incomplete`: reasons why results may be missing."""
    lines = tuple(incomplete)
    run = {
        "tool": {
            "driver": {
                "name": "lasthop",
                "semanticVersion": version("lasthop"),
                "rules": [_rule(name, rule) for name, rule in rules.items()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not lines,
                "toolExecutionNotifications": [{"level": "error", "message": {"text": line}} for line in lines],
            }
        ],
        "results": results,
        **({"properties": header} if header else {}),
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(name: str, rule: SarifRule) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.title},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": rule.level},
        "properties": {"tags": ["security"], "security-severity": rule.severity},
    }


def _of_hop(hop: HopReport, now: float) -> dict[str, Any]:
    where = f"{hop.gateway} to {hop.backend}:{hop.port}"
    rule = hop.manner.replace(" ", "-")
    return result(RULES, rule, RULES[rule].level, f"{where}: {label(hop)}: {detail_line(hop, now)}", where, hop.file, hop.line)


def _of_failing(hop: HopReport, now: float) -> dict[str, Any]:
    where = f"{hop.gateway} to {hop.backend}:{hop.port}"
    message = f"{where}: {audit_observed.words(hop, now)}"
    return result(RULES, FAILING, RULES[FAILING].level, message, where, hop.file, hop.line)


def _of_certificate(certificate: CertificateReport, now: float) -> dict[str, Any]:
    level = "warning" if certificate.not_before <= now < certificate.not_after else "error"
    where = f"{certificate.role} {certificate.subject} in {certificate.place}"
    return result(RULES, EXPIRING, level, f"{where}: {validity(certificate, now)}", where, certificate.file, certificate.line)


def result(
    rules: Mapping[str, SarifRule], rule: str, level: str, message: str, where: str, file: str, line: int
) -> dict[str, Any]:
    """Returns a result; its subject `where` and its rule identify it."""
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": where, "kind": "resource"}]}
    if file:
        location["physicalLocation"] = {"artifactLocation": _artifact(file), "region": {"startLine": max(1, line)}}
    return {
        "ruleId": rule,
        "ruleIndex": list(rules).index(rule),
        "level": level,
        "message": {"text": message},
        "locations": [location],
        # Without the line: an edit above it does not make a new result.
        "partialFingerprints": {"lasthop/v1": hashlib.sha256(f"{rule} {where}".encode()).hexdigest()[:32]},
    }


def _artifact(file: str) -> dict[str, str]:
    """Returns a path relative to the repository's root, if the file is in it."""
    path = Path(in_workspace(file))
    if path.is_absolute() or ".." in path.parts:
        return {"uri": path.absolute().as_uri()}
    return {"uri": quote(path.as_posix()), "uriBaseId": "%SRCROOT%"}
