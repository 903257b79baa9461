"""`lasthop install` says into which cluster."""

from __future__ import annotations

from pathlib import Path

import trustme
from click.testing import CliRunner

from conformance import kubeconfig
from lasthop.cli.main import main
from tests.ports import free_port


def test_the_cluster_is_named_before_anything_is_done_to_it(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_port()}"
    path = kubeconfig.write(tmp_path / "config", server, trustme.CA().cert_pem.bytes(), "a token")
    result = CliRunner().invoke(main, ["install", "--kubeconfig", str(path)])
    assert result.exit_code == 1
    first, last = result.stderr.splitlines()
    assert first == f"Installing into the cluster of context lasthop of {path}"
    assert server in last and "applied" not in result.stdout
