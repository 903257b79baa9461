"""Writes copied objects, and the operator's GatewayProfile, which allows waivers and unverified external hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from lasthop.base.api.documents import Json
from lasthop.engine.plan.strength import Strength
from lasthop_import.model import ObjectName
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.rule_hops import PortGroup, RuleHop
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.objects import OutputFile
from lasthop_import.writer.policies import PortVerdict
from lasthop_import.writer.stage import StageOutput, WriterContext

FILES: Final = {
    "GatewayClass": OutputFile.GATEWAY,
    "Gateway": OutputFile.GATEWAY,
    "ListenerSet": OutputFile.GATEWAY,
    "Service": OutputFile.BACKENDS,
}
"""Files of the kinds that an importer copies; all other kinds are routes."""


def write_copies(context: WriterContext, copies: Iterable[tuple[SourceRef, Json]], *, profile: bool) -> StageOutput:
    """Writes the objects that an importer has copied. With `profile`, Gateways refer to the GatewayProfile."""
    objects = context.objects()
    for source, document in copies:
        written = _with_profile(document, context.settings) if profile and document["kind"] == "Gateway" else document
        objects.add(FILES.get(document["kind"], OutputFile.ROUTES), written, (source,))
    return StageOutput(objects=tuple(objects.objects))


def _with_profile(gateway: Json, settings: ImportSettings) -> Json:
    reference = {"group": "lasthop.dev", "kind": "GatewayProfile", "name": settings.gateway.name}
    infrastructure = {**gateway["spec"].get("infrastructure", {}), "parametersRef": reference}
    return {**gateway, "spec": {**gateway["spec"], "infrastructure": infrastructure}}


def write_profiles(context: WriterContext, gateways: Iterable[ObjectName], *, waivers: bool) -> StageOutput:
    """Writes the GatewayProfile of each namespace with a Gateway, if there are waivers to allow."""
    settings = context.settings
    if not waivers:
        return StageOutput()
    objects = context.objects()
    for namespace in sorted({gateway.namespace for gateway in gateways}) if not settings.parent else ():
        objects.add(OutputFile.OPERATOR, _profile(settings, namespace), (), () if settings.allow_waivers else (NOT_ALLOWED,))
    text = "waivers are in force once the Gateway's GatewayProfile allows them; until then they fail closed"
    remedy = "Ask the operator to allow them, or, as the operator, import with --allow-waivers."
    note = Note(Category.TODO, "waivers-not-allowed", text, remedy=remedy)
    return StageOutput(objects=tuple(objects.objects), notes=() if settings.allow_waivers else (note,))


NOT_ALLOWED: Final = (
    "The operator's: waivers are in force only with `backendTLS: {waivers: Allow}`; until then their backends fail closed."
)


def _profile(settings: ImportSettings, namespace: str) -> Json:
    return {
        "apiVersion": "lasthop.dev/v1alpha1",
        "kind": "GatewayProfile",
        "metadata": {"name": settings.gateway.name, "namespace": namespace},
        "spec": {"backendTLS": {"waivers": "Allow"} if settings.allow_waivers else {}},
    }


def external_hostnames(rule_hops: Sequence[RuleHop], verdicts: Mapping[PortGroup, PortVerdict | None]) -> Iterator[Note]:
    """Yields notes about unverified external hosts, which the operator of a cluster must allow."""
    for rule_hop in rule_hops:
        if rule_hop.port and rule_hop.port.kind == "XBackend" and not _named(verdicts.get(rule_hop.port.group)):
            text = "a host outside is not verified, and in a cluster fails closed until a GatewayProfile allows it"
            remedy = "Let the operator write externalHostnames: Allow in the GatewayProfile."
            target = f"XBackend {rule_hop.port.namespace}/{rule_hop.port.name}"
            severity = NoteSeverity.WARNING
            yield Note(Category.TODO, "external-hostname", text, rule_hop.source, "", remedy, target, severity)


def _named(verdict: PortVerdict | None) -> bool:
    """Returns whether the names of a certificate are checked, now or after a decision."""
    return verdict is not None and (verdict.new.todo or verdict.new.strength in (Strength.VERIFIED, Strength.WAIVED_EXPIRY))
