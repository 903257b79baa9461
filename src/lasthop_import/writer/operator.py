"""Writes what is the operator's to decide: the GatewayProfile that allows waivers, and hosts outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lasthop.base.api.documents import Json
from lasthop_import.levels import NewLevel
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.rule_hops import RuleHop
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.policies import PortVerdict

VERIFIED: Final = (NewLevel.NAME, NewLevel.URI, NewLevel.PINNED, NewLevel.WAIVED_EXPIRY, NewLevel.TODO)


def with_profile(gateway: Json, settings: ImportSettings) -> Json:
    """Returns a copied Gateway with the profile that may allow waivers."""
    reference = {"group": "lasthop.dev", "kind": "GatewayProfile", "name": settings.gateway.name}
    infrastructure = {**gateway["spec"].get("infrastructure", {}), "parametersRef": reference}
    return {**gateway, "spec": {**gateway["spec"], "infrastructure": infrastructure}}


def profile(settings: ImportSettings, namespace: str) -> tuple[Json, tuple[SourceRef, ...], tuple[str, ...]]:
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


def external_hostnames(
    found: Sequence[RuleHop], verdicts: Mapping[tuple[str, str, str, int], PortVerdict | None]
) -> Iterable[Note]:
    """Yields the hosts outside that are not verified, of which a cluster needs the operator's word."""
    for rule_hop in found:
        verdict = verdicts.get(rule_hop.port.group) if rule_hop.port and rule_hop.port.kind == "XBackend" else None
        if rule_hop.port and rule_hop.port.kind == "XBackend" and (verdict is None or verdict.new not in VERIFIED):
            text = "a host outside is not verified, and in a cluster fails closed until a GatewayProfile allows it"
            remedy = "Let the operator write externalHostnames: Allow in the GatewayProfile."
            target = f"XBackend {rule_hop.port.namespace}/{rule_hop.port.name}"
            severity = NoteSeverity.WARNING
            yield Note(Category.TODO, "external-hostname", text, rule_hop.source, "", remedy, target, severity)
