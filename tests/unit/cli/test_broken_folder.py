"""Commands on a folder with unreadable files: the effect of a first start, and the running gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.folders import config_map, good_folder, lasthop, policy, write

UNREADABLE = ["kind: [\n", policy().replace("targetRefs:", "targets:"), "\t\n\x00"]
"""Files that may hold a policy whose targets nobody can tell."""


@pytest.fixture(params=UNREADABLE, ids=["no YAML", "no targets", "no text"])
def cold(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return write(tmp_path / "objects", policy=request.param, ca=config_map())


def test_audit_calls_nothing_plaintext_that_a_start_would_withhold(cold: Path) -> None:
    hops = json.loads(lasthop("audit", cold, "-o", "json").stdout)["hops"]
    assert {hop["manner"] for hop in hops} == {"failing closed"}
    assert all("an unread BackendTLSPolicy may target this port: " in hop["detail"] for hop in hops)
    assert all("policy.yaml:" in hop["detail"] and "cannot be fully read" in hop["detail"] for hop in hops)
    assert lasthop("audit", cold, "--fail-on", "plaintext").exit_code == 1  # not everything could be looked at
    assert lasthop("audit", cold, "--fail-on", "failing-closed").exit_code == 3


def test_explain_says_what_is_withheld_and_why(cold: Path) -> None:
    shown = lasthop("explain", "httproute", "api", "--dir", cold).stdout
    assert "an unread BackendTLSPolicy may target this port" in shown
    assert "plaintext" not in shown


def test_check_says_it_once_where_it_is_broken(cold: Path) -> None:
    findings = json.loads(lasthop("check", cold, "-o", "json").stdout)["findings"]
    assert {Path(finding["file"]).name for finding in findings} == {"policy.yaml"}
    follows = [follow for finding in findings for follow in finding["follows"]]
    assert any("an unread BackendTLSPolicy" in follow["message"] for follow in follows)


def test_a_folder_that_can_be_read_withholds_nothing(tmp_path: Path) -> None:
    hops = json.loads(lasthop("audit", good_folder(tmp_path / "objects"), "-o", "json").stdout)["hops"]
    assert {hop["manner"] for hop in hops} == {"verified", "plaintext"}
