"""Turns what a certificate was checked against into references that a policy can hold, with the objects that this takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from lasthop.api.documents import Json
from lasthop.api.times import rfc3339
from lasthop.importers.decisions import CA, Decisions
from lasthop.importers.inputs import Inputs
from lasthop.importers.model import FileTrust, InlineTrust, MissingTrust, ServiceCA, SystemTrust, Trust, TrustRef
from lasthop.importers.notes import Category, Note, Source
from lasthop.importers.settings import Settings
from lasthop.importers.writer.objects import File, ObjectWriter
from lasthop.pki import parse
from lasthop.pki.parse import Certificate, Unreadable

KEY: Final = "ca.crt"
SERVICE_CA: Final = TrustRef("ConfigMap", "", "openshift-service-ca.crt", "service-ca.crt")
SYSTEM_REF: Final = {"group": "lasthop.dev", "kind": "WellKnownCACertificates", "name": "System"}
GROUPS: Final = {"ConfigMap": "", "Secret": "", "ClusterTrustBundle": "certificates.k8s.io"}
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")


class Anchors(NamedTuple):
    """What a policy refers to; exactly one of `refs`, `system`, `leaves` and `problem` says something."""

    refs: tuple[Json, ...] = ()
    system: bool = False
    leaves: tuple[Certificate, ...] = ()
    """No CAs, but the backends' own certificates: only a PinSet can hold them."""
    problem: str = ""
    """Why there is nothing to refer to."""
    reason: str = "ca-missing"


class TrustWriter:
    """Writes ConfigMaps with CA certificates, each bundle once in a namespace."""

    def __init__(self, inputs: Inputs, settings: Settings, decisions: Decisions, objects: ObjectWriter) -> None:
        self._inputs = inputs
        self._settings = settings
        self._decisions = decisions
        self._objects = objects
        self._written: dict[tuple[str, bytes], str] = {}
        self.notes: list[Note] = []

    def anchors(self, trust: Sequence[Trust], namespace: str, service: str, source: Source) -> Anchors:
        """Returns what a policy in this namespace can refer to instead of `trust`."""
        if not trust:
            return Anchors(problem="no CA is known")
        if any(isinstance(each, SystemTrust) for each in trust):
            return Anchors(system=True)
        refs: list[Json] = []
        leaves: list[Certificate] = []
        for each in trust:
            found = self._anchor(each, namespace, service, source)
            if found.problem:
                return found
            refs += [ref for ref in found.refs if ref not in refs]
            leaves += found.leaves
        if refs and leaves:
            return Anchors(
                problem="CAs and single certificates are mixed, of which no policy can be made", reason="mixed-trust"
            )
        if len(refs) > 8:
            return Anchors(problem=f"{len(refs)} CA references are more than the 8 of a policy", reason="too-many-cas")
        return Anchors(tuple(refs), leaves=tuple(leaves))

    def decided(self, ca: CA, namespace: str, service: str, source: Source) -> Anchors:
        """Returns what a decision chooses. What it names by reference need not be in the input."""
        match ca.kind:
            case "system":
                return Anchors(system=True)
            case "serviceCA":
                return self.anchors((ServiceCA(),), namespace, service, source)
            case "file":
                content = self._decisions.files.get(ca.name, b"").decode(errors="replace")
                return self.anchors((InlineTrust(content, f"the file {ca.name}"),), namespace, service, source)
            case kind:
                return Anchors((_ref(kind, ca.name),))

    def _anchor(self, trust: Trust, namespace: str, service: str, source: Source) -> Anchors:
        match trust:
            case TrustRef():
                return self._referenced(trust, namespace, service, source)
            case InlineTrust(pem, origin):
                return self._inline(pem.encode(), origin, namespace, service, source)
            case FileTrust(path):
                content = self._settings.ca_files.get(path)
                if content is None:
                    return Anchors(problem=f"the CA is in the file {path} of the old proxy; give it with --ca {path}=FILE")
                return self._inline(content, f"the file {path} of the old proxy", namespace, service, source)
            case ServiceCA():
                return self._service_ca(namespace, source)
            case MissingTrust(what):
                return Anchors(problem=what)
            case SystemTrust():
                return Anchors(system=True)

    def _referenced(self, trust: TrustRef, namespace: str, service: str, source: Source) -> Anchors:
        usable = trust.kind == "ClusterTrustBundle" or (trust.namespace == namespace and trust.key == KEY)
        data = None if trust.kind == "ClusterTrustBundle" else self._inputs.data(trust.kind, trust.namespace, trust.name)
        if data is None:
            absent = self._inputs.absence(trust.kind, trust.namespace, trust.name)
            if usable:  # it fails closed while it does not exist
                return Anchors((_ref(trust.kind, trust.name),))
            where = f"in namespace {trust.namespace}" if trust.namespace != namespace else f"under the key {trust.key}"
            return Anchors(problem=f"the CA is in {trust} {where}, from where it must be copied, and {absent}")
        content = data.get(trust.key)
        if content is None:
            return Anchors(problem=f"{trust} has no key {trust.key}")
        found = parse.certificates(content)
        if isinstance(found, Unreadable):
            return Anchors(problem=f"{trust.key} of {trust} {found.message}")
        if expired := self._expired(found, str(trust)):
            return expired
        if leaves := _leaves(found):
            return Anchors(leaves=leaves)
        if usable:
            return Anchors((_ref(trust.kind, trust.name),))
        return self._copied(content, found, f"{trust}, key {trust.key}", namespace, f"{service}-ca", source)

    def _inline(self, pem: bytes, origin: str, namespace: str, service: str, source: Source) -> Anchors:
        found = parse.certificates(pem)
        if isinstance(found, Unreadable):
            return Anchors(problem=f"the CA in {origin} {found.message}")
        if expired := self._expired(found, origin):
            return expired
        if leaves := _leaves(found):
            return Anchors(leaves=leaves)
        return self._copied(pem, found, origin, namespace, f"{service}-ca", source)

    def _service_ca(self, namespace: str, source: Source) -> Anchors:
        data = self._inputs.data("ConfigMap", namespace, SERVICE_CA.name) or {}
        content = data.get(SERVICE_CA.key, b"")
        found = parse.certificates(content)
        if isinstance(found, Unreadable):
            text = f"the service CA is in ConfigMap {namespace}/{SERVICE_CA.name}, key {SERVICE_CA.key}, and that "
            absent = self._inputs.absence("ConfigMap", namespace, SERVICE_CA.name)
            return Anchors(problem=text + (found.message if data else absent))
        return self._copied(content, found, f"ConfigMap {namespace}/{SERVICE_CA.name}", namespace, "service-ca", source)

    def _copied(
        self, content: bytes, found: Sequence[Certificate], origin: str, namespace: str, name: str, source: Source
    ) -> Anchors:
        """Writes the certificates, and nothing else that the text may hold, as a ConfigMap."""
        pem = b"".join(each.pem.strip() + b"\n" for each in found)
        known = self._written.get((namespace, pem))
        if known is None:
            others = sorted({kind.decode() for kind in _BLOCK.findall(content)} - {"CERTIFICATE", "TRUSTED CERTIFICATE"})
            if others:
                text = f"{origin} also holds {', '.join(others)}, which is left out"
                self.notes.append(Note(Category.CHANGED, "not-a-certificate", text, source))
            known = self._objects.free_name("ConfigMap", namespace, name)
            self._written[namespace, pem] = known
            document = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": known, "namespace": namespace},
                "data": {KEY: pem.decode()},
            }
            comment = (f"Copied from {origin}: it does not follow when that is renewed.",)
            self._objects.add(File.TRUST, document, (source,), comment)
            text = f"{origin} is copied, and does not follow when that is renewed"
            remedy = "Renew it with the original, or let trust-manager write it."
            self.notes.append(Note(Category.CHANGED, "ca-copied", text, source, "", remedy, f"ConfigMap {namespace}/{known}"))
        return Anchors((_ref("ConfigMap", known),))

    def _expired(self, found: Sequence[Certificate], origin: str) -> Anchors | None:
        """Returns the problem if no certificate is valid any more."""
        last = max(each.not_after for each in found)
        if last >= self._settings.now:
            return None
        return Anchors(problem=f"{origin} has expired on {rfc3339(last)[:10]}", reason="expired-ca")


def _ref(kind: str, name: str) -> Json:
    return {"group": GROUPS.get(kind, ""), "kind": kind, "name": name}


def _leaves(found: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """Returns the certificates if none of them is a CA. A certificate without readable extensions counts as a CA."""
    own = [each for each in found if not isinstance(each.extensions, Unreadable) and not each.extensions.ca]
    return tuple(own) if len(own) == len(found) else ()
