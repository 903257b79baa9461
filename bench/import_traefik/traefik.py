"""Runs Traefik on an API server of the tests, whose objects it watches like a cluster's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from conformance.build import Program
from tests.fake_api import FakeApi, serving
from tests.ports import free_port

VERSION: Final = "v3.7.13"
PROGRAM: Final = Program(
    "traefik", "traefik", "github.com/traefik/traefik/v3/cmd/traefik", modules=Path(__file__).parent / "go"
)
"""Without ACME: its stub stands in for a client with hundreds of dependencies."""
Json = dict[str, Any]
KINDS: Final = {
    "ingressroutes": "IngressRoute",
    "ingressroutetcps": "IngressRouteTCP",
    "ingressrouteudps": "IngressRouteUDP",
    "middlewares": "Middleware",
    "middlewaretcps": "MiddlewareTCP",
    "serverstransports": "ServersTransport",
    "serverstransporttcps": "ServersTransportTCP",
    "tlsoptions": "TLSOption",
    "tlsstores": "TLSStore",
    "traefikservices": "TraefikService",
}


@contextlib.contextmanager
def traefik(program: Path, root: Path, documents: Sequence[Json], static: Json) -> Iterator[int]:
    """Yields the port that Traefik listens on."""
    port = free_port()
    with _api(documents) as endpoint:
        provider = {"endpoint": endpoint, "disableClusterScopeResources": True}
        entry = {"web": {"address": f"127.0.0.1:{port}"}}
        config = {"entryPoints": entry, "providers": {"kubernetesCRD": provider}, "log": {"level": "DEBUG"}, **static}
        (root / "traefik.yaml").write_text(yaml.safe_dump({**config, "global": {"checkNewVersion": False}}))
        with (root / "traefik.log").open("wb") as log:
            process = subprocess.Popen([program, f"--configfile={root / 'traefik.yaml'}"], stdout=log, stderr=log, cwd=root)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(20)


@contextlib.contextmanager
def _api(documents: Sequence[Json]) -> Iterator[str]:
    """Serves the objects from a separate thread; yields the address."""
    api = FakeApi()
    api.kinds |= KINDS
    api.served |= {("traefik.io", "v1alpha1", plural) for plural in KINDS}
    plurals = {kind: plural for plural, kind in api.kinds.items()}
    for document in documents:
        api.put(plurals[document["kind"]], _stored(document))
    ready, loop = threading.Event(), asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with serving(api):
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield api.url
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)


def _stored(document: Json) -> Json:
    """Returns an object as an API server has it."""
    stored = copy.deepcopy(document)
    for key, text in stored.pop("stringData", {}).items():
        stored.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    return stored
