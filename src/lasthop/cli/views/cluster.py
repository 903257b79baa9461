"""Reads a cluster once, with the permissions of the user. Writes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

import click
import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.documents import Json
from lasthop.base.api.gateway import Gateway
from lasthop.base.api.kinds import GATEWAY_API, KINDS, POD
from lasthop.base.api.meta import Key
from lasthop.cli.args.target import CLUSTER, ClusterOptions
from lasthop.cli.render.terminal import note, note_once
from lasthop.cli.views.changes import of_cluster
from lasthop.cli.views.command_view import Size
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.config import load
from lasthop.edge.kubernetes.errors import UNTRUSTED, ApiError, ConfigError
from lasthop.edge.kubernetes.objects import POLICY, read_object
from lasthop.edge.probe.result import ProbeResult
from lasthop.edge.sources.kubernetes.findings import install, not_served, unreadable_targets
from lasthop.edge.sources.kubernetes.snapshot import ListResult, look, unread
from lasthop.edge.sources.kubernetes.visibility import RBACVisibility, not_visible
from lasthop.engine.dry_run import serve_all
from lasthop.engine.engine import Engine
from lasthop.engine.memory.record import Record
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.findings.foreign import class_finding
from lasthop.engine.outputs.findings.guesses import with_suggestion
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.reasons import entry_of
from lasthop.engine.plan.request import Request
from lasthop.engine.plan.strength import Strength
from lasthop.engine.resolve.settings import IN_CLUSTER, SYSTEM_STORE, set_absent
from lasthop.run.infra.system_store import host_store
from lasthop.web.engine_view import EngineView

T = TypeVar("T")
INSTALL_CRDS: Final = (
    "the CRDs of Gateway API are not installed in this cluster; install those of v1.7.0: kubectl apply --server-side -f "
    "https://github.com/kubernetes-sigs/gateway-api/releases/download/v1.7.0/standard-install.yaml"
)


def run(options: ClusterOptions, work: Callable[[Client, str], Awaitable[T]]) -> T:
    """Runs `work` with a client and the selected namespace (empty: all). Prints the name of the cluster; converts exceptions
    to CLI errors."""
    try:
        access = load(str(options.kubeconfig) if options.kubeconfig else None, options.context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    namespace = "" if options.all_namespaces else options.namespace or access.namespace
    note(f"Reading the cluster of {access.name}, {f'namespace {namespace}' if namespace else 'all namespaces'}")

    async def with_client() -> T:
        async with Client(access) as client:
            return await work(client, namespace)

    try:
        return asyncio.run(with_client())
    except ApiError as error:
        raise click.ClickException("; ".join(explained(error, access.name))) from None


def explained(error: ApiError, cluster: str) -> tuple[str, str]:
    match error.status:
        case 0 if error.reason == UNTRUSTED:
            message = f"the certificate of the API server of {cluster} is not trusted: {error.message}"
            return message, "does the kubeconfig have the certificate-authority of this cluster?"
        case 0:
            return f"the API server of {cluster} does not answer: {error.message}", "is it up, and is its address right?"
        case 401:
            return f"the API server refuses the credentials of {cluster}", "log in again, or choose another --context"
        case 403:
            return f"{cluster} does not let you read this: {error.message}", "request permission to list it (RBAC)"
        case 404 if not error.reason:
            return f"the server at the address of {cluster} is not an API server: {error}", "is the address right?"
        case _:
            return f"the API server of {cluster} answers {error}", "try again"


def require_crds(listed: dict[str, ListResult]) -> dict[str, ListResult]:
    if not any(result.kind.group == GATEWAY_API for result in listed.values()):
        raise click.ClickException(INSTALL_CRDS)
    return listed


def require_rights(listed: dict[str, ListResult]) -> dict[str, ListResult]:
    """Raises if the user may list no kind of the Gateway API, because an empty list of findings would then prove nothing."""
    refusals = [result.refusal if not result.path else None for result in listed.values() if result.kind.group == GATEWAY_API]
    if refusals and refusals[0] is not None and all(refusals):
        raise refusals[0]
    return listed


class ClusterView(EngineView):
    """Answers like the controller, with every Gateway's proxies assumed healthy. It does not report objects as missing if the
    user may not list them."""

    probe_notes = (
        "From this machine, with its system store; the proxy in the cluster has its own.",
        "Pods can often be reached from inside a cluster only: Probe in `lasthop dashboard` tries from the controller's Pod.",
    )

    @classmethod
    async def load(cls, client: Client, namespace: str) -> ClusterView:
        """Reads all namespaces where permitted: references may point to any of them."""
        own_namespace = namespace or client.access.namespace
        listed = require_rights(require_crds(await look(client, KINDS.values(), own_namespace, beyond=True)))
        if POLICY not in listed and (policies := await unread(client, KINDS[POLICY])):
            listed[POLICY] = policies
        xbackends = listed.get(XBACKEND)
        backends = (read_object(XBACKEND, item).object for item in (xbackends.items if xbackends else ()))
        if any(isinstance(backend, XBackend) and backend.selects for backend in backends):
            listed |= await look(client, [POD], own_namespace, beyond=True)
        return cls(listed, namespace, client)

    def __init__(self, listed: dict[str, ListResult], namespace: str, client: Client) -> None:
        super().__init__(Engine(IN_CLUSTER, now=time.time()))
        self._client = client
        self._hidden = RBACVisibility(listed.values())
        place = f"namespace {namespace}" if namespace else CLUSTER
        self.where, self.namespace = (
            f"{place} (as far as you may list it)" if self._hidden.refusal_lines() else place,
            namespace,
        )
        self._source_findings: list[Finding] = []
        self._objects: list[Key] = []
        self._unseen: dict[Key, None] = {}
        SYSTEM_STORE.set(self.engine.graph, host_store())
        set_absent(self.engine.graph, KINDS.keys() - listed)
        unknown: list[Unknown] = []
        if (policies := listed.get(POLICY)) and policies.unread:
            kind, why = policies.kind, policies.unread
            self._source_findings.append(not_served(kind, why))
            unknown.append(Unknown(provable=False, namespace="", why=why, remedy=install(kind)))
        for name, result in listed.items():
            for item in result.items:
                read = read_object(name, item)
                self._objects.append(read.key)
                self.engine.apply({read.key: read.object})
                self._source_findings += [read.problem] if read.problem else []
                unknown += [unreadable_targets(read.key)] if read.opaque else []
        self.engine.policies.set_unknown(unknown)
        serve_all(self.engine)
        for line in self._hidden.refusal_lines():
            note_once(line)

    async def names(self, kind: str) -> Collection[tuple[str, str]]:
        """Raises if the user may not list them."""
        names = await super().names(kind)
        if not names and (refusal := self._hidden.refusal(kind)):
            raise click.ClickException(refusal)
        return names

    async def origin(self) -> str:
        return self._client.access.url

    async def record(self, controller_namespace: str) -> Record | None:
        try:
            return await of_cluster(self._client, controller_namespace)
        except (click.ClickException, ApiError) as error:
            note_once(f"Time and author of the hops' last changes are unknown: {error}")
            return None

    async def size(self) -> Size:
        """Leaves out Pods: a controller may list other Pods than a user."""
        counted = [
            key for key in self._objects if key.kind in KINDS and self.namespace in ("", key.namespace or self.namespace)
        ]
        return Size(len(counted))

    async def findings(self) -> list[Finding]:
        resolved = [*self.engine.findings(), *filter(None, map(self._without_class, self.engine.store.keys("Gateway")))]
        return [*self._source_findings, *(with_suggestion(finding, self.engine.store) for finding in resolved)]

    def _without_class(self, key: Key) -> Finding | None:
        """Returns the finding for a Gateway whose class does not exist, which controllers ignore."""
        gateway = self.engine.store.get(key)
        has_class = isinstance(gateway, Gateway) and self.engine.store.get(
            Key("GatewayClass", "", gateway.spec.gateway_class_name)
        )
        return None if has_class else class_finding(self.engine.graph, key)

    def broken_objects(self, findings: list[Finding]) -> dict[Key, str]:
        return {}

    def unseen(self, finding: Finding) -> Finding | None:
        return self._hidden.cause(finding)

    async def problems(self) -> tuple[str, ...]:
        return tuple(self._hidden.refusal_lines())

    async def hidden(self) -> tuple[str, ...]:
        """Returns the reasons why hops may be missing: hidden classes and Gateways hide the backends of their routes."""
        findings = (
            finding for finding in await self.findings() if entry_of(finding.reason).unreached and self._concerned(finding)
        )
        causes = filter(None, map(self.unseen, findings))
        return tuple(dict.fromkeys(finding.message for finding in causes))

    def _concerned(self, finding: Finding) -> bool:
        return finding.object is not None and self.namespace in ("", finding.object.namespace)

    async def hops(self) -> list[HopReport]:
        return [self._qualified(hop) for hop in await super().hops()]

    def _qualified(self, hop: HopReport) -> HopReport:
        """Marks hops that may appear as plaintext or failing only because the user may not list some objects."""
        plaintext = hop.in_effect is Strength.PLAINTEXT
        if not (self._hidden.may_hide(reasons.PLAINTEXT_BACKEND) if plaintext else self._hidden.hides(hop.missing)):
            return hop
        return msgspec.structs.replace(hop, detail=f"{hop.detail}, as far as your permissions show")

    async def explain(self, key: Key) -> Json | None:
        explanation = await super().explain(key)
        self._unseen.update(dict.fromkeys(self._hidden.unseen(self.engine.graph, key)))
        return self._hidden.mark_invisible(explanation) if explanation else None

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        answers = await super().explain_request(request, gateway)
        return [{**answer, "explanation": self._hidden.mark_invisible(answer["explanation"])} for answer in answers]

    async def probe(self, key: Key, address: str) -> ProbeResult:
        unseen = self._hidden.unseen(self.engine.graph, key)
        self._unseen.update(dict.fromkeys(unseen))
        result = await super().probe(key, address)
        if not unseen:
            return result
        # A refused hop may lack only objects that the user may not read.
        unknown = not_visible(unseen)
        targets = [msgspec.structs.replace(target, refused=unknown) if target.refused else target for target in result.targets]
        return msgspec.structs.replace(result, targets=tuple(targets))

    def note_unseen(self) -> None:
        """Prints the objects that the answers depend on and the user may not read."""
        if self._unseen:
            note(f"Not visible with your permissions, so dependent results may be wrong: {', '.join(map(str, self._unseen))}")
