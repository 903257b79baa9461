"""Listeners of a Gateway: conflicts, certificates, which routes they allow."""

from __future__ import annotations

from collections import Counter

from lasthop.api import gateway as api
from lasthop.api.core import Namespace
from lasthop.api.gateway import GROUP, LabelSelector, RouteNamespaces
from lasthop.api.meta import Key, StringMap
from lasthop.plan import reasons
from lasthop.plan.listener import Listener
from lasthop.plan.reasons import Condition, false, true
from lasthop.resolve.certificates import key_pair
from lasthop.resolve.grants import permitted
from lasthop.store.graph import Graph
from lasthop.store.store import read

ROUTE_KINDS = {
    "HTTP": ("HTTPRoute",),
    "HTTPS": ("HTTPRoute",),
    "TLS": ("TLSRoute", "TCPRoute"),
    "TCP": ("TCPRoute",),
    "UDP": ("UDPRoute",),
}
"""Which routes each protocol that we serve takes."""

SNI = "HTTPS or TLS"
"""What shares a port because the client names what it wants before anything else."""


def _shared(protocol: str) -> str:
    return SNI if protocol in ("HTTPS", "TLS") else protocol


def _transport(protocol: str) -> str:
    return "UDP" if protocol == "UDP" else "TCP"


def listeners(g: Graph, key: Key) -> tuple[Listener, ...]:
    obj = read(g, key, api.Gateway)
    if obj is None:
        return ()
    protocols: dict[tuple[int, str], set[str]] = {}
    for listener in obj.spec.listeners:
        protocols.setdefault(_socket(listener), set()).add(listener.protocol)
    names = Counter((*_socket(listener), listener.hostname) for listener in obj.spec.listeners)
    resolved = []
    for listener in obj.spec.listeners:
        socket = _socket(listener)
        conflict = _conflict(listener, protocols[socket], names[*socket, listener.hostname])
        resolved.append(_listener(g, key, listener, conflict))
    return tuple(resolved)


def _socket(listener: api.Listener) -> tuple[int, str]:
    return listener.port, _transport(listener.protocol)


def table_listener(g: Graph, gateway: Key, table: str) -> Listener | None:
    """A listener that a route table serves; those that share one agree in port and protocol."""
    return next((listener for listener in g(listeners, gateway) if listener.table == table), None)


def _conflict(listener: api.Listener, protocols: set[str], same_name: int) -> Condition | None:
    # Inside one Gateway there is no winner: every listener of a conflict is refused.
    if len({_shared(protocol) for protocol in protocols}) > 1:
        message = f"port {listener.port} is also used with another protocol ({', '.join(sorted(protocols))})"
        return Condition(reasons.CONFLICTED, True, reasons.PROTOCOL_CONFLICT, message)
    if same_name > 1:
        name = listener.hostname or "no hostname"
        message = f"another listener has port {listener.port} and {name} too; give each its own"
        return Condition(reasons.CONFLICTED, True, reasons.HOSTNAME_CONFLICT, message)
    return None


def _listener(g: Graph, key: Key, listener: api.Listener, conflict: Condition | None) -> Listener:
    kinds = _kinds(listener)
    allowed, kinds_problem = _allowed_kinds(listener, kinds)
    certificates, certificate_problem = _certificates(g, key, listener)
    accepted = _accepted(listener, conflict)
    resolved = certificate_problem or kinds_problem or true(reasons.RESOLVED_REFS)
    served = accepted.status and not (_terminates(listener) and not certificates)
    conditions = (accepted, resolved, *((conflict,) if conflict else ()))
    return Listener(
        name=listener.name,
        port=listener.port,
        protocol=listener.protocol,
        hostname=listener.hostname.lower() if _shared(listener.protocol) in ("HTTP", SNI) else "",
        table=str(listener.port) if listener.protocol == "HTTP" else f"{listener.port}/{listener.name}",
        certificates=certificates,
        conditions=conditions,
        supported_kinds=allowed,
        served=served,
        passthrough=listener.protocol == "TLS" and not _terminates(listener),
    )


def _terminates(listener: api.Listener) -> bool:
    """Whether it ends the client's TLS, for which it needs a certificate."""
    return listener.protocol in ("HTTPS", "TLS") and (listener.tls is None or listener.tls.mode == "Terminate")


def _kinds(listener: api.Listener) -> tuple[str, ...]:
    """What is encrypted for the backend can be told apart by its SNI alone, which a TCPRoute does not have."""
    kinds = ROUTE_KINDS.get(listener.protocol, ())
    return kinds if listener.protocol != "TLS" or _terminates(listener) else kinds[:1]


def _accepted(listener: api.Listener, conflict: Condition | None) -> Condition:
    if conflict:
        return false(reasons.ACCEPTED, conflict.reason, conflict.message)
    if listener.protocol not in ROUTE_KINDS:
        message = f"protocol {listener.protocol} is not supported; use {', '.join(ROUTE_KINDS)}"
        return false(reasons.ACCEPTED, reasons.UNSUPPORTED_PROTOCOL, message)
    if listener.protocol == "HTTPS" and listener.tls and listener.tls.mode != "Terminate":
        message = f"tls.mode {listener.tls.mode} does not go with protocol HTTPS; use Terminate"
        return false(reasons.ACCEPTED, reasons.UNSUPPORTED_VALUE, message)
    return true(reasons.ACCEPTED)


def _allowed_kinds(listener: api.Listener, kinds: tuple[str, ...]) -> tuple[tuple[str, ...], Condition | None]:
    wanted = listener.allowed_routes.kinds
    if not wanted or not kinds:
        return kinds, None
    good = tuple(dict.fromkeys(k.kind for k in wanted if k.group == GROUP and k.kind in kinds))
    bad = [f"{k.group}/{k.kind}" for k in wanted if k.group != GROUP or k.kind not in kinds]
    if not bad:
        return good, None
    mode = " with mode Passthrough" if listener.protocol == "TLS" and not _terminates(listener) else ""
    message = f"allowedRoutes.kinds: {', '.join(bad)} cannot be attached to protocol {listener.protocol}{mode}"
    return good, false(reasons.RESOLVED_REFS, reasons.INVALID_ROUTE_KINDS, message)


def _certificates(g: Graph, key: Key, listener: api.Listener) -> tuple[tuple[Key, ...], Condition | None]:
    if not _terminates(listener):
        return (), None
    refs = listener.tls.certificate_refs if listener.tls else ()
    if not refs:
        message = f"tls.certificateRefs is empty; a listener of protocol {listener.protocol} needs a certificate"
        return (), false(reasons.RESOLVED_REFS, reasons.INVALID_CERTIFICATE_REF, message)
    good, problem = [], None
    for number, ref in enumerate(refs):
        secret = Key("Secret", ref.namespace or key.namespace, ref.name)
        found = _certificate_problem(g, key, ref, secret)
        if found is None:
            good.append(secret)
        elif problem is None:
            message = f"tls.certificateRefs[{number}]: {found.message}"
            problem = false(reasons.RESOLVED_REFS, found.reason, message)
    return tuple(good), problem


def _certificate_problem(g: Graph, key: Key, ref: api.SecretObjectReference, secret: Key) -> Condition | None:
    if (ref.group, ref.kind) != ("", "Secret"):
        message = f"kind {ref.kind} of group {ref.group!r} is not supported; use a Secret"
        return false(reasons.RESOLVED_REFS, reasons.INVALID_CERTIFICATE_REF, message)
    # Permission before existence, so that nobody learns what another namespace holds.
    if not permitted(g, GROUP, key, "", secret):
        message = f"no ReferenceGrant in namespace {secret.namespace} lets Gateways of {key.namespace} use {secret.name}"
        return false(reasons.RESOLVED_REFS, reasons.REF_NOT_PERMITTED, message)
    pair = g(key_pair, secret)
    return false(reasons.RESOLVED_REFS, reasons.INVALID_CERTIFICATE_REF, pair) if isinstance(pair, str) else None


def allows_namespace(g: Graph, gateway: Key, rule: RouteNamespaces, namespace: str) -> bool:
    match rule.from_:
        case "All":
            return True
        case "Same":
            return gateway.namespace == namespace
        case "Selector" if rule.selector is not None:
            found = read(g, Key("Namespace", "", namespace), Namespace)
            return found is not None and selects(rule.selector, found.metadata.labels)
        case _:
            return False


def selects(selector: LabelSelector, labels: StringMap) -> bool:
    """Kubernetes' label selection. A selector that asks for nothing selects everything."""
    have = dict(labels)
    if any(have.get(key) != value for key, value in selector.match_labels):
        return False
    for wanted in selector.match_expressions:
        present, inside = wanted.key in have, have.get(wanted.key) in wanted.values
        holds = {"In": inside, "NotIn": not inside, "Exists": present, "DoesNotExist": not present}
        if not holds.get(wanted.operator, False):
            return False
    return True
