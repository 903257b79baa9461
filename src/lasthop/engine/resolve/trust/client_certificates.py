"""Decides whether a Gateway presents its own client certificate to a backend or the policy's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from lasthop.base.api.core import Secret
from lasthop.base.api.meta import Key
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.tls import BackendTLS
from lasthop.engine.resolve.gateways.gateways import client_certificate
from lasthop.engine.resolve.gateways.profiles import backend_rules
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.trust.certificates import refused_pair
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.store import read

CLIENT_SECRETS_IN_USE = Index[Key, Key, bool]("client-secret")
"""Secrets with client certificates for backends, by Gateway and Secret."""


def policy_certificate(g: Graph, policy: Key) -> Key | None:
    """Returns the Secret that a valid policy names for its backends, always in its own namespace."""
    judged = judgement(g, policy)
    return _named(judged.tls) if judged and judged.tls else None


def _named(tls: BackendTLS) -> Key | None:
    name = tls.options.client_certificate
    return Key("Secret", tls.source.namespace, name) if name else None


def presented_certificate(g: Graph, gateway: Key, tls: BackendTLS) -> Key | Problem | None:
    """Returns the Secret with the client certificate for a policy, or why it cannot be used. The policy's certificate never
    replaces an invalid one of the Gateway, nor the reverse."""
    policy, policy_secret, gateway_certificate = tls.source, _named(tls), client_certificate(g, gateway)
    if policy_secret is None or (gateway_certificate is not None and backend_rules(g, gateway).gateway_certificate_first):
        return (
            gateway_certificate.within(f"the client certificate of {gateway}", gateway)
            if isinstance(gateway_certificate, Problem)
            else gateway_certificate
        )
    problem = refused_pair(g, gateway, policy_secret)
    return problem.within(f"the client certificate of {policy}", policy) if problem else policy_secret


@query
def chain_digest(g: Graph, secret: Key) -> str:
    """Hashes the certificate in a Secret, without its key."""
    obj = read(g, secret, Secret)
    return hashlib.blake2b((obj.data.get("tls.crt") or b"") if obj else b"", digest_size=6).hexdigest()


def client_secret(gateway: Key, tls: BackendTLS) -> Iterator[Entry]:
    """Yields the index entry for the client certificate of a hop."""
    if tls.client_certificate:
        yield CLIENT_SECRETS_IN_USE.entry((gateway, tls.client_certificate), True)
