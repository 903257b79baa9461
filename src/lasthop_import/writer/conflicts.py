"""Settles what one port requires where several routes ask for different TLS: the strictest, if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from lasthop.engine.resolve.backends.app_protocols import says_tls
from lasthop_import.legs import Leg
from lasthop_import.levels import STRENGTH, VERIFYING, Level
from lasthop_import.model import FileTrust, HopTLS, TrustRef
from lasthop_import.notes import Category, Note


class Settled(NamedTuple):
    tls: HopTLS
    """What is wanted; of a conflict the first."""
    leg: Leg
    """Whose it is."""
    conflict: tuple[HopTLS, ...] = ()
    """Two or more that exclude each other."""


def policed(legs: Sequence[Leg]) -> list[tuple[Leg, HopTLS]]:
    """Returns the legs that had TLS of the gateway's own. If none had: those that were sent plaintext to a port that says TLS,
    which Lasthop refuses, so that somebody has to decide."""
    own = [(leg, leg.tls) for leg in legs if leg.tls and leg.tls.level not in UNPOLICED]
    plaintext = [leg for leg in legs if _is_plaintext(leg)]
    port = plaintext[0].port if plaintext else None
    if own or port is None or not says_tls(port.app_protocol):
        return own
    why = f"was sent plaintext, although the port has appProtocol {port.app_protocol}; Lasthop refuses that"
    return [(leg, HopTLS(Level.BROKEN, why, was_plaintext=True)) for leg in plaintext]


def _is_plaintext(leg: Leg) -> bool:
    return leg.tls is None or leg.tls.level is Level.PLAINTEXT


UNPOLICED = (Level.PASSTHROUGH, Level.PLAINTEXT)


def settled(wanted: Sequence[tuple[Leg, HopTLS]]) -> Settled:
    """Returns the strictest of what the routes ask for. Different CAs or names are a conflict: a union would loosen both."""
    verifying = [each for each in wanted if each[1].level in VERIFYING]
    if not verifying:
        leg, tls = max(wanted, key=lambda each: (STRENGTH[each[1].level], each[1].level is Level.UNVERIFIED))
        return Settled(tls, leg)
    strongest = max(STRENGTH[tls.level] for _, tls in verifying)
    best = [each for each in verifying if STRENGTH[each[1].level] == strongest]
    leg, tls = best[0]
    trusts = {each.trust for _, each in verifying}
    names = {(tuple(sorted(each.names)), each.sni) for _, each in best}
    if len(trusts) > 1 or len(names) > 1:
        distinct = {each.meaning: each for _, each in verifying}
        return Settled(tls, leg, tuple(distinct.values()))
    return Settled(msgspec.structs.replace(tls, revocation=_lists(each for _, each in verifying)), leg)


def _lists(several: Iterable[HopTLS]) -> tuple[TrustRef | FileTrust, ...]:
    """Returns the revocation lists of all: what one of them revokes is refused for every route."""
    return tuple(dict.fromkeys(each for tls in several for each in tls.revocation))


def merged(conflict: Sequence[HopTLS]) -> HopTLS:
    """Returns the union of what they accept, which somebody must have decided."""
    weakest = min(conflict, key=lambda tls: STRENGTH[tls.level])
    trust = tuple(dict.fromkeys(each for tls in conflict for each in tls.trust))
    names = tuple(dict.fromkeys(each for tls in conflict for each in tls.names))
    why = "what several routes ask for, merged by decision"
    level = Level.NAME if weakest.level is Level.HOST_NAME else weakest.level
    return msgspec.structs.replace(weakest, level=level, trust=trust, names=names, revocation=_lists(conflict), why=why)


def difference_notes(legs: Sequence[Leg], found: Settled, target: str) -> Iterator[Note]:
    """Yields what is tighter for the routes that asked for less."""
    if _is_plaintext(found.leg):
        return
    for leg in legs:
        if leg.tls is None or leg.tls.level is Level.PLAINTEXT:
            text = f"used plaintext, and {found.leg.hop.source.object} TLS, to the same port; TLS holds for both"
            yield Note(Category.TIGHTENED, "mixed-plaintext", text, leg.hop.source, target=target)
        elif leg.tls.level is not Level.PASSTHROUGH and STRENGTH[leg.tls.level] < STRENGTH[found.tls.level]:
            text = f"was {leg.tls.level}; {found.leg.hop.source.object} had {found.tls.level} for the same port, which holds"
            yield Note(Category.TIGHTENED, "stricter-route-wins", text, leg.hop.source, target=target)
        elif leg.tls.options != found.tls.options:
            text = f"asks for other TLS versions, ciphers or ALPN than {found.leg.hop.source.object}, whose settings hold"
            yield Note(Category.CHANGED, "options-differ", text, leg.hop.source, target=target)
