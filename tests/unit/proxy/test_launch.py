"""The limits of an Envoy on its host."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lasthop.edge.proxy.binary import find_envoy
from lasthop.edge.proxy.launch import command, descriptors, set_limits


def test_it_leaves_no_core_dump_and_has_all_descriptors() -> None:
    """Its memory holds private keys."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            set_limits(process.pid)
            limits = Path(f"/proc/{process.pid}/limits").read_text()
        finally:
            process.kill()
    by_name = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
    assert by_name["Max core file size"] == ["0", "0"]
    assert by_name["Max open files"] == [str(descriptors())] * 2


def test_it_does_not_walk_through_every_update_for_deprecated_fields(tmp_path: Path) -> None:
    """It would log a line for each, at each edit of a route table; `test_emitted_fields.py` tests the sent fields."""
    assert "--ignore-unknown-dynamic-fields" in command(find_envoy(), tmp_path / "bootstrap.json", 1)
