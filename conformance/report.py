"""Stores the suite's report in upstream's layout: reports/<minor>/<implementation>/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from conformance.releases import CURRENT, RELEASES

REPORTS = Path(__file__).parent / "reports"
_README = """\
# Lasthop

A Gateway API implementation that drives Envoy and takes the last hop, from the gateway to the backend, seriously.

## Table of contents

| API channel | Implementation version | Mode | Report |
|-------------|------------------------|------|--------|
{rows}

## Reproduce

On a Linux machine with root and Python 3.11 or newer, in a checkout of the version:

```sh
make conformance{suite}                     # the experimental channel
make conformance{suite} CHANNEL=standard
```

It starts etcd, kube-apiserver and kube-controller-manager, installs the CRDs and Lasthop (`deploy/lasthop.yaml`), and runs the
suite, unmodified. Pods are processes in network namespaces; `conformance/README.md` says what that leaves out.
{note}
"""


def publish(report: bytes, reports: Path = REPORTS) -> Path | None:
    """Stores the report unchanged and returns its path, unless it contains a failure: upstream does not accept such a
    report."""
    content: dict[str, Any] = yaml.safe_load(report)
    profiles = content.get("profiles") or ()  # a failed Setup writes a report too, without any
    levels = [profile[level] for profile in profiles for level in ("core", "extended") if level in profile]
    if not levels or any(level.get("result") == "failure" for level in levels):
        return None
    implementation, mode = content["implementation"], content["mode"]
    minor = content["gatewayAPIVersion"].rpartition(".")[0]
    folder: Path = reports / minor / implementation["project"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{content['gatewayAPIChannel']}-{implementation['version']}-{mode}-report.yaml"
    path.write_bytes(report)
    release = RELEASES[content["gatewayAPIVersion"]]
    suite = "" if release == CURRENT else f" SUITE={release.version}"
    (folder / "README.md").write_text(_README.format(rows="\n".join(_rows(folder)), suite=suite, note=release.note))
    return path


def _rows(folder: Path) -> list[str]:
    rows = []
    for path in sorted(folder.glob("*-report.yaml")):
        content = yaml.safe_load(path.read_bytes())
        version, url = content["implementation"]["version"], content["implementation"]["url"]
        link = f"[{version} report](./{path.name})"
        rows.append(f"| {content['gatewayAPIChannel']} | [{version}]({url}) | {content['mode']} | {link} |")
    return rows
