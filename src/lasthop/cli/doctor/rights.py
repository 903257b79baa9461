"""Checks the permissions of the user and the controller in a cluster, by access reviews, which are not stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lasthop.base.api.documents import nested
from lasthop.base.text.printable import some
from lasthop.cli.doctor.result import CheckResult, ok, warning
from lasthop.edge.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client

REVIEWS: Final = "/apis/authorization.k8s.io/v1"
IN_FLIGHT: Final = 8
SHOWN: Final = 6


class Right(NamedTuple):
    group: str
    resource: str
    """With a subresource, as in `gateways/status`."""
    verb: str
    namespace: str = ""
    """Empty: everywhere."""
    name: str = ""
    """Empty: every object."""

    def __str__(self) -> str:
        return " ".join(
            filter(None, (self.verb, self.resource, self.name, f"in namespace {self.namespace}" if self.namespace else ""))
        )


async def own_rights(client: Client, namespace: str) -> AsyncIterator[CheckResult]:
    """Checks which kinds this user may list in a namespace; empty: in all."""
    from lasthop.base.api.kinds import KINDS

    rights = [Right(kind.group, kind.plural, "list", namespace if kind.namespaced else "") for kind in KINDS.values()]
    denied = [right.resource for right in await _denied(client, rights)]
    where = f"namespace {namespace}" if namespace else "all namespaces"
    if not denied:
        yield ok("your rights", f"you may list every kind in {where}")
        return
    message = f"you may not list {', '.join(denied)} in {where}; commands list the kinds that they cannot read"
    narrower = "" if namespace else ", or look at one namespace with -n"
    yield warning("your rights", message, f"Request the right to list them (RBAC){narrower}.")


async def controllers_rights(client: Client, namespace: str, deployment: list[dict[str, Any]]) -> AsyncIterator[CheckResult]:
    """Checks that the controller has every right that an installation of this version grants. It needs the permission to
    create subjectaccessreviews, and is skipped without a Deployment."""
    from lasthop.run.infra.kubernetes.installation import watched_by

    for document in deployment:
        name = nested(document, "spec", "template", "spec", "serviceAccountName") or "default"
        account = f"system:serviceaccount:{namespace}:{name}"
        try:
            missing = await _denied(client, list(_granted(namespace, tuple(watched_by(document)))), account)
        except ApiError as error:
            if not error.denied:
                raise
            remedy = "Ask an administrator who may create subjectaccessreviews."
            yield warning("rights of the controller", "you may not read them", remedy)
            return
        if missing:
            remedy = "lasthop install, or helm upgrade, renews its roles."
            yield warning("rights of the controller", f"{account} may not {some(list(map(str, missing)), SHOWN)}", remedy)
        else:
            yield ok("rights of the controller", "it has all that an installation grants")


def _granted(namespace: str, watched: tuple[str, ...]) -> Iterator[Right]:
    """Yields the rights of all roles bound to the controller."""
    from lasthop.run.infra.kubernetes.installation import Options, documents

    installed = documents(Options("", namespace, watched=watched))
    bound = {
        (binding["roleRef"]["kind"], binding["metadata"].get("namespace", ""), binding["roleRef"]["name"])
        for binding in installed
        if binding["kind"].endswith("RoleBinding")
    }
    for role in installed:
        place = role["metadata"].get("namespace", "")
        if (role["kind"], place, role["metadata"]["name"]) in bound:
            for rule in role["rules"]:
                names = rule.get("resourceNames") or ("",)
                for group, resource, verb, name in product(rule["apiGroups"], rule["resources"], rule["verbs"], names):
                    yield Right(group, resource, verb, place, name)


async def _denied(client: Client, rights: list[Right], user: str = "") -> list[Right]:
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def allowed(right: Right) -> bool:
        async with gate:
            return await _allowed(client, right, user)

    answers = await asyncio.gather(*map(allowed, rights))
    return [right for right, answer in zip(rights, answers, strict=True) if not answer]


async def _allowed(client: Client, right: Right, user: str) -> bool:
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "namespace": right.namespace,
        "name": right.name,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"] if user else []
    spec: dict[str, Any] = {"resourceAttributes": {name: value for name, value in attributes.items() if value}}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {**spec, **({"user": user, "groups": groups} if user else {})},
    }
    answer = await client.create(f"{REVIEWS}/{kind.lower()}s", body)
    return bool(nested(answer, "status", "allowed"))
