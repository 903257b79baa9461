"""Writes the client validation of Gateways: references to CAs, with the revocation lists that the old gateway enforced."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop_import.model import ClientValidation, ImportedListener, ObjectName, TrustRef
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.writer.stage import Grant
from lasthop_import.writer.trust import TrustWriter, beside

TODO: Final = "clients-ca-todo"
"""A ConfigMap that does not exist: it closes the listeners that refer to it."""


class VerifyingListeners(NamedTuple):
    listeners: tuple[ImportedListener, ...]
    """All listeners. Only HTTPS listeners keep the verification of clients; other protocols cannot have it."""
    notes: tuple[Note, ...]


def verifying(listeners: tuple[ImportedListener, ...]) -> VerifyingListeners:
    """Removes the verification of clients from listeners that cannot have it, and lists these."""
    lost = [listener for listener in listeners if listener.clients and listener.protocol != "HTTPS"]
    text = "only HTTPS listeners verify clients; connections to this one need no certificate now"
    notes = (Note(Category.ACCESS_CONTROL, "client-certificates", text, listener.source) for listener in lost)
    kept = (msgspec.structs.replace(listener, clients=None) if listener in lost else listener for listener in listeners)
    return VerifyingListeners(tuple(kept), tuple(dict.fromkeys(notes)))


class ValidationWriter:
    def __init__(self, trust: TrustWriter, notes: list[Note], grants: set[Grant]) -> None:
        """Adds to `notes` and `grants`."""
        self._trust = trust
        self._notes = notes
        self._grants = grants

    def validation(self, owner: ObjectName, clients: ClientValidation, source: SourceRef) -> Json:
        """Returns the `tls` of a port of the Gateway `owner`."""
        mode = {"mode": "AllowInsecureFallback"} if clients.optional else {}
        if clients.revocation and clients.revocation != tuple(beside(ca) for ca in clients.trust):
            refs = self._with_lists(owner, clients, source)
        else:
            refs = [self._reference(owner, ca) for ca in clients.trust]
        return {"validation": {"caCertificateRefs": refs, **mode}}

    def _reference(self, owner: ObjectName, ca: TrustRef) -> Json:
        if ca.namespace == owner.namespace:
            return {"group": "", "kind": ca.kind, "name": ca.name}
        self._grants.add(("Gateway", owner.namespace, ca.kind, ca.namespace, ca.name))
        return {"group": "", "kind": ca.kind, "name": ca.name, "namespace": ca.namespace}

    def _with_lists(self, owner: ObjectName, clients: ClientValidation, source: SourceRef) -> list[Json]:
        """Returns references to the CAs with their revocation lists. If a list is missing, returns a reference that closes the
        listeners: without the list, they would accept clients that were refused."""
        name = f"{clients.trust[0].name}-clients" if clients.trust else "clients"
        anchors = self._trust.anchors(clients.trust, owner.namespace, name, source, clients.revocation)
        if anchors.refs:
            return list(anchors.refs)
        text = f"{anchors.problem}; the listeners are closed until ConfigMap {owner.namespace}/{TODO} has a ca.crt"
        remedy = "Write the CA of the clients there, and their revocation list as ca.crl."
        self._notes.append(Note(Category.TODO, anchors.reason, text, source, remedy=remedy, target=f"Gateway {owner}"))
        return [{"group": "", "kind": "ConfigMap", "name": TODO}]
