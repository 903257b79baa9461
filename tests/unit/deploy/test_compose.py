"""deploy/compose.yaml fits the image that deploy/Dockerfile builds."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.folders import lasthop

ROOT = Path(__file__).parents[3]


def test_the_container_runs_a_command_that_exists_as_the_images_user_with_nothing_to_write_but_its_own() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    service = compose["services"]["lasthop"]
    name, command, *args = service["command"]
    assert name == "lasthop"
    assert "--admin" in lasthop(command, "--help").output
    assert args[0] == service["volumes"][0].split(":")[1]
    made = re.search(r"install -d .* (/\S+)$", dockerfile, re.MULTILINE)
    assert made
    assert service["volumes"][1].split(":")[1] == made[1], "a volume has the owner of the folder that it is mounted on"
    (writable,) = service["tmpfs"]
    assert Path(service["environment"]["LASTHOP_RUN_DIR"]).parent == Path(writable)
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
