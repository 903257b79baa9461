"""Runs a kubeconfig's credential plugin (`users[].user.exec`), like kubectl.

The plugin receives its input in KUBERNETES_EXEC_INFO and prints an ExecCredential.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from lasthop.base.api.documents import Json
from lasthop.edge.kubernetes.errors import ConfigError

GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
WITHOUT_A_TERMINAL: Final = 60.0
"""Seconds for a plugin without a terminal. With one it may wait for a person."""
QUOTED: Final = 300
"""Characters of a plugin's error output in messages."""


class Variable(msgspec.Struct):
    name: str
    value: str = ""


class Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["", "Never", "IfAvailable", "Always"] = ""


class ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: ExecStatus | None = None


def run(plugin: Exec, folder: Path, cluster: Json) -> ExecStatus:
    """Returns the plugin's credentials. A relative path starts at `folder`, the kubeconfig's. Raises `ConfigError`."""
    if plugin.api_version not in VERSIONS:
        supported = " or ".join(VERSIONS)
        raise ConfigError(f"exec plugin {plugin.command}: apiVersion {plugin.api_version} is not supported; use {supported}")
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise ConfigError(f"exec plugin {plugin.command} needs a terminal (interactiveMode: Always), and there is none")
    spec: Json = {"interactive": interactive, **({"cluster": cluster} if plugin.provide_cluster_info else {})}
    return _status(plugin, _output(plugin, folder, spec, interactive))


def _status(plugin: Exec, output: bytes) -> ExecStatus:
    try:
        credential = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"exec plugin {plugin.command} did not print an ExecCredential: {error}") from error
    if credential.api_version != plugin.api_version:
        raise ConfigError(f"exec plugin {plugin.command} printed {credential.api_version} instead of {plugin.api_version}")
    status = credential.status
    if status is None or not (status.token or status.client_certificate_data):
        raise ConfigError(f"exec plugin {plugin.command} printed neither a token nor a certificate")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(
            f"exec plugin {plugin.command} printed a certificate without its key, or a key without a certificate"
        )
    return status


def _output(plugin: Exec, folder: Path, spec: Json, interactive: bool) -> bytes:
    exec_info: Json = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    variables = {variable.name: variable.value for variable in plugin.env or ()}
    command = str(folder / plugin.command) if os.sep in plugin.command else plugin.command
    try:
        process = subprocess.run(
            [command, *(plugin.args or ())],
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": msgspec.json.encode(exec_info).decode()},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,  # a person reads the instructions, for example which page to open
            timeout=None if interactive else WITHOUT_A_TERMINAL,
        )
    except OSError as error:
        hint = plugin.install_hint and f"; {plugin.install_hint.strip()}"
        raise ConfigError(f"exec plugin {plugin.command} cannot be run: {error.strerror}{hint}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"exec plugin {plugin.command} did not exit within {WITHOUT_A_TERMINAL:.0f} s") from error
    if process.returncode:
        message = (process.stderr or b"").decode(errors="replace").strip()[:QUOTED]
        raise ConfigError(f"exec plugin {plugin.command} exited with code {process.returncode}{message and f': {message}'}")
    return process.stdout
