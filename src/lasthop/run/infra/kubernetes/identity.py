"""Keeps the controller's CA in a Secret, and the certificates that this replica presents to proxies and to the leader.

Every replica reads the Secret; only the leader creates it, and rotates the CA before it expires.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from lasthop.base.api.documents import Json
from lasthop.base.pki import authority as ca
from lasthop.base.pki.authority import Authority
from lasthop.base.text.repeat_filter import RepeatFilter
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.xds.credentials import MutualTls
from lasthop.run.infra.kubernetes.api import Api, collection, find, path
from lasthop.run.infra.kubernetes.diff import decoded
from lasthop.run.infra.kubernetes.manifests import encoded
from lasthop.run.infra.kubernetes.names import MANAGED_BY, MANAGER

SECRET: Final = "lasthop-xds-ca"
POLL_INTERVAL: Final = 30.0
RETRY: Final = 1.0


class UnusableSecret(Exception):
    """The Secret exists but contains no usable CA. The text contains the remedy."""


class Identity:
    """The CA and certificates, which `run` keeps up to date. They exist once `known` is set."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        server_names: tuple[str, ...],
        replica: str,
        *,
        may_write: Callable[[], bool],
        problem: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`may_write` returns whether this replica leads. `problem` receives the problem, or an empty text once resolved."""
        self._api, self._namespace, self._names, self._replica = api, namespace, server_names, replica
        self._may_write, self._problem, self._clock = may_write, RepeatFilter(problem), clock
        self._authority: Authority | None = None
        self._credentials: MutualTls | None = None
        self._client: MutualTls | None = None
        self.known = asyncio.Event()

    @property
    def authority(self) -> Authority | None:
        return self._authority

    def credentials(self) -> MutualTls:
        """Returns the xDS server's credentials; called on gRPC's threads."""
        assert self._credentials is not None, "wait for `known`"
        return self._credentials

    def client_credentials(self) -> MutualTls:
        """Returns the credentials that this replica presents to the leader."""
        assert self._client is not None, "wait for `known`"
        return self._client

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_INTERVAL if self.known.is_set() and not self._problem.last else RETRY)

    async def refresh(self) -> None:
        try:
            if self._may_write():
                authority: Authority | None = await ensure_authority(self._api, self._namespace, self._clock())
            else:
                authority = await read_authority(self._api, self._namespace)
            self._problem("")
        except (ApiError, UnusableSecret) as error:
            # The known CA stays in use, because our own certificate can be renewed without the API server.
            authority = self._authority
            self._problem(f"CA of the proxies: {error}")
        if authority is not None:
            self._take(authority)

    def _take(self, authority: Authority) -> None:
        now, bundle = self._clock(), authority.bundle
        server, client = self._credentials, self._client
        # Both were issued at the same time with the same lifetime.
        if server is None or client is None or ca.server_pair_due(authority, server.own, now):
            self._credentials = MutualTls(ca.server_pair(authority, self._names, now), bundle)
            self._client = MutualTls(ca.replica_pair(authority, self._replica, now), bundle)
        elif server.trusted != bundle:
            self._credentials, self._client = MutualTls(server.own, bundle), MutualTls(client.own, bundle)
        self._authority = authority
        self.known.set()


async def read_authority(api: Api, namespace: str) -> Authority | None:
    """Returns the CA, or None if no leader has created it yet."""
    document = await find(api, path("Secret", namespace, SECRET))
    return _restored(document, namespace) if document else None


async def ensure_authority(api: Api, namespace: str, now: float) -> Authority:
    """Creates or rotates the CA if necessary. If another replica writes at the same time, its CA is used, not replaced."""
    for _ in range(5):
        document = await find(api, path("Secret", namespace, SECRET))
        old = _restored(document, namespace) if document else None
        new = ca.renewed(old, now)
        if document and new is old:
            return new
        try:
            if document:
                await api.put(path("Secret", namespace, SECRET), {**document, "data": encoded(ca.stored(new))})
            else:
                await api.create(collection("Secret", namespace), _document(namespace, new))
            return new
        except ApiError as error:
            if not error.conflict:
                raise
    raise ApiError(409, "Conflict", f"Secret {namespace}/{SECRET} keeps changing")


def _restored(document: Json, namespace: str) -> Authority:
    try:
        return ca.restored(decoded(document))
    except ValueError as error:
        raise UnusableSecret(
            f"Secret {namespace}/{SECRET}: {error}; delete it, and the controller creates a new CA"
        ) from error


def _document(namespace: str, authority: Authority) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": SECRET, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "data": encoded(ca.stored(authority)),
    }
