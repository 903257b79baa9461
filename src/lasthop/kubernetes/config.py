"""Loads the API server's address and our credentials, from kubeconfig or the Pod's ServiceAccount.

The official client's loader reads a kubeconfig (contexts, merged KUBECONFIG files, certificates, tokens, exec plugins of every
version, OIDC); here its result becomes what aiohttp needs. It is an optional dependency, because neither files mode nor a Pod
needs it, and is imported only for a kubeconfig: it takes 0.1 s and 18 MB.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from lasthop.kubernetes.errors import ConfigError
from lasthop.kubernetes.ratelimit import Clock
from lasthop.kubernetes.service_account import pod_configuration

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_INTERVAL: Final = 10.0
"""Seconds between checks of a credential's age. The loader renews 5 minutes before expiry (exec, OIDC), files every minute."""
RENEW_INTERVAL: Final = 1.0
"""Seconds between full reloads after a 401, however many requests fail meanwhile."""

NOT_INSTALLED: Final = (
    "reading a kubeconfig needs the Kubernetes client, which is not installed; "
    "install it with: pip install 'lasthop[kubernetes]'"
)

Load = Callable[[], Any]
"""Returns a complete `kubernetes.client.Configuration`, or what has its fields."""
Errors = tuple[type[Exception], ...]
UNREADABLE: Final[Errors] = (OSError, ValueError, KeyError, TypeError, yaml.YAMLError)


class Access:
    """Holds the API server's address and our current credentials."""

    def __init__(self, load: Load, namespace: str, name: str, clock: Clock = time.monotonic, errors: Errors = ()) -> None:
        """`errors` are the loader's own."""
        self._load, self._errors = load, errors
        self.namespace = namespace
        """The namespace of the context or of the ServiceAccount."""
        self.name = name
        """Its name in messages."""
        self._lock = asyncio.Lock()
        self._clock = clock
        self._refreshed = self._renewed = clock()
        self._read()

    def _read(self) -> None:
        configuration = _checked(self._load, self._errors)
        self.url: str = configuration.host.rstrip("/")
        self.server_hostname: str | None = configuration.tls_server_name or None
        self.proxy: str | None = configuration.proxy or _proxy_of_environment(self.url)
        self.ssl = _ssl(configuration) if self.url.startswith("https") else None
        self._configuration = configuration

    async def authorization(self) -> str | None:
        """Returns the current Authorization header, renewed before it expires."""
        hook = self._configuration.refresh_api_key_hook
        if hook is not None and self._clock() - self._refreshed > REFRESH_INTERVAL:
            async with self._lock:
                if self._clock() - self._refreshed > REFRESH_INTERVAL:
                    await asyncio.to_thread(_checked, lambda: hook(self._configuration), self._errors)
                    self._refreshed = self._clock()
        return _header(self._configuration)

    async def renew(self, refused: str | None) -> bool:
        """Reloads everything after a 401 with this header, and returns whether to retry."""
        async with self._lock:
            if _header(self._configuration) != refused:
                return True  # another request has renewed it meanwhile
            if self._clock() - self._renewed < RENEW_INTERVAL:
                return False
            self._renewed = self._refreshed = self._clock()
            context = self.ssl
            await asyncio.to_thread(self._read)
            return _header(self._configuration) != refused or (refused is None and context is not None)


def load(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Tries in this order: the arguments, $KUBECONFIG, the Pod's ServiceAccount, ~/.kube/config. Raises `ConfigError`.

    May run an exec plugin, so it can take a while.
    """
    if kubeconfig or context or os.environ.get("KUBECONFIG"):
        return from_kubeconfig(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config", context)
    if (SERVICE_ACCOUNT / "token").exists() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return from_kubeconfig("~/.kube/config", None)


def from_kubeconfig(paths: str, context: str | None = None, clock: Clock = time.monotonic) -> Access:
    """Reads one file, or several separated by colons, which are merged as by kubectl."""
    if not any(os.path.exists(os.path.expanduser(path)) for path in paths.split(os.pathsep) if path):
        raise ConfigError(f"{paths}: no such file; give --kubeconfig, set KUBECONFIG, or run in a pod")
    reader = _client("config.kube_config")

    def read() -> Any:
        configuration = _empty()
        reader.load_kube_config(paths, context=context, client_configuration=configuration, persist_config=False)
        return configuration

    def names() -> tuple[str, str]:
        contexts, current = reader.list_kube_config_contexts(paths)
        chosen = next((c for c in contexts if c["name"] == context), None) if context else current
        if chosen is None:
            raise ConfigError(f"{paths}: no context {context}; there are {', '.join(sorted(c['name'] for c in contexts))}")
        return chosen["name"], chosen["context"].get("namespace") or "default"

    errors = (reader.ConfigException,)
    name, namespace = _checked(names, errors)
    return Access(read, namespace, f"context {name} of {paths}", clock, errors)


def in_cluster(folder: Path = SERVICE_ACCOUNT, clock: Clock = time.monotonic) -> Access:
    namespace = folder / "namespace"
    named = namespace.read_text().strip() if namespace.exists() else "default"
    return Access(lambda: pod_configuration(folder), named, "the pod's ServiceAccount", clock)


def _client(module: str) -> Any:
    """Imports a module of the official client. Raises `ConfigError` if the client is not installed."""
    try:
        return import_module(f"kubernetes.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(NOT_INSTALLED) from error


def _empty() -> Any:
    configuration = _client("client.configuration").Configuration()
    configuration.proxy = None  # its constructor takes HTTPS_PROXY without looking at NO_PROXY
    return configuration


def _proxy_of_environment(url: str) -> str | None:
    """Returns what HTTPS_PROXY, HTTP_PROXY and NO_PROXY say. aiohttp would look for each request, in a thread, and in .netrc:
    half of what a written status costs."""
    address = urlsplit(url)
    return None if address.hostname and proxy_bypass(address.hostname) else getproxies().get(address.scheme)


def _checked(read: Callable[[], Any], errors: Errors) -> Any:
    try:
        return read()
    except UNREADABLE + errors as error:
        raise ConfigError(f"cannot read the Kubernetes configuration: {error}") from error


def _header(configuration: Any) -> str | None:
    token = configuration.api_key.get("BearerToken")
    return token.strip() if token else None


def _ssl(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    # Many clusters' own CAs lack what Python 3.13 requires of a web CA (key usage); Go's clients do not require it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
