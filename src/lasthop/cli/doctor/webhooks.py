"""Looks at webhooks that can refuse or change what users and the controller write."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final

from lasthop.cli.doctor.result import Checked, Verdict, broken, ok, warning
from lasthop.edge.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client

WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
PORT: Final = 443
"""Of a Service, unless another is named."""
FAILED: Final = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)
"""What an API server says of a webhook with failurePolicy Fail that it cannot ask."""
TRIED: Final = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"generateName": "lasthop-doctor-"},
    "spec": {},
}


async def webhooks(client: Client, namespace: str) -> AsyncIterator[Checked]:
    """Checks what is configured, and tries a write that is not stored if one of them would stop it by not answering."""
    found: list[Checked] = []
    silent: dict[str, Checked] = {}
    """What is said of a webhook with failurePolicy Fail that nothing is known against."""
    for plural in PLURALS:
        for item in (await client.get(f"{WEBHOOKS}/{plural}")).get("items") or []:
            for webhook in _concerning(item):
                checked = await _webhook(client, plural, item["metadata"]["name"], webhook)
                found.append(checked)
                if checked.verdict is Verdict.OK and _policy(webhook) == "Fail":
                    silent[str(webhook.get("name"))] = checked
    failed, why = await _tried(client, namespace) if silent else ("", "")
    for checked in found:
        yield _refusing(checked, why) if checked is silent.get(failed) else checked
    if not found:
        yield ok("webhooks", "none concerns Gateway API")


def _refusing(checked: Checked, why: str) -> Checked:
    refused = f"the API server cannot ask it, so every write that it concerns is refused: {why}"
    return broken(checked.what, refused, "Correct its caBundle or its server, or set its failurePolicy to Ignore.")


def _policy(webhook: dict[str, Any]) -> str:
    return str(webhook.get("failurePolicy", "Fail"))


def _concerning(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from lasthop.base.api.kinds import EXPERIMENTAL_API, GATEWAY_API, LASTHOP_API

    for webhook in item.get("webhooks") or []:
        groups = {group for rule in webhook.get("rules") or [] for group in rule.get("apiGroups") or []}
        if groups & {"*", GATEWAY_API, EXPERIMENTAL_API, LASTHOP_API}:
            yield webhook


async def _webhook(client: Client, plural: str, name: str, webhook: dict[str, Any]) -> Checked:
    what, policy, config = f"webhook {name}", _policy(webhook), webhook.get("clientConfig") or {}
    problem, remedy = _bundle_problem(str(config.get("caBundle") or "")), f"Correct the caBundle of the configuration {name}."
    if service := config.get("service"):
        where = f"Service {service['namespace']}/{service['name']}"
        if no_service := await _service_problem(client, service):
            problem = no_service
            remedy = f"Correct that; if nobody needs the webhook: kubectl delete {plural.removesuffix('s')} {name}"
    else:
        where = str(config.get("url") or "no address")
    if not problem:
        return ok(what, f"{where}, failurePolicy {policy}")
    if policy == "Fail":
        return broken(what, f"{problem}, so every write that it concerns is refused", remedy)
    return warning(what, f"{problem}, so it is not asked (failurePolicy {policy})", remedy)


async def _service_problem(client: Client, service: dict[str, Any]) -> str:
    where = f"{service['namespace']}/{service['name']}"
    try:
        found = await client.get(f"/api/v1/namespaces/{service['namespace']}/services/{service['name']}")
    except ApiError as error:
        if not error.not_found:
            raise
        return f"its Service {where} does not exist"
    spec, port = found.get("spec") or {}, service.get("port") or PORT
    if all(each.get("port") != port for each in spec.get("ports") or ()):
        return f"its Service {where} has no port {port}"
    if spec.get("type") == "ExternalName":
        return ""
    selector = {"labelSelector": f"kubernetes.io/service-name={service['name']}"}
    try:
        listed = await client.get(f"/apis/discovery.k8s.io/v1/namespaces/{service['namespace']}/endpointslices", selector)
    except ApiError as error:
        if not error.denied:
            raise
        return ""
    endpoints = [each for item in listed.get("items") or () for each in item.get("endpoints") or ()]
    if not any((each.get("conditions") or {}).get("ready", True) for each in endpoints):
        return f"its Service {where} has no ready endpoint"
    return ""


def _bundle_problem(encoded: str) -> str:
    """Returns what is wrong with a caBundle; without one, the API server trusts its own system's CAs."""
    from lasthop.base.pki import parse

    if not encoded:
        return ""
    try:
        read = parse.certificates(base64.b64decode(encoded, validate=True))
    except binascii.Error:
        return "its caBundle is not base64"
    if isinstance(read, parse.Unreadable) or not read:
        return "its caBundle is no certificate in PEM"
    if all(each.not_after < time.time() for each in read):
        return "the certificates of its caBundle have expired"
    return ""


async def _tried(client: Client, namespace: str) -> tuple[str, str]:
    """Asks the API server to create an HTTPRoute without storing it. Returns the webhook that it could not ask, and why."""
    path = f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes"
    try:
        await client.request("POST", path, params={"dryRun": "All"}, body=TRIED)
    except ApiError as error:
        if failed := FAILED.search(error.message):
            return failed[1], failed[2].strip()
    return "", ""
