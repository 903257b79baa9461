"""The virtual hosts that Lasthop emits, delivered in three ways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.config.route.v3.scoped_route_pb2 import ScopedRouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from bench.route_delivery.ads import SCOPES, VIRTUAL_HOSTS
from lasthop.engine.outputs.envoy.encode import encode, field, over_ads, packed
from lasthop.engine.outputs.envoy.resource import ROUTES, Resource, content_hash
from lasthop.engine.outputs.envoy.routes import EncodedHost, route_table


class Delivery(Protocol):
    holds: str
    """The type that brings the hosts."""

    def listen(self, listener: Listener) -> None:
        """Makes a listener request its routes in this way."""

    def standing(self) -> list[Resource]:
        """Returns the resources that are independent of hosts."""

    def changed(self, hosts: Iterable[VirtualHost]) -> list[Resource]:
        """Returns the resources to send if these hosts are new or changed."""


class Rds:
    """As Lasthop does: the table is the join of its hosts' bytes, sent whole."""

    holds = ROUTES

    def __init__(self, table: str) -> None:
        self._table = table
        self._hosts: dict[str, EncodedHost] = {}

    def listen(self, listener: Listener) -> None:
        pass

    def standing(self) -> list[Resource]:
        return []

    def changed(self, hosts: Iterable[VirtualHost]) -> list[Resource]:
        for host in hosts:
            body = field(RouteConfiguration.VIRTUAL_HOSTS_FIELD_NUMBER, encode(host))
            self._hosts[host.name] = EncodedHost(host.name, body, content_hash(body))
        return [route_table(self._table, self._hosts)]


class Vhds:
    """A table without hosts that names where they come from; each of them is a resource."""

    holds = VIRTUAL_HOSTS

    def __init__(self, table: str) -> None:
        self._table = table

    def listen(self, listener: Listener) -> None:
        pass

    def standing(self) -> list[Resource]:
        table = RouteConfiguration(name=self._table, ignore_port_in_host_matching=True)
        table.vhds.config_source.CopyFrom(over_ads())
        return [resource(ROUTES, self._table, encode(table))]

    def changed(self, hosts: Iterable[VirtualHost]) -> list[Resource]:
        return [resource(VIRTUAL_HOSTS, f"{self._table}/{host.name}", encode(host)) for host in hosts]


class Srds:
    """One scope per host, with its own table; the client's Host header selects the scope."""

    holds = SCOPES

    def __init__(self, table: str) -> None:
        self._table = table

    def listen(self, listener: Listener) -> None:
        for filter_ in (filter_ for chain in listener.filter_chains for filter_ in chain.filters):
            manager = hcm_pb2.HttpConnectionManager()
            filter_.typed_config.Unpack(manager)
            manager.ClearField("rds")
            scoped = manager.scoped_routes
            scoped.name = self._table
            fragment = scoped.scope_key_builder.fragments.add().header_value_extractor
            fragment.name, fragment.index = ":authority", 0
            scoped.rds_config_source.CopyFrom(over_ads())
            scoped.scoped_rds.scoped_rds_config_source.CopyFrom(over_ads())
            filter_.typed_config.CopyFrom(packed(manager))

    def standing(self) -> list[Resource]:
        return []

    def changed(self, hosts: Iterable[VirtualHost]) -> list[Resource]:
        return [self._scope(host) for host in hosts]

    def _scope(self, host: VirtualHost) -> Resource:
        scope = ScopedRouteConfiguration(name=host.name)
        scope.key.fragments.add().string_key = host.domains[0]
        table = scope.route_configuration
        table.name, table.ignore_port_in_host_matching = host.name, True
        # Inside a scope Envoy validates clusters by default, and refuses all scopes if one is missing.
        table.validate_clusters.value = False
        table.virtual_hosts.append(host)
        return resource(SCOPES, host.name, encode(scope))


def resource(type_url: str, name: str, body: bytes) -> Resource:
    return Resource(type_url, name, body, content_hash(body))


DELIVERIES: dict[str, type[Rds] | type[Vhds] | type[Srds]] = {"RDS": Rds, "VHDS": Vhds, "SRDS": Srds}
