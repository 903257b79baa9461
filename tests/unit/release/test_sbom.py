"""The list of an image's components."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from release.sbom import sbom

STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Version: 3.0.17-1~deb12u2

Package: python3
Status: install ok installed
Architecture: amd64
Version: 3.11.2-1+b1

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
LASTHOP = "Metadata-Version: 2.4\nName: lasthop\nVersion: 7\nLicense-Expression: Apache-2.0\n\nA: b\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    site = tmp_path / "opt/lasthop/lib/python3.11/site-packages"
    files = {
        tmp_path / "var/lib/dpkg/status": STATUS,
        tmp_path / "usr/lib/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian"\n',
        site / "lasthop-7.dist-info/METADATA": LASTHOP,
        site / "jsonschema_rs-0.60.dist-info/METADATA": "Name: jsonschema_rs\nVersion: 0.60\n",
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_installed_packages_of_both_kinds_are_listed_by_their_package_urls(root: Path) -> None:
    document = json.loads(sbom(root, "lasthop", "7", 0))
    assert [component["purl"] for component in document["components"]] == [
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12",
        "pkg:deb/debian/python3@3.11.2-1%2Bb1?arch=amd64&distro=debian-12",
        "pkg:pypi/jsonschema-rs@0.60",
        "pkg:pypi/lasthop@7",
    ]
    assert document["components"][-1]["licenses"] == [{"expression": "Apache-2.0"}]
    assert document["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    assert document["dependencies"][0]["dependsOn"] == [component["bom-ref"] for component in document["components"]]


def test_the_same_files_give_the_same_bytes_and_others_another_serial_number(root: Path) -> None:
    before = sbom(root, "lasthop", "7", 0)
    assert sbom(root, "lasthop", "7", 0) == before
    (root / "var/lib/dpkg/status").write_text(STATUS.partition("\n\n")[0])
    assert json.loads(sbom(root, "lasthop", "7", 0))["serialNumber"] != json.loads(before)["serialNumber"]
