"""The cluster of Envoy's xDS server: a socket on this host, or a remote controller with mutual TLS."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import msgspec

from lasthop.base.api.addresses import is_ip

XDS_CLUSTER: Final = "lasthop/xds"
CLIENT_CERTIFICATE: Final = "xds-client-certificate"
SERVER_CA: Final = "xds-server-ca"

CERTIFICATE: Final = "tls.crt"
PRIVATE_KEY: Final = "tls.key"
CA: Final = "ca.crt"


class LocalXds(msgspec.Struct, frozen=True):
    socket: PurePath


class RemoteXds(msgspec.Struct, frozen=True):
    host: str
    port: int
    server_name: str
    """The name that the controller's certificate must contain."""
    certificates: PurePath
    """A mounted Secret with tls.crt, tls.key and ca.crt."""
    secrets: PurePath
    """A folder with the files of `sds_files`."""


def xds_cluster(xds: LocalXds | RemoteXds) -> dict[str, object]:
    address: dict[str, object]
    match xds:
        case LocalXds():
            kind, address, transport = "STATIC", {"pipe": {"path": str(xds.socket)}}, None
        case RemoteXds():
            kind = "STATIC" if is_ip(xds.host) else "STRICT_DNS"
            address = {"socket_address": {"address": xds.host, "port_value": xds.port}}
            transport = _tls(xds)
    return {
        "name": XDS_CLUSTER,
        "type": kind,
        "connect_timeout": "1s" if transport is None else "5s",
        "load_assignment": {
            "cluster_name": XDS_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    # A suspended Lasthop keeps its socket open, and without pings Envoy would wait for ever. The timeout is
                    # generous, so that a busy one is not dropped.
                    "http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "20s"}}
                },
            }
        },
        **({"transport_socket": transport} if transport else {}),
    }


def sds_files(xds: RemoteXds) -> dict[str, bytes]:
    """Returns the content of each file by its name. Envoy watches the Secret's folder and reloads the files when the kubelet
    swaps its `..data` link, so that a renewed certificate needs no restart."""
    watched = {"path": str(xds.certificates)}
    client = {
        "tls_certificate": {
            "certificate_chain": {"filename": str(xds.certificates / CERTIFICATE)},
            "private_key": {"filename": str(xds.certificates / PRIVATE_KEY)},
            "watched_directory": watched,
        }
    }
    server = {"validation_context": {"trusted_ca": {"filename": str(xds.certificates / CA)}, "watched_directory": watched}}
    kind = {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"}
    return {
        _file(name): msgspec.json.encode({"resources": [{**kind, "name": name, **secret}]})
        for name, secret in ((CLIENT_CERTIFICATE, client), (SERVER_CA, server))
    }


def _tls(xds: RemoteXds) -> dict[str, object]:
    ip = is_ip(xds.server_name)
    name = {"san_type": "IP_ADDRESS" if ip else "DNS", "matcher": {"exact": xds.server_name}}
    context: dict[str, object] = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"},
            "alpn_protocols": ["h2"],
            "tls_certificate_sds_secret_configs": [_sds(xds, CLIENT_CERTIFICATE)],
            "combined_validation_context": {
                # Without a name, any certificate of that CA would be accepted, even another proxy's.
                "default_validation_context": {"match_typed_subject_alt_names": [name]},
                "validation_context_sds_secret_config": _sds(xds, SERVER_CA),
            },
        },
    }
    if not ip:
        context["sni"] = xds.server_name
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}


def _sds(xds: RemoteXds, name: str) -> dict[str, object]:
    source = {"path_config_source": {"path": str(xds.secrets / _file(name))}, "resource_api_version": "V3"}
    return {"name": name, "sds_config": source}


def _file(name: str) -> str:
    return f"{name}.json"
