"""Route tables: virtual hosts, each encoded by itself, and the join of their bytes.

An edit re-encodes one virtual host; only the last join of cached bytes looks at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.type.matcher.v3 import string_pb2

from lasthop.api.meta import Key
from lasthop.outputs.envoy.encode import encode, seconds
from lasthop.outputs.envoy.quarantine import part_quarantined
from lasthop.outputs.envoy.resource import ROUTES, Resource, content_hash
from lasthop.plan.routing import Backend, Match, Route
from lasthop.plan.upstream import Protocol
from lasthop.resolve.virtual_hosts import virtual_host
from lasthop.store.graph import Graph, Output

INTERNAL_ERROR: Final = 500
REFUSED: Final = "refused"
"""A cluster name that never exists: the share of a reference that is not permitted."""
_VIRTUAL_HOSTS_FIELD: Final = b"\x12"
"""Tag of RouteConfiguration.virtual_hosts: field 2, length-delimited."""


class EncodedHost(msgspec.Struct, frozen=True):
    name: str
    body: bytes
    digest: str
    """Empty for the stand-in of a refused host: there is nothing in it that could be blamed."""


def table_name(gateway: Key, table: str) -> str:
    return f"{gateway.path}/{table}"


def encoded_host(g: Graph, gateway: Key, table: str, hostname: str) -> EncodedHost:
    """One virtual host as bytes; one that Envoy has refused answers 500 instead."""
    host = g(virtual_host, gateway, table, hostname)
    name = hostname or "*"
    body = encode(_virtual_host(name, [message for route in host.routes for message in _routes(route)]))
    digest = content_hash(body)
    if part_quarantined(g, ROUTES, f"{table_name(gateway, table)}#{name}", digest):
        everything = route_components_pb2.RouteMatch(prefix="/")
        refusal = route_components_pb2.Route(match=everything, direct_response=_internal_error())
        body, digest = encode(_virtual_host(name, [refusal])), ""
    return EncodedHost(name, body, digest)


def _virtual_host(name: str, routes: list[Any]) -> Any:
    return route_components_pb2.VirtualHost(name=name, domains=[name], routes=routes)


def _internal_error() -> Any:
    return route_components_pb2.DirectResponseAction(status=INTERNAL_ERROR)


def _routes(route: Route) -> Iterable[Any]:
    if not route.backends:
        yield route_components_pb2.Route(name=route.origin, match=_match(route.match), direct_response=_internal_error())
        return
    # WebSocket needs HTTP/1.1 to the backend, so requests that ask for an upgrade go by a hop of their own.
    upgrade = _match(route.match)
    upgrade.headers.append(route_components_pb2.HeaderMatcher(name="upgrade", present_match=True))
    yield route_components_pb2.Route(name=route.origin, match=upgrade, route=_action(route.backends, Protocol.H1_UPGRADE))
    yield route_components_pb2.Route(
        name=route.origin, match=_match(route.match), route=_action(route.backends, Protocol.AUTO)
    )


def _match(match: Match) -> Any:
    message = route_components_pb2.RouteMatch()
    if match.exact:
        message.path = match.path
    elif match.path == "/":
        message.prefix = "/"
    else:
        message.path_separated_prefix = match.path
    for header in match.headers:
        exact = string_pb2.StringMatcher(exact=header.value)
        message.headers.append(route_components_pb2.HeaderMatcher(name=header.name, string_match=exact))
    if match.method:
        exact = string_pb2.StringMatcher(exact=match.method)
        message.headers.append(route_components_pb2.HeaderMatcher(name=":method", string_match=exact))
    for parameter in match.query:
        exact = string_pb2.StringMatcher(exact=parameter.value)
        message.query_parameters.append(route_components_pb2.QueryParameterMatcher(name=parameter.name, string_match=exact))
    return message


def _action(backends: tuple[Backend, ...], protocol: Protocol) -> Any:
    action = route_components_pb2.RouteAction(
        cluster_not_found_response_code=route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR,
        timeout=seconds(0),
    )
    if len(backends) == 1:
        action.cluster = _cluster_name(backends[0], protocol)
        return action
    weights: dict[str, int] = {}
    for backend in backends:
        name = _cluster_name(backend, protocol)
        weights[name] = weights.get(name, 0) + backend.weight
    for name, weight in weights.items():
        action.weighted_clusters.clusters.add(name=name, weight={"value": weight})
    return action


def _cluster_name(backend: Backend, protocol: Protocol) -> str:
    return backend.hop._replace(protocol=protocol).name if backend.hop else REFUSED


HOSTS = Output("hosts", "vhost", encoded_host, names=True)
TABLE_NAMES = Output("tables", "table", lambda g, gateway, table: table_name(gateway, table), names=True)


def route_table(name: str, hosts: Mapping[str, EncodedHost]) -> Resource:
    """The RouteConfiguration as the join of its hosts' bytes: the same bytes as if it had been built as one message."""
    head = route_pb2.RouteConfiguration(name=name)
    tail = route_pb2.RouteConfiguration(ignore_port_in_host_matching=True)
    ordered = [hosts[key] for key in sorted(hosts)]
    parts = [_VIRTUAL_HOSTS_FIELD + _varint(len(h.body)) + h.body for h in ordered]
    body = b"".join([encode(head), *parts, encode(tail)])
    return Resource(ROUTES, name, body, content_hash(body), {f"{name}#{h.name}": h.digest for h in ordered if h.digest})


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
