"""Certificates with private keys, by SDS: the only place from which a key leaves the store."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2

from lasthop.base.api.core import Secret
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encode import encode
from lasthop.engine.outputs.envoy.resource import SECRET, Resource, content_hash
from lasthop.engine.outputs.envoy.tls import client_secret_name
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair, normal_pair, pair_digest, pair_part, refused_pair
from lasthop.engine.resolve.trust.client_certificates import CLIENT_SECRETS_IN_USE, chain_digest
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import Output, indexer
from lasthop.engine.store.store import read

SECRETS_IN_USE = Index[Key, Key, bool]("secret")
"""Secrets with listener certificates, by Gateway."""


@indexer("Gateway", keep_on_crash=True)
def index_gateway_secrets(g: Graph, key: Key) -> Iterator[Entry]:
    owner = gateway(g, key)
    if owner is None or not owner.accepted.status:
        return
    secrets = {secret for listener in owner.listeners if listener.served for secret in listener.certificates}
    for secret in secrets:
        yield SECRETS_IN_USE.entry((key, secret), True)


@query
def client_secret_resource(g: Graph, gateway_key: Key, secret: Key) -> Resource | None:
    """Returns a client certificate under a name with its digest: a renewal changes the cluster, which Envoy activates once it
    has the certificate. Until then the old cluster is in effect; its idle connections end with it."""
    resource = secret_resource(g, gateway_key, secret)
    return _renamed(resource, client_secret_name(secret, chain_digest(g, secret))) if resource else None


def _renamed(resource: Resource, name: str) -> Resource:
    message = secret_pb2.Secret.FromString(resource.body)
    message.name = name
    body = encode(message)
    return msgspec.structs.replace(resource, name=name, body=body, version=content_hash(body))


@query
def secret_resource(g: Graph, gateway_key: Key, secret: Key) -> Resource | None:
    obj = read(g, secret, Secret)
    if obj is None or not isinstance(key_pair(g, secret), KeyPair) or refused_pair(g, gateway_key, secret):
        return None
    chain, private_key = normal_pair(obj.data.get("tls.crt") or b"", obj.data.get("tls.key") or b"")
    message = secret_pb2.Secret(
        name=secret.path,
        tls_certificate=common_pb2.TlsCertificate(
            certificate_chain=base_pb2.DataSource(inline_bytes=chain),
            private_key=base_pb2.DataSource(inline_bytes=private_key),
        ),
    )
    body = encode(message)
    part = pair_part(gateway_key, secret)
    return Resource(SECRET, secret.path, body, content_hash(body), {part: pair_digest(obj)}, owners={part: secret})


SECRETS = Output("secrets", SECRETS_IN_USE, secret_resource, is_referenced=True)
CLIENT_SECRETS = Output("client-secrets", CLIENT_SECRETS_IN_USE, client_secret_resource, is_referenced=True)
