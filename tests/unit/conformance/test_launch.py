"""Paths in a container's root, as seen from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.node.launch import inside


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/run/lasthop", "run/lasthop"),
        ("/var/run/secrets/token", "run/secrets/token"),
        ("/lib/x", "usr/lib/x"),
        ("/var/up/etc/passwd", "etc/passwd"),
        ("/out/etc", "etc"),
        ("/not/there/yet", "not/there/yet"),
    ],
)
def test_links_of_an_image_never_lead_out_of_it(tmp_path: Path, path: str, expected: str) -> None:
    for folder in ("run", "var", "usr/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "var/up").symlink_to("../../..")
    (tmp_path / "out").symlink_to("/../..")
    assert inside(str(tmp_path), path) == str(tmp_path / expected)
