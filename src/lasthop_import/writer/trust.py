"""Converts the CAs of the old gateway into references of a policy, and writes the objects that they need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from lasthop.base.api.core import CA_KEY, CRL_KEY
from lasthop.base.api.documents import Json
from lasthop.base.api.times import rfc3339
from lasthop.base.pki import parse
from lasthop.base.pki.parse import Certificate, Unreadable
from lasthop_import.decisions import CA
from lasthop_import.model import FileTrust, InlineTrust, MissingTrust, ServiceCA, SystemTrust, Trust, TrustRef
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.writer.objects import ObjectWriter, OutputFile
from lasthop_import.writer.revocation import Current, Lists, current, found_lists
from lasthop_import.writer.stage import WriterContext

SERVICE_CA: Final = TrustRef("ConfigMap", "", "openshift-service-ca.crt", "service-ca.crt")
SYSTEM_REF: Final = {"group": "lasthop.dev", "kind": "WellKnownCACertificates", "name": "System"}
GROUPS: Final = {"ConfigMap": "", "Secret": "", "ClusterTrustBundle": "certificates.k8s.io"}
CopiedCAs = Mapping[tuple[str, bytes, bytes], str]
"""Names of the ConfigMaps that are written, by namespace, certificates and revocation lists."""
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")


class PolicyAnchors(NamedTuple):
    """The CAs of a policy; exactly one of `refs`, `system`, `leaves` and `problem` is set."""

    refs: tuple[Json, ...] = ()
    system: bool = False
    leaves: tuple[Certificate, ...] = ()
    """The backends' own certificates instead of CAs: only a PinSet can hold them."""
    problem: str = ""
    """Why no reference is possible."""
    reason: str = "ca-missing"


class CAContent(NamedTuple):
    """CA certificates of the input."""

    pem: bytes
    certificates: Sequence[Certificate]
    origin: str
    name: str
    """The name of the ConfigMap to write, if they are copied."""
    usable: Json | None = None
    """A reference to the original object, if a policy can have it."""


class TrustWriter:
    """Writes ConfigMaps with CA certificates and their revocation lists, each once in a namespace."""

    def __init__(self, context: WriterContext, objects: ObjectWriter, copied: CopiedCAs = MappingProxyType({})) -> None:
        """`copied`: the CAs that an earlier stage has written."""
        self._inputs = context.inputs
        self._settings = context.settings
        self._decisions = context.decisions
        self._objects = objects
        self.copied: dict[tuple[str, bytes, bytes], str] = {**copied}
        self.notes: list[Note] = []

    def anchors(
        self,
        trust: Sequence[Trust],
        namespace: str,
        service: str,
        source: SourceRef,
        revocation: Sequence[TrustRef | FileTrust] = (),
    ) -> PolicyAnchors:
        """Returns the references of a policy in this namespace to `trust`, with its revocation lists."""
        if not trust:
            return PolicyAnchors(problem="no CA is known")
        if any(isinstance(ca, SystemTrust) for ca in trust):
            text = "the old gateway checked a revocation list; a policy with the system's CAs cannot have one"
            return PolicyAnchors(problem=text, reason="crl-not-possible") if revocation else PolicyAnchors(system=True)
        if revocation:
            return self._revocable(trust, revocation, namespace, service, source)
        anchors: list[PolicyAnchors] = []
        for ca in trust:
            anchor = self._anchor(ca, namespace, service, source)
            if anchor.problem:
                return anchor
            anchors.append(anchor)
        return _together(anchors)

    def _revocable(
        self,
        trust: Sequence[Trust],
        revocation: Sequence[TrustRef | FileTrust],
        namespace: str,
        service: str,
        source: SourceRef,
    ) -> PolicyAnchors:
        """Returns a reference to an object with the CAs and the lists: the source's own object, if it has both, or a copy."""
        lists = found_lists(self._inputs, self._settings, revocation)
        if lists.problem:
            return PolicyAnchors(problem=lists.problem, reason="crl-missing")
        contents = self._contents(trust, namespace, service)
        if isinstance(contents, PolicyAnchors):
            return contents
        if any(_leaves(content.certificates) for content in contents):
            text = "a policy cannot combine a single trusted certificate with a revocation list"
            return PolicyAnchors(problem=text, reason="mixed-trust")
        cas = b"".join(certificate.pem.strip() + b"\n" for content in contents for certificate in content.certificates)
        now = current(lists, cas, self._settings.now)
        if now.problem:
            return PolicyAnchors(problem=now.problem, reason="crl-unusable")
        if (usable := contents[0].usable) and _has_both(trust, revocation):
            return PolicyAnchors((usable,))
        return self._copied(_joined(contents, lists.origin), namespace, source, now)

    def _contents(self, trust: Sequence[Trust], namespace: str, service: str) -> list[CAContent] | PolicyAnchors:
        """Returns the certificates of all CAs, or the reason why one is not available."""
        contents: list[CAContent] = []
        for ca in trust:
            content = self._content(ca, namespace, service)
            if isinstance(content, PolicyAnchors):
                text = f"the input lacks {ca}, so the import cannot write the revocation list next to it"
                return content if content.problem else PolicyAnchors(problem=text)
            contents.append(content)
        return contents

    def decided(self, ca: CA, namespace: str, service: str, source: SourceRef) -> PolicyAnchors:
        """Returns the CAs that a decision chooses. The referenced objects need not be in the input."""
        match ca.kind:
            case "system":
                return PolicyAnchors(system=True)
            case "serviceCA":
                return self.anchors((ServiceCA(),), namespace, service, source)
            case "file":
                content = self._decisions.files.get(ca.name, b"").decode(errors="replace")
                return self.anchors((InlineTrust(content, f"the file {ca.name}"),), namespace, service, source)
            case kind:
                return PolicyAnchors((_ref(kind, ca.name),))

    def _anchor(self, trust: Trust, namespace: str, service: str, source: SourceRef) -> PolicyAnchors:
        content = self._content(trust, namespace, service)
        if isinstance(content, PolicyAnchors):
            return content
        if leaves := _leaves(content.certificates):
            return PolicyAnchors(leaves=leaves)
        if content.usable and isinstance(trust, TrustRef) and self._unlisted(trust, content, source):
            return PolicyAnchors((content.usable,))
        return self._copied(content, namespace, source)

    def _content(self, trust: Trust, namespace: str, service: str) -> CAContent | PolicyAnchors:
        """Returns the certificates, or a reference to certificates that are not in the input."""
        match trust:
            case TrustRef():
                return self._referenced(trust, namespace, service)
            case InlineTrust(pem, origin):
                return self._inline(pem.encode(), origin, service)
            case FileTrust(path):
                content = self._settings.ca_files.get(path)
                if content is None:
                    return PolicyAnchors(
                        problem=f"the CA is in the file {path} of the old proxy; give it with --ca {path}=FILE"
                    )
                return self._inline(content, f"the file {path} of the old proxy", service)
            case ServiceCA():
                return self._service_ca(namespace)
            case MissingTrust(problem):
                return PolicyAnchors(problem=problem)
            case SystemTrust():
                return PolicyAnchors(system=True)

    def _referenced(self, trust: TrustRef, namespace: str, service: str) -> CAContent | PolicyAnchors:
        usable = trust.kind == "ClusterTrustBundle" or (trust.namespace == namespace and trust.key == CA_KEY)
        data = None if trust.kind == "ClusterTrustBundle" else self._inputs.data(trust.kind, trust.namespace, trust.name)
        if data is None:
            return self._absent(trust, namespace, usable=usable)
        content = data.get(trust.key)
        if content is None:
            return PolicyAnchors(problem=f"{trust} has no key {trust.key}")
        certificates = parse.certificates(content)
        if isinstance(certificates, Unreadable):
            return PolicyAnchors(problem=f"{trust.key} of {trust} {certificates.message}")
        if expired := self._expired(certificates, str(trust)):
            return expired
        reference = _ref(trust.kind, trust.name) if usable else None
        return CAContent(content, certificates, f"{trust}, key {trust.key}", f"{service}-ca", reference)

    def _absent(self, trust: TrustRef, namespace: str, *, usable: bool) -> PolicyAnchors:
        """Returns a reference to an object that is not in the input. It fails closed while the object does not exist."""
        if usable:
            return PolicyAnchors((_ref(trust.kind, trust.name),))
        absent = self._inputs.absence(trust.kind, trust.namespace, trust.name)
        where = f"in namespace {trust.namespace}" if trust.namespace != namespace else f"under the key {trust.key}"
        return PolicyAnchors(problem=f"the CA is in {trust} {where}, from where it must be copied, and {absent}")

    def _inline(self, pem: bytes, origin: str, service: str) -> CAContent | PolicyAnchors:
        certificates = parse.certificates(pem)
        if isinstance(certificates, Unreadable):
            return PolicyAnchors(problem=f"the CA in {origin} {certificates.message}")
        return self._expired(certificates, origin) or CAContent(pem, certificates, origin, f"{service}-ca")

    def _service_ca(self, namespace: str) -> CAContent | PolicyAnchors:
        data = self._inputs.data("ConfigMap", namespace, SERVICE_CA.name) or {}
        content = data.get(SERVICE_CA.key, b"")
        certificates = parse.certificates(content)
        if isinstance(certificates, Unreadable):
            text = f"the service CA is in ConfigMap {namespace}/{SERVICE_CA.name}, key {SERVICE_CA.key}, and that "
            absent = self._inputs.absence("ConfigMap", namespace, SERVICE_CA.name)
            return PolicyAnchors(problem=text + (certificates.message if data else absent))
        return CAContent(content, certificates, f"ConfigMap {namespace}/{SERVICE_CA.name}", "service-ca")

    def _unlisted(self, trust: TrustRef, content: CAContent, source: SourceRef) -> bool:
        """Returns whether a policy may refer to an object as it is. A revocation list in it is enforced even if the old
        gateway ignored it, so it must be current."""
        crl = (self._inputs.data(trust.kind, trust.namespace, trust.name) or {}).get(CRL_KEY)
        if crl is None:
            return True
        now = current(Lists(crl, f"{trust}, key {CRL_KEY}"), content.pem, self._settings.now)
        if now.problem:
            text = f"{now.problem}; the old gateway ignored it, and the CA is copied without it"
            self.notes.append(Note(Category.CHANGED, "crl-left-out", text, source))
            return False
        text = f"{trust} has a revocation list ({CRL_KEY}), which the old gateway ignored; it is enforced now"
        self.notes.append(Note(Category.TIGHTENED, "crl-now-enforced", text, source))
        return True

    def _copied(self, content: CAContent, namespace: str, source: SourceRef, lists: Current | None = None) -> PolicyAnchors:
        """Writes only the certificates and their revocation lists as a ConfigMap, without any other text of the source."""
        pem = b"".join(certificate.pem.strip() + b"\n" for certificate in content.certificates)
        crl = lists.pem if lists else b""
        name = self.copied.get((namespace, pem, crl))
        if name is None:
            block_kinds = sorted(
                {kind.decode() for kind in _BLOCK.findall(content.pem)} - {"CERTIFICATE", "TRUSTED CERTIFICATE"}
            )
            if block_kinds:
                text = f"{content.origin} also holds {', '.join(block_kinds)}, which is left out"
                self.notes.append(Note(Category.CHANGED, "not-a-certificate", text, source))
            name = self._objects.free_name("ConfigMap", namespace, content.name)
            self.copied[namespace, pem, crl] = name
            document = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": {CA_KEY: pem.decode(), **({CRL_KEY: crl.decode()} if crl else {})},
            }
            comment = (f"Copied from {content.origin}: it does not follow when that is renewed.",)
            self._objects.add(OutputFile.TRUST, document, (source,), comment)
            self._note_copy(content.origin, f"ConfigMap {namespace}/{name}", lists, source)
        return PolicyAnchors((_ref("ConfigMap", name),))

    def _note_copy(self, origin: str, target: str, lists: Current | None, source: SourceRef) -> None:
        text = f"{origin} is copied, and does not follow when that is renewed"
        if lists:
            text = f"{origin} are copied, and do not follow when these are renewed"
        remedy = "Renew it with the original, or let trust-manager write it."
        self.notes.append(Note(Category.CHANGED, "ca-copied", text, source, "", remedy, target))
        if lists and lists.due:
            text = (
                f"the copied revocation list expires on {lists.due}; the gateway then refuses all certificates that it covers"
            )
            remedy = f"Configure the tool that renews the CA's list to write it to {target}, key {CRL_KEY}."
            note = Note(Category.CHANGED, "crl-copied", text, source, "", remedy, target, NoteSeverity.HIGH)
            self.notes.append(note)

    def _expired(self, certificates: Sequence[Certificate], origin: str) -> PolicyAnchors | None:
        """Returns a problem if all certificates have expired."""
        last = max(certificate.not_after for certificate in certificates)
        if last >= self._settings.now:
            return None
        return PolicyAnchors(problem=f"{origin} has expired on {rfc3339(last)[:10]}", reason="expired-ca")


def _joined(contents: Sequence[CAContent], lists: str) -> CAContent:
    return contents[0]._replace(
        pem=b"".join(content.pem for content in contents),
        certificates=tuple(dict.fromkeys(certificate for content in contents for certificate in content.certificates)),
        origin=" and ".join([*dict.fromkeys(content.origin for content in contents), lists]),
    )


def beside(ca: TrustRef) -> TrustRef:
    """Returns the default location of the revocation list of a CA: in the same object."""
    return TrustRef(ca.kind, ca.namespace, ca.name, CRL_KEY)


def _ref(kind: str, name: str) -> Json:
    return {"group": GROUPS.get(kind, ""), "kind": kind, "name": name}


def _leaves(certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """Returns the certificates if none of them is a CA. A certificate without readable extensions counts as a CA."""
    leaves = [
        certificate
        for certificate in certificates
        if not isinstance(certificate.extensions, Unreadable) and not certificate.extensions.ca
    ]
    return tuple(leaves) if len(leaves) == len(certificates) else ()


def _has_both(trust: Sequence[Trust], revocation: Sequence[TrustRef | FileTrust]) -> bool:
    """Returns whether one object holds both the CAs and the revocation list."""
    return len(trust) == 1 and isinstance(trust[0], TrustRef) and tuple(revocation) == (beside(trust[0]),)


def _together(anchors: Sequence[PolicyAnchors]) -> PolicyAnchors:
    """Joins the anchors of all CAs of a policy, or returns the reason why a policy cannot have them."""
    refs: list[Json] = []
    for anchor in anchors:
        refs += [ref for ref in anchor.refs if ref not in refs]
    leaves = tuple(leaf for anchor in anchors for leaf in anchor.leaves)
    if refs and leaves:
        return PolicyAnchors(problem="a policy cannot combine CAs with single certificates", reason="mixed-trust")
    if len(refs) > 8:
        return PolicyAnchors(problem=f"{len(refs)} CA references are more than the 8 of a policy", reason="too-many-cas")
    return PolicyAnchors(tuple(refs), leaves=leaves)
