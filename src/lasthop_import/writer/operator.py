"""Writes what is the operator's to decide: the GatewayProfile that allows waivers, and hosts outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lasthop.base.api.documents import Json
from lasthop_import.legs import Leg
from lasthop_import.levels import NewLevel
from lasthop_import.notes import Category, Note, Severity, Source
from lasthop_import.settings import Settings
from lasthop_import.writer.policies import Verdict

VERIFIED: Final = (NewLevel.NAME, NewLevel.URI, NewLevel.PINNED, NewLevel.WAIVED_EXPIRY, NewLevel.TODO)


def with_profile(gateway: Json, settings: Settings) -> Json:
    """Returns a copied Gateway with the profile that may allow waivers."""
    reference = {"group": "lasthop.dev", "kind": "GatewayProfile", "name": settings.gateway.name}
    infrastructure = {**gateway["spec"].get("infrastructure", {}), "parametersRef": reference}
    return {**gateway, "spec": {**gateway["spec"], "infrastructure": infrastructure}}


def profile(settings: Settings, namespace: str) -> tuple[Json, tuple[Source, ...], tuple[str, ...]]:
    metadata = {"name": settings.gateway.name, "namespace": namespace}
    tls = {"waivers": "Allow"} if settings.allow_waivers else {}
    document: Json = {
        "apiVersion": "lasthop.dev/v1alpha1",
        "kind": "GatewayProfile",
        "metadata": metadata,
        "spec": {"backendTLS": tls},
    }
    comment = (
        "The operator's: waivers are in force only with `backendTLS: {waivers: Allow}`; until then their backends fail closed."
    )
    return document, (), () if settings.allow_waivers else (comment,)


def external_hostnames(found: Sequence[Leg], verdicts: Mapping[tuple[str, str, str, int], Verdict | None]) -> Iterable[Note]:
    """Yields the hosts outside that are not verified, of which a cluster needs the operator's word."""
    for leg in found:
        verdict = verdicts.get(leg.port.group) if leg.port and leg.port.kind == "XBackend" else None
        if leg.port and leg.port.kind == "XBackend" and (verdict is None or verdict.new not in VERIFIED):
            text = "a host outside is not verified, and in a cluster fails closed until a GatewayProfile allows it"
            remedy = "Let the operator write externalHostnames: Allow in the GatewayProfile."
            target = f"XBackend {leg.port.namespace}/{leg.port.name}"
            severity = Severity.WARNING
            yield Note(Category.TODO, "external-hostname", text, leg.hop.source, "", remedy, target, severity)
