"""Reads the address and the token that every Pod has of its cluster: three files and two variables."""

from __future__ import annotations

import os
from pathlib import Path

from lasthop.base.api.addresses import with_port
from lasthop.edge.kubernetes.credentials import ALWAYS, Credentials, Tls, bearer
from lasthop.edge.kubernetes.errors import ConfigError


def pod_credentials(folder: Path) -> Credentials:
    """Returns the API server's address and the token, which kubelet replaces before it expires. Raises `ConfigError`."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; is this a pod?")
    token, ca = _content(folder / "token"), _content(folder / "ca.crt")
    return Credentials(f"https://{with_port(host, port)}", Tls(ca.encode()), bearer(token), renew_at=ALWAYS)


def _content(path: Path) -> str:
    try:
        content = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the pod's ServiceAccount: {error}") from error
    if not content:
        raise ConfigError(f"cannot read the pod's ServiceAccount: {path} is empty")
    return content
