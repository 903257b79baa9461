"""Translates VirtualServices to rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.routes import HTTPRouteFilter
from lasthop.engine.resolve.routing.hostnames import intersection
from lasthop_import.documents import mapping, mappings, texts
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    ForeignCertificate,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    ObjectName,
    RouteKind,
    keys_of,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.istio import filters
from lasthop_import.systems.istio.delegates import Delegates, is_delegate
from lasthop_import.systems.istio.gateways import Gateways, GatewayServer, IstioGateway
from lasthop_import.systems.istio.hops import MIRRORS, PASSTHROUGH, STREAM, HopReader, RequestOrigin
from lasthop_import.systems.istio.kinds import VIRTUAL_SERVICE, Mesh, exported, fqdn, gateway_name
from lasthop_import.systems.istio.matches import HTTPMatch, read_gateway_names, read_match
from lasthop_import.values import is_host, is_port

_ANSWERS: Final = ("directResponse", "delegate")
_STREAM_CONDITIONS: Final = ("destinationSubnets", "sourceSubnet", "sourceLabels", "sourceNamespace")
NOWHERE: Final = "invalid.invalid"
"""Replaces hosts that cannot be written, so that a route does not match all hosts instead."""


class AttachedGateway(NamedTuple):
    """A Gateway that a VirtualService is bound to, with the servers that its hosts can reach."""

    name: str
    """`namespace/name`."""
    gateway: IstioGateway
    servers: tuple[GatewayServer, ...]


class BoundVirtualService(msgspec.Struct, frozen=True):
    """A VirtualService and its gateways of one namespace, which share DestinationRules and Secrets."""

    spec: FieldReader
    hosts: tuple[str, ...]
    """Empty means any."""
    attached: tuple[AttachedGateway, ...]

    @property
    def gateway(self) -> IstioGateway:
        return self.attached[0].gateway

    def servers(self, gateways: Sequence[str], port: int, protocols: Sequence[str]) -> list[GatewayServer]:
        """Returns the servers of a match. Servers that redirect to HTTPS take no other routes."""
        return [
            server
            for gateway in self.attached
            if not gateways or gateway.name in gateways
            for server in gateway.servers
            if server.listener.protocol in protocols and not server.redirects
            if port in (0, server.listener.port)
        ]


class VirtualServiceReader:
    def __init__(self, inputs: Inputs, mesh: Mesh, gateways: Gateways, hops: HopReader) -> None:
        self._inputs = inputs
        self._mesh = mesh
        self._gateways = gateways
        self._hops = hops
        self._delegates = Delegates(inputs)
        self.rules: list[ImportedRule] = []
        self.listeners: list[ImportedListener] = []
        """The listeners of Gateways that are not in the input."""

    def read(self) -> None:
        for document in self._inputs.of(VIRTUAL_SERVICE):
            gateways = document.spec.get("gateways")
            if is_delegate(document):
                continue
            if not isinstance(gateways, list) or all(name == "mesh" for name in gateways):
                self._inputs.skip(document, "mesh-only", "names no gateway, so that it is for sidecars only")
                continue
            for bound in self._bound(self._inputs.open(document).child("spec")):
                self._read(bound)
        self._delegates.skip_unused()
        self._gateways.note_unused(self._inputs)

    # --- gateways and hosts ------------------------------------------------------------------------------------------

    def _bound(self, spec: FieldReader) -> list[BoundVirtualService]:
        export_to, hosts = spec.texts("exportTo"), self._hosts(spec)
        by_namespace: dict[str, list[AttachedGateway]] = {}
        for reference in spec.texts("gateways"):
            if reference == "mesh":
                text = "sidecars are out of scope: only the gateways are imported"
                spec.note(Category.SKIPPED, "mesh-too", text, "gateways")
            elif attached := self._attached(spec, reference, hosts, export_to):
                by_namespace.setdefault(attached.gateway.namespace, []).append(attached)
        if not by_namespace:
            spec.ignore("http", "tls", "tcp")
        return [BoundVirtualService(spec, hosts, tuple(group)) for group in by_namespace.values()]

    def _attached(
        self, spec: FieldReader, reference: str, hosts: tuple[str, ...], export_to: tuple[str, ...]
    ) -> AttachedGateway | None:
        """Returns a Gateway with the servers for the hosts; None if it does not use the VirtualService."""
        name = gateway_name(reference, spec.namespace)
        gateway = self._gateways.use(name) or self._assumed(spec, name, hosts)
        if not exported(export_to, spec.namespace, gateway.namespace):
            text = f"is not exported to namespace {gateway.namespace}, where gateway {reference} runs"
            spec.note(Category.SKIPPED, "not-exported", text, "exportTo")
            return None
        permitted = (server for server in gateway.servers if server.namespace in ("", spec.namespace))
        servers = tuple(server for server in permitted if _reaches(server.listener.hostname, hosts))
        if not servers:
            text = f"no server of gateway {reference} has a host of this VirtualService, so that it was not used there"
            spec.note(Category.SKIPPED, "no-server", text, "gateways")
            return None
        return AttachedGateway(name, gateway, servers)

    def _hosts(self, spec: FieldReader) -> tuple[str, ...]:
        hosts = tuple(fqdn(host, spec.namespace) if host != "*" else "" for host in spec.texts("hosts"))
        for host in hosts:
            if host and not is_host(host):
                text = f"{host[:100]} cannot be the hostname of a route, and is left out"
                spec.note(Category.CANNOT, "host", text, "hosts", severity=NoteSeverity.HIGH)
        return () if "" in hosts else tuple(host for host in hosts if is_host(host)) or (NOWHERE,)

    def _assumed(self, spec: FieldReader, name: str, hosts: tuple[str, ...]) -> IstioGateway:
        """Returns a Gateway that is not in the input, with the listeners that the kinds of routes imply.

        Requests arrive on 80 and 443, and TLS with a server name in `tls` is passed through."""
        owner = ObjectName(*name.split("/", 1))
        listeners = [*_passed_listeners(spec, owner)]
        passed = {(listener.port, listener.hostname) for listener in listeners}
        if "http" in spec or not listeners:
            source, missing = spec.source("gateways"), (ForeignCertificate(f"Gateway {owner} is not in the input"),)
            listeners.append(ImportedListener(source, 80, "HTTP", gateway=owner))
            listeners += [
                ImportedListener(source, 443, "HTTPS", host, missing, gateway=owner)
                for host in hosts or ("",)
                if (443, host) not in passed
            ]
        ports = ", ".join(str(port) for port in sorted({listener.port for listener in listeners}))
        text = f"Gateway {owner} is not in the input; listeners on {ports} are assumed"
        remedy = "Add it to the input, or attach the routes to an existing Gateway with --parent."
        spec.note(Category.TODO, "gateway-missing", text, "gateways", remedy=remedy)
        self.listeners += listeners
        return IstioGateway(
            spec.document,
            {},
            self._mesh.root,
            tuple(GatewayServer(listener, "", False, listener.passthrough) for listener in listeners),
        )

    # --- routes ------------------------------------------------------------------------------------------------------

    def _read(self, bound: BoundVirtualService) -> None:
        for route in bound.spec.children("http"):
            for rule in self._delegates.rules(route):
                self.rules += self._http(bound, rule)
        for route in bound.spec.children("tls"):
            for match in route.children("match"):
                self.rules += self._stream(bound, route, match, match.texts("sniHosts"))
        for route in bound.spec.children("tcp"):
            for tcp_match in (*route.children("match"),) or (None,):
                self.rules += self._stream(bound, route, tcp_match, ())

    def _http(self, bound: BoundVirtualService, route: FieldReader) -> Iterator[ImportedRule]:
        route.ignore("name")
        _note_faults(route)
        _note_answers(route)
        edits = filters.headers(route.child("headers"))
        steps = (*edits.filters, *(filters.cors_filter(route.child("corsPolicy")) if "corsPolicy" in route else ()))
        rewrite = filters.rewrite(route.child("rewrite"))
        redirect = route.child("redirect") if "redirect" in route else None
        answered = redirect is not None or any(key in route for key in _ANSWERS)
        if answered:
            _note_unused(route)
        timeouts, retry = filters.NO_TIMES if answered else filters.times(route)
        authority = filters.bare_host(rewrite.authority or edits.authority)
        for match, hosts, listeners in self._places(bound, route, separate=bool(rewrite.uri or redirect)):
            at = RequestOrigin(bound.gateway, listeners[0].port, (authority,) if authority else hosts)
            hops, grpc = ((), False) if answered else self._hops.hops(route, at)
            last: tuple[HTTPRouteFilter, ...]
            if redirect is not None:
                last = (filters.redirect_filter(redirect, match.prefix),)
            else:
                last = filters.path_and_host(route.child("rewrite"), rewrite, edits.authority, match.prefix)
            rule = _rule_of(bound, route, listeners, hosts)
            yield msgspec.structs.replace(
                rule,
                kind=RouteKind.GRPC if grpc else RouteKind.HTTP,
                matches=() if match.matches == (ImportedMatch(),) else match.matches,
                filters=(*steps, *last),
                hops=hops,
                mirrors=() if answered else self._hops.mirrors(route, at),
                timeouts=timeouts,
                retry=retry,
            )

    def _places(
        self, bound: BoundVirtualService, route: FieldReader, *, separate: bool
    ) -> Iterator[tuple[HTTPMatch, tuple[str, ...], list[ImportedListener]]]:
        """Yields matches that can share a rule, with hosts and listeners. `separate`: only if they replace the same prefix."""
        for key, matches in _grouped(route, separate=separate).items():
            hosts = _narrowed(bound.hosts, key.authority)
            protocols = {"http": ("HTTP",), "https": ("HTTPS",)}.get(key.scheme, ("HTTP", "HTTPS"))
            servers = bound.servers(key.gateways, key.port, protocols)
            reached = [server.listener for server in servers if _reaches(server.listener.hostname, hosts)]
            if not reached:
                text = "no imported server of the gateways takes these requests; the route is left out"
                route.note(Category.SKIPPED, "no-server", text)
                route.ignore("route", *MIRRORS)
                continue
            joined = tuple(entry for match in matches for entry in match.matches)
            yield key._replace(matches=joined, prefix=matches[0].prefix), hosts, reached

    def _stream(
        self, bound: BoundVirtualService, route: FieldReader, match: FieldReader | None, names: Sequence[str]
    ) -> Iterator[ImportedRule]:
        """Yields the rules of connections: TLS passthrough by SNI, terminated TLS, or TCP."""
        gateways, port = (read_gateway_names(match), match.integer("port") or 0) if match else ((), 0)
        if match and (unwritable := next((key for key in _STREAM_CONDITIONS if key in match), None)):
            text = "has no equivalent; the match is left out"
            match.note(Category.CANNOT, "match-left-out", text, unwritable, severity=NoteSeverity.HIGH)
            route.ignore("route")
            return
        passed = bool(names)
        servers = [server for server in bound.servers(gateways, port, ("TLS", "TCP")) if server.passthrough is passed]
        yield from self._tls_connections(bound, route, _of_protocol(servers, "TLS"), names)
        if plain := _of_protocol(servers, "TCP"):
            yield self._connections(bound, route, RouteKind.TCP, plain, (), passed)
        if not servers:
            text = "no imported server of the gateways takes these connections; the route is left out"
            route.note(Category.SKIPPED, "no-server", text)
            route.ignore("route")

    def _tls_connections(
        self, bound: BoundVirtualService, route: FieldReader, listeners: Sequence[ImportedListener], names: Sequence[str]
    ) -> Iterator[ImportedRule]:
        """Yields the rule of TLS connections. TLS is passed through if `names` has server names."""
        hosts = self._stream_hosts(names or bound.hosts, listeners)
        reached = [listener for listener in listeners if _reaches(listener.hostname, hosts)]
        if reached and not hosts:
            text = "a TLSRoute needs hostnames, and the route has none"
            route.note(Category.CANNOT, "sni-any", text, severity=NoteSeverity.HIGH)
        elif reached:
            yield self._connections(bound, route, RouteKind.TLS, reached, hosts, bool(names))

    def _connections(
        self,
        bound: BoundVirtualService,
        route: FieldReader,
        kind: RouteKind,
        listeners: Sequence[ImportedListener],
        hosts: tuple[str, ...],
        passed: bool,
    ) -> ImportedRule:
        at = RequestOrigin(bound.gateway, listeners[0].port, hosts, PASSTHROUGH if passed else STREAM)
        rule = _rule_of(bound, route, listeners, hosts)
        return msgspec.structs.replace(rule, kind=kind, hops=self._hops.hops(route, at)[0])

    def _stream_hosts(self, names: Sequence[str], listeners: Sequence[ImportedListener]) -> tuple[str, ...]:
        hosts = tuple(name.lower() for name in names if name != "*" and is_host(name.lower()))
        if hosts and "*" not in names:
            return hosts
        return tuple(dict.fromkeys(listener.hostname for listener in listeners if listener.hostname))


def _of_protocol(servers: Sequence[GatewayServer], protocol: str) -> list[ImportedListener]:
    return [server.listener for server in servers if server.listener.protocol == protocol]


def _rule_of(
    bound: BoundVirtualService, route: FieldReader, listeners: Sequence[ImportedListener], hosts: tuple[str, ...]
) -> ImportedRule:
    owner = bound.spec.document
    return ImportedRule(route.source(), owner.namespace, owner.bare_name, keys_of(listeners), hosts)


def _note_faults(route: FieldReader) -> None:
    """Lists faults. A fault that aborts all requests is a way to refuse them."""
    abort = mapping(route.mapping("fault").get("abort"))
    if abort and mapping(abort.get("percentage")).get("value", 100) == 100:
        route.access_control("fault", "all requests were refused")
    else:
        route.cannot("fault", "faults are not injected")


def _note_answers(route: FieldReader) -> None:
    """Lists the answers that the gateway sent itself."""
    if "directResponse" in route:
        text = "has no equivalent; these requests get 500"
        route.note(Category.CANNOT, "no-equivalent", text, "directResponse", severity=NoteSeverity.HIGH)


def _note_unused(route: FieldReader) -> None:
    for key in ("route", "timeout", "retries", *MIRRORS):
        if key in route:
            route.note(Category.SKIPPED, "not-used", "has no effect together with a redirect or direct response", key)


def _grouped(route: FieldReader, *, separate: bool) -> dict[HTTPMatch, list[HTTPMatch]]:
    """Groups the matches that differ only in the requests that they match."""
    entries = route.children("match")
    matches = [match for entry in entries if (match := read_match(entry)) is not None] if entries else [HTTPMatch()]
    groups: dict[HTTPMatch, list[HTTPMatch]] = {}
    for match in matches:
        key = match._replace(matches=(), prefix=match.prefix if separate else None)
        groups.setdefault(key, []).append(match)
    return groups


def _narrowed(hosts: tuple[str, ...], authority: str) -> tuple[str, ...]:
    """Returns the hosts of a match: its authority, if the VirtualService has that host."""
    if not authority:
        return hosts
    return (authority,) if _reaches(authority, hosts) and is_host(authority) else (NOWHERE,)


def _reaches(hostname: str, hosts: Sequence[str]) -> bool:
    return not hosts or any(intersection(hostname, host) is not None for host in hosts)


def _passed_listeners(spec: FieldReader, owner: ObjectName) -> Iterator[ImportedListener]:
    for route in mappings(spec.value.get("tls")):
        for match in mappings(route.get("match")):
            port = match.get("port")
            for name in texts(match.get("sniHosts")):
                host = "" if name == "*" else name.lower()
                if not host or is_host(host):
                    number = port if isinstance(port, int) and is_port(port) else 443
                    yield ImportedListener(spec.source("gateways"), number, "TLS", host, passthrough=True, gateway=owner)
