"""The example of `make run`, without the Gateway: its certificates, its backends, its sentences."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from examples.quickstart import backends as demo
from examples.quickstart import certificates
from tests.ports import free_port

HERE = Path(demo.__file__).parent


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    chosen = {name: free_port() for name in demo.PORTS}
    monkeypatch.setattr(demo, "PORTS", chosen)
    return chosen


async def verdict(port: int, name: str, ca: Path) -> str:
    """Returns the result of a client that verifies as the policy requires."""
    context = ssl.create_default_context(cafile=ca)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.splitlines()[-1].decode()


async def test_one_backend_is_right_and_two_are_wrong_each_in_its_way(folder: Path, ports: dict[str, int]) -> None:
    certificates.ensure(folder)
    policies = [d for d in yaml.safe_load_all((HERE / "policy.yaml").read_text()) if d["kind"] == "BackendTLSPolicy"]
    async with demo.backends(folder):
        said = {
            policy["metadata"]["name"]: await verdict(
                ports[policy["metadata"]["name"]], policy["spec"]["validation"]["hostname"], folder / "ca.crt"
            )
            for policy in policies
        }
        assert await verdict(ports["wrong-name"], "old.example", folder / "ca.crt") == "Hello from wrong-name, over TLSv1.3"
    assert said == {
        "right": "Hello from right, over TLSv1.3",
        "wrong-name": "Hostname mismatch, certificate is not valid for 'new.example'.",
        "unknown-ca": "unable to get local issuer certificate",
    }


def test_the_yaml_points_at_the_ports_of_the_backends() -> None:
    slices = [d for d in yaml.safe_load_all((HERE / "backends.yaml").read_text()) if d["kind"] == "EndpointSlice"]
    assert {d["metadata"]["labels"]["kubernetes.io/service-name"]: d["ports"][0]["port"] for d in slices} == demo.PORTS


def test_certificates_are_kept_until_they_run_out_or_one_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates.ensure(folder)
    first = (folder / "ca.crt").read_bytes()
    assert (folder / "right.key").stat().st_mode & 0o777 == 0o600
    certificates.ensure(folder)
    assert (folder / "ca.crt").read_bytes() == first
    (folder / "unknown-ca.key").unlink()
    monkeypatch.setattr(certificates, "DAYS", 0)
    certificates.ensure(folder)
    second = (folder / "ca.crt").read_bytes()
    assert second != first
    certificates.ensure(folder)
    assert (folder / "ca.crt").read_bytes() != second, "it has run out"


async def test_a_taken_port_of_a_backend_gives_a_readable_error(folder: Path, ports: dict[str, int]) -> None:
    certificates.ensure(folder)
    sentence = rf"Port {ports['wrong-name']} of 127.0.0.1 is taken, .*`wrong-name`"
    with socket.create_server(("127.0.0.1", ports["wrong-name"])), pytest.raises(demo.PortTaken, match=sentence):
        async with demo.backends(folder):
            pass


def test_a_taken_port_of_the_gateway_ends_make_run_with_a_sentence() -> None:
    try:
        taken = socket.create_server(("127.0.0.1", 8080))
    except OSError:
        pytest.skip("port 8080 is in use")
    with taken:
        run = subprocess.run(
            [sys.executable, "-m", "examples.quickstart"],
            cwd=HERE.parent.parent,
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert run.returncode == 1
    assert "Port 8080 of 127.0.0.1 is taken, and the Gateway needs it." in run.stdout
    assert run.stderr == ""
