"""Judges objects that no importer reads, and fields and annotations that it does not know or cannot use.

For fields there are four cases. A field that may restrict access or narrow a match closes its routes. One that may ask for
TLS closes those without TLS. Any other field of the system is of severity high, because its loss may matter. An annotation of
another program is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from lasthop.base.api.kinds import GATEWAY_API, KINDS, Kind
from lasthop.base.text.suggestions import typo_of
from lasthop.edge.admission.problem import Path
from lasthop_import.documents import Document, mappings
from lasthop_import.ingresses import WELL_KNOWN, class_of, class_unknown
from lasthop_import.inputs import INGRESS
from lasthop_import.model import RouteKind
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import UNREAD, WRONG_TYPE
from lasthop_import.settings import ImportSettings, System

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_RESTRICTS: Final = re.compile(
    "access|allow|auth|black|block|captcha|cidr|credential|csrf|den(y|ied)|filter|firewall|forbid|guard|hmac|identity|internal"
    "|ldap|login|middleware|modsec|mtls|oauth|oidc|password|permi|plugin|policies|private|protect|referer|restrict|saml|script"
    "|secur|signature|snippet|source|token|user|white|(acl|ips?|jwks|jwt|lua|opa|sso|waf|wasm)$"
)
"""Words, or their beginnings, in the names of settings by which gateways restrict access."""
_ENCRYPTS: Final = re.compile("cert|encrypt|https|ssl|tls|trust|validation|verif|(ca|sni)$")
READ_ALONG: Final = ("Service", "EndpointSlice", "IngressClass", "ConfigMap", "Secret", "Namespace", "ClusterTrustBundle")
ROUTES: Final = frozenset(
    (
        *RouteKind,
        *("Ingress", "VirtualService", "HTTPProxy", "Mapping", "AmbassadorMapping", "TCPMapping", "AmbassadorTCPMapping"),
        *("IngressRoute", "IngressRouteTCP", "IngressRouteUDP", "VirtualServer", "TransportServer", "Route"),
        "MultiClusterIngress",
    )
)
"""Kinds of all systems whose objects `--only` chooses among."""
_POLICY_TARGETS: Final = frozenset((*RouteKind, "Gateway", "ListenerSet"))
_GATEWAYS: Final = ("GatewayClass", "Gateway")
_NARROWS: Final = frozenset(("match", "matches", "conditions"))


def may_restrict(name: str) -> bool:
    """Returns whether the name of an unknown setting looks like one that restricts access."""
    return _names(_RESTRICTS, name)


def _names(wanted: re.Pattern[str], name: str) -> bool:
    return any(wanted.match(word.lower()) for word in _WORD.findall(name.rpartition("/")[2]))


def weighed(system: System, settings: ImportSettings, note: Note) -> Note:
    """Returns the note about an unread field, or one of the wrong type, with the category and severity of what may be lost;
    any other note as it is."""
    source = note.source
    if note.reason not in (UNREAD, WRONG_TYPE) or source is None:
        return note
    path = source.path
    annotation = path[:2] == ("metadata", "annotations")
    if annotation and not str(path[-1]).startswith(system.prefixes(settings)):
        return note
    restricting = source.document.kind in system.restricting and len(path) == 2 and path[0] == "spec"
    below = [*_keys(source.content)]
    closes = (
        restricting
        or any(map(may_restrict, (str(path[-1]), *below)))
        or (not annotation and (_NARROWS & {*path} or typo_of(str(path[-1]), _NARROWS)))
    )
    if closes or _encrypts((source.document.kind, *path, *below)):
        text = f"{note.text.partition(', and')[0]}; it may {'restrict access' if closes else 'ask for TLS'}"
        return msgspec.structs.replace(note, category=Category.ACCESS_CONTROL, text=text, hides_tls=not closes)
    return msgspec.structs.replace(note, severity=NoteSeverity.HIGH)


def _keys(value: Any) -> Iterator[str]:
    """Yields the names of all fields in a value."""
    for key, below in value.items() if isinstance(value, dict) else ():
        yield str(key)
        yield from _keys(below)
    for below in value if isinstance(value, list) else ():
        yield from _keys(below)


def _encrypts(path: Path) -> bool:
    return any(_names(_ENCRYPTS, step) for step in path if isinstance(step, str))


# --- objects ---------------------------------------------------------------------------------------------------------


def unread_objects(systems: Sequence[System], documents: Sequence[Document]) -> list[Note]:
    """Lists the objects that no system has read: one note for each in another version, and one for each other kind."""
    notes: list[Note] = []
    others: dict[tuple[str, str], list[Document]] = {}
    for document in documents:
        if note := _other_version(systems, document):
            notes.append(note)
        elif document.kind == INGRESS.kind and class_of(document) not in WELL_KNOWN:
            notes.append(class_unknown(document, {class_of(each) for each in documents if each.kind == INGRESS.kind}))
        elif document.kind not in READ_ALONG:
            others.setdefault((document.kind, document.group), []).append(document)
    notes += _unread_gateways(systems, documents)
    return [*notes, *(note for _, unread in sorted(others.items()) for note in _unread_kind(systems, unread))]


def _unread_gateways(systems: Sequence[System], documents: Sequence[Document]) -> Iterator[Note]:
    """Yields the Gateways of Gateway API that a system served and that the import does not read."""
    of_kind = {kind: [each for each in documents if (each.group, each.kind) == (GATEWAY_API, kind)] for kind in _GATEWAYS}
    controllers = {each.bare_name: str(each.spec.get("controllerName")) for each in of_kind["GatewayClass"]}
    own = {system.gateway_controller: system for system in systems if system.gateway_controller}
    by_name = {system.name: controller for controller, system in own.items()}
    for document in of_kind["Gateway"]:
        name = str(document.spec.get("gatewayClassName"))
        if system := own.get(controllers.get(name) or by_name.get(name, "")):
            text = f"is {system.title}'s by its class {name}; the import reads neither it nor its routes"
            remedy = "Copy them, with gatewayClassName lasthop."
            source = SourceRef(document, ("spec", "gatewayClassName"))
            yield Note(Category.CANNOT, "gateway-api", text, source, remedy=remedy, severity=NoteSeverity.HIGH)


def _unread_kind(systems: Sequence[System], unread: Sequence[Document]) -> Iterator[Note]:
    """Yields the notes about a kind that no system reads: one for each object that may restrict access, one for all others.
    A kind of a system's own API groups is configuration that is lost."""
    owner = _owner(systems, unread[0])
    meant = _misspelt(systems, unread[0]) if owner else ""
    kind = (
        f"{unread[0].kind} of {unread[0].group} (did you mean {meant} of {_group(systems, unread[0])}?)"
        if meant
        else unread[0].kind
    )
    restricts = owner and ({unread[0].kind, meant} & owner.restricting or may_restrict(unread[0].kind))
    restricting = [each for each in unread if restricts or meant or _targets_gateways(each)]
    for each in restricting:
        hides_tls = bool(meant) and not restricts
        text = f"kind {kind} is not read; it may {'ask for TLS' if hides_tls else 'restrict access'}"
        yield Note(Category.ACCESS_CONTROL, "other-kind", text, SourceRef(each), hides_tls=hides_tls)
    if unread[0].kind == "BackendTLSPolicy":
        for each in unread:
            text = (
                "the import does not read it, and the new gateway obeys it wherever it is applied: its targets need TLS then"
            )
            remedy = "Decide whether to keep it, and compare it with the policies that are written."
            source = SourceRef(each)
            yield Note(Category.CHANGED, "policy-beside", text, source, remedy=remedy, severity=NoteSeverity.HIGH)
    elif others := [each for each in unread if each not in restricting]:
        yield _other_kind(owner, others)


def _group(systems: Sequence[System], document: Document) -> str:
    """Returns the API group of an object, or the one of a system that it is a misspelling of."""
    known = {group for system in systems for group in (*system.groups, *(kind.group for kind in system.kinds)) if group}
    return document.group if document.group in known else typo_of(document.group, sorted(known)) or document.group


def _owner(systems: Sequence[System], document: Document) -> System | None:
    """Returns the system whose configuration an object of an unread kind is. Kinds that Gateway API does not have belong to
    a system that reads Gateway API."""
    group = _group(systems, document)
    unknown = group == GATEWAY_API and (document.group != group or document.kind not in KINDS)
    groups = {each.name: {kind.group for kind in each.kinds} if unknown else each.groups for each in systems}
    return next((each for each in systems if group in groups[each.name]), None)


def _misspelt(systems: Sequence[System], document: Document) -> str:
    """Returns the kind that an object probably is, if its kind or API group is misspelt; else nothing."""
    group = _group(systems, document)
    known = {kind.kind.casefold(): kind.kind for each in systems for kind in each.kinds if kind.group == group}
    name = document.kind.casefold()
    if (document.group, document.kind) == (group, known.get(name)):
        return ""
    return known.get(name) or known.get(typo_of(name, known), "")


def _targets_gateways(document: Document) -> bool:
    """Returns whether an object is a policy about Gateways or routes. Policies of any API group may restrict access."""
    targets = (*mappings(document.spec.get("targetRefs")), *mappings([document.spec.get("targetRef")]))
    return any(each.get("kind") in _POLICY_TARGETS for each in targets)


def _other_kind(owner: System | None, unread: Sequence[Document]) -> Note:
    names = sorted(each.path for each in unread)
    document = next(each for each in unread if each.path == names[0])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    text = f"kind {document.kind} is not read: {', '.join(names[:3])}{more}"
    if owner is None:
        return Note(Category.SKIPPED, "other-kind", text, SourceRef(document))
    text = f"{text}; the kind is part of {owner.title}, and what it configures is lost"
    return Note(Category.CANNOT, "other-kind", text, SourceRef(document), severity=NoteSeverity.HIGH)


def is_kind(kind: Kind, document: Document) -> bool:
    return (document.kind, document.group) == (kind.kind, kind.group)


def _other_version(systems: Sequence[System], document: Document) -> Note | None:
    """Returns the note about an object in a version that no system reads."""
    kinds = [kind for system in systems for kind in system.kinds]
    versions = [each for kind in kinds if is_kind(kind, document) for each in kind.api_versions]
    if not versions or document.api_version in versions:
        return None
    text, source = f"{document.api_version} is not read; convert it to {versions[0]}", SourceRef(document, ("apiVersion",))
    if any(document.kind in system.restricting for system in systems):
        text = f"{text}; it may restrict access"
        return Note(Category.ACCESS_CONTROL, "other-version", text, source, severity=NoteSeverity.HIGH)
    return Note(Category.CANNOT, "other-version", text, source, severity=NoteSeverity.HIGH)
