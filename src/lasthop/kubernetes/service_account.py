"""Reads the address and the token that every Pod has of its cluster.

Three files and two variables, so that a controller in a Pod does without the official client, which takes 0.1 s and 18 MB.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from lasthop.api.addresses import with_port
from lasthop.kubernetes.errors import ConfigError


class PodConfiguration(msgspec.Struct):
    """Has of a `kubernetes.client.Configuration` what `Access` reads."""

    host: str
    ssl_ca_cert: str
    api_key: dict[str, str]
    refresh_api_key_hook: Callable[[PodConfiguration], None]
    verify_ssl: bool = True
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = None


def pod_configuration(folder: Path) -> PodConfiguration:
    """Returns the API server's address and the token, which kubelet replaces before it expires. Raises `ConfigError`."""

    def refresh(configuration: PodConfiguration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {_content(folder / 'token')}"

    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; is this a pod?")
    _content(folder / "ca.crt")
    configuration = PodConfiguration(f"https://{with_port(host, port)}", str(folder / "ca.crt"), {}, refresh)
    refresh(configuration)
    return configuration


def _content(path: Path) -> str:
    try:
        content = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the pod's ServiceAccount: {error}") from error
    if not content:
        raise ConfigError(f"cannot read the pod's ServiceAccount: {path} is empty")
    return content
