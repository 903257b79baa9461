"""Keeps the volumes of one pod up to date: a changed Secret or ConfigMap appears within a second, and tokens are renewed in
time."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from conformance.api import Api, ApiError, Object
from conformance.node import atomic
from conformance.node.environment import Find, Waiting
from conformance.node.payload import payload


class Volumes:
    def __init__(self, api: Api, pod: Object, folder: Path, find: Find) -> None:
        self.api, self.pod, self.folder, self.find = api, pod, folder, find
        self._tokens: dict[str, tuple[str, float]] = {}  # audience -> token, when to renew it

    def path(self, name: str) -> Path:
        return self.folder / name

    async def prepare(self, pod_ip: str) -> None:
        """Make all volumes. Raises Waiting (of .environment) while something that they need is not there."""
        for volume in self._volumes:
            await self._make(volume, pod_ip)

    async def refresh(self, pod_ip: str) -> None:
        """Updates the volumes. Unchanged volumes are not touched, and volumes whose source was deleted keep their last
        content."""
        for volume in self._volumes:
            with contextlib.suppress(Waiting, ApiError, OSError):
                await self._make(volume, pod_ip)

    @property
    def _volumes(self) -> list[dict[str, Any]]:
        return self.pod["spec"].get("volumes") or []

    async def _make(self, volume: dict[str, Any], pod_ip: str) -> None:
        target = self.path(volume["name"])
        if "emptyDir" in volume:
            if not target.exists():
                target.mkdir(parents=True)
                self._open_to_pod(target)
            return
        await self._fetch_tokens(volume)
        tokens = {audience: token for audience, (token, _) in self._tokens.items()}
        files = payload(self.pod, volume, pod_ip, self.find, tokens)
        target.mkdir(parents=True, exist_ok=True)
        atomic.write(target, files)

    def mounts(self, container: dict[str, Any]) -> list[tuple[str, str, bool]]:
        """(host path, path in the container, read-only), outer ones before those within them."""
        writable = {volume["name"] for volume in self._volumes if "emptyDir" in volume}
        mounts = []
        for mount in sorted(container.get("volumeMounts") or (), key=lambda mount: len(mount["mountPath"])):
            source = self.path(mount["name"])
            if mount.get("subPath"):
                source = (source / mount["subPath"]).resolve()
                if mount["name"] in writable:
                    source.mkdir(parents=True, exist_ok=True)
            read_only = mount.get("readOnly", False) or mount["name"] not in writable
            mounts.append((str(source), mount["mountPath"].rstrip("/"), read_only))
        return mounts

    def _open_to_pod(self, folder: Path) -> None:
        folder.chmod(0o777)
        group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None:
            os.chown(folder, 0, group)
            folder.chmod(0o2777)

    async def _fetch_tokens(self, volume: dict[str, Any]) -> None:
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "serviceAccountToken" not in source:
                continue
            projection = source["serviceAccountToken"]
            audience, seconds = projection.get("audience", ""), projection.get("expirationSeconds", 3600)
            if audience not in self._tokens or time.monotonic() > self._tokens[audience][1]:
                token = await self._token(audience, seconds)
                self._tokens[audience] = token, time.monotonic() + 0.8 * seconds  # as the kubelet: at 80 % of its life

    async def _token(self, audience: str, seconds: int) -> str:
        metadata, account = self.pod["metadata"], self.pod["spec"].get("serviceAccountName", "default")
        # Bound to the pod, as the kubelet requests it: it ends with the pod, and reviewers see the pod's name in it.
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec: dict[str, Any] = {"expirationSeconds": seconds, "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        answer = await self.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        token: str = answer["status"]["token"]
        return token
