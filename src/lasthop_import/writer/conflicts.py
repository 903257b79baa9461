"""Chooses the TLS of a port whose routes require different TLS: the strictest, if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from lasthop.engine.resolve.backends.app_protocols import is_tls
from lasthop_import.levels import STRENGTH, VERIFYING, OldLevel
from lasthop_import.model import FileTrust, HopTLS, TrustRef
from lasthop_import.notes import Category, Note
from lasthop_import.rule_hops import RuleHop


class Settled(NamedTuple):
    tls: HopTLS
    """The required TLS; the first one of a conflict."""
    rule_hop: RuleHop
    """Whose it is."""
    conflict: tuple[HopTLS, ...] = ()
    """Two or more that exclude each other."""


def policed(rule_hops: Sequence[RuleHop]) -> list[tuple[RuleHop, HopTLS]]:
    """Returns the hops that had TLS of the gateway's own. If none had TLS: those that received plaintext on a port whose
    appProtocol requires TLS. Lasthop refuses that, so they need a decision."""
    own = [(each, each.tls) for each in rule_hops if each.tls and each.tls.level not in UNPOLICED]
    plaintext = list(filter(_is_plaintext, rule_hops))
    port = plaintext[0].port if plaintext else None
    if own or port is None or not is_tls(port.app_protocol):
        return own
    why = f"was sent plaintext, although the port has appProtocol {port.app_protocol}; Lasthop refuses that"
    return [(each, HopTLS(OldLevel.BROKEN, why, was_plaintext=True)) for each in plaintext]


def _is_plaintext(rule_hop: RuleHop) -> bool:
    return rule_hop.tls is None or rule_hop.tls.level is OldLevel.PLAINTEXT


UNPOLICED = (OldLevel.PASSTHROUGH, OldLevel.PLAINTEXT)


def settled(wanted: Sequence[tuple[RuleHop, HopTLS]]) -> Settled:
    """Returns the strictest requirement of the routes. Different CAs or names are a conflict: a union would loosen both."""
    verifying = [each for each in wanted if each[1].level in VERIFYING]
    if not verifying:
        rule_hop, tls = max(wanted, key=lambda each: (STRENGTH[each[1].level], each[1].level is OldLevel.UNVERIFIED))
        return Settled(tls, rule_hop)
    rule_hop, tls = max(verifying, key=lambda each: STRENGTH[each[1].level])
    all_tls = [each for _, each in verifying]
    if _contradict(all_tls, [each for each in all_tls if STRENGTH[each.level] == STRENGTH[tls.level]]):
        return Settled(tls, rule_hop, tuple({each.meaning: each for each in all_tls}.values()))
    return Settled(msgspec.structs.replace(tls, revocation=_lists(all_tls)), rule_hop)


def _contradict(verifying: Iterable[HopTLS], strongest: Iterable[HopTLS]) -> bool:
    """Returns whether the CAs differ, or the names that the strongest require."""
    trusts = {each.trust for each in verifying}
    names = {(tuple(sorted(each.names)), each.sni) for each in strongest}
    return len(trusts) > 1 or len(names) > 1


def _lists(several: Iterable[HopTLS]) -> tuple[TrustRef | FileTrust, ...]:
    """Returns the revocation lists of all: what one of them revokes is refused for every route."""
    return tuple(dict.fromkeys(each for tls in several for each in tls.revocation))


def merged(conflict: Sequence[HopTLS]) -> HopTLS:
    """Returns TLS that accepts every certificate that one of them accepts. Only a decision allows it."""
    weakest = min(conflict, key=lambda tls: STRENGTH[tls.level])
    trust = tuple(dict.fromkeys(each for tls in conflict for each in tls.trust))
    names = tuple(dict.fromkeys(each for tls in conflict for each in tls.names))
    why = "the requirements of several routes, merged by decision"
    level = OldLevel.NAME if weakest.level is OldLevel.HOST_NAME else weakest.level
    return msgspec.structs.replace(weakest, level=level, trust=trust, names=names, revocation=_lists(conflict), why=why)


def difference_notes(rule_hops: Sequence[RuleHop], found: Settled, target: str) -> Iterator[Note]:
    if _is_plaintext(found.rule_hop):
        return
    winner, level = found.rule_hop.source.object, found.tls.level
    for each in rule_hops:
        if each.tls is None or each.tls.level is OldLevel.PLAINTEXT:
            text = f"used plaintext, and {winner} TLS, to the same port; TLS holds for both"
            yield Note(Category.TIGHTENED, "mixed-plaintext", text, each.source, target=target)
        elif each.tls.level is not OldLevel.PASSTHROUGH and STRENGTH[each.tls.level] < STRENGTH[level]:
            text = f"was {each.tls.level}; {winner} had {level} for the same port, which holds"
            yield Note(Category.TIGHTENED, "stricter-route-wins", text, each.source, target=target)
        elif each.tls.options != found.tls.options:
            text = f"requires other TLS versions, ciphers or ALPN than {winner}, whose settings hold"
            yield Note(Category.CHANGED, "options-differ", text, each.source, target=target)
