"""The controller's CA as it stands in the cluster, and the certificates that this replica shows to proxies and to the
replica that leads.

Every replica reads the Secret; only the one that leads makes it, and replaces the CA in good time.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Final

from lasthop.api.documents import Json
from lasthop.infra.kubernetes.actions import decoded
from lasthop.infra.kubernetes.api import Api, collection, path
from lasthop.infra.kubernetes.names import MANAGED_BY, MANAGER
from lasthop.kubernetes.errors import ApiError
from lasthop.pki import authority as ca
from lasthop.pki.authority import Authority
from lasthop.xds.credentials import Credentials

SECRET: Final = "lasthop-xds-ca"
LOOK_EVERY: Final = 30.0
RETRY: Final = 1.0


class Unusable(Exception):
    """The Secret is there and holds something else. The text says what to do."""


class Identity:
    """`run` keeps it up to date; until `known` is set there is neither CA nor certificate."""

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
        """`may_write` says whether this replica leads; `problem` hears what is wrong, and an empty text when it is mended."""
        self._api, self._namespace, self._names, self._replica = api, namespace, server_names, replica
        self._may_write, self._problem, self._clock = may_write, problem, clock
        self._authority: Authority | None = None
        self._credentials: Credentials | None = None
        self._client: Credentials | None = None
        self._told = ""
        self.known = asyncio.Event()

    @property
    def authority(self) -> Authority | None:
        return self._authority

    def credentials(self) -> Credentials:
        """For the xDS server; called on gRPC's threads."""
        assert self._credentials is not None, "wait for `known`"
        return self._credentials

    def client_credentials(self) -> Credentials:
        """What this replica shows to the one that leads."""
        assert self._client is not None, "wait for `known`"
        return self._client

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(LOOK_EVERY if self.known.is_set() and not self._told else RETRY)

    async def refresh(self) -> None:
        try:
            found = await self._found()
            self._tell("")
        except (ApiError, Unusable) as error:
            # What we have goes on; a certificate of our own can be renewed without asking anybody.
            found = self._authority
            self._tell(f"CA of the proxies: {error}")
        if found is not None:
            self._take(found)

    async def _found(self) -> Authority | None:
        if self._may_write():
            return await ensure_authority(self._api, self._namespace, self._clock())
        return await read_authority(self._api, self._namespace)

    def _take(self, authority: Authority) -> None:
        now, bundle = self._clock(), authority.bundle
        server, client = self._credentials, self._client
        # Both were made at the same moment and last as long.
        if server is None or client is None or ca.server_pair_due(authority, server.own, now):
            self._credentials = Credentials(ca.server_pair(authority, self._names, now), bundle)
            self._client = Credentials(ca.replica_pair(authority, self._replica, now), bundle)
        elif server.trusted != bundle:
            self._credentials, self._client = Credentials(server.own, bundle), Credentials(client.own, bundle)
        self._authority = authority
        self.known.set()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._problem(text)


async def read_authority(api: Api, namespace: str) -> Authority | None:
    """None if no leader has made it yet."""
    found = await _get(api, namespace)
    return _restored(found, namespace) if found else None


async def ensure_authority(api: Api, namespace: str, now: float) -> Authority:
    """As it should be now, and stored. Somebody else may write at the same time: theirs is taken then, never overwritten."""
    for _ in range(5):
        found = await _get(api, namespace)
        old = _restored(found, namespace) if found else None
        new = ca.renewed(old, now)
        if found and new is old:
            return new
        try:
            if found:
                await api.put(path("Secret", namespace, SECRET), {**found, "data": _encoded(new)})
            else:
                await api.create(collection("Secret", namespace), _document(namespace, new))
            return new
        except ApiError as error:
            if not error.conflict:
                raise
    raise ApiError(409, "Conflict", f"Secret {namespace}/{SECRET} keeps changing")


async def _get(api: Api, namespace: str) -> Json | None:
    try:
        return await api.get(path("Secret", namespace, SECRET))
    except ApiError as error:
        if error.not_found:
            return None
        raise


def _restored(found: Json, namespace: str) -> Authority:
    try:
        return ca.restored(decoded(found))
    except ValueError as error:
        raise Unusable(f"Secret {namespace}/{SECRET}: {error}; delete it, and a new CA is made") from error


def _document(namespace: str, authority: Authority) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": SECRET, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "data": _encoded(authority),
    }


def _encoded(authority: Authority) -> dict[str, str]:
    return {key: base64.b64encode(content).decode() for key, content in ca.stored(authority).items()}
