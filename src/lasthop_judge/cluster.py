"""A gateway of a cluster: one namespace holds the objects and the backend's Pod, which the API server's proxy reaches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop_judge import backend
from lasthop_judge.files import backend_config, curl, openssl
from lasthop_judge.model import Case, GatewayRole, Json
from lasthop_judge.objects import GATEWAY, LABEL, Listeners, RunSettings, gateways, listener_of, servings
from lasthop_judge.run import Progress

BACKEND: Final = "judge-backend"
CONTROL: Final = 19000
FIRST_PORT: Final = 20000
READY_WITHIN: Final = 180.0
AT_ONCE: Final = 16
TICK: Final = 1.1
"""Seconds after which a new object is younger: creationTimestamp has whole seconds."""
LISTENER_PORTS: Final = {"http": 80, "https": 443, "tls": 8443}


class ClusterError(Exception):
    """The cluster lacks what a run needs."""


def listener_ports(wanted: Iterable[tuple[GatewayRole, str]]) -> Listeners:
    """Returns a port for each listener; no two have the same, so that Gateways may share an address."""
    rest, tcp = itertools.count(8401), itertools.count(9401)
    found: dict[tuple[GatewayRole, str], int] = {}
    for role, name in wanted:
        if role is GatewayRole.PLAIN and name in LISTENER_PORTS:
            found[role, name] = LISTENER_PORTS[name]
        else:
            found[role, name] = next(tcp if name.startswith(("tcp-", "udp-")) else rest)
    return found


async def gateway_class(client: Client, name: str) -> tuple[str, list[str]]:
    """Returns the controllerName of a GatewayClass, and the features that it claims."""
    try:
        found = await client.get(path_of(GATEWAY, "v1", "gatewayclasses", name=name))
    except ApiError as error:
        if error.not_found:
            raise ClusterError(f"there is no GatewayClass {name}; see: kubectl get gatewayclasses") from None
        raise
    features = [each["name"] for each in found.get("status", {}).get("supportedFeatures") or ()]
    return found["spec"]["controllerName"], features


@contextlib.asynccontextmanager
async def namespace(client: Client, name: str, keep: bool, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Creates the namespace of a run, and deletes it with everything in it, however the run ends."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create("/api/v1/namespaces", body)
    except ApiError as error:
        if error.conflict:
            raise ClusterError(f"namespace {name} exists; delete it, or name another one with --namespace") from None
        raise
    try:
        yield
    finally:
        if keep:
            say(f"Kept namespace {name}; delete it with: kubectl delete namespace {name}")
        else:
            say(f"Deleting namespace {name}")
            await asyncio.shield(client.delete(f"/api/v1/namespaces/{name}"))


class ClusterTestbed:
    has_status = True

    def __init__(self, client: Client, settings: RunSettings, image: str, dial: str = "") -> None:
        """`dial` replaces the address in the status of Gateways."""
        self._client, self.settings, self._image, self._dial = client, settings, image, dial
        self._addresses: dict[GatewayRole, str] = {}
        self._pod = ""

    # --- bringing it up -----------------------------------------------------------------------------------------------

    async def start(self, cases: Sequence[Case], progress: Progress) -> None:
        await self._apply([*self._backend(cases), *self.settings.common(cases)])
        await self._backend_ready()
        await self._load(cases, progress)
        for role in gateways(self.settings, cases):
            self._addresses[role] = await self._address(role)

    async def _load(self, cases: Sequence[Case], progress: Progress) -> None:
        """Creates policies by age, and routes last."""
        documents = [document for case in cases for document in self.settings.documents(case)]
        born = {f"{case.slug}-{policy.name}": policy.born for case in cases for policy in case.policies}
        routes = [each for each in documents if each["kind"].endswith("Route")]
        policies = [each for each in documents if each["kind"] == "BackendTLSPolicy"]
        done, total = 0, len(documents)
        rest = [each for each in documents if each not in routes and each not in policies]
        ages = [[each for each in policies if born[each["metadata"]["name"]] == age] for age in sorted({*born.values()})]
        for number, group in enumerate((rest, *ages, routes)):
            if 1 < number <= len(ages):
                await asyncio.sleep(TICK)
            for some in _batched(group):
                await self._apply(some)
                done += len(some)
                progress("Creating objects", done, total)

    def _backend(self, cases: Sequence[Case]) -> list[Json]:
        config = backend_config(servings(cases), self.settings.issuer, "0.0.0.0", CONTROL, FIRST_PORT)
        files = {"backend.py": Path(backend.__file__).read_text(), "config.json": json.dumps(config)}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
        container = {
            "name": "backend",
            "image": self._image,
            "command": ["python3", "/judge/backend.py", "/judge/config.json"],
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": CONTROL}, "periodSeconds": 1},
            "volumeMounts": [{"name": "judge", "mountPath": "/judge"}, {"name": "tmp", "mountPath": "/tmp"}],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        volumes = [{"name": "judge", "secret": {"secretName": BACKEND}}, {"name": "tmp", "emptyDir": {}}]
        pod = {
            "containers": [container],
            "volumes": volumes,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        }
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": LABEL},
            "template": {"metadata": {"labels": LABEL}, "spec": pod},
        }
        return [
            self.settings.mk("v1", "Secret", BACKEND, data=data),
            self.settings.mk("apps/v1", "Deployment", BACKEND, spec=spec),
        ]

    async def _backend_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in LABEL.items())}
        while True:
            pods = (await self._client.get(self._path("v1", "Pod", ""), selector))["items"]
            for pod in pods:
                if _is_true(pod["status"], "Ready"):
                    self._pod = pod["metadata"]["name"]
                    self.settings = dataclasses.replace(self.settings, pod=pod["status"]["podIP"])
                    return
            if time.monotonic() > deadline:
                detail = "; ".join(json.dumps(pod.get("status", {}))[:400] for pod in pods) or "it has no Pod"
                raise ClusterError(f"the backend {BACKEND} is not ready within {READY_WITHIN:.0f} s: {detail}")
            await asyncio.sleep(0.3)

    async def _address(self, role: GatewayRole) -> str:
        if self._dial:
            return self._dial
        deadline = time.monotonic() + READY_WITHIN
        while True:
            status = (await self.status("Gateway", str(role))).get("status", {})
            addresses: list[str] = [each["value"] for each in status.get("addresses") or ()]
            if addresses and _is_true(status, "Programmed"):
                return addresses[0]
            if time.monotonic() > deadline:
                detail = json.dumps(status.get("conditions"))[:600]
                raise ClusterError(f"Gateway {role} is not programmed within {READY_WITHIN:.0f} s: {detail}")
            await asyncio.sleep(0.3)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _path(self, api: str, kind: str, name: str, subresource: str = "") -> str:
        group, _, version = api.rpartition("/")
        return path_of(group, version, _plural(kind), self.settings.namespace, name, subresource)

    async def _apply(self, documents: Iterable[Json]) -> None:
        async def applied(document: Json) -> None:
            path = self._path(document["apiVersion"], document["kind"], document["metadata"]["name"])
            try:
                await self._client.apply(path, document)
            except ApiError as error:
                raise ClusterError(f"{document['kind']} {document['metadata']['name']}: {error}") from error

        await asyncio.gather(*(applied(document) for document in documents))

    async def put(self, case: Case, documents: Sequence[Json]) -> None:
        await self._apply(documents)

    async def remove(self, case: Case, documents: Sequence[Json]) -> None:
        for document in documents:
            path = self._path(document["apiVersion"], document["kind"], document["metadata"]["name"])
            await self._client.delete(path)

    async def status(self, kind: str, name: str) -> Json:
        try:
            return await self._client.get(self._path(f"{GATEWAY}/v1", kind, name))
        except ApiError as error:
            if error.not_found:  # an adapter may need no policy
                return {}
            raise

    async def write_status(self, kind: str, name: str, status: Json) -> bool:
        await self._client.merge(self._path(f"{GATEWAY}/v1", kind, name, "status"), {"status": status})
        return True

    # --- the backend --------------------------------------------------------------------------------------------------

    def _control(self, path: str) -> str:
        return f"/api/v1/namespaces/{self.settings.namespace}/pods/{self._pod}:{CONTROL}/proxy{path}"

    async def records(self, key: str) -> list[Json]:
        found: list[Json] = json.loads(await self._client.request("GET", self._control(f"/records/{key}")))
        return found

    async def serve(self, key: str, serving: Json) -> None:
        await self._client.request("POST", self._control(f"/serve/{key}"), body=serving)

    def address(self, role: GatewayRole, listener: str) -> tuple[str, int]:
        return self._addresses[role], self.settings.listeners[role, listener]

    def repeat(self, case: Case, path: str) -> tuple[str, ...]:
        key = f"{case.slug}.{case.all_services[0].name}.{case.port}"
        port = self.settings.ports.get(key, 0)
        forward = f"kubectl -n {self.settings.namespace} port-forward deployment/{BACKEND} {port}"
        asked = curl(case, self.address(self.settings.gateway_of(case), listener_of(case)), path)
        shown = openssl(case, "127.0.0.1", port)
        return (*asked, *((forward, *shown) if shown else ()))


def _batched(group: Sequence[Json]) -> Iterable[Sequence[Json]]:
    return (group[start : start + AT_ONCE] for start in range(0, len(group), AT_ONCE))


def _is_true(status: Json, condition: str) -> bool:
    return any(each["type"] == condition and each["status"] == "True" for each in status.get("conditions") or ())


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("cy") else f"{lower}s"


def ports_of(cases: Sequence[Case]) -> dict[str, int]:
    return {key: FIRST_PORT + number for number, key in enumerate(servings(cases))}
