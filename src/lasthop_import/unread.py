"""Classifies objects that no importer reads, and fields and annotations that an importer does not know or cannot use.

There are four cases for fields. A field that may restrict access or narrow a match closes its routes. A field that may require
TLS closes its routes without TLS. Any other field of the system has severity high, because its loss may matter. An annotation
of another program is a warning.
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
"""Kinds of routes in all systems: `--only` applies to their objects."""
_POLICY_TARGETS: Final = frozenset((*RouteKind, "Gateway", "ListenerSet"))
_NARROWS: Final = frozenset(("match", "matches", "conditions"))


def may_restrict(name: str) -> bool:
    """Returns whether the name of an unknown setting looks like one that restricts access."""
    return _names(_RESTRICTS, name)


def _names(pattern: re.Pattern[str], name: str) -> bool:
    return any(pattern.match(word.lower()) for word in _WORD.findall(name.rpartition("/")[2]))


def weighed(system: System, settings: ImportSettings, note: Note) -> Note:
    """Sets the category and severity of a note about an unread field, or a field of the wrong type, by its possible effect.
    Returns any other note unchanged."""
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
    """Lists the objects that no system has read: one note for each object in another version, one for each other kind."""
    notes: list[Note] = []
    unread_kinds: dict[tuple[str, str], list[Document]] = {}
    for document in documents:
        if note := _other_version(systems, document):
            notes.append(note)
        elif document.kind == INGRESS.kind and class_of(document) not in WELL_KNOWN:
            notes.append(class_unknown(document, {class_of(ingress) for ingress in documents if ingress.kind == INGRESS.kind}))
        elif document.kind not in READ_ALONG:
            unread_kinds.setdefault((document.kind, document.group), []).append(document)
    notes += _unread_gateways(systems, documents)
    return [*notes, *(note for _, unread in sorted(unread_kinds.items()) for note in _unread_kind(systems, unread))]


def _of_gateway_api(kind: str, documents: Sequence[Document]) -> list[Document]:
    return [document for document in documents if (document.group, document.kind) == (GATEWAY_API, kind)]


def _unread_gateways(systems: Sequence[System], documents: Sequence[Document]) -> Iterator[Note]:
    """Yields the Gateways of Gateway API that a system served and that the import does not read."""
    controllers = {
        gateway_class.bare_name: str(gateway_class.spec.get("controllerName"))
        for gateway_class in _of_gateway_api("GatewayClass", documents)
    }
    by_controller = {system.gateway_controller: system for system in systems if system.gateway_controller}
    by_name = {system.name: controller for controller, system in by_controller.items()}
    for document in _of_gateway_api("Gateway", documents):
        name = str(document.spec.get("gatewayClassName"))
        if system := by_controller.get(controllers.get(name) or by_name.get(name, "")):
            text = f"is {system.title}'s by its class {name}; the import reads neither it nor its routes"
            remedy = "Copy them, with gatewayClassName lasthop."
            source = SourceRef(document, ("spec", "gatewayClassName"))
            yield Note(Category.CANNOT, "gateway-api", text, source, remedy=remedy, severity=NoteSeverity.HIGH)


def _unread_kind(systems: Sequence[System], unread: Sequence[Document]) -> Iterator[Note]:
    """Yields the notes about a kind that no system reads: one for each object that may restrict access, one for all others.
    An unread kind of a system's own API groups is lost configuration."""
    owner = _owner(systems, unread[0])
    suggestion = _misspelt(systems, unread[0]) if owner else ""
    kind = (
        f"{unread[0].kind} of {unread[0].group} (did you mean {suggestion} of {_group(systems, unread[0])}?)"
        if suggestion
        else unread[0].kind
    )
    restricts = owner and ({unread[0].kind, suggestion} & owner.restricting or may_restrict(unread[0].kind))
    restricting = [document for document in unread if restricts or suggestion or _targets_gateways(document)]
    for document in restricting:
        hides_tls = bool(suggestion) and not restricts
        text = f"kind {kind} is not read; it may {'ask for TLS' if hides_tls else 'restrict access'}"
        yield Note(Category.ACCESS_CONTROL, "other-kind", text, SourceRef(document), hides_tls=hides_tls)
    if unread[0].kind == "BackendTLSPolicy":
        for document in unread:
            text = (
                "the import does not read it, and the new gateway obeys it wherever it is applied: its targets need TLS then"
            )
            remedy = "Decide whether to keep it, and compare it with the policies that are written."
            source = SourceRef(document)
            yield Note(Category.CHANGED, "policy-beside", text, source, remedy=remedy, severity=NoteSeverity.HIGH)
    elif skipped := [document for document in unread if document not in restricting]:
        yield _other_kind(owner, skipped)


def _group(systems: Sequence[System], document: Document) -> str:
    """Returns the API group of an object, corrected if it is a misspelling of a system's group."""
    groups = {group for system in systems for group in (*system.groups, *(kind.group for kind in system.kinds)) if group}
    return document.group if document.group in groups else typo_of(document.group, sorted(groups)) or document.group


def _owner(systems: Sequence[System], document: Document) -> System | None:
    """Returns the system that an object of an unread kind belongs to. Unknown kinds in the group of Gateway API belong to a
    system that reads Gateway API."""
    group = _group(systems, document)
    unknown = group == GATEWAY_API and (document.group != group or document.kind not in KINDS)
    groups = {system.name: {kind.group for kind in system.kinds} if unknown else system.groups for system in systems}
    return next((system for system in systems if group in groups[system.name]), None)


def _misspelt(systems: Sequence[System], document: Document) -> str:
    """Returns the probable kind of an object with a misspelt kind or API group; else an empty text."""
    group = _group(systems, document)
    kinds = {kind.kind.casefold(): kind.kind for system in systems for kind in system.kinds if kind.group == group}
    name = document.kind.casefold()
    if (document.group, document.kind) == (group, kinds.get(name)):
        return ""
    return kinds.get(name) or kinds.get(typo_of(name, kinds), "")


def _targets_gateways(document: Document) -> bool:
    """Returns whether an object is a policy that targets Gateways or routes. Policies of any API group may restrict access."""
    targets = (*mappings(document.spec.get("targetRefs")), *mappings([document.spec.get("targetRef")]))
    return any(target.get("kind") in _POLICY_TARGETS for target in targets)


def _other_kind(owner: System | None, unread: Sequence[Document]) -> Note:
    names = sorted(document.path for document in unread)
    document = next(document for document in unread if document.path == names[0])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    text = f"kind {document.kind} is not read: {', '.join(names[:3])}{more}"
    if owner is None:
        return Note(Category.SKIPPED, "other-kind", text, SourceRef(document))
    text = f"{text}; the kind is part of {owner.title}, and its settings are lost"
    return Note(Category.CANNOT, "other-kind", text, SourceRef(document), severity=NoteSeverity.HIGH)


def is_kind(kind: Kind, document: Document) -> bool:
    return (document.kind, document.group) == (kind.kind, kind.group)


def _other_version(systems: Sequence[System], document: Document) -> Note | None:
    """Returns the note about an object in a version that no system reads."""
    kinds = [kind for system in systems for kind in system.kinds]
    versions = [version for kind in kinds if is_kind(kind, document) for version in kind.api_versions]
    if not versions or document.api_version in versions:
        return None
    text, source = f"{document.api_version} is not read; convert it to {versions[0]}", SourceRef(document, ("apiVersion",))
    if any(document.kind in system.restricting for system in systems):
        text = f"{text}; it may restrict access"
        return Note(Category.ACCESS_CONTROL, "other-version", text, source, severity=NoteSeverity.HIGH)
    return Note(Category.CANNOT, "other-version", text, source, severity=NoteSeverity.HIGH)
