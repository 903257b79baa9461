"""Tests an installed Lasthop: `run` on a folder, a request to a backend over verified TLS, and one that must be rejected."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.backends import backend
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop

Command = Callable[[Path], list[str | Path]]
"""The command that runs `lasthop`, given the folder that has its files, its sockets and its state."""


def trial(command: Command, env: dict[str, str] | None = None) -> None:
    """Fails if it does not serve, or if a policy that the backend does not match lets anything through."""
    with (
        tempfile.TemporaryDirectory(prefix="lh-") as folder,
        contextlib.closing(Lasthop(Path(folder), env=env)) as lasthop,
        backend(issued()) as right,
        backend(issued("old.example")) as wrong,
    ):
        lasthop.executable = command(lasthop.root)
        lasthop.standard()
        try:
            lasthop.start()
            lasthop.load(
                "objects.yaml",
                docs.config_map("ca", CA.pem),
                *docs.hop("right", right.port, docs.policy("right", "api.example", "ca")),
                *docs.hop("wrong", wrong.port, docs.policy("wrong", "api.example", "ca")),
            )
            assert lasthop.until_status("right", 200).body == right.name
            lasthop.until_status("wrong", 503)
        except Exception:
            print(lasthop.log)
            raise
        assert [seen.sni for seen in right.connections] == ["api.example"], right.connections
        assert all(not seen.plaintext and not seen.heads for seen in wrong.connections), wrong.connections
        print("It serves: a backend that matches its policy answers 200, one that does not 503.")
