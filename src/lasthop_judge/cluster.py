"""Judges a gateway in a cluster. One namespace holds the objects and the backend's Pod. The judge reaches the Pod through the
API server's proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from lasthop.edge.kubernetes import client as kubernetes
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.errors import ApiError
from lasthop_judge import backend
from lasthop_judge.files import backend_config, curl, openssl
from lasthop_judge.model import CABundle, Case, GatewayRole, Json, Policy
from lasthop_judge.objects import (
    GATEWAY,
    LABEL,
    Listeners,
    RunSettings,
    backend_key,
    gateways,
    listener_of,
    path_of,
    servings,
)
from lasthop_judge.run import Progress
from lasthop_judge.trial import JudgeError

BACKEND: Final = "judge-backend"
CONTROL: Final = 19000
FIRST_PORT: Final = 20000
READY_WITHIN: Final = 180.0
AT_ONCE: Final = 16
TICK: Final = 1.1
"""Seconds after which a new object is younger: creationTimestamp has whole seconds."""
ATTEMPTS: Final = 4
"""Requests to an API server that does not answer or is overloaded, a second apart."""
LISTENER_PORTS: Final = {"http": 80, "https": 443, "tls": 8443}

T = TypeVar("T")


def listener_ports(listeners: Iterable[tuple[GatewayRole, str]]) -> Listeners:
    """Returns a distinct port for each listener, so that Gateways may share an address."""
    other, tcp = itertools.count(8401), itertools.count(9401)
    ports: dict[tuple[GatewayRole, str], int] = {}
    for role, name in listeners:
        if role is GatewayRole.PLAIN and name in LISTENER_PORTS:
            ports[role, name] = LISTENER_PORTS[name]
        else:
            ports[role, name] = next(tcp if name.startswith(("tcp-", "udp-")) else other)
    return ports


async def gateway_class(client: Client, name: str) -> tuple[str, list[str]]:
    """Returns the controllerName of a GatewayClass, and the features that it claims."""
    try:
        document = await client.get(kubernetes.path_of(GATEWAY, "v1", "gatewayclasses", name=name))
    except ApiError as error:
        if error.not_found:
            raise JudgeError(f"GatewayClass {name} does not exist; see: kubectl get gatewayclasses") from None
        raise
    features = [feature["name"] for feature in document.get("status", {}).get("supportedFeatures") or ()]
    return document["spec"]["controllerName"], features


@contextlib.asynccontextmanager
async def namespace(client: Client, name: str, keep: bool, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Creates the namespace of a run, and deletes it with everything in it, however the run ends."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create("/api/v1/namespaces", body)
    except ApiError as error:
        if error.conflict:
            raise JudgeError(f"namespace {name} exists; delete it, or name another one with --namespace") from None
        raise
    try:
        yield
    finally:
        if keep:
            say(f"Kept namespace {name}; delete it with: kubectl delete namespace {name}")
        else:
            say(f"Deleting namespace {name}")
            try:
                await asyncio.shield(client.delete(f"/api/v1/namespaces/{name}"))
            except ApiError as error:  # the results are reported all the same
                say(f"Cannot delete it ({error}); delete it with: kubectl delete namespace {name}")


class ClusterTestbed:
    has_status = True

    def __init__(self, client: Client, settings: RunSettings, image: str, dial: str = "") -> None:
        """`dial` replaces the address in the status of Gateways."""
        self._client, self.settings, self._image, self._dial = client, settings, image, dial
        self._addresses: dict[GatewayRole, str] = {}
        self._pod = ""
        self._served: set[tuple[str, str]] = set()
        """The resources that the cluster serves: apiVersion and plural."""
        self.rejected: dict[str, JudgeError] = {}

    # --- bringing it up -----------------------------------------------------------------------------------------------

    async def start(self, cases: Sequence[Case], progress: Progress) -> None:
        common, backend = self.settings.common(cases), self._backend(cases)
        await self._discover({document["apiVersion"] for document in (*backend, *common)})
        await self._apply(backend)
        for document in common:
            await self._create([case for case in cases if self._uses(case, document)], document)
        await self._backend_ready()
        owned = [(case, document) for case in cases for document in self.settings.documents(case)]  # with the Pod's address
        await self._discover({document["apiVersion"] for _, document in owned})
        await self._load(owned, progress)
        await asyncio.gather(*(self._locate(role, cases) for role in gateways(self.settings, cases)))

    async def _discover(self, versions: Iterable[str]) -> None:
        for api in versions:
            group, _, version = api.rpartition("/")
            try:
                resources = (await self._client.get(kubernetes.path_of(group, version, "").rstrip("/")))["resources"]
            except ApiError as error:
                if not error.not_found:
                    raise
                resources = []
            self._served |= {(api, resource["name"]) for resource in resources}

    def _uses(self, case: Case, common: Json) -> bool:
        """Returns whether a case needs this shared object: its Gateway, or the route of its canary."""
        if common["kind"] == "Gateway":
            return bool(common["metadata"]["name"] == self.settings.gateway_of(case))
        return bool(common["kind"] == f"{case.via.name}Route")

    async def _create(self, cases: Sequence[Case], document: Json) -> None:
        """Creates an object. If the cluster lacks its kind or rejects it, these cases do not run."""
        try:
            await self._apply([document])
        except JudgeError as error:
            self._reject(cases, error)

    def _reject(self, cases: Sequence[Case], error: JudgeError) -> None:
        if not cases:
            raise error
        for case in cases:
            self.rejected.setdefault(case.id, error)

    async def _load(self, owned: Sequence[tuple[Case, Json]], progress: Progress) -> None:
        """Creates the objects of cases: policies by age, and routes last."""
        born = {f"{case.slug}-{policy.name}": policy.born for case, _ in owned for policy in case.policies}
        ages = sorted({*born.values()})

        def turn(document: Json) -> int:
            if document["kind"] == "BackendTLSPolicy":
                return 1 + ages.index(born[document["metadata"]["name"]])
            return len(ages) + 1 if document["kind"].endswith("Route") else 0

        done = 0
        for number in range(len(ages) + 2):
            if 1 < number <= len(ages):
                await asyncio.sleep(TICK)
            current = (pair for pair in owned if turn(pair[1]) == number)
            groups = [[*group] for _, group in itertools.groupby(current, lambda pair: pair[0].id)]
            for batch in (groups[start : start + AT_ONCE] for start in range(0, len(groups), AT_ONCE)):
                await asyncio.gather(*map(self._create_in_order, batch))
                done += sum(map(len, batch))
                progress("Creating objects", done, len(owned))

    async def _create_in_order(self, group: Sequence[tuple[Case, Json]]) -> None:
        """Creates objects in order, so that the second of two policies of one age is never the older one."""
        for case, document in group:
            await self._create([case], document)

    def _backend(self, cases: Sequence[Case]) -> list[Json]:
        config = backend_config(servings(cases), self.settings.issuer, "0.0.0.0", CONTROL, FIRST_PORT)
        files = {"backend.py": Path(backend.__file__).read_text(), "config.json": json.dumps(config)}
        data = {name: base64.b64encode(content.encode()).decode() for name, content in files.items()}
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
            path = self._path("v1", "Pod", "")
            pods = (await _send("the backend's Pod", functools.partial(self._client.get, path, selector)))["items"]
            for pod in pods:
                if _is_true(pod["status"], "Ready"):
                    self._pod = pod["metadata"]["name"]
                    self.settings = dataclasses.replace(self.settings, pod=pod["status"]["podIP"])
                    return
            if time.monotonic() > deadline:
                detail = "; ".join(json.dumps(pod.get("status", {}))[:400] for pod in pods) or "it has no Pod"
                raise JudgeError(f"the backend {BACKEND} is not ready within {READY_WITHIN:.0f} s: {detail}")
            await asyncio.sleep(0.3)

    async def _locate(self, role: GatewayRole, cases: Sequence[Case]) -> None:
        """Waits for the address of a Gateway. If only one of the further Gateways has none, its cases do not run."""
        affected = [case for case in cases if self.settings.gateway_of(case) is role]
        if all(case.id in self.rejected for case in affected):
            return
        try:
            self._addresses[role] = self._dial or await self._address(role)
        except JudgeError as error:
            self._reject([] if role is GatewayRole.PLAIN else affected, error)

    async def _address(self, role: GatewayRole) -> str:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            status = (await self.status("Gateway", str(role))).get("status", {})
            addresses: list[str] = [address["value"] for address in status.get("addresses") or ()]
            if addresses and _is_true(status, "Programmed"):
                return addresses[0]
            if time.monotonic() > deadline:
                detail = json.dumps(status.get("conditions"))[:600]
                raise JudgeError(f"Gateway {role} is not programmed within {READY_WITHIN:.0f} s: {detail}")
            await asyncio.sleep(0.3)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _path(self, api: str, kind: str, name: str, subresource: str = "") -> str:
        group, _, version = api.rpartition("/")
        return kubernetes.path_of(group, version, _plural(kind), self.settings.namespace, name, subresource)

    async def _apply(self, documents: Iterable[Json]) -> None:
        async def applied(document: Json) -> None:
            api, kind, name = document["apiVersion"], document["kind"], document["metadata"]["name"]
            if (api, _plural(kind)) not in self._served:
                raise JudgeError(f"the cluster does not serve {kind} of {api}", absent=True)
            await _send(f"{kind} {name}", lambda: self._client.apply(self._path(api, kind, name), document))

        await asyncio.gather(*(applied(document) for document in documents))

    async def put(self, case: Case, documents: Sequence[Json]) -> None:
        await self._apply(documents)

    async def remove(self, case: Case, documents: Sequence[Json]) -> None:
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            path = self._path(document["apiVersion"], kind, name)
            await _send(f"{kind} {name}", functools.partial(self._client.delete, path))

    async def status(self, kind: str, name: str) -> Json:
        path = self._path(f"{GATEWAY}/v1", kind, name)
        return await _send(f"{kind} {name}", lambda: self._get_or_empty(path))

    async def _get_or_empty(self, path: str) -> Json:
        try:
            return await self._client.get(path)
        except ApiError as error:
            if error.not_found:  # an adapter may need no policy
                return {}
            raise

    async def write_status(self, kind: str, name: str, status: Json) -> bool:
        path = self._path(f"{GATEWAY}/v1", kind, name, "status")

        async def written() -> bool:
            try:
                await self._client.merge(path, {"status": status})
            except ApiError as error:
                if error.denied:
                    return False
                raise
            return True

        return await _send(f"the status of {kind} {name}", written)

    # --- the backend --------------------------------------------------------------------------------------------------

    def _control(self, path: str) -> str:
        return f"/api/v1/namespaces/{self.settings.namespace}/pods/{self._pod}:{CONTROL}/proxy{path}"

    async def records(self, key: str) -> list[Json]:
        path = self._control(f"/records/{key}")
        records: list[Json] = json.loads(await _send("the backend's record", lambda: self._client.request("GET", path)))
        return records

    async def serve(self, key: str, serving: Json) -> None:
        path = self._control(f"/serve/{key}")
        await _send("a change of the backend", lambda: self._client.request("POST", path, body=serving))

    def address(self, role: GatewayRole, listener: str) -> tuple[str, int]:
        return self._addresses[role], self.settings.listeners[role, listener]

    def repro_commands(self, case: Case, policy: Policy | None, service: str) -> tuple[str, ...]:
        port = self.settings.ports.get(backend_key(case, service, case.port), 0)
        kubectl = f"kubectl -n {self.settings.namespace}"
        request = curl(case, self.address(self.settings.gateway_of(case), listener_of(case)), path_of(service, case.port))
        forward = (f"{kubectl} port-forward deployment/{BACKEND} {port} & sleep 3",) if port and policy else ()

        def anchors(bundle: CABundle) -> str:
            get = f"{kubectl} get {bundle.kind.lower()} {case.slug}-{bundle.name} -o jsonpath='{{.data.ca\\.crt}}'"
            return f"{get} | base64 -d" if bundle.kind == "Secret" else get

        return (*request, *forward, *openssl(case, policy, ("127.0.0.1", port), anchors))


async def _send(subject: str, request: Callable[[], Awaitable[T]]) -> T:
    """Sends a request. Repeats it if the API server does not answer or is overloaded."""
    attempt = 1
    while True:
        try:
            return await request()
        except ApiError as error:
            if attempt == ATTEMPTS or not error.transient:
                raise JudgeError(f"{subject}: {error}") from error
        attempt += 1
        await asyncio.sleep(1)


def _is_true(status: Json, condition: str) -> bool:
    return any(entry["type"] == condition and entry["status"] == "True" for entry in status.get("conditions") or ())


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("cy") else f"{lower}s"


def ports_of(cases: Sequence[Case]) -> dict[str, int]:
    return {key: FIRST_PORT + number for number, key in enumerate(servings(cases))}
