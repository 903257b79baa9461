"""Records whether all BackendTLSPolicies of a port are known. Only proven absence of policies permits plaintext.

source ──> the policies that it has read ──> the policies decide
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
"""(Service or ServiceImport, port number)."""
Proofs = Mapping[Port, int]
"""Ports that need or have a proof that no policy names them. The number counts the requests for a port: a proof is valid only
for the request that it answers."""


class Unknown(msgspec.Struct, frozen=True, order=True):
    """A part of the input that may contain BackendTLSPolicies and has not been read."""

    provable: bool
    """The source can prove the absence of policies port by port. The ports stay closed until it does."""
    namespace: str
    """The namespace whose policies are unknown; empty means every namespace."""
    why: str
    remedy: str = ""
    file: str = ""
    """The path, if the unread part is a file."""


def by_namespace(unknown: Iterable[Unknown]) -> dict[str, Unknown]:
    """Returns one value per namespace. An unprovable one takes precedence, because no proof can open its ports."""
    by_name: dict[str, Unknown] = {}
    ordered = sorted(set(unknown), key=lambda part: (part.namespace, part))
    for namespace, group in groupby(ordered, attrgetter("namespace")):
        first, *duplicates = group
        more = f" (and {len(duplicates)} more)" if duplicates else ""
        by_name[namespace] = msgspec.structs.replace(first, why=f"{first.why}{more}")
    return by_name
