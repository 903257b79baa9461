"""Writes to the API server like a single user: over a kept-alive connection, with the start time of each write."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.parse
from typing import Any

from bench.control import objects
from conformance.api import MERGE
from conformance.cluster import Cluster
from conformance.servers import API_SERVER

CORE, GATEWAY_API, DISCOVERY = "/api/v1", f"/apis/{objects.API}", "/apis/discovery.k8s.io/v1"


class Writer:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._namespace, self._token = namespace, cluster.api.token
        self._tls = ssl.create_default_context(cadata=cluster.authority.pem.decode())
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        address = urllib.parse.urlsplit(API_SERVER)
        return http.client.HTTPSConnection(address.hostname or "", address.port, context=self._tls, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def patch(self, root: str, plural: str, name: str, body: dict[str, Any]) -> float:
        """Returns when the write began."""
        path = f"{root}/namespaces/{self._namespace}/{plural}/{name}"
        headers = {"Content-Type": MERGE, "Authorization": f"Bearer {self._token}"}
        began = time.perf_counter()
        try:
            self._send(path, json.dumps(body), headers)
        except (OSError, http.client.HTTPException):  # the server has closed a connection that was idle for minutes
            self._connection = self._connect()
            self._send(path, json.dumps(body), headers)
        return began

    def _send(self, path: str, body: str, headers: dict[str, str]) -> None:
        self._connection.request("PATCH", path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"PATCH {path}: {answer.status} {content[:300].decode(errors='replace')}")

    def policy(self, number: int, edition: int = 0, ca: str = "") -> float:
        spec = {"validation": objects.validation(number, edition, ca)}
        return self.patch(GATEWAY_API, "backendtlspolicies", objects.set_name(number), {"spec": spec})

    def ca(self, name: str, pem: str) -> float:
        return self.patch(CORE, "configmaps", name, {"data": {"ca.crt": pem}})

    def endpoints(self, number: int, port: int) -> float:
        return self.patch(DISCOVERY, "endpointslices", objects.set_name(number), objects.endpoints(port))
