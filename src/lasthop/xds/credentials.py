"""gRPC's side of mutual TLS: what the controller shows, whom it lets in, and who they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import msgspec

from lasthop.pki.authority import gateway_uid, replica_name
from lasthop.pki.certificates import KeyPair


class Credentials(msgspec.Struct, frozen=True):
    own: KeyPair
    trusted: bytes
    """The CAs whose client certificates are taken: one, or two while one is replaced."""


def server_credentials(current: Callable[[], Credentials]) -> grpc.ServerCredentials:
    """Asked anew for every connection, so that a renewed certificate needs no restart; connections that stand stay.

    `current` is called on gRPC's threads: it must do no more than hand out what is there.
    """
    in_use = current()

    def changed() -> Any:
        nonlocal in_use
        found = current()
        if found is in_use:
            return None
        in_use = found
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(_configuration(in_use), changed, require_client_authentication=True)


def peer_uid(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The UID of the Gateway that the client's certificate speaks for. gRPC has verified the certificate by now."""
    return gateway_uid(_identities(context))


def peer_replica(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The replica of the controller that the client's certificate speaks for."""
    return replica_name(_identities(context))


def _identities(context: grpc.aio.ServicerContext[Any, Any]) -> tuple[str, ...]:
    auth = context.auth_context()
    if auth.get("transport_security_type") != [b"ssl"]:
        return ()
    return tuple(uri.decode(errors="replace") for uri in auth.get("peer_uri", ()))


def _configuration(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    own = credentials.own
    return grpc.ssl_server_certificate_configuration([(own.private_key, own.certificate)], credentials.trusted)
