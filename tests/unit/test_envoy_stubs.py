"""`stubs/`: current, and strict enough that mypy finds a misspelt field of one of Envoy's messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools import envoy_stubs

STUBS = envoy_stubs.ROOT / "stubs"


def texts(directory: Path) -> dict[Path, str]:
    return {path.relative_to(directory): path.read_text() for path in directory.rglob("*_pb2.pyi")}


def test_stubs_contain_the_messages_that_the_code_uses(tmp_path: Path) -> None:
    envoy_stubs.write(tmp_path)
    assert texts(tmp_path) == texts(STUBS), "run `make stubs`"


CODE = """\
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3 import base_pb2
from google.protobuf.duration_pb2 import Duration

cluster = Cluster(name="a", type=Cluster.EDS, connect_timeout=Duration(seconds=1), transport_socket=None)
cluster.transport_socket.CopyFrom(base_pb2.TransportSocket(name="b"))
cluster.typed_extension_protocol_options["c"].type_url = "d"
Cluster(conect_timeout=Duration(seconds=1))
Cluster(connect_timeout=1)
Cluster(lb_policy=Cluster.EDS)
Cluster(type=1)
cluster.transport_sockets.SetInParent()
cluster.transport_socket = base_pb2.TransportSocket()
cluster.transport_socket.CopyFrom(Duration())
"""


def test_a_misspelt_field_and_a_wrong_type_are_errors_for_mypy(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    command: list[str | Path] = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", tmp_path / "code.py"]
    result = subprocess.run(command, cwd=envoy_stubs.ROOT, capture_output=True, text=True)
    errors = {line.split(":")[1]: line for line in result.stdout.splitlines() if ": error:" in line}
    assert errors.keys() == {"8", "9", "10", "11", "12", "13", "14"}, result.stdout
    assert 'did you mean "connect_timeout"' in errors["8"]
