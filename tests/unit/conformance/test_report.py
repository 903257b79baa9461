from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.releases import CURRENT, RELEASES
from conformance.report import publish
from conformance.suite import profiles_of


def mk_report(channel: str = "experimental", *levels: str, release: str = "v1.7.0") -> bytes:
    """`levels`: results of the levels of one profile."""
    level = [{"result": result, "statistics": {}} for result in levels or ("success", "success")]
    profile: dict[str, Any] = {"name": "GATEWAY-HTTP", **dict(zip(("core", "extended"), level, strict=False))}
    content = {
        "gatewayAPIChannel": channel,
        "gatewayAPIVersion": release,
        "implementation": {"project": "lasthop", "version": "v0.1.0", "url": "https://lasthop.example"},
        "mode": "default",
        "profiles": [profile] if levels != ("setup failed",) else [],
    }
    return yaml.safe_dump(content).encode()


def test_a_report_is_filed_unmodified_where_upstream_looks_for_it(tmp_path: Path) -> None:
    report = mk_report()
    assert publish(report, tmp_path) == tmp_path / "v1.7" / "lasthop" / "experimental-v0.1.0-default-report.yaml"
    assert (tmp_path / "v1.7/lasthop/experimental-v0.1.0-default-report.yaml").read_bytes() == report


def test_the_readme_has_a_row_for_each_report_and_says_how_to_reproduce_it(tmp_path: Path) -> None:
    for channel in ("standard", "experimental"):
        publish(mk_report(channel), tmp_path)
    text = (tmp_path / "v1.7/lasthop/README.md").read_text()
    rows = [line for line in text.splitlines() if "report.yaml" in line]
    link = "[v0.1.0 report](./experimental-v0.1.0-default-report.yaml)"
    assert rows[0] == f"| experimental | [v0.1.0](https://lasthop.example) | default | {link} |"
    assert len(rows) == 2 and "## Reproduce" in text and "make conformance" in text


def test_the_report_of_another_release_says_how_that_suite_is_run(tmp_path: Path) -> None:
    publish(mk_report(release="v1.6.3"), tmp_path)
    text = (tmp_path / "v1.6/lasthop/README.md").read_text()
    assert "\nmake conformance SUITE=v1.6.3 CHANNEL=standard\n" in text and "CoreDNS" in text


@pytest.mark.parametrize("levels", [("failure",), ("success", "failure"), ("setup failed",)])
def test_a_report_of_a_failure_is_not_published(levels: tuple[str, ...], tmp_path: Path) -> None:
    assert publish(mk_report("standard", *levels), tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_profiles_are_those_of_the_kinds_that_are_claimed() -> None:
    assert profiles_of(CURRENT, ["Gateway", "HTTPRoute", "TCPRoute"]) == ["GATEWAY-HTTP", "GATEWAY-TCP"]
    assert profiles_of(RELEASES["v1.5.1"], ["HTTPRoute", "UDPRoute"]) == ["GATEWAY-HTTP"], "it has no profile for UDP"
