"""Looks at what Lasthop needs of a cluster: CRDs, a GatewayClass, the controller; rights and webhooks have their own files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from lasthop.cli.doctor.result import Checked, broken, ok, warning
from lasthop.edge.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client

CONTROLLER: Final = "lasthop-controller"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INSTALL: Final = (
    "Install those of v1.7.0: kubectl apply --server-side -f "
    "https://github.com/kubernetes-sigs/gateway-api/releases/download/v1.7.0/standard-install.yaml"
)

Look = Callable[[], AsyncIterator[Checked]]


async def cluster(client: Client, controller_namespace: str, namespace: str) -> AsyncIterator[Checked]:
    """Yields what was found; `namespace` is what the user looks at, empty: all."""
    from lasthop.cli.doctor.rights import controllers_rights, own_rights
    from lasthop.cli.doctor.webhooks import webhooks
    from lasthop.cli.views.cluster import explained

    try:
        version = await client.get("/version")
    except ApiError as error:
        found, remedy = explained(error, client.access.name)
        yield broken("API server", found, f"{remedy[:1].upper()}{remedy[1:]}")
        return
    yield ok("API server", f"{client.access.name}, Kubernetes {version.get('gitVersion', 'unknown')}")
    deployment: list[dict[str, Any]] = []
    looks: dict[str, Look] = {
        "CRDs of Gateway API": lambda: _crds(client),
        "GatewayClass": lambda: _classes(client, controller_namespace),
        f"controller in {controller_namespace}": lambda: _controller(client, controller_namespace, deployment, namespace),
        "your rights": lambda: own_rights(client, namespace),
        "rights of the controller": lambda: controllers_rights(client, controller_namespace, deployment),
        "webhooks": lambda: webhooks(client, namespace or client.access.namespace),
    }
    for what, look in looks.items():
        try:
            async for checked in look():
                yield checked
        except ApiError as error:
            if error.denied:
                yield warning(what, f"you may not look at it: {error.message}", "Ask for the right to read it (RBAC).")
            else:
                yield warning(what, f"cannot be looked at: {error}", "Try again; the log of the API server may say why.")


async def _crds(client: Client) -> AsyncIterator[Checked]:
    from lasthop.base.api.bundle import BUNDLE_VERSION, CHANNEL, KNOWN, known
    from lasthop.base.api.kinds import GATEWAY_API, KINDS, LASTHOP_API

    items = (await client.get(CRDS)).get("items") or []
    found = {item["metadata"]["name"]: item for item in items}
    releases: dict[tuple[str, str], list[str]] = {}
    for name, item in found.items():
        if name.endswith(f".{GATEWAY_API}"):
            annotations = item["metadata"].get("annotations") or {}
            releases.setdefault((annotations.get(BUNDLE_VERSION, ""), annotations.get(CHANNEL, "")), []).append(name)
    if not releases:
        yield broken("CRDs of Gateway API", "they are not installed", INSTALL)
    for (release, channel), names in sorted(releases.items()):
        text = f"{release or 'no version'} ({channel or 'no channel'}), {len(names)} CRD{'' if len(names) == 1 else 's'}"
        if known(release):
            yield ok("CRDs of Gateway API", text)
        else:
            yield warning("CRDs of Gateway API", f"{text}; known are {KNOWN}", "Install a release that is known.")
    if len(releases) > 1:
        yield warning("CRDs of Gateway API", "they are of several releases or channels", "Install one release, completely.")
    if releases:
        for checked in _kinds(found):
            yield checked
    own = [f"{kind.plural}.{kind.group}" for kind in KINDS.values() if kind.group == LASTHOP_API]
    missing = [name for name in own if name not in found]
    if missing:
        yield warning("CRDs of Lasthop", f"missing: {', '.join(missing)}", "Install them: lasthop install --crds-only")
    else:
        yield ok("CRDs of Lasthop", f"all {len(own)}")


def _kinds(found: dict[str, Any]) -> list[Checked]:
    """Checks which kinds of Gateway API the cluster has, in a version that Lasthop reads."""
    from lasthop.base.api.kinds import GATEWAY_API, KINDS

    checked, absent = [], []
    for kind in (each for each in KINDS.values() if each.group == GATEWAY_API):
        crd = found.get(f"{kind.plural}.{kind.group}")
        served = [each["name"] for each in ((crd or {}).get("spec") or {}).get("versions") or () if each.get("served")]
        if crd is None and kind.kind == "BackendTLSPolicy":
            said = "its CRD is not installed, so no backend is verified"
            checked.append(broken(kind.kind, said, "Install Gateway API v1.4 or newer."))
        elif crd is None:
            absent.append(kind.kind)
        elif served and not {*served} & {*kind.versions}:
            said = f"its CRD has the version {', '.join(served)}, and Lasthop reads {', '.join(kind.versions)}"
            checked.append(broken(kind.kind, said, INSTALL))
    if absent:
        said = f"not installed: {', '.join(absent)}"
        checked.append(warning("kinds of Gateway API", said, f"If you need one of them: {INSTALL[:1].lower()}{INSTALL[1:]}"))
    return checked


async def _classes(client: Client, namespace: str) -> AsyncIterator[Checked]:
    from lasthop.base.api.kinds import CONTROLLER_NAME, GATEWAY_API

    try:
        items = (await client.get(f"/apis/{GATEWAY_API}/v1/gatewayclasses")).get("items") or []
    except ApiError as error:
        if not error.not_found:
            raise
        return  # there is no CRD, and that is said
    own = [item for item in items if (item.get("spec") or {}).get("controllerName") == CONTROLLER_NAME]
    if not own:
        yield warning("GatewayClass", f"none has the controllerName {CONTROLLER_NAME}", "Create one: lasthop install")
    for item in own:
        name, conditions = item["metadata"]["name"], (item.get("status") or {}).get("conditions") or []
        accepted: dict[str, Any] = next((each for each in conditions if each.get("type") == "Accepted"), {})
        if accepted.get("status") == "True":
            yield ok(f"GatewayClass {name}", "accepted")
        else:
            why = accepted.get("message") or "no controller has accepted it"
            yield broken(f"GatewayClass {name}", why, f"Is the controller running? kubectl get pods -n {namespace}")


async def _controller(client: Client, namespace: str, deployment: list[dict[str, Any]], asked: str) -> AsyncIterator[Checked]:
    """Looks also whether it serves the namespace that is asked about. Adds the Deployment, if there is one, for what is looked
    at next."""
    from lasthop.run.infra.kubernetes.installation import watched_by

    what = f"controller in {namespace}"
    try:
        found = await client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{CONTROLLER}")
    except ApiError as error:
        if not error.not_found:
            raise
        remedy = "Install it with: lasthop install; or choose its namespace with --controller-namespace."
        yield warning(what, "it is not installed there", remedy)
        return
    deployment.append(found)
    ready, wanted = (found.get("status") or {}).get("readyReplicas", 0), (found.get("spec") or {}).get("replicas", 1)
    if ready >= wanted > 0:
        yield ok(what, f"{ready} of {wanted} replicas are ready")
    elif not wanted:
        yield broken(what, "it is scaled to 0 replicas", f"kubectl scale deployment {CONTROLLER} -n {namespace} --replicas=2")
    else:
        remedy = f"kubectl describe pods -n {namespace}"
        yield (broken if not ready else warning)(what, f"{ready} of {wanted} replicas are ready", remedy)
    watched = watched_by(found)
    if watched and asked and asked not in watched:
        remedy = f"If it should: lasthop install {' '.join(f'--watch {each}' for each in (*watched, asked))}"
        yield warning(what, f"it watches only {', '.join(watched)}; edits in namespace {asked} have no effect", remedy)
