"""The contents of objects at the admin address, and their readers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from lasthop.web.app import serving
from lasthop.web.redaction import without_contents
from tests.certificates import Certificate
from tests.ports import free_port

CA = Certificate("ca", ca=True)


def config_map(**data: str) -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {key.replace("_", "."): text for key, text in data.items()},
    }


def telemetry(key: str) -> dict[str, Any]:
    return {"kind": "XTelemetryPolicy", "spec": {"provider": {"headers": [{"name": "x-honeycomb-team", "value": key}]}}}


async def test_only_the_socket_shows_contents_of_config_maps_and_header_values(tmp_path: Path) -> None:
    service = {"kind": "Service", "metadata": {"name": "a"}}
    told = [config_map(ca_crt=CA.pem, settings="hunter2"), service, telemetry("hunter3")]

    async def objects(kind: str | None) -> list[dict[str, Any]]:
        return told

    view: Any = SimpleNamespace(objects=objects, engine=None)
    port, socket = free_port(), tmp_path / "admin.sock"
    async with serving(view, f"127.0.0.1:{port}", socket):
        async with aiohttp.ClientSession() as anybody:
            by_tcp = await (await anybody.get(f"http://127.0.0.1:{port}/api/objects?kind=ConfigMap")).json()
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as owner:
            by_socket = await (await owner.get("http://localhost/api/objects?kind=ConfigMap")).json()
    assert by_tcp == [config_map(ca_crt=CA.pem, settings="<7 bytes, not shown>"), service, telemetry("[redacted]")]
    assert by_socket == told


@pytest.mark.parametrize(
    "text",
    [
        CA.key_pem,
        CA.pem + CA.key_pem,
        "root:x:0:0",
        f"# a comment\n{CA.pem}",
        CA.pem.replace("BEGIN CERTIFICATE", "BEGIN KEY"),
    ],
)
def test_a_ca_is_shown_only_if_it_is_nothing_but_certificates(text: str) -> None:
    assert without_contents(config_map(ca_crt=text))["data"] == {"ca.crt": f"<{len(text)} bytes, not shown>"}
    assert without_contents(config_map(ca_crt=CA.pem + CA.pem))["data"] == {"ca.crt": CA.pem + CA.pem}
