"""Lists the contents of an image as CycloneDX 1.6: Debian's and Python's packages in its file system.

The list is read from the finished file system, not from the requested packages. Equal input gives equal bytes.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def sbom(root: Path, name: str, version: str, epoch: int) -> str:
    components = sorted((*debian(root), *python(root)), key=lambda component: component["purl"])
    subject = {"type": "container", "bom-ref": "image", "name": name, "version": version}
    content = {
        "metadata": {
            "timestamp": f"{datetime.datetime.fromtimestamp(epoch, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": subject,
        },
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [component["bom-ref"] for component in components]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1, **content}
    return json.dumps(document, indent=2) + "\n"


def debian(root: Path) -> Iterator[Component]:
    """Yields the installed packages of dpkg's database."""
    release = _os_release(root)
    for entry in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = HeaderParser().parsestr(entry)
        if fields.get("Status", "").endswith(" installed"):
            name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
            distro = f"{release['ID']}-{release['VERSION_ID']}"
            purl = f"pkg:deb/{release['ID']}/{quote(name)}@{quote(version)}?arch={architecture}&distro={distro}"
            yield _component(name, version, purl)


def python(root: Path) -> Iterator[Component]:
    """Yields the installed distributions of the virtual environment."""
    for file in sorted(root.glob("opt/lasthop/lib/python3.*/site-packages/*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(file.read_text())
        name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
        component = _component(name, fields["Version"], f"pkg:pypi/{quote(name)}@{quote(fields['Version'])}")
        if expression := fields.get("License-Expression"):
            component["licenses"] = [{"expression": expression}]
        yield component


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _os_release(root: Path) -> dict[str, str]:
    lines = (root / "usr/lib/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines if "=" in line)}
