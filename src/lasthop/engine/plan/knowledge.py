"""Whether the BackendTLSPolicies of a port are known. Only proven absence leads to plaintext.

source ──> the policies that it has read ──> they decide
       ──> Unknown(why, namespace)       ──> every port of the namespace that no policy names is closed, unless proven
       ──> Proof(port)                   ──> that port may be plaintext although policies are unknown
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

import msgspec

from lasthop.base.api.meta import Key

Port = tuple[Key, int]
"""Of a Service or ServiceImport."""
Proofs = Mapping[Port, int]
"""Ports that need or have a proof that no policy names them. The number tells the occasions of a port apart: a proof counts
only for the occasion that it was requested for."""


class Unknown(msgspec.Struct, frozen=True, order=True):
    """A part of the input that may contain BackendTLSPolicies and has not been read."""

    provable: bool
    """The source can prove absence port by port, so the ports are closed only until it has."""
    namespace: str
    """Whose policies are unknown; empty: those of every namespace."""
    why: str
    remedy: str = ""
    file: str = ""
    """Where it is, if it is a file."""


def by_namespace(unknown: Iterable[Unknown]) -> dict[str, Unknown]:
    """Returns one value for each namespace. An unprovable one goes first, because it decides."""
    found: dict[str, Unknown] = {}
    ordered = sorted(set(unknown), key=lambda each: (each.namespace, each))
    for namespace, group in groupby(ordered, attrgetter("namespace")):
        first, *others = group
        more = f" (and {len(others)} more)" if others else ""
        found[namespace] = msgspec.structs.replace(first, why=f"{first.why}{more}")
    return found
