"""Decides which client certificate a Gateway presents to backends: its own, or that of the policy."""

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


def _named(wanted: BackendTLS) -> Key | None:
    name = wanted.options.client_certificate
    return Key("Secret", wanted.source.namespace, name) if name else None


def shown_certificate(g: Graph, gateway: Key, wanted: BackendTLS) -> Key | Problem | None:
    """Returns the Secret with the client certificate for a policy, or why it cannot be used. An invalid one is never replaced
    by the other."""
    policy, named, own = wanted.source, _named(wanted), client_certificate(g, gateway)
    if named is None or (own is not None and backend_rules(g, gateway).gateway_certificate_first):
        return own.within(f"the client certificate of {gateway}", gateway) if isinstance(own, Problem) else own
    problem = refused_pair(g, gateway, named)
    return problem.within(f"the client certificate of {policy}", policy) if problem else named


@query
def chain_digest(g: Graph, secret: Key) -> str:
    """Hashes the certificate in a Secret, without its key."""
    obj = read(g, secret, Secret)
    return hashlib.blake2b((obj.data.get("tls.crt") or b"") if obj else b"", digest_size=6).hexdigest()


def client_secret(gateway: Key, tls: BackendTLS) -> Iterator[Entry]:
    """Yields the index entry for the client certificate of a hop."""
    if tls.client_certificate:
        yield CLIENT_SECRETS_IN_USE.entry((gateway, tls.client_certificate), True)
