"""Route tables: virtual hosts, each encoded by itself, and the join of their bytes.

An edit re-encodes one virtual host; only the last join of cached bytes looks at all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from envoy.config.route.v3 import route_components_pb2, route_pb2

from lasthop.api.meta import Key
from lasthop.outputs.envoy.encode import encode, varint
from lasthop.outputs.envoy.quarantine import part_quarantined
from lasthop.outputs.envoy.resource import ROUTES, Resource, content_hash
from lasthop.outputs.envoy.route_index import indexed
from lasthop.outputs.envoy.route_messages import Listening, envoy_routes, refusal
from lasthop.plan.listener import Listener
from lasthop.plan.routing import VirtualHost
from lasthop.resolve.attachment import MISDIRECTED, misdirected
from lasthop.resolve.listeners import table_listener
from lasthop.resolve.virtual_hosts import virtual_host
from lasthop.store.graph import Graph, Output

MISDIRECTED_STATUS: Final = 421
"""So that the client asks again on a connection of its own."""
_VIRTUAL_HOSTS_FIELD: Final = b"\x12"
"""Tag of RouteConfiguration.virtual_hosts: field 2, length-delimited."""


class EncodedHost(msgspec.Struct, frozen=True):
    name: str
    body: bytes
    digest: str
    """Empty for the stand-in of a refused host: there is nothing in it that could be blamed."""
    misdirected: frozenset[str] = frozenset()
    """Instead of a body: names that are to be asked for on another connection."""


def table_name(gateway: Key, table: str) -> str:
    return f"{gateway.path}/{table}"


def encoded_host(g: Graph, gateway: Key, table: str, hostname: str) -> EncodedHost:
    """One virtual host as bytes; one that Envoy has refused answers 500 instead."""
    if hostname == MISDIRECTED:
        return EncodedHost(hostname, b"", "", misdirected(g, gateway, table))
    host = g(virtual_host, gateway, table, hostname)
    name = hostname or "*"
    body = encode(_virtual_host(name, host, _listening(g(table_listener, gateway, table))))
    digest = content_hash(body)
    if part_quarantined(g, ROUTES, f"{table_name(gateway, table)}#{name}", digest):
        body, digest = encode(route_components_pb2.VirtualHost(name=name, domains=[name], routes=[refusal()])), ""
    return EncodedHost(name, body, digest)


def _listening(listener: Listener | None) -> Listening:
    if listener is None:
        return Listening("http", 80)
    return Listening("https" if listener.protocol == "HTTPS" else "http", listener.port)


def _virtual_host(name: str, host: VirtualHost, listening: Listening) -> Any:
    message = route_components_pb2.VirtualHost(name=name, domains=[name])
    routes = [(route.match, envoy_routes(route, listening)) for route in host.routes]
    tree = indexed(routes)
    if tree is None:
        message.routes.extend(found for _, messages in routes for found in messages.listed())
    else:
        message.matcher.CopyFrom(tree)
    return message


def _misdirected(names: Collection[str]) -> bytes:
    if not names:
        return b""
    domains = [name or "*" for name in sorted(names)]
    return encode(route_components_pb2.VirtualHost(name=MISDIRECTED, domains=domains, routes=[refusal(MISDIRECTED_STATUS)]))


HOSTS = Output("hosts", "vhost", encoded_host, names=True)
TABLE_NAMES = Output("tables", "table", lambda g, gateway, table: table_name(gateway, table), names=True)


def route_table(name: str, hosts: Mapping[str, EncodedHost]) -> Resource:
    """The RouteConfiguration as the join of its hosts' bytes: the same bytes as if it had been built as one message."""
    head = route_pb2.RouteConfiguration(name=name)
    tail = route_pb2.RouteConfiguration(ignore_port_in_host_matching=True)
    ordered = [hosts[key] for key in sorted(hosts)]
    # The names are worked out here, because a domain that stood in two hosts, if only for a moment, would be refused.
    bodies = [_misdirected(h.misdirected - hosts.keys()) if h.misdirected else h.body for h in ordered]
    parts = [_VIRTUAL_HOSTS_FIELD + varint(len(body)) + body for body in bodies if body]
    body = b"".join([encode(head), *parts, encode(tail)])
    return Resource(ROUTES, name, body, content_hash(body), {f"{name}#{h.name}": h.digest for h in ordered if h.digest})
