"""Translates Ingresses of GKE's load balancers to listeners and rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop_import.documents import Document
from lasthop_import.ingresses import CLASS_UNKNOWN, IngressObject, PathOf, class_of, ingresses_of, read_ingress
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Certificate,
    ForeignCertificate,
    Imported,
    ImportedHop,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    ObjectName,
    PathKind,
    PathMatch,
    SecretCertificate,
    keys_of,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.gke.backend_configs import BackendConfig, BackendConfigs
from lasthop_import.systems.gke.backend_tls import ingress_tls
from lasthop_import.systems.gke.kinds import FRONTEND_CONFIG, MANAGED_CERTIFICATE, internal_note
from lasthop_import.values import https_redirect_rule

CONTROLLER: Final = "k8s.io/ingress-gce"
INTERNAL: Final = "gce-internal"
CLASSES: Final = ("gce", INTERNAL, "gce-regional-external")
PREFIXES: Final = ("ingress.gcp.kubernetes.io/", "networking.gke.io/", "kubernetes.io/ingress.allow-http")
PRE_SHARED: Final = "ingress.gcp.kubernetes.io/pre-shared-cert"
MANAGED: Final = ("networking.gke.io/managed-certificates", "networking.gke.io/v1beta1.ManagedCertificate")
FRONTEND: Final = "networking.gke.io/v1beta1.FrontendConfig"
ALLOW_HTTP: Final = "kubernetes.io/ingress.allow-http"
ADDRESSES: Final = (
    "kubernetes.io/ingress.global-static-ip-name",
    "kubernetes.io/ingress.regional-static-ip-name",
    "networking.gke.io/static-ip",
)
STATUS: Final = tuple(
    f"ingress.kubernetes.io/{name}"
    for name in (
        *("backends", "forwarding-rule", "https-forwarding-rule", "target-proxy", "https-target-proxy", "url-map"),
        *("ssl-cert", "static-ip", "redirect-url-map"),
    )
)
"""Annotations that the controller writes."""
CODES: Final = {
    "MOVED_PERMANENTLY_DEFAULT": 301,
    "FOUND": 302,
    "SEE_OTHER": 303,
    "TEMPORARY_REDIRECT": 307,
    "PERMANENT_REDIRECT": 308,
}


def read_ingresses(inputs: Inputs, settings: ImportSettings) -> Imported:
    """Reads all Ingresses of GKE's classes and all Ingresses without a class."""
    importer = _GKEIngressImporter(inputs, settings)
    documents = ingresses_of(inputs, settings, CONTROLLER, known=(*CLASSES, ""))
    mixed = not settings.ingress_classes and len({class_of(document) == INTERNAL for document in documents}) > 1
    for document in documents:
        if class_of(document) != INTERNAL:
            importer.ingress(read_ingress(inputs, document))
        elif mixed:
            text = f"its class is {INTERNAL}, and other Ingresses are public: on the same Gateway it would be public, too"
            remedy = f"Import it on its own: --ingress-class {INTERNAL} --gateway internal."
            inputs.notes.append(Note(Category.TODO, CLASS_UNKNOWN, text, SourceRef(document), remedy=remedy))
        else:
            inputs.notes.append(internal_note(document))
            importer.ingress(read_ingress(inputs, document))
    return Imported(tuple(importer.listeners), tuple(importer.rules))


class _GKEIngressImporter:
    def __init__(self, inputs: Inputs, settings: ImportSettings) -> None:
        self._inputs = inputs
        self._settings = settings
        self._configs = BackendConfigs(inputs)
        self._frontends = {
            (document.namespace, document.bare_name): _frontend(inputs.open(document).child("spec"))
            for document in inputs.of(FRONTEND_CONFIG)
        }
        for document in inputs.of(MANAGED_CERTIFICATE):
            text = "Google issued it for its load balancers; the listeners need other certificates"
            inputs.skip(document, "managed-certificate", text)
        self._taken: dict[tuple[str, PathMatch], Document] = {}
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def ingress(self, ingress: IngressObject) -> None:
        annotations = ingress.annotation_reader
        for key in ADDRESSES:
            annotations.cannot(key, "the address is Google's; give the Gateway another one")
        annotations.ignore(*STATUS)
        paths = [(at, _path(at)) for at in (*ingress.paths, *_defaults(ingress))]
        gateway = self._gateway(ingress, [(at.host, match) for at, match in paths])
        secure = self._secure(ingress, gateway)
        redirect = self._redirect_code(ingress) if secure else 0
        plain = None
        if annotations.text(ALLOW_HTTP, "true").strip().lower() != "false":
            plain = ImportedListener(SourceRef(ingress.document), 80, "HTTP", gateway=gateway)
        self._add_rules(ingress, paths, plain, secure, redirect)
        text = "a load balancer ends requests after 30 s unless a BackendConfig sets another timeout; the new gateway does not"
        note = Note(Category.CHANGED, "default-timeout", text, SourceRef(ingress.document), severity=NoteSeverity.INFO)
        self._inputs.notes.append(note)

    def _add_rules(
        self,
        ingress: IngressObject,
        paths: list[tuple[PathOf, PathMatch]],
        plain: ImportedListener | None,
        secure: ImportedListener | None,
        redirect: int,
    ) -> None:
        """Adds listeners, the rules of all paths and, for each host, the redirect with this status; 0 means none."""
        served = [*filter(None, (None if redirect else plain, secure))]
        self.listeners += filter(None, (plain, secure))
        if not served:
            text = "HTTP is not allowed and there is no certificate, so nothing was served"
            ingress.annotation_reader.note(Category.CHANGED, "not-served", text, ALLOW_HTTP, severity=NoteSeverity.HIGH)
        self.rules += [self._rule(ingress, at, match, served) for at, match in paths]
        if plain and redirect:
            hosts = dict.fromkeys(at.host for at, _ in paths)
            self.rules += [_redirect(ingress, plain, host, redirect) for host in hosts]

    def _gateway(self, ingress: IngressObject, paths: list[tuple[str, PathMatch]]) -> ObjectName | None:
        """Returns a separate Gateway for an Ingress that shares a path with another Ingress: each had its own address."""
        owners = [self._taken.setdefault(path, ingress.document) for path in paths]
        holder = next((owner for owner in owners if owner is not ingress.document), None)
        if holder is None:
            return None
        namespace, name = self._settings.gateway
        gateway = ObjectName(namespace, f"{name}-{ingress.namespace}-{ingress.name}")
        text = f"has hosts and paths of {holder.name}, at another address, so it gets a separate Gateway"
        remedy = "In a folder, give it a separate address in spec.addresses."
        note = Note(
            Category.CHANGED, "own-gateway", text, SourceRef(ingress.document), remedy=remedy, target=f"Gateway {gateway}"
        )
        self._inputs.notes.append(note)
        return gateway

    def _secure(self, ingress: IngressObject, gateway: ObjectName | None) -> ImportedListener | None:
        """Returns the listener for HTTPS. The load balancer ignores `hosts` and chooses among all certificates by SNI."""
        annotations = ingress.annotation_reader
        certificates: list[Certificate] = [SecretCertificate(ingress.namespace, name) for _, name, _ in ingress.tls if name]
        for key in (PRE_SHARED, *MANAGED):
            if annotations.text(key).strip():
                text = "the certificate is Google's, and its key cannot be exported"
                if certificates:
                    remedy = "Get certificates for these hosts, as with cert-manager."
                    annotations.note(Category.TODO, "foreign-certificate", text, key, remedy=remedy)
                else:
                    annotations.note(Category.CHANGED, "foreign-certificate", text, key)
                    certificates = [ForeignCertificate(f"{key} is a certificate of Google's")]
        if not certificates:
            return None
        source = ingress.tls[0][2] if ingress.tls else SourceRef(ingress.document)
        return ImportedListener(source, 443, "HTTPS", certificates=tuple(certificates), gateway=gateway)

    def _redirect_code(self, ingress: IngressObject) -> int:
        """Returns the status of the redirect from HTTP to HTTPS; 0 without a redirect."""
        name = ingress.annotation_reader.text(FRONTEND).strip()
        if not name:
            return 0
        key = (ingress.namespace, name)
        if key not in self._frontends:
            text = f"FrontendConfig {ingress.namespace}/{name} is not in the input; whether HTTP is redirected is not known"
            remedy = "Add it to the input."
            ingress.annotation_reader.note(Category.TODO, "frontend-config-missing", text, FRONTEND, remedy=remedy)
            return 0
        return self._frontends[key]

    def _rule(self, ingress: IngressObject, at: PathOf, match: PathMatch, served: list[ImportedListener]) -> ImportedRule:
        hops: tuple[ImportedHop, ...] = ()
        config = BackendConfig()
        if at.backend is not None:
            hops = (ImportedHop(at.source, at.backend, ingress_tls(self._inputs, at.backend)),)
            config = self._configs.of(at.backend, at.source)
        return ImportedRule(
            source=at.source,
            namespace=ingress.namespace,
            route=ingress.name,
            listeners=keys_of(served),
            hostnames=(at.host,) if at.host else (),
            matches=(ImportedMatch(match),),
            filters=config.filters,
            hops=hops,
            timeouts=config.timeouts,
            persistence=config.persistence,
            refused="" if served else "nothing was served",
        )


def _frontend(spec: FieldReader) -> int:
    """Returns the status of the redirect to HTTPS; 0 without a redirect."""
    spec.cannot("sslPolicy", "versions and ciphers for clients are the gateway's own")
    redirect = spec.child("redirectToHttps")
    enabled, name = redirect.boolean("enabled"), redirect.text("responseCodeName") or "MOVED_PERMANENTLY_DEFAULT"
    if name not in CODES:
        redirect.note(Category.CANNOT, "redirect-code", f"{name} is not a status of GKE; it is 301 now", "responseCodeName")
    return CODES.get(name, 301) if enabled else 0


def _defaults(ingress: IngressObject) -> Iterator[PathOf]:
    """Yields the default backend for all hosts, and for each host without a path "/"."""
    if ingress.default is None:
        return
    source = SourceRef(ingress.document, ("spec", "defaultBackend"))
    whole = {at.host for at in ingress.paths if _path(at) == PathMatch(PathKind.SEGMENT, "/")}
    for host in ("", *(host for host in ingress.hosts if host)):
        if host not in whole:
            yield PathOf(host, "/", "Prefix", ingress.default, source)


def _path(at: PathOf) -> PathMatch:
    """Returns the match of a path. Without a type, a path is a prefix only if it ends in `/*`."""
    if at.path_type in ("Exact", "Prefix"):
        return PathMatch(PathKind.EXACT if at.path_type == "Exact" else PathKind.SEGMENT, at.path)
    if at.path in ("/", "/*"):
        return PathMatch(PathKind.SEGMENT, "/")
    if at.path.endswith("/*"):
        return PathMatch(PathKind.STRING, at.path[:-1])
    return PathMatch(PathKind.EXACT, at.path)


def _redirect(ingress: IngressObject, plain: ImportedListener, host: str, code: int) -> ImportedRule:
    source, names = ingress.annotation_reader.source(FRONTEND), (host,) if host else ()
    return https_redirect_rule(source, ingress.namespace, ingress.name, (plain.key,), names, code=code)
