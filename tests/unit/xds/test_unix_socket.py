from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lasthop.edge.xds.unix_socket import claim, release
from tests.xds_envoy import short_directory


def test_the_directory_is_made_for_its_owner_only() -> None:
    with short_directory() as directory:
        claim(directory / "run" / "ads.sock")
        assert (directory / "run").stat().st_mode & 0o777 == 0o700


def test_a_socket_a_crash_has_left_is_replaced() -> None:
    with short_directory() as directory:
        path = directory / "ads.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        claim(path)
        assert not path.exists()


def test_a_socket_that_is_served_is_not_taken_away() -> None:
    with short_directory() as directory, socket.socket(socket.AF_UNIX) as alive:
        path = directory / "ads.sock"
        alive.bind(str(path))
        alive.listen()
        with pytest.raises(FileExistsError, match="another process"):
            claim(path)
        assert path.exists()


def test_a_file_other_than_a_socket_is_not_deleted() -> None:
    with short_directory() as directory:
        path = directory / "ads.sock"
        path.write_text("precious")
        with pytest.raises(FileExistsError, match="not a socket"):
            claim(path)


def test_a_path_too_long_for_a_socket_is_reported() -> None:
    with pytest.raises(ValueError, match="107 bytes"):
        claim(Path("/tmp") / ("x" * 120))


def test_release_does_not_mind_that_it_is_gone() -> None:
    with short_directory() as directory:
        release(directory / "ads.sock")
