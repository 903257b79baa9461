"""Finds and renews the API server's address and our credentials, from a kubeconfig or the Pod's ServiceAccount."""

from __future__ import annotations

import asyncio
import copy
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from lasthop.base.api.addresses import with_port
from lasthop.edge.kubernetes import kubeconfig as kubeconfigs
from lasthop.edge.kubernetes.credentials import ALWAYS, Credentials, Headers, Tls, bearer
from lasthop.edge.kubernetes.errors import ConfigError
from lasthop.edge.kubernetes.ratelimit import Clock

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_INTERVAL: Final = 10.0
"""Seconds between checks whether credentials must be renewed."""
RENEW_INTERVAL: Final = 1.0
"""Seconds between full reloads after a 401, however many requests fail meanwhile."""


class Access:
    def __init__(self, load: Callable[[], Credentials], namespace: str, name: str, clock: Clock = time.monotonic) -> None:
        """`load` may block and raise `ConfigError`."""
        self._load = load
        self.namespace = namespace
        """The namespace of the context or of the ServiceAccount."""
        self.name = name
        """The source of the credentials in messages."""
        self._lock = asyncio.Lock()
        self._clock = clock
        self._refreshed = self._renewed = clock()
        self._tls: Tls | None = None
        self._take(load())

    def for_other_loop(self) -> Access:
        """Returns a copy for another event loop, which renews its own credentials."""
        twin = copy.copy(self)
        twin._lock = asyncio.Lock()
        return twin

    def _take(self, credentials: Credentials) -> None:
        self.url = credentials.url
        self.server_hostname = credentials.server_name
        self.proxy = credentials.proxy or _proxy_of_environment(self.url)
        if credentials.tls != self._tls:  # a new context would need new connections
            self.ssl = credentials.tls.context() if self.url.startswith("https") else None
        self._tls, self._credentials = credentials.tls, credentials

    async def headers(self) -> Headers:
        """Returns the authentication headers, renewed before they expire.

        Headers that cannot be renewed are used until the server rejects them; `renew` then raises the reason.
        """
        if self._to_renew():
            async with self._lock:
                if self._to_renew():
                    self._refreshed = self._clock()
                    with suppress(ConfigError):
                        self._take(await asyncio.to_thread(self._load))
        return self._credentials.headers

    def _to_renew(self) -> bool:
        if self._clock() - self._refreshed <= REFRESH_INTERVAL:
            return False
        renew_at = self._credentials.renew_at
        return renew_at is not None and time.time() >= renew_at

    async def renew(self, rejected: Headers) -> bool:
        """Reloads the credentials after a 401 with these headers; returns whether to retry."""
        async with self._lock:
            if self._credentials.headers != rejected:
                return True  # another request has renewed them meanwhile
            if self._clock() - self._renewed < RENEW_INTERVAL:
                return False
            self._renewed = self._refreshed = self._clock()
            previous = self._credentials
            self._take(await asyncio.to_thread(self._load))
            return self._credentials != previous


def load(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Tries in this order: the arguments, $KUBECONFIG, the Pod's ServiceAccount, ~/.kube/config. Raises `ConfigError`.

    It may block, because it may run an exec plugin.
    """
    if kubeconfig or context or os.environ.get("KUBECONFIG"):
        return from_kubeconfig(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config", context)
    if (SERVICE_ACCOUNT / "token").exists() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return from_kubeconfig("~/.kube/config", None)


def from_kubeconfig(paths: str, context: str | None = None, clock: Clock = time.monotonic) -> Access:
    """Reads one file, or merges several separated by colons, like kubectl."""
    files = kubeconfigs.files(paths)
    if not files:
        raise ConfigError(f"{paths}: no such file; give --kubeconfig, set KUBECONFIG, or run in a pod")
    name, kube_context = kubeconfigs.read(files).chosen(context)
    # Later loads use the context's name, so a change of the current context does not affect this process.
    return Access(
        lambda: kubeconfigs.credentials(kubeconfigs.read(files), name),
        kube_context.namespace or "default",
        f"context {name} of {paths}",
        clock,
    )


def in_cluster(folder: Path = SERVICE_ACCOUNT, clock: Clock = time.monotonic) -> Access:
    namespace = folder / "namespace"
    name = namespace.read_text().strip() if namespace.exists() else "default"
    return Access(lambda: pod_credentials(folder), name, "the pod's ServiceAccount", clock)


def _proxy_of_environment(url: str) -> str | None:
    """Returns the proxy in HTTPS_PROXY, HTTP_PROXY and NO_PROXY. aiohttp would look it up for each request, in a thread and in
    .netrc, which is half of a status write's cost."""
    address = urlsplit(url)
    return None if address.hostname and proxy_bypass(address.hostname) else getproxies().get(address.scheme)


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
