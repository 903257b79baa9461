"""Chooses the client certificate of each Gateway, which shows it to all of its TLS backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lasthop.importers.decisions import Decisions
from lasthop.importers.legs import Leg
from lasthop.importers.levels import Level
from lasthop.importers.model import ListenerKey, ObjectName
from lasthop.importers.notes import Category, Note


def client_certificates(
    found: Sequence[Leg], gateways: Mapping[ListenerKey, ObjectName], decisions: Decisions
) -> tuple[dict[ObjectName, ObjectName], list[Note]]:
    """Returns the client certificate of each Gateway, and what there is to say about it. `gateways`: of each listener."""
    shown: dict[ObjectName, dict[ObjectName | None, Leg]] = {}
    for leg in found:
        if leg.tls is None or leg.rule is None or leg.port is None or leg.port.kind != "Service":
            continue
        if leg.tls.level in (Level.PASSTHROUGH, Level.PLAINTEXT):
            continue
        for key in leg.rule.listeners:
            if key in gateways:
                shown.setdefault(gateways[key], {}).setdefault(leg.tls.client_certificate, leg)
    chosen: dict[ObjectName, ObjectName] = {}
    notes: list[Note] = []
    for gateway, by_certificate in sorted(shown.items()):
        named = sorted(each for each in by_certificate if each is not None)
        if not named or decisions.no_client_certificate:
            continue
        first = by_certificate[named[0]]
        if decisions.client_certificate:
            chosen[gateway] = decisions.client_certificate
        elif len(named) > 1:
            text = f"a Gateway shows one client certificate, and the backends had {len(named)}: {', '.join(map(str, named))}"
            remedy = "Write clientCertificate: NAMESPACE/NAME, or none, in decisions.yaml."
            note = Note(Category.DECISION, "client-certificate-conflict", text, first.hop.source, remedy=remedy)
            notes.append(msgspec.structs.replace(note, target=f"Gateway {gateway}"))
            continue
        else:
            chosen[gateway] = named[0]
        if None in by_certificate:
            text = f"client certificate {chosen[gateway]} is now shown to all TLS backends of the Gateway"
            note = Note(Category.LOOSENED, "client-certificate-widened", text, first.hop.source, target=f"Gateway {gateway}")
            notes.append(note)
    return chosen, notes
