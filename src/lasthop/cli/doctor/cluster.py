"""Checks the requirements in a cluster: CRDs, a GatewayClass, the controller. `rights.py` checks permissions."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Final

from lasthop.base.api.documents import Json, nested
from lasthop.cli.doctor.result import CheckResult, broken, ok, warning
from lasthop.cli.render.report import count
from lasthop.edge.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from lasthop.base.api.kinds import Kind
    from lasthop.edge.kubernetes.client import Client

POLICY: Final = "BackendTLSPolicy"
CONTROLLER: Final = "lasthop-controller"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INSTALL: Final = (
    "Install those of v1.7.0: kubectl apply --server-side -f "
    "https://github.com/kubernetes-sigs/gateway-api/releases/download/v1.7.0/standard-install.yaml"
)

Look = Callable[[], AsyncIterator[CheckResult]]


async def cluster(client: Client, controller_namespace: str, namespace: str) -> AsyncIterator[CheckResult]:
    """Yields the results; `namespace` is the user's selection, empty: all."""
    from lasthop.cli.doctor.rights import controllers_rights, own_rights
    from lasthop.cli.views.cluster import explained

    try:
        version = await client.get("/version")
    except ApiError as error:
        problem, remedy = explained(error, client.access.name)
        yield broken("API server", problem, f"{remedy[:1].upper()}{remedy[1:]}")
        return
    yield ok("API server", f"{client.access.name}, Kubernetes {version.get('gitVersion', 'unknown')}")
    deployment: list[Json] = []
    looks: dict[str, Look] = {
        "CRDs of Gateway API": lambda: _crds(client),
        "GatewayClass": lambda: _classes(client, controller_namespace),
        f"controller in {controller_namespace}": lambda: _controller(client, controller_namespace, deployment, namespace),
        "your rights": lambda: own_rights(client, namespace),
        "rights of the controller": lambda: controllers_rights(client, controller_namespace, deployment),
    }
    for subject, look in looks.items():
        try:
            async for result in look():
                yield result
        except ApiError as error:
            if error.denied:
                yield warning(subject, f"you may not read it: {error.message}", "Request the right to read it (RBAC).")
            else:
                yield warning(subject, f"cannot be read: {error}", "Try again; the log of the API server may say why.")


async def _crds(client: Client) -> AsyncIterator[CheckResult]:
    from lasthop.base.api.kinds import KINDS, LASTHOP_API

    items: list[Json] = (await client.get(CRDS)).get("items") or []
    crds = {item["metadata"]["name"]: item for item in items}
    for checked in (*_releases(crds), *_lacking_kinds(crds)):
        yield checked
    names = [f"{kind.plural}.{kind.group}" for kind in KINDS.values() if kind.group == LASTHOP_API]
    if missing := [name for name in names if name not in crds]:
        yield warning("CRDs of Lasthop", f"missing: {', '.join(missing)}", "Install them: lasthop install --crds-only")
    else:
        yield ok("CRDs of Lasthop", f"all {len(names)}")


def _releases(crds: dict[str, Json]) -> Iterator[CheckResult]:
    from lasthop.base.api.bundle import BUNDLE_VERSION, CHANNEL, KNOWN, known

    subject = "CRDs of Gateway API"
    annotations = [nested(item, "metadata", "annotations") or {} for item in _of_gateway_api(crds)]
    counts = Counter((entry.get(BUNDLE_VERSION, ""), entry.get(CHANNEL, "")) for entry in annotations)
    if not counts:
        yield broken(subject, "they are not installed", INSTALL)
    for (release, channel), number in sorted(counts.items()):
        text = f"{release or 'no version'} ({channel or 'no channel'}), {count(number, 'CRD')}"
        if known(release):
            yield ok(subject, text)
        else:
            yield warning(subject, f"{text}; known releases are {KNOWN}", "Install a known release.")
    if len(counts) > 1:
        yield warning(subject, "they come from several releases or channels", "Install one release, completely.")


def _of_gateway_api(crds: dict[str, Json]) -> list[Json]:
    from lasthop.base.api.kinds import GATEWAY_API

    return [item for name, item in crds.items() if name.endswith(f".{GATEWAY_API}")]


def _lacking_kinds(crds: dict[str, Json]) -> Iterator[CheckResult]:
    from lasthop.base.api.kinds import GATEWAY_API, KINDS

    if not _of_gateway_api(crds):
        return
    absent = []
    for kind in (kind for kind in KINDS.values() if kind.group == GATEWAY_API):
        if crd := crds.get(f"{kind.plural}.{kind.group}"):
            yield from _served_versions(kind, crd)
        elif kind.kind == POLICY:
            yield broken(POLICY, "its CRD is not installed, so no backend is verified", "Install Gateway API v1.4 or newer.")
        else:
            absent.append(kind.kind)
    if absent:
        remedy = f"If you need one of them: {INSTALL[:1].lower()}{INSTALL[1:]}"
        yield warning("kinds of Gateway API", f"not installed: {', '.join(absent)}", remedy)


def _served_versions(kind: Kind, crd: Json) -> Iterator[CheckResult]:
    served = [version["name"] for version in nested(crd, "spec", "versions") or () if version.get("served")]
    if served and not {*served} & {*kind.versions}:
        text = f"its CRD has the version {', '.join(served)}, and Lasthop reads {', '.join(kind.versions)}"
        yield broken(kind.kind, text, INSTALL)


async def _classes(client: Client, namespace: str) -> AsyncIterator[CheckResult]:
    from lasthop.base.api.kinds import CONTROLLER_NAME, GATEWAY_API

    listed = await _if_found(client, f"/apis/{GATEWAY_API}/v1/gatewayclasses")
    if listed is None:
        return  # `_crds` reports the missing CRD
    own_classes = [item for item in listed.get("items") or () if nested(item, "spec", "controllerName") == CONTROLLER_NAME]
    if not own_classes:
        yield warning(
            "GatewayClass", f"no GatewayClass has the controllerName {CONTROLLER_NAME}", "Create one: lasthop install"
        )
    for item in own_classes:
        yield _class(item, namespace)


def _class(item: Json, namespace: str) -> CheckResult:
    subject = f"GatewayClass {item['metadata']['name']}"
    conditions = {condition.get("type"): condition for condition in nested(item, "status", "conditions") or ()}
    accepted: Json = conditions.get("Accepted", {})
    if accepted.get("status") == "True":
        return ok(subject, "accepted")
    why = accepted.get("message") or "no controller has accepted it"
    return broken(subject, why, f"Is the controller running? kubectl get pods -n {namespace}")


async def _if_found(client: Client, path: str) -> Json | None:
    try:
        return await client.get(path)
    except ApiError as error:
        if not error.not_found:
            raise
        return None


async def _controller(client: Client, namespace: str, deployment: list[Json], selected: str) -> AsyncIterator[CheckResult]:
    """Checks the controller and whether it watches the namespace `selected`. Appends its Deployment for the later checks."""
    from lasthop.run.infra.kubernetes.installation import watched_by

    subject = f"controller in {namespace}"
    controller = await _if_found(client, f"/apis/apps/v1/namespaces/{namespace}/deployments/{CONTROLLER}")
    if controller is None:
        remedy = "Install it with: lasthop install; or choose its namespace with --controller-namespace."
        yield warning(subject, "it is not installed there", remedy)
        return
    deployment.append(controller)
    yield _replicas(
        subject, namespace, nested(controller, "status", "readyReplicas") or 0, nested(controller, "spec", "replicas")
    )
    watched = watched_by(controller)
    if watched and selected and selected not in watched:
        remedy = f"If it should: lasthop install {' '.join(f'--watch {name}' for name in (*watched, selected))}"
        yield warning(subject, f"it watches only {', '.join(watched)}; edits in namespace {selected} have no effect", remedy)


def _replicas(subject: str, namespace: str, ready: int, replicas: int | None) -> CheckResult:
    desired = 1 if replicas is None else replicas
    if not desired:
        remedy = f"kubectl scale deployment {CONTROLLER} -n {namespace} --replicas=2"
        return broken(subject, "it is scaled to 0 replicas", remedy)
    text, remedy = f"{ready} of {desired} replicas are ready", f"kubectl describe pods -n {namespace}"
    if ready >= desired:
        return ok(subject, text)
    return warning(subject, text, remedy) if ready else broken(subject, text, remedy)
