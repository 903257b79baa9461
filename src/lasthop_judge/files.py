"""Judges a gateway outside a cluster: objects are files in a folder, the backend is a child process, only traffic counts."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

from lasthop_judge import backend
from lasthop_judge.cases import ALL
from lasthop_judge.certificates import Issuer
from lasthop_judge.model import CABundle, Case, GatewayRole, Json, Policy, RouteType, Serving
from lasthop_judge.objects import (
    API,
    RunSettings,
    as_yaml,
    backend_key,
    hostname_of,
    listener_of,
    path_of,
    serving_document,
)
from lasthop_judge.trial import JudgeError

LOOPBACK: Final = str(IPv4Address("127.64.0.0") + os.getpid() % (1 << 22))
"""Address of the backend, different for each process: a program that still polls a free port of 127.0.0.1 would be recorded as
plaintext of the gateway."""
COMMON: Final = "judge.yaml"


class BackendProcess:
    def __init__(self, process: subprocess.Popen[str], listening: Json) -> None:
        self.process = process
        self.control = int(listening["control"])
        self.ports: dict[str, int] = listening["ports"]


def backend_config(servings: Mapping[str, Serving], issuer: Issuer, host: str, control: int, first: int) -> Json:
    """`first` is the port of the first serving; 0: every port is a free one."""
    ports = {
        key: {"port": first + number if first else 0, "serving": serving_document(serving, issuer)}
        for number, (key, serving) in enumerate(servings.items())
    }
    return {"host": host, "control": control, "ports": ports}


@contextlib.contextmanager
def backend_process(servings: Mapping[str, Serving], issuer: Issuer) -> Iterator[BackendProcess]:
    """Runs the backend on free ports of this machine."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(backend_config(servings, issuer, LOOPBACK, 0, 0), file)
        file.flush()
        command = [sys.executable, backend.__file__, file.name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            yield BackendProcess(process, json.loads(_line(process.stdout)))
        finally:
            process.terminate()
            process.wait(10)
            if process.stdout:
                process.stdout.close()


def _line(output: IO[str] | None) -> str:
    line = output.readline() if output else ""
    if not line:
        raise RuntimeError("the backend ended before it listened; see its message above")
    return line


class FilesTestbed:
    """Writes one file per case; a change rewrites the file."""

    has_status = False
    rejected: Mapping[str, JudgeError] = MappingProxyType({})

    def __init__(self, folder: Path, settings: RunSettings, control: int) -> None:
        self.folder, self.settings, self._control = folder, settings, control
        self._files: dict[str, dict[tuple[str, str], Json]] = {}
        self._owners: dict[tuple[str, str], str] = {}

    def write(self, cases: Sequence[Case]) -> None:
        """Writes everything, before the gateway starts or while it runs, and removes the cases of an earlier run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in {_file(case) for case in ALL} - {_file(case) for case in cases}:
            (self.folder / file).unlink(missing_ok=True)
        self._add(COMMON, [*self._class(), self._namespace(), *self.settings.common(cases)])
        for case in cases:
            self._add(_file(case), self.settings.documents(case))

    def _class(self) -> Iterator[Json]:
        for controller in self.settings.adapter.controllers[:1]:
            metadata = {"name": self.settings.gateway_class}
            yield {"apiVersion": API, "kind": "GatewayClass", "metadata": metadata, "spec": {"controllerName": controller}}

    def _namespace(self) -> Json:
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.settings.namespace}}

    def _add(self, file: str, documents: Sequence[Json]) -> None:
        touched = set()
        for document in documents:
            key = (document["kind"], document["metadata"]["name"])
            owner = self._owners.setdefault(key, file)
            self._files.setdefault(owner, {})[key] = document
            touched.add(owner)
        for changed in touched:
            self._save(changed)

    def _save(self, file: str) -> None:
        """Replaces a file atomically, so that a gateway never reads half of it."""
        path = self.folder / file
        new = path.with_name(f".{file}.new")
        new.write_text(as_yaml([*self._files[file].values()]))
        new.rename(path)

    async def put(self, case: Case, documents: Sequence[Json]) -> None:
        with _as_judge_errors():
            self._add(_file(case), documents)

    async def remove(self, case: Case, documents: Sequence[Json]) -> None:
        for document in documents:
            key = (document["kind"], document["metadata"]["name"])
            owner = self._owners.pop(key)
            del self._files[owner][key]
            with _as_judge_errors():
                self._save(owner)

    async def status(self, kind: str, name: str) -> Json:
        raise NotImplementedError("files have no status")

    async def write_status(self, kind: str, name: str, status: Json) -> bool:
        return False

    async def records(self, key: str) -> list[Json]:
        records: list[Json] = await asyncio.to_thread(self._call, "GET", f"/records/{key}", None)
        return records

    async def serve(self, key: str, serving: Json) -> None:
        await asyncio.to_thread(self._call, "POST", f"/serve/{key}", serving)

    def _call(self, method: str, path: str, body: Json | None) -> list[Json]:
        connection = http.client.HTTPConnection(LOOPBACK, self._control, timeout=30)
        with contextlib.closing(connection), _as_judge_errors():
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            content = json.loads(response.read())
            if response.status != 200:
                raise JudgeError(f"the backend's control port answers {response.status} to {path}: {content}")
            return content  # type: ignore[no-any-return]

    def address(self, role: GatewayRole, listener: str) -> tuple[str, int]:
        return self.settings.bind, self.settings.listeners[role, listener]

    def repro_commands(self, case: Case, policy: Policy | None, service: str) -> tuple[str, ...]:
        address = self.address(self.settings.gateway_of(case), listener_of(case))
        port = self.settings.ports.get(backend_key(case, service, case.port), 0)
        file = self.folder.absolute() / _file(case)

        def anchors(bundle: CABundle) -> str:
            document = f"/^  name: {case.slug}-{bundle.name}$/,/^---$/"
            if bundle.kind == "Secret":
                return f"sed -n '{document}s/^  ca.crt: //p' {file} | base64 -d"
            return f"sed -n '{document}{{s/^ *//;/BEGIN CERT/,/END CERT/p}}' {file}"

        return (*curl(case, address, path_of(service, case.port)), *openssl(case, policy, (LOOPBACK, port), anchors))


@contextlib.contextmanager
def _as_judge_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise JudgeError(f"this machine failed, not the gateway: {error or type(error).__name__}") from error


def _file(case: Case) -> str:
    return f"{case.slug}.yaml"


def curl(case: Case, address: tuple[str, int], path: str) -> tuple[str, ...]:
    """Returns commands that send the case's request."""
    host, port = address
    name = hostname_of(case)
    match case.via:
        case RouteType.HTTPS:
            return (f"curl -vk --resolve {name}:{port}:{host} https://{name}:{port}{path}",)
        case RouteType.TLS:
            return (
                f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -connect {host}:{port} -servername {name}",
            )
        case RouteType.UDP:
            return ()
        case RouteType.TCP:
            return (f"curl -v http://{host}:{port}/",)
        case RouteType.GRPC:
            return (f"grpcurl -plaintext -authority {name} -d '' {host}:{port} judge.Case/Ask",)
        case RouteType.WEBSOCKET:
            upgrade = (
                "-H 'connection: upgrade' -H 'upgrade: websocket' -H 'sec-websocket-version: 13' -H 'sec-websocket-key: eA=='"
            )
            return (f"curl -v --http1.1 {upgrade} -H 'Host: {name}' http://{host}:{port}{path}",)
    return (f"curl -v -H 'Host: {name}' http://{host}:{port}{path}",)


def openssl(
    case: Case, policy: Policy | None, address: tuple[str, int], anchors: Callable[[CABundle], str]
) -> tuple[str, ...]:
    """Returns commands that verify the backend by the policy. `anchors` returns a command that prints a CA bundle."""
    host, port = address
    if not policy or not port:
        return ()
    names = [name for name in policy.sans if "://" not in name] if policy.sans else [policy.hostname]
    checked = f" -verify_hostname {names[0]}" if names else ""
    parts = (*case.bundles, *(part for step in case.steps for part in step.put))
    bundles = {part.name: part for part in parts if isinstance(part, CABundle) and part.key == "ca.crt"}
    commands = [anchors(bundles[ref.name]) for ref in policy.refs if ref.name in bundles]
    ca_option = " -CAfile ca.crt" if commands else ""
    shown = f"openssl s_client -connect {host}:{port} -servername {policy.hostname}{checked}{ca_option}"
    return (
        *([f"({'; '.join(commands)}) > ca.crt"] if commands else []),
        f"{shown} -verify_return_error -showcerts </dev/null",
    )
