"""Copies Gateways, routes and grants, and changes their references to Envoy Gateway kinds."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop_import.copies import copied, terminates_tls
from lasthop_import.documents import Document, mapping, mappings
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, ImportedHop, ObjectName
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.envoy_gateway.backends import EnvoyGatewayBackends
from lasthop_import.systems.envoy_gateway.classes import own_classes
from lasthop_import.systems.envoy_gateway.grants import granted
from lasthop_import.systems.envoy_gateway.kinds import GROUP, OWN, ROUTES
from lasthop_import.systems.envoy_gateway.policies import Effect, Place, PolicyEffects

_API = "gateway.networking.k8s.io/v1"
_MOST_WEIGHT = 1_000_000


class RulePlaces(NamedTuple):
    """The places that a policy for a rule can target."""

    own: list[Place]
    """The rule and its route; their policies take precedence."""
    attached: list[list[Place]]
    """For each listener of the route: the listener, then its ListenerSet and Gateway."""


class GatewayPolicies(NamedTuple):
    traffic: PolicyEffects
    security: PolicyEffects
    clients: PolicyEffects


class Copies:
    def __init__(
        self,
        inputs: Inputs,
        settings: ImportSettings,
        backends: EnvoyGatewayBackends,
        policies: GatewayPolicies,
        certificates: dict[tuple[str, str], ObjectName],
    ) -> None:
        """`certificates`: the client certificates of EnvoyProxies."""
        self._inputs = inputs
        self._settings = settings
        self._backends = backends
        self._policies = policies
        self._certificates = certificates
        self.objects: list[tuple[SourceRef, Json]] = []
        self.hops: list[ImportedHop] = []
        self.gateways: dict[ObjectName, Json] = {}
        """The copied Gateways, with their new spec."""
        self._sets: dict[ObjectName, ObjectName] = {}
        """The Gateway of each ListenerSet."""
        self._listeners: dict[ObjectName, list[Any]] = {}
        """The listeners of each ListenerSet."""
        self._others: set[ObjectName] = set()
        self._used_filters: set[tuple[str, str]] = set()

    def copy(self) -> None:
        classes = own_classes(self._inputs)
        for document in self._inputs.of(KINDS["Gateway"]):
            self._gateway(document, classes)
        for document in self._inputs.of(KINDS["ListenerSet"]):
            self._listener_set(document)
        for kind in ROUTES:
            for document in self._inputs.of(KINDS[kind]):
                self._route(document)
        for document in self._inputs.of(KINDS["ReferenceGrant"]):
            if (spec := granted(self._inputs, self._backends, document, _spec(document))) is not None:
                self._keep(document, spec)
            else:
                self._inputs.skip(document, "not-needed", "it permits only Envoy Gateway kinds")
        self._list_filters()
        for effects in self._policies:
            effects.note_unused()

    # --- Gateways ----------------------------------------------------------------------------------------------------

    def _gateway(self, document: Document, classes: dict[str, Json] | None) -> None:
        spec = _spec(document)
        name = str(spec.get("gatewayClassName") or "")
        key = ObjectName(document.namespace, document.bare_name)
        if classes is not None and name not in classes:
            self._others.add(key)
            self._inputs.skip(document, "other-class", f"its class {name[:100]} is not one that is imported")
            return
        spec["gatewayClassName"] = self._settings.gateway_class
        parameters = _take_parameters(spec)
        reference = parameters if parameters is not None else (classes or {}).get(name) or {}
        namespace = str(reference.get("namespace") or document.namespace)
        if client := self._certificates.get((namespace, str(reference.get("name") or ""))):
            self._show_certificate(spec, document, client)
        self._note_missing(document, namespace, reference)
        self._verify_clients(document, spec, key)
        if self._keep(document, spec):
            self.gateways[key] = spec
            if len(self.gateways) == 1:
                self.objects.append((SourceRef(document), self._gateway_class()))

    def _note_missing(self, document: Document, namespace: str, reference: Json) -> None:
        """Lists an EnvoyProxy that is not in the input."""
        kind, name = str(reference.get("kind")), str(reference.get("name"))
        if kind in OWN and self._inputs.find(kind, namespace, name, GROUP) is None:
            text = f"{kind} {namespace}/{name} is not in the input; it may set a client certificate and versions of TLS"
            note = Note(Category.TODO, "proxy-missing", text, SourceRef(document), remedy="Add it to the input.")
            self._inputs.notes.append(note)

    def _verify_clients(self, document: Document, spec: Json, key: ObjectName) -> None:
        """Adds the verification of clients. A policy may target one listener; a Gateway treats all clients of a port alike."""
        whole = self._policies.clients.find([("Gateway", *key, "")]) or Effect()
        ports: dict[Any, list[Json]] = {}
        for listener in mappings(spec.get("listeners")):
            if listener.get("protocol") in ("HTTPS", "TLS"):
                place = ("Gateway", *key, str(listener.get("name")))
                effect = self._policies.clients.find([place]) or whole
                ports.setdefault(listener.get("port"), []).append(effect.frontend)
        frontend: Json = {"default": {"validation": whole.frontend} if whole.frontend else {}}
        per_port = {port: validations[0] for port, validations in ports.items() if validations[0] != whole.frontend}
        if any(validation != validations[0] for validations in ports.values() for validation in validations) or not all(
            per_port.values()
        ):
            text = "listeners of a port, or of one policy, verify clients differently, which a Gateway cannot do"
            self._inputs.notes.append(Note(Category.ACCESS_CONTROL, "clientValidation", text, SourceRef(document)))
        elif per_port:
            frontend["perPort"] = [{"port": port, "tls": {"validation": per_port[port]}} for port in sorted(per_port)]
        tls = spec.setdefault("tls", {}) if whole.frontend or per_port else None
        if isinstance(tls, dict):
            tls.setdefault("frontend", frontend)

    def _gateway_class(self) -> Json:
        metadata, spec = {"name": self._settings.gateway_class}, {"controllerName": CONTROLLER_NAME}
        return {"apiVersion": _API, "kind": "GatewayClass", "metadata": metadata, "spec": spec}

    def _listener_set(self, document: Document) -> None:
        spec = _spec(document)
        gateway = _parent(document, mapping(spec.get("parentRef")))
        key, listeners = ObjectName(document.namespace, document.bare_name), spec.get("listeners")
        self._sets[key] = gateway
        self._listeners[key] = listeners if isinstance(listeners, list) else []
        if gateway in self._others:
            self._inputs.skip(document, "other-gateway", "its Gateway is not Envoy Gateway's")
        else:
            self._keep(document, spec)

    def _show_certificate(self, spec: Json, document: Document, client: ObjectName) -> None:
        reference: Json = {"group": "", "kind": "Secret", "name": client.name}
        if client.namespace != document.namespace:
            reference["namespace"] = client.namespace
            self._permit(document, client)
        tls = spec.setdefault("tls", {})
        if isinstance(tls, dict):
            tls.setdefault("backend", {"clientCertificateRef": reference})

    def _permit(self, document: Document, client: ObjectName) -> None:
        """Writes a grant for an EnvoyProxy's Secret; Envoy Gateway needed none."""
        group = _API.partition("/")[0]
        metadata = {"name": f"{document.bare_name}-client-certificate", "namespace": client.namespace}
        spec = {
            "from": [{"group": group, "kind": "Gateway", "namespace": document.namespace}],
            "to": [{"group": "", "kind": "Secret", "name": client.name}],
        }
        grant = {"apiVersion": _API, "kind": "ReferenceGrant", "metadata": metadata, "spec": spec}
        self.objects.append((SourceRef(document), grant))

    # --- routes ------------------------------------------------------------------------------------------------------

    def _route(self, document: Document) -> None:
        spec = _spec(document)
        parents = mappings(spec.get("parentRefs"))
        names = [self._gateway_of(document, parent) for parent in parents]
        if parents and all(name in self._others for name in names):
            self._inputs.skip(document, "other-gateway", "its Gateways are not Envoy Gateway's")
            return
        hosts = tuple(str(hostname).lower() for hostname in spec.get("hostnames") or ())
        before, rules = len(self.hops), spec.get("rules")
        passthrough = document.kind == "TLSRoute" and self._passes_through(document, parents)

        def keeps(number: int, rule: Any) -> bool:
            source = SourceRef(document, ("spec", "rules", number))
            return not isinstance(rule, dict) or self._rule(
                document, rule, source, hosts, self._places(document, rule, names, parents), passthrough
            )

        if isinstance(rules, list):
            spec["rules"] = [rule for number, rule in enumerate(rules) if keeps(number, rule)]
        if not self._keep(document, spec):
            del self.hops[before:]

    def _gateway_of(self, document: Document, parent: Json) -> ObjectName:
        """Returns the Gateway of a parentRef, directly or through a ListenerSet."""
        name = _parent(document, parent)
        return self._sets.get(name, name) if parent.get("kind") == "ListenerSet" else name

    def _passes_through(self, document: Document, parents: list[Json]) -> bool:
        """Returns whether the listeners of a TLSRoute pass TLS through. Unknown listeners count as passthrough."""
        return not any(
            terminates_tls(listener, parent.get("sectionName"))
            for parent in parents
            for listener in self._listeners_of(_parent(document, parent), str(parent.get("kind")))
        )

    def _listeners_of(self, name: ObjectName, kind: str) -> Sequence[Any]:
        if kind == "ListenerSet":
            return self._listeners.get(name, ())
        return self.gateways.get(name, {}).get("listeners") or ()

    def _places(self, document: Document, rule: Json, names: list[ObjectName], parents: list[Json]) -> RulePlaces:
        route = (document.kind, document.namespace, document.bare_name)
        sections = [(*route, str(rule["name"]))] if rule.get("name") else []
        attached = [places for name, ref in zip(names, parents, strict=True) for places in self._attached(document, name, ref)]
        return RulePlaces([*sections, (*route, "")], attached)

    def _attached(self, document: Document, gateway: ObjectName, parent: Json) -> list[list[Place]]:
        """Returns the places of each listener of a parentRef: one listener with a sectionName, else all."""
        name, kind = _parent(document, parent), "ListenerSet" if parent.get("kind") == "ListenerSet" else "Gateway"
        whole: list[Place] = [(kind, *name, ""), *([("Gateway", *gateway, "")] if kind == "ListenerSet" else [])]
        if section := str(parent.get("sectionName") or ""):
            return [[(kind, *name, section), *whole]]
        listeners = mappings(self._listeners_of(name, kind))
        names = [str(listener.get("name")) for listener in listeners if parent.get("port") in (None, listener.get("port"))]
        sections = names or self._policies.security.sections(kind, name)
        return [[(kind, *name, section), *whole] for section in sections] or [whole]

    def _rule(
        self, document: Document, rule: Json, source: SourceRef, hosts: tuple[str, ...], places: RulePlaces, passthrough: bool
    ) -> bool:
        """Changes a rule; returns False if it cannot be kept."""
        if not self._filters(document, rule, source, hosts):
            return False
        rewritten = [
            route_filter["urlRewrite"].get("hostname")
            for route_filter in _filters(rule)
            if isinstance(route_filter.get("urlRewrite"), dict)
        ]
        hosts = tuple(str(hostname).lower() for hostname in rewritten if hostname) or hosts
        refs = rule.get("backendRefs")
        if isinstance(refs, list):
            rule["backendRefs"] = self._references(document, refs, source.below("backendRefs"), hosts, passthrough)
        if document.kind in ("HTTPRoute", "GRPCRoute"):
            self._apply(document, rule, places)
        return True

    def _references(
        self,
        document: Document,
        refs: list[Any],
        source: SourceRef,
        hosts: tuple[str, ...],
        passthrough: bool,
        *,
        single: bool = False,
    ) -> list[Any]:
        written: list[tuple[Any, int]] = []
        for number, ref in enumerate(refs):
            if not isinstance(ref, dict):
                written.append((ref, 1))
                continue
            targets = self._backends.targets(ref, document.namespace, source.below(number), hosts)
            if single and len(targets) > 1:
                text = "a mirror or authorization server is one host; only the first of the Backend's is used"
                self._inputs.notes.append(Note(Category.CHANGED, "first-host", text, source.below(number)))
                targets = targets[:1]
            if not self._backends.is_own(ref):
                written.append((ref, 1))
                if not targets:
                    self._note_kind(ref, source.below(number))
            elif targets:
                kept = {key: value for key, value in ref.items() if key not in ("group", "kind", "name", "port")}
                written += [({**target.reference, **kept}, len(targets)) for target in targets]
            else:
                self._note_lost(source.below(number))
            if document.kind != "UDPRoute":
                self.hops += [_hop(target.hop, passthrough) for target in targets]
        return _scaled(written)

    def _note_kind(self, ref: Json, source: SourceRef) -> None:
        text = f"the import does not read backends of kind {str(ref.get('kind'))[:60]}; they may have used TLS"
        self._inputs.notes.append(Note(Category.CANNOT, "backend-kind", text, source, severity=NoteSeverity.HIGH))

    def _note_lost(self, source: SourceRef) -> None:
        text = "the Backend is not in the input, or has no endpoint that can be written; the reference is left out"
        self._inputs.notes.append(Note(Category.CANNOT, "backend-lost", text, source, severity=NoteSeverity.HIGH))

    def _filters(self, document: Document, rule: Json, source: SourceRef, hosts: tuple[str, ...]) -> bool:
        """Replaces references to Backends and HTTPRouteFilters in a rule's filters. Returns whether the rule stays."""
        kept: list[Any] = []
        for number, entry in enumerate(rule.get("filters") or ()):
            at = source.below("filters", number)
            step = mapping(entry)
            extension = step.get("extensionRef")
            if isinstance(extension, dict) and extension.get("group") == GROUP:
                if not self._extension(document, extension, at):
                    return False
            elif lost := self._lost_backend(document, step, at, hosts):
                if lost == "externalAuth":
                    return False
            else:
                kept.append(entry)
        if "filters" in rule:
            rule["filters"] = kept
        return True

    def _lost_backend(self, document: Document, step: Json, at: SourceRef, hosts: tuple[str, ...]) -> str:
        """Replaces the backend of a mirror or authorization server. Returns the field that lost its backend, or ""."""
        for key in ("requestMirror", "externalAuth"):
            inner = step.get(key)
            if isinstance(inner, dict) and isinstance(inner.get("backendRef"), dict):
                place = at.below(key, "backendRef")
                refs = self._references(document, [inner["backendRef"]], place, hosts, False, single=True)
                if not refs:
                    return key
                inner["backendRef"] = {name: value for name, value in refs[0].items() if name != "weight"}
        return ""

    def _extension(self, document: Document, reference: Json, at: SourceRef) -> bool:
        name = str(reference.get("name"))
        route_filter = self._inputs.find("HTTPRouteFilter", document.namespace, name, GROUP)
        spec = route_filter.value.get("spec") if route_filter else None
        self._used_filters.add((document.namespace, name))
        if isinstance(spec, dict) and "directResponse" not in spec:
            return True
        text = "the rule is left out: it answers by itself, or its HTTPRouteFilter is not in the input"
        self._inputs.notes.append(Note(Category.CANNOT, "rule-left-out", text, at, severity=NoteSeverity.HIGH))
        return False

    def _list_filters(self) -> None:
        for document in self._inputs.of(OWN["HTTPRouteFilter"]):
            if (document.namespace, document.bare_name) not in self._used_filters:
                self._inputs.skip(document, "unused", "no route that is imported uses it")
                continue
            spec = self._inputs.open(document).child("spec")
            for key in sorted(spec.value):
                spec.note(
                    Category.CANNOT, "route-filter", "has no equivalent, and is not applied", key, severity=NoteSeverity.HIGH
                )

    def _apply(self, document: Document, rule: Json, places: RulePlaces) -> None:
        traffic = self._policies.traffic.find([*places.own, *itertools.chain(*places.attached)]) or Effect()
        effect = self._security(document, places)
        http, alone = document.kind == "HTTPRoute", len(rule.get("backendRefs") or ()) == 1
        for key, value in traffic.rule.items():
            if alone if key == "sessionPersistence" else http:
                rule.setdefault(key, copy.deepcopy(value))
        filters = list(rule.get("filters") or ())
        if http and not any(_type(route_filter) == "CORS" for route_filter in filters):
            filters += copy.deepcopy(list(effect.filters))
        if effect.auth is not None:
            filters += self._auth(document, effect)
        if filters:
            rule["filters"] = filters

    def _security(self, document: Document, places: RulePlaces) -> Effect:
        """Returns the security policy of a rule. If only some of its listeners have an authorization server, all get it."""
        security = self._policies.security
        if own_effect := security.find(places.own):
            return own_effect
        effects = [effect for listener_places in places.attached if (effect := security.find(listener_places))]
        authorized = [effect for effect in effects if effect.auth]
        if any(effect is not authorized[0] for effect in authorized):
            text = "its listeners have different authorization servers, and a rule has one; requests are not authorized now"
            self._inputs.notes.append(Note(Category.ACCESS_CONTROL, "extAuth", text, SourceRef(document)))
            return Effect()
        return next(iter((*authorized, *effects)), Effect())

    def _auth(self, document: Document, effect: Effect) -> list[Json]:
        auth = effect.auth
        assert auth is not None
        reference = {"namespace": auth.namespace, **auth.reference} if auth.namespace != document.namespace else auth.reference
        refs: list[Any] = []
        if document.kind == "HTTPRoute":
            before = len(self.hops)
            refs = self._references(document, [reference], auth.source, (), False, single=True)
            self.hops[before:] = [_of_route(hop, document) for hop in self.hops[before:]]
        if not refs:
            text = f"{document.name} cannot have an authorization server; requests are not authorized now"
            self._inputs.notes.append(Note(Category.ACCESS_CONTROL, "extAuth", text, auth.source))
            return []
        backend = {key: value for key, value in refs[0].items() if key != "weight"}
        return [{"type": "ExternalAuth", "externalAuth": {"backendRef": backend, **copy.deepcopy(auth.settings)}}]

    # --- all ---------------------------------------------------------------------------------------------------------

    def _keep(self, document: Document, spec: Json) -> bool:
        """Adds the copy if an API server would accept it."""
        reader = self._inputs.open(document)
        reader.ignore("spec")
        annotations = reader.annotations()
        for name in annotations.value:
            if name.startswith(f"{GROUP}/"):
                annotations.cannot(name, "an annotation for Envoy Gateway, which means nothing to the new gateway")
            else:
                annotations.ignore(name)
        written = copied(self._inputs, document, spec)
        if written is not None:
            self.objects.append((SourceRef(document), written))
        return written is not None


def _take_parameters(spec: Json) -> Json | None:
    """Removes the reference to an EnvoyProxy from a Gateway, and returns it."""
    infrastructure = spec.get("infrastructure")
    reference = infrastructure.pop("parametersRef", None) if isinstance(infrastructure, dict) else None
    if not infrastructure:
        spec.pop("infrastructure", None)
    return reference if isinstance(reference, dict) else None


def _hop(hop: ImportedHop, passthrough: bool) -> ImportedHop:
    tls = HopTLS(OldLevel.PASSTHROUGH, "the listener passes TLS through") if passthrough else hop.tls
    return ImportedHop(hop.source, hop.backend, tls, h2c=hop.h2c)


def _of_route(hop: ImportedHop, route: Document) -> ImportedHop:
    """Returns a hop with the route as its source instead of the policy."""
    return msgspec.structs.replace(hop, source=SourceRef(route, ("spec", "rules")))


def _scaled(written: list[tuple[Any, int]]) -> list[Any]:
    """Returns references with scaled weights, so that the parts of a Backend together keep its share."""
    scale = math.lcm(*(count for _, count in written))
    for ref, count in written if scale > 1 else ():
        weight = ref.get("weight", 1) if isinstance(ref, dict) else None
        if isinstance(weight, int) and not isinstance(weight, bool):
            ref["weight"] = min(weight * scale // count, _MOST_WEIGHT)
    return [ref for ref, _ in written]


def _parent(document: Document, reference: Json) -> ObjectName:
    return ObjectName(str(reference.get("namespace") or document.namespace), str(reference.get("name")))


def _spec(document: Document) -> Json:
    return copy.deepcopy(document.spec)


def _filters(rule: Json) -> list[Json]:
    return mappings(rule.get("filters"))


def _type(value: Any) -> str:
    return str(value.get("type")) if isinstance(value, dict) else ""
