"""Finds the revocation lists of the old gateway, or the reason why one cannot be carried over."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from lasthop.base.api.times import rfc3339
from lasthop.engine.resolve.trust.certificates import BadCertificate, BadRevocationList, parse_bundle
from lasthop_import.inputs import Inputs
from lasthop_import.model import FileTrust, TrustRef
from lasthop_import.settings import ImportSettings


class Lists(NamedTuple):
    pem: bytes = b""
    origin: str = ""
    problem: str = ""
    """Why a list is missing. Then no certificate is trusted, because any could be revoked."""


def found_lists(inputs: Inputs, settings: ImportSettings, references: Sequence[TrustRef | FileTrust]) -> Lists:
    """Joins the lists that a source names."""
    contents, origins = [], []
    for reference in references:
        if isinstance(reference, FileTrust):
            content = settings.ca_files.get(reference.path)
            origin = f"the file {reference.path} of the old proxy"
            absent = f"the revocation list is in {origin}; give it with --ca {reference.path}=FILE"
        else:
            data = inputs.data(reference.kind, reference.namespace, reference.name)
            content, origin = (data or {}).get(reference.key), f"{reference}, key {reference.key}"
            missing = (
                f"has no key {reference.key}"
                if data is not None
                else inputs.absence(reference.kind, reference.namespace, reference.name)
            )
            absent = f"the revocation list is in {reference}, which {missing}"
        if content is None:
            return Lists(problem=absent)
        contents.append(content.strip() + b"\n")
        origins.append(origin)
    return Lists(b"".join(contents), " and ".join(origins))


class Current(NamedTuple):
    pem: bytes = b""
    """The lists, without other text of the file."""
    due: str = ""
    """The day on which the first list expires."""
    problem: str = ""


def current(lists: Lists, cas: bytes, now: float) -> Current:
    """Returns the lists to enforce with these CAs, or the reason why they cannot be enforced."""
    try:
        crls = parse_bundle(cas, lists.pem).crls
    except (BadCertificate, BadRevocationList) as error:
        return Current(problem=f"the revocation list in {lists.origin} {error}")
    # Of several lists of one issuer the latest counts.
    latest = {crl.name: crl for crl in sorted(crls, key=attrgetter("this_update"))}.values()
    if any(crl.this_update > now for crl in latest):
        return Current(problem=f"the revocation list in {lists.origin} is not valid yet")
    pem = b"".join(crl.pem for crl in crls)
    end = min((crl.next_update for crl in latest if crl.next_update is not None), default=None)
    if end is None:
        return Current(pem)
    due = rfc3339(end)[:10]
    if end <= now:
        return Current(problem=f"the revocation list in {lists.origin} is out of date since {due}")
    return Current(pem, due)
