"""Runs `lasthop run` on a folder as a separate process, and controls and queries it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import yaml
from click.testing import CliRunner

from lasthop.cli.main import main
from lasthop.edge.proxy.handle import find_envoys
from lasthop.engine.plan.request import read_request
from tests.backends import until
from tests.ports import free_port
from tests.proxy import documents
from tests.proxy.documents import Document

EXECUTABLE = Path(sys.executable).parent / "lasthop"
BACKEND_FAILURE = "The gateway could not make a verified connection to the backend.\n"
NO_ANSWER = "The gateway got no answer from the backend.\n"


def intended(tree: str) -> list[str]:
    """Returns the lines of an explanation without observations, which only a running gateway has."""
    return [line.lstrip("│├└─ ") for line in tree.splitlines() if "observed: " not in line]


class Answer(NamedTuple):
    status: int
    body: str


Conditions = dict[str, tuple[str, str, str]]


def conditions(document: Document, gateway: str = "web") -> Conditions:
    """Type -> (status, reason, message), of the object itself or of its entry for a Gateway."""
    status = document.get("status", {})
    for entry in (*status.get("parents", ()), *status.get("ancestors", ())):
        if (entry.get("parentRef") or entry.get("ancestorRef"))["name"] == gateway:
            status = entry
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions", ())}


class Lasthop:
    """Files: `root/objects`, `root/r` (sockets), `root/s` (state), `root/out`, `root/err`."""

    def __init__(self, root: Path, *args: str, env: dict[str, str] | None = None) -> None:
        self.root = root
        self.folder = root / "objects"
        self.folder.mkdir(exist_ok=True)
        self.admin = free_port()
        self.port = free_port()
        self.args = args or ("--concurrency", "1")
        self.env = {
            **os.environ,
            "LASTHOP_RUN_DIR": str(root / "r"),
            "LASTHOP_STATE_DIR": str(root / "s"),
            **(env or {}),
        }
        self.executable: list[str | Path] = [EXECUTABLE]
        self.process: subprocess.Popen[bytes] | None = None
        self._markers = 0

    # --- the process -------------------------------------------------------------------------------------------------

    def start(self, *, ready: bool = True) -> None:
        command = [*self.executable, "run", self.folder, "--admin", f"127.0.0.1:{self.admin}", *self.args]
        with (self.root / "out").open("ab") as out, (self.root / "err").open("ab") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=self.env)
        if ready:
            until(self.ready, "lasthop is ready")
            # Envoy acknowledges a listener a moment before it listens.
            until(lambda: self.get("nobody").status == 404, "the port is served")

    def ready(self) -> bool:
        assert self.process and self.process.poll() is None, self.log
        return self.ask("/readyz")[0] == 200

    def settled(self) -> bool:
        """Owners take turns, so the first served object need not be the first written one."""
        answer = json.loads(self.ask("/api/readiness")[1])
        return bool(answer["settled"] and answer["ready"])

    def stop(self) -> int:
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """As the kernel would: no chance to say goodbye."""
        assert self.process
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        """Stops everything that the test started, in any state."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.terminate()
                self.process.wait(20)
            if self.process.poll() is None:
                self.kill()
        for pid in self.envoys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def envoys(self) -> list[int]:
        envoys = find_envoys(self.root / "r")
        for running in envoys:
            running.close()
        return [running.pid for running in envoys]

    # --- the folder --------------------------------------------------------------------------------------------------

    def write(self, file: str, *documents: Document) -> None:
        (self.folder / file).write_text(yaml.safe_dump_all(documents, sort_keys=False))

    def load(self, file: str, *documents: Document) -> None:
        """Writes and waits until it is in force."""
        self.write(file, *documents)
        self.settle()

    def settle(self) -> None:
        """Waits until everything that was written before is in force: by a host that is served only from now on."""
        self._markers += 1
        name = f"marker-{self._markers}"
        self.write("marker.yaml", documents.route(name))
        until(lambda: self.get(name).status == 500, "a marker is served")
        until(self.settled, "everything is worked out and acknowledged")

    def standard(self, **gateway: Any) -> None:
        """A class and the Gateway `shop/web` with one HTTP listener, and with a hop so that its Envoy has a cluster."""
        self.write(
            "gateway.yaml",
            documents.gateway_class(),
            documents.namespace("shop"),
            documents.gateway("web", documents.http(self.port), **gateway),
            *documents.hop("first", 9),
        )

    # --- traffic -----------------------------------------------------------------------------------------------------

    def get(
        self, name: str, *, port: int = 0, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> Answer:
        """Sends a request for the host NAME.test on a new connection."""
        connection: http.client.HTTPConnection
        if tls:
            connection = http.client.HTTPSConnection("127.0.0.1", port or self.port, timeout=15, context=tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=15)
        with contextlib.closing(connection):
            connection.request("GET", "/", headers={"Host": f"{name}.test", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())

    def until_status(self, name: str, status: int, **settings: Any) -> Answer:
        def asked() -> Answer | None:
            answer = self.get(name, **settings)
            assert answer.status == status, f"{name}: {answer}"
            return answer

        answered: Answer = until(asked)
        return answered

    # --- what it says ------------------------------------------------------------------------------------------------

    def ask(self, path: str, host: str = "localhost") -> tuple[int, bytes]:
        """Of the admin address."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Host": host})
            response = connection.getresponse()
            return response.status, response.read()

    def objects(self, kind: str) -> dict[str, Document]:
        """By namespace/name."""
        listed = json.loads(self.ask(f"/api/objects?kind={kind}")[1])
        return {f"{d['metadata'].get('namespace', '')}/{d['metadata']['name']}": d for d in listed}

    def object(self, kind: str, path: str) -> Document:
        path = path if "/" in path else f"{documents.NAMESPACE}/{path}"
        objects = self.objects(kind)
        assert path in objects, f"no {kind} {path}"
        return objects[path]

    def conditions(self, kind: str, path: str, gateway: str = "web") -> Conditions:
        return conditions(self.object(kind, path), gateway)

    def explained(self, method: str, url: str, *headers: str, sni: str = "") -> Document:
        """Returns the output of `lasthop explain request` for a request at the only Gateway."""
        request = msgspec.json.encode(read_request(method, url, headers, sni)).decode()
        status, body = self.ask(f"/api/explain-request?{urlencode({'request': request})}")
        assert status == 200, body
        (document,) = json.loads(body)
        return dict(document)

    def findings(self) -> list[Document]:
        findings: list[Document] = json.loads(self.ask("/api/findings")[1])
        return findings

    @property
    def log(self) -> str:
        return (self.root / "err").read_text()

    def entries(self, name: str) -> list[Document]:
        """The access log's lines for the host NAME.test."""
        lines = (self.root / "out").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry.get("authority") == f"{name}.test"]

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as a separate process, and returns its result."""
        return subprocess.run([EXECUTABLE, *args], env=self.env, capture_output=True, text=True, timeout=30, check=False)

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """The same in this process, for commands that only ask: the start of a process takes longer than most of them."""
        environment = {name: self.env.get(name) for name in {*os.environ, *self.env}}
        result = CliRunner().invoke(main, args, env=environment, prog_name="lasthop")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(args, result.exit_code, result.stdout, result.stderr)
