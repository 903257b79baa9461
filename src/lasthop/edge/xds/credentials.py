"""Configures mutual TLS for gRPC and identifies the client by its certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import msgspec

from lasthop.base.pki.authority import gateway_uid, replica_name
from lasthop.base.pki.certificates import PemKeyPair


class MutualTls(msgspec.Struct, frozen=True):
    own: PemKeyPair
    trusted: bytes
    """The CAs whose client certificates are accepted: one, or two during a rotation."""


def server_credentials(current: Callable[[], MutualTls]) -> grpc.ServerCredentials:
    """Returns credentials that gRPC reads again for every connection, so that a renewed certificate needs no restart. Open
    connections stay.

    gRPC calls `current` on its own threads, so `current` must not compute anything.
    """
    in_use = current()

    def changed() -> Any:
        nonlocal in_use
        latest = current()
        if latest is in_use:
            return None
        in_use = latest
        return _configuration(latest)

    return grpc.dynamic_ssl_server_credentials(_configuration(in_use), changed, require_client_authentication=True)


def peer_uid(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Returns the Gateway UID in the client's certificate, which gRPC has already verified."""
    return gateway_uid(_identities(context))


def peer_replica(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    return replica_name(_identities(context))


def _identities(context: grpc.aio.ServicerContext[Any, Any]) -> tuple[str, ...]:
    auth = context.auth_context()
    if auth.get("transport_security_type") != [b"ssl"]:
        return ()
    return tuple(uri.decode(errors="replace") for uri in auth.get("peer_uri", ()))


def _configuration(credentials: MutualTls) -> grpc.ServerCertificateConfiguration:
    pair = credentials.own
    return grpc.ssl_server_certificate_configuration([(pair.private_key, pair.certificate)], credentials.trusted)
