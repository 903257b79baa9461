"""Copies Gateways of the classes `gke-*` and their routes, and finds the hops of the routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, GATEWAY_API
from lasthop_import.copies import OLD, copied, terminates_tls
from lasthop_import.documents import Document, mapping, mappings
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, Imported, ImportedHop, ObjectName, ServiceBackend
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.rule_hops import unread_policy
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.gke.backend_tls import gateway_tls
from lasthop_import.systems.gke.kinds import GATEWAY, GRANT, ROUTES, internal_note
from lasthop_import.systems.gke.policies import GKEPolicies
from lasthop_import.values import duration

PREFIX: Final = "gke-"
INTERNAL_CLASSES: Final = ("rilb", "internal")
"""Parts of a GatewayClass's name that make its load balancers internal."""
CERTIFICATE_MAP: Final = "networking.gke.io/certmap"
TODO_CERTIFICATE: Final = "certificate-todo"


def is_gke(document: Document) -> bool:
    return str(document.spec.get("gatewayClassName") or "").startswith(PREFIX)


def read_gateways(inputs: Inputs, settings: ImportSettings) -> Imported:
    policies = GKEPolicies(inputs)
    imported = _Copier(inputs, settings, policies).read()
    policies.skip_unused(inputs)
    return imported


class _Copier:
    def __init__(self, inputs: Inputs, settings: ImportSettings, policies: GKEPolicies) -> None:
        self._inputs = inputs
        self._settings = settings
        self._policies = policies
        self._gateways: dict[ObjectName, Json] = {}
        """Copied Gateways, with their new spec."""
        self._grants = list(inputs.of(GRANT))
        self._objects: list[tuple[SourceRef, Json]] = []
        self._hops: list[ImportedHop] = []

    def read(self) -> Imported:
        for document in self._inputs.of(GATEWAY):
            if is_gke(document):
                self._gateway(document)
            else:
                self._inputs.skip(document, "other-class", "its gatewayClassName is not GKE's")
        for kind in ROUTES:
            for document in self._inputs.of(kind):
                if self._is_attached(document):
                    self._route(document)
                else:
                    self._inputs.skip(document, "other-gateway", "no parentRef names a GKE Gateway in the input")
        for document in self._grants if self._gateways else ():
            self._copy(document, self._inputs.open(document).mapping("spec"))
        gateways = tuple(sorted(self._gateways))
        return Imported(hops=tuple(self._hops), objects=tuple(self._objects), gateways=gateways)

    def _copy(self, document: Document, spec: Json) -> bool:
        written = copied(self._inputs, document, spec)
        annotations = self._inputs.open(document).annotations()
        annotations.ignore(*(name for name in annotations.value if not name.startswith(OLD)))
        if written is not None:
            self._objects.append((SourceRef(document), written))
        return written is not None

    # --- Gateways ----------------------------------------------------------------------------------------------------

    def _gateway(self, document: Document) -> None:
        reader = self._inputs.open(document)
        spec = dict(reader.mapping("spec"))
        if set(INTERNAL_CLASSES) & set(str(spec["gatewayClassName"]).split("-")):
            self._inputs.notes.append(internal_note(document))
        spec["gatewayClassName"] = self._settings.gateway_class
        if CERTIFICATE_MAP in document.annotations:
            reader.annotations().ignore(CERTIFICATE_MAP)
        listeners = spec.get("listeners")
        if isinstance(listeners, list):
            spec["listeners"] = [self._listener(listener, number, document) for number, listener in enumerate(listeners)]
        if spec.pop("addresses", None):
            text = "the addresses are Google's; give the Gateway another one"
            self._inputs.notes.append(Note(Category.CANNOT, "addresses", text, SourceRef(document, ("spec", "addresses"))))
        if self._copy(document, spec):
            self._gateways[ObjectName(document.namespace, document.bare_name)] = spec
            name = self._settings.gateway_class
            class_ = {"apiVersion": f"{GATEWAY_API}/v1", "kind": "GatewayClass", "metadata": {"name": name}}
            self._objects.append((SourceRef(document), {**class_, "spec": {"controllerName": CONTROLLER_NAME}}))

    def _listener(self, listener: Any, number: int, document: Document) -> Any:
        """Returns a listener. If its certificate was Google's, the listener names a Secret that the user has to create."""
        if not isinstance(listener, dict):
            return listener
        tls = listener.get("tls")
        if tls is None and CERTIFICATE_MAP in document.annotations and listener.get("protocol") == "HTTPS":
            tls = {}
        if not isinstance(tls, dict) or tls.get("mode") == "Passthrough":
            return listener
        kept = {**tls}
        options = kept.pop("options", None)
        source = SourceRef(document, ("spec", "listeners", number, "tls"))
        for key in mapping(options):
            text = "an option of GKE's, which the new gateway does not have"
            self._inputs.notes.append(Note(Category.CANNOT, "listener-option", text, source.below("options", key)))
        if not kept.get("certificateRefs"):
            text = f"the certificate is Google's; the listener waits for Secret {document.namespace}/{TODO_CERTIFICATE}"
            remedy = "Get a certificate for its hosts, as with cert-manager."
            self._inputs.notes.append(Note(Category.TODO, "default-certificate", text, source, remedy=remedy))
            kept["certificateRefs"] = [{"name": TODO_CERTIFICATE}]
        return {**listener, "tls": kept}

    # --- routes ------------------------------------------------------------------------------------------------------

    def _is_attached(self, document: Document) -> bool:
        return any(
            ref.get("kind", "Gateway") == "Gateway" and _parent(document, ref) in self._gateways
            for ref in mappings(document.spec.get("parentRefs"))
        )

    def _route(self, document: Document) -> None:
        spec = dict(self._inputs.open(document).mapping("spec"))
        rules = spec.get("rules")
        if isinstance(rules, list):
            spec["rules"] = [self._with_timeout(rule, document) for rule in rules]
        if self._copy(document, spec):
            self._hops += self._backends(spec.get("rules"), ("spec", "rules"), document)

    def _with_timeout(self, rule: Any, document: Document) -> Any:
        """Returns a rule with the timeout of its Services' policies, if they agree and the rule has no timeouts."""
        if not isinstance(rule, dict) or document.kind != "HTTPRoute" or rule.get("timeouts"):
            return rule
        timeouts = {
            self._policies.timeout(str(ref.get("namespace") or document.namespace), str(ref.get("name")))
            for ref in mappings(rule.get("backendRefs"))
        }
        seconds = timeouts.pop() if len(timeouts) == 1 else 0
        return {**rule, "timeouts": {"request": duration(seconds * 1000)}} if seconds else rule

    def _backends(self, value: Any, path: tuple[str | int, ...], document: Document) -> Iterator[ImportedHop]:
        """Yields the hop of every backendRef of a route, including mirrors."""
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from self._backends(item, (*path, number), document)
        elif isinstance(value, dict):
            for key, child in value.items():
                if key == "backendRefs" and isinstance(child, list):
                    for number, ref in enumerate(child):
                        yield from self._hop(ref, (*path, key, number), document)
                        yield from self._backends(ref.get("filters"), (*path, key, number, "filters"), document)
                elif key == "backendRef" and isinstance(child, dict):
                    yield from self._hop(child, (*path, key), document)
                else:
                    yield from self._backends(child, (*path, key), document)

    def _hop(self, ref: Json, path: tuple[str | int, ...], document: Document) -> Iterator[ImportedHop]:
        source = SourceRef(document, path)
        kind, name = ref.get("kind", "Service"), str(ref.get("name"))
        namespace = str(ref.get("namespace") or document.namespace)
        if kind != "Service" or ref.get("group"):
            text = f"the new gateway has no backends of kind {kind}; its share of the requests gets 500"
            self._inputs.notes.append(Note(Category.CANNOT, "backend-kind", text, source, severity=NoteSeverity.HIGH))
            return
        if namespace != document.namespace and not self._is_granted(document, namespace, name):
            text = f"no ReferenceGrant permits a reference to Service {namespace}/{name}, so its requests get 500, as before"
            self._inputs.notes.append(Note(Category.CHANGED, "reference-not-permitted", text, source))
            return
        number = ref.get("port")
        backend = ServiceBackend(namespace, name, number if isinstance(number, int) else None)
        if document.kind == "TLSRoute" and not self._terminates(document):
            yield ImportedHop(source, backend, HopTLS(OldLevel.PASSTHROUGH, "a TLSRoute"))
            return
        tls = self._policies.tls(self._inputs, backend)
        yield ImportedHop(source, backend, tls or unread_policy(self._inputs, backend) or gateway_tls(self._inputs, backend))

    def _terminates(self, route: Document) -> bool:
        return any(
            terminates_tls(listener, parent.get("sectionName"))
            for parent in mappings(route.spec.get("parentRefs"))
            for listener in self._gateways.get(_parent(route, parent), {}).get("listeners") or ()
        )

    def _is_granted(self, route: Document, namespace: str, name: str) -> bool:
        return any(_grants(grant, route, name) for grant in self._grants if grant.namespace == namespace)


def _parent(route: Document, reference: Json) -> ObjectName:
    return ObjectName(str(reference.get("namespace") or route.namespace), str(reference.get("name")))


def _grants(grant: Document, route: Document, service: str) -> bool:
    sources, targets = mappings(grant.spec.get("from")), mappings(grant.spec.get("to"))
    permitted = any((source.get("kind"), source.get("namespace")) == (route.kind, route.namespace) for source in sources)
    return permitted and any(
        target.get("kind") == "Service" and target.get("name") in (None, "", service) for target in targets
    )
