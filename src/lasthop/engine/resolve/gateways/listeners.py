"""Listeners of a Gateway and its ListenerSets: conflicts, certificates and allowed route kinds."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from lasthop.base.api import gateway as api
from lasthop.base.api.gateway import GROUP
from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import PREFIX
from lasthop.engine.plan import problem as problems
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.infrastructure import READY_PORT
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.backends.grants import permitted
from lasthop.engine.resolve.gateways.allowed_listeners import allowed_sets, namespaces_problem
from lasthop.engine.resolve.gateways.frontend import frontend, validates_clients
from lasthop.engine.resolve.routing.external_auth import ListenerFilterPlan, listener_filters
from lasthop.engine.resolve.routing.hostnames import fitting
from lasthop.engine.resolve.routing.http_syntax import MAX_PORT, is_hostname, shown
from lasthop.engine.resolve.settings import settings
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair, refused_pair
from lasthop.engine.resolve.trust.trust import pair_dates
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.store import OBJECTS

ROUTE_KINDS = {
    "HTTP": ("HTTPRoute", "GRPCRoute"),
    "HTTPS": ("HTTPRoute", "GRPCRoute"),
    "TLS": ("TLSRoute", "TCPRoute"),
    "TCP": ("TCPRoute",),
    "UDP": ("UDPRoute",),
}
"""The route kinds of each supported protocol."""

SNI = "HTTPS or TLS"
"""Protocols that can share a port, because the client sends the server name first."""

Socket = tuple[int, str]
"""(port, TCP or UDP)."""


def _sharing_group(protocol: str) -> str:
    return SNI if protocol in ("HTTPS", "TLS") else protocol


def _socket(listener: ListenerPlan) -> Socket:
    return listener.port, listener.transport


def spec_listeners(g: Graph, owner: Key) -> tuple[api.Listener, ...]:
    obj = OBJECTS.of(g, owner)
    return obj.spec.listeners if isinstance(obj, api.Gateway | api.ListenerSet) else ()


@query
def own_listeners(g: Graph, owner: Key) -> tuple[ListenerPlan, ...]:
    """Returns the listeners of a Gateway or a ListenerSet, without conflicts between them."""
    specs = spec_listeners(g, owner)
    results = [(listener, own_listener.attempt(g, owner, number)) for number, listener in enumerate(specs)]
    return tuple(_closed(owner, spec) if isinstance(result, Crash) else result for spec, result in results)


@query
def own_listener(g: Graph, owner: Key, number: int) -> ListenerPlan:
    """Judges one listener in a separate query, so that its crash closes only this listener."""
    return _listener(g, owner, spec_listeners(g, owner)[number])


@query
def listeners_by_owner(g: Graph, gateway: Key) -> dict[Key, tuple[ListenerPlan, ...]]:
    """Returns the listeners of a Gateway and of the ListenerSets that it allows, with their conflicts, in the order of
    precedence.

    The Gateway's own listeners come before those of its ListenerSets, and older ListenerSets before younger ones. The first
    listener has the port and the hostname even if it is invalid: a broken certificate must not hand its hostname to another
    listener."""
    taken = _Claims()
    by_owner: dict[Key, tuple[ListenerPlan, ...]] = {}
    for owner in (gateway, *allowed_sets(g, gateway)):
        attempted = own_listeners(g, owner) if owner == gateway else own_listeners.attempt(g, owner)
        # A ListenerSet whose query crashed has no listeners; its Gateway and other ListenerSets are not affected.
        read = () if isinstance(attempted, Crash) else attempted
        owner_listeners = tuple(
            _with_clients(g, gateway, _without_refused(g, gateway, _with_filters(g, gateway, listener, number)))
            for number, listener in enumerate(read)
        )
        # An unsupported protocol claims no port; the condition of its listener reports it.
        claiming = [listener for listener in owner_listeners if listener.protocol in ROUTE_KINDS]
        earlier_conflicts = {listener: taken.conflict_with_earlier(listener) for listener in claiming}
        claims = _Claims()
        for listener in claiming:
            if earlier_conflicts[listener] is None:
                claims.add(listener)
        conflicts = {listener: earlier_conflicts[listener] or claims.conflict_among(listener) for listener in claiming}
        by_owner[owner] = tuple(_settled(listener, conflicts.get(listener)) for listener in owner_listeners)
        taken.add_all(claims)
    shared = _overlapping([listener for owner_listeners in by_owner.values() for listener in owner_listeners])
    return {
        owner: tuple(_warned(listener, shared) for listener in owner_listeners) for owner, owner_listeners in by_owner.items()
    }


@query
def listeners(g: Graph, gateway: Key) -> tuple[ListenerPlan, ...]:
    """Returns all listeners in order. Two dicts that differ only in order are equal, so the order is read separately."""
    by_owner = listeners_by_owner(g, gateway)
    return tuple(listener for owner in (gateway, *allowed_sets(g, gateway)) for listener in by_owner[owner])


@query
def table_listener(g: Graph, gateway: Key, table: str) -> ListenerPlan | None:
    """Returns a listener of a route table; all its listeners have the same port and protocol."""
    return next((listener for listener in listeners(g, gateway) if listener.table == table), None)


class _Claims:
    """The protocols and hostnames that listeners claim on each port of a Gateway."""

    def __init__(self) -> None:
        self._protocols: dict[Socket, set[str]] = {}
        self._names: Counter[tuple[Socket, str]] = Counter()

    def add(self, listener: ListenerPlan) -> None:
        self._protocols.setdefault(_socket(listener), set()).add(listener.protocol)
        self._names[_socket(listener), listener.hostname] += 1

    def add_all(self, other: _Claims) -> None:
        for socket, protocols in other._protocols.items():
            self._protocols.setdefault(socket, set()).update(protocols)
        self._names.update(other._names)

    def conflict_among(self, listener: ListenerPlan) -> Problem | None:
        """Returns a conflict with another listener of the same Gateway or ListenerSet. None of the conflicting listeners is
        served."""
        protocols = self._protocols[_socket(listener)]
        if len({_sharing_group(protocol) for protocol in protocols}) > 1:
            message = f"port {listener.port} is also used with another protocol ({', '.join(sorted(protocols))})"
            return Problem(reasons.PROTOCOL_CONFLICT, message)
        if self._names[_socket(listener), listener.hostname] > 1:
            message = f"another listener also has port {listener.port} and {_hostname(listener)}"
            return Problem(reasons.HOSTNAME_CONFLICT, message, remedy="give each its own")
        return None

    def conflict_with_earlier(self, listener: ListenerPlan) -> Problem | None:
        """Returns a conflict with listeners that take precedence. It does not name them, because the author may not be allowed
        to see them."""
        if {_sharing_group(p) for p in self._protocols.get(_socket(listener), set())} - {_sharing_group(listener.protocol)}:
            message = f"the Gateway or an older ListenerSet uses port {listener.port} with another protocol"
            return Problem(reasons.PROTOCOL_CONFLICT, message, remedy="use another port")
        if self._names[_socket(listener), listener.hostname]:
            message = f"the Gateway or an older ListenerSet already has port {listener.port} and {_hostname(listener)}"
            return Problem(reasons.HOSTNAME_CONFLICT, message)
        return None


def _hostname(listener: ListenerPlan) -> str:
    return listener.hostname or "no hostname"


def _settled(listener: ListenerPlan, conflict: Problem | None) -> ListenerPlan:
    if conflict is None:
        return listener
    _, resolved = listener.conditions
    conditions = (failed(reasons.ACCEPTED, conflict), resolved, failed(reasons.CONFLICTED, conflict))
    return replace(listener, conditions=conditions, served=False, conflicted=True)


@query
def own_filters(g: Graph, gateway: Key, owner: Key, number: int) -> ListenerFilterPlan:
    return listener_filters(g, gateway, owner, spec_listeners(g, owner)[number])


def _with_filters(g: Graph, gateway: Key, listener: ListenerPlan, number: int) -> ListenerPlan:
    """Adds the ExternalAuth servers of a listener. A listener with invalid filters is closed."""
    if not listener.http:
        return listener
    filters, (accepted, resolved) = own_filters.attempt(g, gateway, listener.owner, number), listener.conditions
    if isinstance(filters, Crash):
        return replace(listener, conditions=(accepted if not accepted.status else _crashed(), resolved), served=False)
    if filters.refused and accepted.status:
        accepted = failed(reasons.ACCEPTED, filters.refused)
    if filters.unresolved and resolved.status:
        resolved = failed(reasons.RESOLVED_REFS, filters.unresolved)
    served = listener.served and not filters.refused and not filters.unresolved
    return replace(listener, conditions=(accepted, resolved), served=served, auth=filters.auth)


def _without_refused(g: Graph, gateway: Key, listener: ListenerPlan) -> ListenerPlan:
    """Removes certificates that the Gateway's Envoy has refused. Without a remaining certificate, the listener is not
    served."""
    refused = {secret: problem for secret in listener.certificates if (problem := refused_pair(g, gateway, secret))}
    if not refused:
        return listener
    remaining = tuple(secret for secret in listener.certificates if secret not in refused)
    accepted, resolved = listener.conditions
    if resolved.status:
        resolved = failed(reasons.RESOLVED_REFS, problems.joined([*refused.values()]).within("tls.certificateRefs"))
    return replace(
        listener, certificates=remaining, conditions=(accepted, resolved), served=listener.served and bool(remaining)
    )


def _with_clients(g: Graph, gateway: Key, listener: ListenerPlan) -> ListenerPlan:
    """Adds the Gateway's validation of clients, which also applies to listeners of its ListenerSets."""
    accepted, resolved = listener.conditions
    if (
        listener.protocol == "TLS"
        and accepted.status
        and not listener.passthrough
        and validates_clients(g, gateway, listener.port)
    ):
        message = (
            "this listener does not request client certificates: the Gateway's tls.frontend applies to protocol HTTPS only"
        )
        return replace(listener, conditions=(true(reasons.ACCEPTED, message), resolved))
    if listener.protocol != "HTTPS":
        return listener
    validation = frontend.attempt(g, gateway, listener.port)
    if isinstance(validation, Crash):
        return replace(listener, conditions=(accepted if not accepted.status else _crashed(), resolved), served=False)
    if accepted.status and validation.accepted:
        accepted = validation.accepted
    if resolved.status and validation.resolved:
        resolved = validation.resolved
    served = listener.served and accepted.status
    return replace(listener, conditions=(accepted, resolved), served=served, clients=validation.clients)


def _overlapping(merged: list[ListenerPlan]) -> frozenset[tuple[int, str]]:
    """Returns (port, hostname) of HTTPS listeners whose hostnames overlap on the same port, without listeners that lost a
    conflict."""
    names = {(x.port, x.hostname) for x in merged if x.protocol == "HTTPS" and not x.conflicted}
    shared: set[tuple[int, str]] = set()
    for port, hostname in names:
        for pattern in fitting(hostname):
            if pattern != hostname and (port, pattern) in names:
                shared |= {(port, hostname), (port, pattern)}
    return frozenset(shared)


def _warned(listener: ListenerPlan, shared: frozenset[tuple[int, str]]) -> ListenerPlan:
    if listener.protocol != "HTTPS" or listener.conflicted or (listener.port, listener.hostname) not in shared:
        return listener
    message = (
        f"another HTTPS listener of port {listener.port} has an overlapping hostname; requests on the wrong connection get 421"
    )
    warning = true(reasons.OVERLAPPING_TLS_CONFIG, message, reasons.OVERLAPPING_HOSTNAMES)
    return replace(listener, conditions=(*listener.conditions, warning))


def _listener(g: Graph, key: Key, listener: api.Listener) -> ListenerPlan:
    kinds = _kinds(listener)
    allowed, kinds_problem = _allowed_kinds(listener, kinds)
    certificates, certificate_problem = _certificates(g, key, listener)
    dates = "; ".join(filter(None, (pair_dates(g, secret) for secret in certificates)))
    refused, unresolved = _refusal(g, listener), certificate_problem or kinds_problem
    accepted = failed(reasons.ACCEPTED, refused) if refused else true(reasons.ACCEPTED)
    resolved = failed(reasons.RESOLVED_REFS, unresolved) if unresolved else true(reasons.RESOLVED_REFS, dates)
    served = accepted.status and not (_terminates(listener) and not certificates)
    return replace(
        _closed(key, listener),
        certificates=certificates,
        conditions=(accepted, resolved),
        supported_kinds=allowed,
        served=served,
        passthrough=listener.protocol == "TLS" and not _terminates(listener),
    )


def _closed(key: Key, listener: api.Listener) -> ListenerPlan:
    """Returns a listener without a result, or whose query crashed: it is not served and its hostname stays reserved."""
    return ListenerPlan(
        *(key, listener.name, listener.port, listener.protocol, _hostname_of(listener), _table(key, listener)),
        conditions=(_crashed(), true(reasons.RESOLVED_REFS)),
        served=False,
        misnamed=_misnamed(listener),
    )


def _crashed() -> Condition:
    return failed(reasons.ACCEPTED, problems.internal_error())


def _hostname_of(listener: api.Listener) -> str:
    return listener.hostname.lower() if _sharing_group(listener.protocol) in ("HTTP", SNI) else ""


def _misnamed(listener: api.Listener) -> bool:
    return bool(listener.hostname) and not is_hostname(listener.hostname, wildcard=True)


def _terminates(listener: api.Listener) -> bool:
    """Returns whether the listener terminates TLS, and so needs a certificate."""
    return listener.protocol in ("HTTPS", "TLS") and (listener.tls is None or listener.tls.mode == "Terminate")


def _kinds(listener: api.Listener) -> tuple[str, ...]:
    """Returns the route kinds that a listener supports. Passthrough connections are routed by SNI, which a TCPRoute cannot
    match."""
    kinds = ROUTE_KINDS.get(listener.protocol, ())
    return kinds if listener.protocol != "TLS" or _terminates(listener) else kinds[:1]


def _table(owner: Key, listener: api.Listener) -> str:
    if listener.protocol == "HTTP":
        return str(listener.port)
    return "/".join((str(listener.port), *(owner[1:] if owner.kind == "ListenerSet" else ()), listener.name))


def _refusal(g: Graph, listener: api.Listener) -> Problem | None:
    """Returns why a listener is not accepted, apart from its certificates."""
    if problem := _schema_problem(listener):
        return problem
    if listener.protocol not in ROUTE_KINDS:
        return problems.unsupported_protocol(f"protocol {listener.protocol} is not supported", f"use {', '.join(ROUTE_KINDS)}")
    if listener.port == READY_PORT and listener.protocol != "UDP" and not settings(g).host_network:
        message = f"port {READY_PORT} is the readiness port of the proxy's Pods"
        return Problem(reasons.PORT_UNAVAILABLE, message, remedy="use another port")
    if listener.protocol == "HTTPS" and listener.tls and listener.tls.mode != "Terminate":
        message = f"tls.mode {listener.tls.mode} cannot be combined with protocol HTTPS"
        return problems.unsupported_value(message, remedy="use Terminate")
    if listener.filters.requests and listener.protocol not in ("HTTP", "HTTPS"):
        message = f"filters.requests: protocol {listener.protocol} has no requests that a filter could act on"
        return problems.unsupported_value(message, remedy="remove them")
    if problem := namespaces_problem(listener.allowed_routes.namespaces):
        return problem.within("allowedRoutes.namespaces")
    our_options = [key for key, _ in listener.tls.options if key.startswith(PREFIX)] if listener.tls else []
    if our_options:
        return problems.unsupported_value(
            f"tls.options: {', '.join(our_options)} is not an option of listeners", remedy="remove it"
        )
    return None


def _schema_problem(listener: api.Listener) -> Problem | None:
    """Repeats checks of the schema whose violation would make Envoy refuse the whole port."""
    if not 1 <= listener.port <= MAX_PORT:
        return problems.unsupported_value(f"port {listener.port} is not between 1 and {MAX_PORT:,}", remedy="use another")
    if _misnamed(listener):
        return problems.unsupported_value(f"{shown(listener.hostname)} is not a hostname", remedy="correct it")
    if not is_hostname(listener.name):
        return problems.unsupported_value(f"{shown(listener.name)} is not the name of a listener", remedy="correct it")
    return None


def _allowed_kinds(listener: api.Listener, kinds: tuple[str, ...]) -> tuple[tuple[str, ...], Problem | None]:
    allowed_kinds = listener.allowed_routes.kinds
    if not allowed_kinds or not kinds:
        return kinds, None
    good = tuple(dict.fromkeys(k.kind for k in allowed_kinds if k.group == GROUP and k.kind in kinds))
    unsupported = [f"{k.group}/{k.kind}" for k in allowed_kinds if k.group != GROUP or k.kind not in kinds]
    if not unsupported:
        return good, None
    mode = " with mode Passthrough" if listener.protocol == "TLS" and not _terminates(listener) else ""
    message = f"allowedRoutes.kinds: {', '.join(unsupported)} cannot be attached to protocol {listener.protocol}{mode}"
    return good, Problem(reasons.INVALID_ROUTE_KINDS, message)


def _certificates(g: Graph, key: Key, listener: api.Listener) -> tuple[tuple[Key, ...], Problem | None]:
    if not _terminates(listener):
        return (), None
    refs = listener.tls.certificate_refs if listener.tls else ()
    if not refs:
        message = f"tls.certificateRefs is empty; a listener of protocol {listener.protocol} needs a certificate"
        return (), problems.invalid_certificate_ref(message)
    good, problem = [], None
    for number, ref in enumerate(refs):
        secret = Key("Secret", ref.namespace or key.namespace, ref.name)
        ref_problem = _certificate_problem(g, key, ref, secret)
        if ref_problem is None:
            good.append(secret)
        elif problem is None:
            problem = ref_problem.within(f"tls.certificateRefs[{number}]")
    return tuple(good), problem


def _certificate_problem(g: Graph, key: Key, ref: api.SecretObjectReference, secret: Key) -> Problem | None:
    if (ref.group, ref.kind) != ("", "Secret"):
        return problems.invalid_kind(ref.kind, ref.group, "a Secret", reasons.INVALID_CERTIFICATE_REF)
    # Permission before existence, so that the message reveals nothing about another namespace.
    if not permitted(g, GROUP, key, "", secret):
        message = f"no ReferenceGrant in namespace {secret.namespace} lets {key.kind}s of {key.namespace} use {secret.name}"
        return Problem(reasons.REF_NOT_PERMITTED, message)
    pair = key_pair(g, secret)
    if isinstance(pair, KeyPair) and pair.must_staple:
        message = f"{secret}: tls.crt requires OCSP stapling (must-staple), which is not supported"
        return problems.invalid_certificate_ref(message, secret, remedy="use one without it")
    return pair if isinstance(pair, Problem) else None
