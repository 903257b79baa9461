"""Finds the revocation lists of the old gateway, and why one cannot be carried over."""

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
    """Why a list is missing: then no certificate is trusted, because a revoked one could be among them."""


def found_lists(inputs: Inputs, settings: ImportSettings, wanted: Sequence[TrustRef | FileTrust]) -> Lists:
    """Returns the lists that a source names, joined."""
    contents, origins = [], []
    for each in wanted:
        if isinstance(each, FileTrust):
            content = settings.ca_files.get(each.path)
            origin = f"the file {each.path} of the old proxy"
            absent = f"the revocation list is in {origin}; give it with --ca {each.path}=FILE"
        else:
            data = inputs.data(each.kind, each.namespace, each.name)
            content, origin = (data or {}).get(each.key), f"{each}, key {each.key}"
            missing = f"has no key {each.key}" if data is not None else inputs.absence(each.kind, each.namespace, each.name)
            absent = f"the revocation list is in {each}, which {missing}"
        if content is None:
            return Lists(problem=absent)
        contents.append(content.strip() + b"\n")
        origins.append(origin)
    return Lists(b"".join(contents), " and ".join(origins))


class Current(NamedTuple):
    pem: bytes = b""
    """The lists, without other text of the file."""
    due: str = ""
    """The day on which the first of them is out of date."""
    problem: str = ""


def current(lists: Lists, cas: bytes, now: float) -> Current:
    """Returns the lists to enforce beside these CAs, or why they cannot be enforced."""
    try:
        found = parse_bundle(cas, lists.pem).crls
    except (BadCertificate, BadRevocationList) as error:
        return Current(problem=f"the revocation list in {lists.origin} {error}")
    # Of several lists of one issuer the latest counts.
    latest = {each.name: each for each in sorted(found, key=attrgetter("this_update"))}.values()
    if any(each.this_update > now for each in latest):
        return Current(problem=f"the revocation list in {lists.origin} is not valid yet")
    pem = b"".join(each.pem for each in found)
    end = min((each.next_update for each in latest if each.next_update is not None), default=None)
    if end is None:
        return Current(pem)
    due = rfc3339(end)[:10]
    if end <= now:
        return Current(problem=f"the revocation list in {lists.origin} is out of date since {due}")
    return Current(pem, due)
