"""An API server in a dict, as far as the reconciler needs one; faults on demand."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from lasthop.base.api.meta import Key, StringMap
from lasthop.edge.kubernetes.client import JSON
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.run.infra.kubernetes.desired import DesiredGateway, Site

Json = dict[str, Any]

WEB = Key("Gateway", "shop", "web")
SITE = Site("ghcr.io/lasthop/lasthop:1", "lasthop-xds.lasthop-system.svc", 18000)


def gateway(name: str = "web", **fields: Any) -> DesiredGateway:
    given = {"ports": ((80, "TCP"), (443, "TCP"))} | fields
    for field in ("labels", "annotations"):
        if field in given:
            given[field] = StringMap.of(given[field])
    return DesiredGateway(
        Key("Gateway", "shop", name), fields.pop("uid", f"uid-of-{name}"), **{k: v for k, v in given.items() if k != "uid"}
    )


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.writes: list[str] = []
        """`VERB path`, in order."""
        self.faults: dict[str, ApiError] = {}
        """Part of a path -> what the server says to whoever asks for it."""
        self.assign = True
        """Load balancers get an address at once."""
        self._count = 0

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Json:
        self._check(path)
        if "PartialObjectMetadata" in accept:
            return {"metadata": (await FakeApi.get(self, path))["metadata"]}
        if params and "labelSelector" in params:
            wanted = dict(pair.split("=") for pair in params["labelSelector"].split(","))
            prefix, _, plural = path.rpartition("/")
            return {"items": [copy.deepcopy(o) for p, o in self.objects.items() if self._listed(p, prefix, plural, o, wanted)]}
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return copy.deepcopy(self.objects[path])

    async def create(self, path: str, body: Json) -> Json:
        whole = f"{path}/{body['metadata']['name']}"
        self._check(whole)
        if whole in self.objects:
            raise ApiError(409, "AlreadyExists", "already exists")
        return self._store("POST", whole, body)

    async def put(self, path: str, body: Json) -> Json:
        self._check(path)
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        if self.objects[path]["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
            raise ApiError(409, "Conflict", "the object has been modified")
        return self._store("PUT", path, body)

    async def apply(self, path: str, body: Json) -> Json:
        self._check(path)
        old = self.objects.get(path, {})
        return self._store("APPLY", path, {**body, **({"status": old["status"]} if "status" in old else {})})

    async def delete(self, path: str, *, uid: str = "") -> None:
        self._check(path)
        if path in self.objects and uid and self.objects[path]["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", "another uid")
        self.writes.append(f"DELETE {path}")
        self.objects.pop(path, None)

    def named(self, end: str) -> Json:
        return next(item for path, item in self.objects.items() if path.endswith(end))

    def paths(self) -> list[str]:
        return sorted(path.rpartition("namespaces/")[2] for path in self.objects)

    def _store(self, verb: str, path: str, body: Json) -> Json:
        self._count += 1
        stored = copy.deepcopy(body)
        old = self.objects.get(path, {"metadata": {}})["metadata"]
        stored["metadata"] |= {"uid": old.get("uid", f"uid-{self._count}"), "resourceVersion": str(self._count)}
        if stored["kind"] == "Service":
            stored["spec"].setdefault("clusterIPs", ["10.96.0.7"])
            if self.assign and stored["spec"]["type"] == "LoadBalancer":
                ip = stored["spec"].get("loadBalancerIP", "192.0.2.1")
                stored["status"] = {"loadBalancer": {"ingress": [{"ip": ip}]}}
        self.objects[path] = stored
        self.writes.append(f"{verb} {path.rpartition('namespaces/')[2]}")
        return copy.deepcopy(stored)

    def _check(self, path: str) -> None:
        for part, error in self.faults.items():
            if part in path:
                raise error

    @staticmethod
    def _listed(path: str, prefix: str, plural: str, item: Json, wanted: Mapping[str, str]) -> bool:
        return (
            path.startswith(prefix)
            and path.split("/")[-2] == plural
            and wanted.items() <= (item["metadata"].get("labels") or {}).items()
        )
