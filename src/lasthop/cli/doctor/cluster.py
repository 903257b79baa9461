"""Looks at what Lasthop needs of a cluster: CRDs, the rights of the controller and of the user, webhooks, the controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final

from lasthop.cli.doctor.result import Checked, broken, ok, warning

if TYPE_CHECKING:
    from lasthop.kubernetes.client import Client

CONTROLLER: Final = "lasthop-controller"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1"
WRITTEN: Final = frozenset({"Secret", "Service"})
"""Kinds that the controller also creates."""


async def cluster(client: Client, namespace: str) -> AsyncIterator[Checked]:
    """Yields what was found; `namespace` is the controller's."""
    from lasthop.kubernetes.errors import ApiError

    version = await client.get("/version")
    yield ok("API server", f"{client.access.name}, Kubernetes {version.get('gitVersion', 'unknown')}")
    for look in (_crds, _classes, _controller, _rights, _webhooks):
        try:
            async for checked in look(client, namespace):
                yield checked
        except ApiError as error:
            what = look.__name__.strip("_")
            yield warning(what, f"cannot be looked at: {error.message or error}", "Ask for the right to read it (RBAC).")


async def _crds(client: Client, namespace: str) -> AsyncIterator[Checked]:
    from lasthop.api.bundle import BUNDLE_VERSION, CHANNEL, KNOWN, known
    from lasthop.api.kinds import GATEWAY_API, KINDS, LASTHOP_API

    items = (await client.get(CRDS)).get("items") or []
    found = {item["metadata"]["name"]: item for item in items}
    releases: dict[tuple[str, str], list[str]] = {}
    for name, item in found.items():
        if name.endswith(f".{GATEWAY_API}"):
            annotations = item["metadata"].get("annotations") or {}
            releases.setdefault((annotations.get(BUNDLE_VERSION, ""), annotations.get(CHANNEL, "")), []).append(name)
    if not releases:
        yield broken("CRDs of Gateway API", "they are not installed", "Install those of v1.7.0; see docs/cluster.md.")
    for (release, channel), names in sorted(releases.items()):
        text = f"{release or 'no version'} ({channel or 'no channel'}), {len(names)} CRDs"
        if known(release):
            yield ok("CRDs of Gateway API", text)
        else:
            yield warning("CRDs of Gateway API", f"{text}; known are {KNOWN}", "Install a release that is known.")
    if len(releases) > 1:
        yield warning("CRDs of Gateway API", "they are of several releases or channels", "Install one release, completely.")
    own = [f"{kind.plural}.{kind.group}" for kind in KINDS.values() if kind.group == LASTHOP_API]
    missing = [name for name in own if name not in found]
    if missing:
        yield warning("CRDs of Lasthop", f"missing: {', '.join(missing)}", "Install them: lasthop install")
    else:
        yield ok("CRDs of Lasthop", f"all {len(own)}")
    policies = f"backendtlspolicies.{GATEWAY_API}"
    if releases and policies not in found:
        yield broken(
            "BackendTLSPolicy", "its CRD is not installed, so no backend is verified", "Install Gateway API v1.4 or newer."
        )


async def _classes(client: Client, namespace: str) -> AsyncIterator[Checked]:
    from lasthop.api.kinds import CONTROLLER_NAME, GATEWAY_API

    items = (await client.get(f"/apis/{GATEWAY_API}/v1/gatewayclasses")).get("items") or []
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


async def _controller(client: Client, namespace: str) -> AsyncIterator[Checked]:
    from lasthop.kubernetes.errors import ApiError

    what = f"controller in {namespace}"
    try:
        found = await client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{CONTROLLER}")
    except ApiError as error:
        if not error.not_found:
            raise
        yield warning(
            what, "it is not installed there", "lasthop install, or choose its namespace with --controller-namespace"
        )
        return
    ready, wanted = (found.get("status") or {}).get("readyReplicas", 0), (found.get("spec") or {}).get("replicas", 1)
    if ready == wanted:
        yield ok(what, f"{ready} of {wanted} replicas are ready")
    else:
        remedy = f"kubectl describe pods -n {namespace}"
        yield (broken if not ready else warning)(what, f"{ready} of {wanted} replicas are ready", remedy)


async def _rights(client: Client, namespace: str) -> AsyncIterator[Checked]:
    """Checks what this user may list, and, where this user may ask that, what the controller may."""
    from lasthop.api.kinds import KINDS
    from lasthop.kubernetes.errors import ApiError

    denied = []
    for kind in KINDS.values():
        if not await _allowed(client, _attributes(kind.group, kind.plural, "list")):
            denied.append(kind.plural)
    if denied:
        found = f"you may not list {', '.join(denied)} in all namespaces"
        yield warning(
            "your rights", f"{found}; commands say what they cannot see", "Ask for the ClusterRole lasthop-view, or use -n."
        )
    else:
        yield ok("your rights", "you may list every kind in all namespaces")
    account = f"system:serviceaccount:{namespace}:{CONTROLLER}"
    try:
        missing = [
            f"{verb} {kind.plural}"
            for kind in KINDS.values()
            for verb in ("list", "watch", *(["create"] if kind.kind in WRITTEN else []))
            if not await _allowed(client, _attributes(kind.group, kind.plural, verb), account)
        ]
    except ApiError as error:
        if not error.denied:
            raise
        yield warning(
            "rights of the controller", "you may not ask for them", "Ask somebody who may create subjectaccessreviews."
        )
        return
    if missing:
        some = f"{', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}"
        remedy = "lasthop install renews its ClusterRole. With --watch it has rights in some namespaces only."
        yield warning("rights of the controller", f"{account} may not {some} in all namespaces", remedy)
    else:
        yield ok("rights of the controller", "it may read every kind and write what it creates")


def _attributes(group: str, resource: str, verb: str) -> dict[str, str]:
    return {"group": group, "resource": resource, "verb": verb}


async def _allowed(client: Client, attributes: dict[str, str], user: str = "") -> bool:
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    spec: dict[str, Any] = {"resourceAttributes": attributes, **({"user": user} if user else {})}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await client.create(f"{REVIEWS}/{kind.lower()}s", body)
    return bool((answer.get("status") or {}).get("allowed"))


async def _webhooks(client: Client, namespace: str) -> AsyncIterator[Checked]:
    """Checks those that can refuse or change what users and the controller write."""
    concerned = 0
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        for item in (await client.get(f"{WEBHOOKS}/{plural}")).get("items") or []:
            for webhook in _concerning(item):
                concerned += 1
                async for checked in _webhook(client, item["metadata"]["name"], webhook):
                    yield checked
    if not concerned:
        yield ok("webhooks", "none concerns Gateway API")


def _concerning(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from lasthop.api.kinds import GATEWAY_API, LASTHOP_API

    for webhook in item.get("webhooks") or []:
        groups = {group for rule in webhook.get("rules") or [] for group in rule.get("apiGroups") or []}
        if groups & {"*", GATEWAY_API, LASTHOP_API}:
            yield webhook


async def _webhook(client: Client, name: str, webhook: dict[str, Any]) -> AsyncIterator[Checked]:
    from lasthop.kubernetes.errors import ApiError

    what = f"webhook {name}"
    service = (webhook.get("clientConfig") or {}).get("service")
    policy = webhook.get("failurePolicy", "Fail")
    if service is None:
        yield ok(what, f"outside the cluster, failurePolicy {policy}")
        return
    path = f"/api/v1/namespaces/{service['namespace']}/services/{service['name']}"
    try:
        await client.get(path)
    except ApiError as error:
        if not error.not_found:
            raise
        gone = f"its Service {service['namespace']}/{service['name']} does not exist"
        if policy == "Fail":
            yield broken(what, f"{gone}, so every write that it concerns is refused", f"Delete the configuration {name}.")
        else:
            yield warning(what, gone, f"Delete the configuration {name}.")
        return
    yield ok(what, f"Service {service['namespace']}/{service['name']}, failurePolicy {policy}")
