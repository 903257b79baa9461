"""Reads Ingresses with Traefik's annotations, and the annotations of their Services."""

from __future__ import annotations

from lasthop_import.ingresses import Annotations, IngressObject, PathOf, ingresses_of, read_ingress
from lasthop_import.model import ForeignCertificate, SecretCertificate
from lasthop_import.notes import Category
from lasthop_import.systems.traefik.front import Termination
from lasthop_import.systems.traefik.ingress_routes import TraefikContext
from lasthop_import.systems.traefik.kinds import PREFIX
from lasthop_import.systems.traefik.matches import Alternative, Unwritable, alternatives
from lasthop_import.systems.traefik.rules import Router
from lasthop_import.systems.traefik.services import ServiceHops
from lasthop_import.systems.traefik.static import EntryPoint
from lasthop_import.values import ROOT, is_host

CONTROLLER = "traefik.io/ingress-controller"
_CANNOT = {
    "router.observability.accesslogs": "logs are not configured by route",
    "router.observability.metrics": "metrics are not configured by route",
    "router.observability.tracing": "tracing is not configured by route",
    "router.tls.domains.0.main": "belongs to the certificate resolver",
    "router.tls.domains.0.sans": "belongs to the certificate resolver",
}


def read_ingresses(context: TraefikContext) -> None:
    for document in ingresses_of(context.inputs, context.settings, CONTROLLER, known=("traefik", "traefik-internal", "")):
        ingress = read_ingress(context.inputs, document)
        annotations = Annotations(ingress.annotation_reader, PREFIX)
        for name, text in _CANNOT.items():
            annotations.reader.cannot(annotations.key(name), text)
        _IngressReader(context, ingress, annotations).read()


class _IngressReader:
    def __init__(self, context: TraefikContext, ingress: IngressObject, annotations: Annotations) -> None:
        self._context = context
        self._ingress = ingress
        self._annotations = annotations
        self._tls_only = annotations.boolean("router.tls")
        self._resolver = annotations.text("router.tls.certresolver")
        self._options = annotations.text("router.tls.options")
        self._matcher = annotations.text("router.pathmatcher", "PathPrefix")
        self._v2 = annotations.text("router.rulesyntax") == "v2"
        self._priority = annotations.number("router.priority", 0)
        self._steps = context.middlewares.named(annotations.reader, annotations.key("router.middlewares"), ingress.namespace)
        self._points = self._entry_points()

    def read(self) -> None:
        for at in self._ingress.paths:
            self._path(at)
        if self._ingress.default is not None:
            source = self._ingress.reader.child("spec").source("defaultBackend")
            self._path(PathOf("", "/", "Prefix", self._ingress.default, source), lowest=True)

    def _entry_points(self) -> tuple[EntryPoint, ...]:
        names = tuple(name.strip() for name in self._annotations.text("router.entrypoints").split(",") if name.strip())
        front, key = self._context.front, self._annotations.key("router.entrypoints")
        if not names and self._ingress.tls and not self._tls_only:
            return self._context.static.defaults
        return front.points(self._annotations.reader, names, key, tls=self._tls_only)

    def _path(self, at: PathOf, *, lowest: bool = False) -> None:
        refused, conditions = "", tuple[Alternative, ...]()
        rule = f"{self._matcher if at.path_type != 'Exact' else 'Path'}(`{at.path}`)"
        try:
            conditions = self._alternatives(at, rule)
        except Unwritable as error:
            refused = str(error)
        whole = f"Host(`{at.host}`) && {rule}" if at.host else rule
        priority = self._priority or (-1 if lowest else len(whole))
        ingress = self._ingress
        self._context.rules.add(
            Router(
                at.source,
                ingress.namespace,
                ingress.name,
                conditions,
                self._points,
                priority,
                self._service_hops(at),
                self._steps,
                self._termination(at.host),
                self._tls_only,
                refused,
            )
        )

    def _alternatives(self, at: PathOf, rule: str) -> tuple[Alternative, ...]:
        if at.host and not is_host(at.host):
            raise Unwritable(f"{at.host[:100]} cannot be a hostname")
        conditions = tuple(alternative._replace(host=at.host) for alternative in alternatives(rule, v2=self._v2))
        return (Alternative(at.host, ROOT),) if at.path == "/" and at.path_type != "Exact" else conditions

    def _termination(self, host: str) -> Termination:
        clients = self._context.front.clients(self._ingress.reader, self._options, self._ingress.namespace)
        for hosts, secret, _ in self._ingress.tls:
            if secret and (host in hosts or not hosts):
                return Termination(SecretCertificate(self._ingress.namespace, secret), clients)
        if self._resolver:
            return Termination(ForeignCertificate(f"Traefik's resolver {self._resolver[:60]} got it by ACME"), clients)
        return Termination(self._context.front.default_certificate(), clients)

    def _service_hops(self, at: PathOf) -> ServiceHops:
        if at.backend is None:
            return ServiceHops()
        reference, settings = self._context.services.annotated(at.backend, at.source)
        imported = ("serversscheme", "serverstransport", "nativelb", "passhostheader")
        for name in sorted(settings.keys() - set(imported)):
            text = f"the Service {at.backend.namespace}/{at.backend.name} has service.{name}, which is not carried over"
            self._ingress.reader.child("spec").note(Category.CANNOT, "service-annotation", text, None)
        return ServiceHops((self._context.services.hop(reference),))
