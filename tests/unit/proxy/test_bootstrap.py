"""The bootstrap, as Envoy itself sees it. That it works with xDS is shown by test_process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from lasthop.edge.proxy.binary import find_envoy
from lasthop.engine.outputs.envoy.bootstrap import bootstrap
from lasthop.engine.outputs.envoy.xds_cluster import LocalXds
from tests.certificates import Certificate
from tests.unit.proxy.static_envoy import tls_cluster


def made(folder: Path) -> dict[str, Any]:
    content = bootstrap(node_id="shop/web", xds=LocalXds(folder / "xds.sock"), admin_socket=folder / "admin.sock")
    result: dict[str, Any] = json.loads(content)
    return result


def complaints(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "bootstrap.json"
    path.write_text(json.dumps(config))
    command: list[str | Path] = [find_envoy().path, "--mode", "validate", "-c", path, "--log-level", "warning"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return checked.stderr if checked.returncode or checked.stderr else ""


def test_envoy_accepts_it_without_a_warning(folder: Path) -> None:
    assert complaints(folder, made(folder)) == ""


def test_equal_arguments_give_equal_bytes(folder: Path) -> None:
    assert json.dumps(made(folder)) == json.dumps(made(folder))


def test_the_pattern_of_the_longest_possible_name_is_accepted(folder: Path) -> None:
    labels = [letter * 61 for letter in "abcd"]
    pattern = rf"(?i)({labels[0]}|\*)\.{labels[1]}\.{labels[2]}\.{labels[3]}"
    config = made(folder)
    common = {
        "validation_context": {
            "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"safe_regex": {"regex": pattern}}}]
        }
    }
    ca = Certificate("CA", ca=True).pem
    config["static_resources"]["clusters"].append(tls_cluster("long", 1, ca=ca, wants="x", common=common))
    assert complaints(folder, config) == ""
