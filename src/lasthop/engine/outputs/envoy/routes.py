"""Route tables: virtual hosts as joins of their routes' bytes, and the join of virtual hosts.

An edit encodes one route (`encoded_routes.py`) and joins one virtual host; only the last join reads all hosts of a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from envoy.config.route.v3 import route_components_pb2, route_pb2
from google.protobuf.wrappers_pb2 import UInt64Value

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.clusters import BUFFER_LIMIT
from lasthop.engine.outputs.envoy.encode import enclosed, encode, field
from lasthop.engine.outputs.envoy.encoded_routes import EncodedMatch, served_route
from lasthop.engine.outputs.envoy.resource import ROUTES, Joined, Resource, content_hash, mapping
from lasthop.engine.outputs.envoy.retries import host_retry
from lasthop.engine.outputs.envoy.route_filters import per_host_filters
from lasthop.engine.outputs.envoy.route_index import indexed
from lasthop.engine.outputs.envoy.route_messages import NO_ROUTE, refusal
from lasthop.engine.plan.routing import ExternalAuth
from lasthop.engine.resolve.gateways.profiles import connect_rules
from lasthop.engine.resolve.routing.attachment import MISDIRECTED, TABLES, in_order, listener_auth, misdirected
from lasthop.engine.resolve.routing.budgets import VIRTUAL_HOSTS, RouteCost, left_out
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output

NO_ROUTE_STATUS: Final = 404
MISDIRECTED_STATUS: Final = 421
"""The client retries on a separate connection."""
_VIRTUAL_HOSTS: Final = route_pb2.RouteConfiguration.VIRTUAL_HOSTS_FIELD_NUMBER
_NAME: Final = route_components_pb2.VirtualHost.NAME_FIELD_NUMBER
_DOMAINS: Final = route_components_pb2.VirtualHost.DOMAINS_FIELD_NUMBER
_BODY_LIMIT: Final = encode(route_components_pb2.VirtualHost(request_body_buffer_limit=UInt64Value(value=BUFFER_LIMIT)))
"""Buffer of a request's body for retries; the default is that of the client's connection."""


class EncodedHost(msgspec.Struct, frozen=True, gc=False):
    name: str
    body: bytes
    """Encoded as a field of the RouteConfiguration, ready to be joined."""
    digest: str
    """Of the body."""
    parts: Mapping[str, str] = {}
    """The parts of its routes (see `Resource.parts`); empty for a stand-in."""
    owners: Mapping[str, Key] = {}
    misdirected: frozenset[str] = frozenset()
    """Hostnames that need another connection, in place of a body."""


def table_name(gateway: Key, table: str) -> str:
    return f"{gateway.path}/{table}"


@query
def encoded_host(g: Graph, gateway: Key, table: str, hostname: str) -> EncodedHost:
    if hostname == MISDIRECTED:
        return EncodedHost(hostname, b"", "", misdirected=misdirected(g, gateway, table))
    cut = {route for route, _ in left_out(g, gateway, table, hostname)}
    costs = VIRTUAL_HOSTS.of(g, gateway, table, hostname)
    members = (cost.route for cost in costs if isinstance(cost, RouteCost) and cost.route not in cut)
    served = [(route, result) for route in members if (result := served_route(g, route, gateway, table, hostname))]
    ranked = ((result.rank, [(entry.precedence, entry) for entry in result.encoded.entries]) for _, result in served)
    auths = listener_auth(g, gateway, table, hostname)
    entries = [*in_order(ranked), *([_NO_ROUTE] if auths else [])]
    head = [_head(hostname, auths), host_retry(connect_rules(g, gateway).retries)]
    body = b"".join(enclosed(_VIRTUAL_HOSTS, [*head, *_routes(entries)]))
    blamed = [(route, result) for route, result in served if result.encoded.entries]
    parts = mapping([(result.part, result.encoded.digest) for _, result in blamed])
    owners = mapping([(result.part, route) for route, result in blamed])
    return EncodedHost(hostname or "*", body, content_hash(body), parts, owners)


def refused_host(hostname: str) -> EncodedHost:
    """Replaces a host that cannot be built: its hostname returns 500 instead of matching a wildcard host."""
    name = hostname or "*"
    body = field(_VIRTUAL_HOSTS, encode(route_components_pb2.VirtualHost(name=name, domains=[name], routes=[refusal()])))
    return EncodedHost(name, body, content_hash(body))


def _head(hostname: str, auths: Sequence[ExternalAuth]) -> bytes:
    name = (hostname or "*").encode()
    filters = encode(route_components_pb2.VirtualHost(typed_per_filter_config=per_host_filters(auths))) if auths else b""
    return b"".join((field(_NAME, name), field(_DOMAINS, name), _BODY_LIMIT, filters))


def _last_resort() -> EncodedMatch:
    """Returns a final route with 404: without a route, Envoy does not call the listener's ExternalAuth servers."""
    route = refusal(NO_ROUTE_STATUS)
    route.direct_response.body.inline_string = f"{NO_ROUTE}\n"
    body = (encode(route),)
    return EncodedMatch("", (), body, body)


_NO_ROUTE: Final = _last_resort()


def _routes(entries: list[EncodedMatch]) -> list[bytes]:
    """Returns the fields of a VirtualHost."""
    tree = indexed(entries)
    if tree is None:
        return [entry.listed() for entry in entries]
    return enclosed(route_components_pb2.VirtualHost.MATCHER_FIELD_NUMBER, tree)


def _misdirected(names: Collection[str]) -> bytes:
    if not names:
        return b""
    domains = [name or "*" for name in sorted(names)]
    host = route_components_pb2.VirtualHost(name=MISDIRECTED, domains=domains, routes=[refusal(MISDIRECTED_STATUS)])
    return field(_VIRTUAL_HOSTS, encode(host))


@query
def named_table(g: Graph, gateway: Key, table: str) -> str:
    return table_name(gateway, table)


HOSTS = Output("hosts", VIRTUAL_HOSTS, encoded_host, has_references=True)
TABLE_NAMES = Output("tables", TABLES, named_table, has_references=True)


def route_table(name: str, hosts: Mapping[str, EncodedHost]) -> Resource:
    """Joins the bytes of hosts into a RouteConfiguration. Its version hashes the hosts' digests, because a table may have
    megabytes."""
    head = encode(route_pb2.RouteConfiguration(name=name))
    tail = encode(route_pb2.RouteConfiguration(ignore_port_in_host_matching=True))
    ordered = [hosts[key] for key in sorted(hosts)]
    # The names are computed here, because Envoy refuses a domain in two hosts, even for a moment.
    bodies = [_misdirected(h.misdirected - hosts.keys()) if h.misdirected else h.body for h in ordered]
    digests = [h.digest.encode() or body for h, body in zip(ordered, bodies, strict=True)]
    body, version = b"".join([head, *bodies, tail]), content_hash(b"".join([head, *digests, tail]))
    parts, owners = Joined(h.parts for h in ordered), Joined(h.owners for h in ordered)
    return Resource(ROUTES, name, body, version, parts, owners=owners)
