"""Which BackendTLSPolicy speaks for a Service port.

A policy that names the port (`sectionName`) beats one that names the whole Service. Between two that name the same, the older
one wins, then {namespace}/{name}. Precedence never looks at validity: an invalid policy that wins fails closed, it does not
step aside for a weaker one.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lasthop.api.meta import Key, Object
from lasthop.api.policies import BackendTLSPolicy, PolicyTargetReference, RejectedPolicy
from lasthop.store.graph import Emitter, Graph
from lasthop.store.store import read

WHOLE = ""
"""The section of a target that names no port."""


def is_service(target: PolicyTargetReference) -> bool:
    return target.group in ("", "core") and target.kind == "Service"


class Claim(msgspec.Struct, frozen=True, order=True):
    """A policy that names a Service, in the order in which claims win."""

    age: tuple[str, str]
    policy: Key
    sections: tuple[str, ...]
    rejected: str = ""
    """Why the policy could not be read whole."""


def _claims(
    namespace: str,
    targets: tuple[PolicyTargetReference, ...],
    age: tuple[str, str],
    policy: Key,
    rejected: str = "",
) -> Iterator[tuple[tuple[str, str, str], Claim]]:
    services: dict[str, list[str]] = {}
    for target in targets:
        if is_service(target):
            services.setdefault(target.name, []).append(target.section_name)
    for name, sections in services.items():
        yield ("claim", namespace, name), Claim(age, policy, tuple(sections), rejected)


def _emit(g: Graph, key: Key) -> tuple[tuple[tuple[str, str, str], Claim], ...]:
    policy = read(g, key, BackendTLSPolicy)
    if policy is None:
        return ()
    return tuple(_claims(key.namespace, policy.spec.target_refs, policy.age, key))


def _emit_rejected(g: Graph, key: Key) -> tuple[tuple[tuple[str, str, str], Claim], ...]:
    policy = read(g, key, RejectedPolicy)
    if policy is None:
        return ()
    return tuple(_claims(key.namespace, policy.targets, policy.age, policy.policy, policy.message))


def named_services(obj: Object | None) -> tuple[Key, ...]:
    """The Services that an object names as a policy, read whole or not."""
    if isinstance(obj, BackendTLSPolicy):
        targets = obj.spec.target_refs
    elif isinstance(obj, RejectedPolicy):
        targets = obj.targets
    else:
        return ()
    return tuple(Key("Service", obj.metadata.namespace, target.name) for target in targets if is_service(target))


CLAIMS = Emitter("claims", "BackendTLSPolicy", _emit)
REJECTED_CLAIMS = Emitter("rejected-claims", "RejectedPolicy", _emit_rejected)


def claims(g: Graph, service: Key) -> tuple[Claim, ...]:
    """Every policy that names the Service, the first to win first."""
    return tuple(sorted((claim for _, claim in g.bucket("claim", service.namespace, service.name)), key=_precedence))


def _precedence(claim: Claim) -> tuple[bool, Claim]:
    # A rejected text has no say against what was read whole, in particular against its own last good version.
    return (bool(claim.rejected), claim)


def section_winner(g: Graph, service: Key, section: str) -> Claim | None:
    """Who wins among the policies that name exactly this section."""
    return next((claim for claim in g(claims, service) if section in claim.sections), None)


def port_winner(g: Graph, service: Key, port_name: str) -> Claim | None:
    """Whose word holds for a port. An unnamed port can only be meant by a policy for the whole Service."""
    by_name = g(section_winner, service, port_name) if port_name else None
    return by_name or g(section_winner, service, WHOLE)
