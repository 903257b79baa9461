"""Writes kubeconfig files, for the administrator and for any ServiceAccount."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import yaml


def write(path: Path, server: str, authority_pem: bytes, token: str, user: str = "admin", namespace: str = "default") -> Path:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority_pem).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lasthop", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "lasthop", "context": {"cluster": "lasthop", "user": user, "namespace": namespace}}],
        "current-context": "lasthop",
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        yaml.safe_dump(content, file)
    return path
