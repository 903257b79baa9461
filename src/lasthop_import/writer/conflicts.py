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


class ChosenTLS(NamedTuple):
    tls: HopTLS
    """The required TLS; the first one of a conflict."""
    rule_hop: RuleHop
    """The hop with this TLS."""
    conflict: tuple[HopTLS, ...] = ()
    """Two or more requirements that exclude each other."""


def tls_hops_of(rule_hops: Sequence[RuleHop]) -> list[tuple[RuleHop, HopTLS]]:
    """Returns the hops for which the old gateway itself started TLS. If there are none, returns the hops with plaintext to a
    port whose appProtocol requires TLS. Lasthop refuses such plaintext, so these hops need a decision."""
    with_tls = [
        (rule_hop, rule_hop.tls) for rule_hop in rule_hops if rule_hop.tls and rule_hop.tls.level not in NO_TLS_ORIGINATION
    ]
    plaintext = list(filter(_is_plaintext, rule_hops))
    port = plaintext[0].port if plaintext else None
    if with_tls or port is None or not is_tls(port.app_protocol):
        return with_tls
    why = f"the old gateway used plaintext, although the port has appProtocol {port.app_protocol}; Lasthop refuses it"
    return [(rule_hop, HopTLS(OldLevel.BROKEN, why, was_plaintext=True)) for rule_hop in plaintext]


def _is_plaintext(rule_hop: RuleHop) -> bool:
    return rule_hop.tls is None or rule_hop.tls.level is OldLevel.PLAINTEXT


NO_TLS_ORIGINATION = (OldLevel.PASSTHROUGH, OldLevel.PLAINTEXT)


def strictest(tls_hops: Sequence[tuple[RuleHop, HopTLS]]) -> ChosenTLS:
    """Returns the strictest requirement of the routes. Different CAs or names are a conflict: a union would loosen both."""
    verifying = [tls_hop for tls_hop in tls_hops if tls_hop[1].level in VERIFYING]
    if not verifying:
        rule_hop, tls = max(
            tls_hops, key=lambda tls_hop: (STRENGTH[tls_hop[1].level], tls_hop[1].level is OldLevel.UNVERIFIED)
        )
        return ChosenTLS(tls, rule_hop)
    rule_hop, tls = max(verifying, key=lambda tls_hop: STRENGTH[tls_hop[1].level])
    all_tls = [hop_tls for _, hop_tls in verifying]
    if _contradict(all_tls, [hop_tls for hop_tls in all_tls if STRENGTH[hop_tls.level] == STRENGTH[tls.level]]):
        return ChosenTLS(tls, rule_hop, tuple({hop_tls.meaning: hop_tls for hop_tls in all_tls}.values()))
    return ChosenTLS(msgspec.structs.replace(tls, revocation=_lists(all_tls)), rule_hop)


def _contradict(verifying: Iterable[HopTLS], strongest: Iterable[HopTLS]) -> bool:
    """Returns whether the CAs differ, or the names that the strongest require."""
    trusts = {tls.trust for tls in verifying}
    names = {(tuple(sorted(tls.names)), tls.sni) for tls in strongest}
    return len(trusts) > 1 or len(names) > 1


def _lists(conflict: Iterable[HopTLS]) -> tuple[TrustRef | FileTrust, ...]:
    """Returns all revocation lists: a certificate that one list revokes is refused for every route."""
    return tuple(dict.fromkeys(reference for tls in conflict for reference in tls.revocation))


def merged(conflict: Sequence[HopTLS]) -> HopTLS:
    """Returns TLS that accepts every certificate that one of the requirements accepts. Only a decision allows this."""
    weakest = min(conflict, key=lambda tls: STRENGTH[tls.level])
    trust = tuple(dict.fromkeys(ca for tls in conflict for ca in tls.trust))
    names = tuple(dict.fromkeys(name for tls in conflict for name in tls.names))
    why = "the requirements of several routes, merged by decision"
    level = OldLevel.NAME if weakest.level is OldLevel.HOST_NAME else weakest.level
    return msgspec.structs.replace(weakest, level=level, trust=trust, names=names, revocation=_lists(conflict), why=why)


def difference_notes(rule_hops: Sequence[RuleHop], requirement: ChosenTLS, target: str) -> Iterator[Note]:
    if _is_plaintext(requirement.rule_hop):
        return
    winner, level = requirement.rule_hop.source.object, requirement.tls.level
    for rule_hop in rule_hops:
        if rule_hop.tls is None or rule_hop.tls.level is OldLevel.PLAINTEXT:
            text = f"used plaintext, and {winner} TLS, to the same port; TLS holds for both"
            yield Note(Category.TIGHTENED, "mixed-plaintext", text, rule_hop.source, target=target)
        elif rule_hop.tls.level is not OldLevel.PASSTHROUGH and STRENGTH[rule_hop.tls.level] < STRENGTH[level]:
            text = f"was {rule_hop.tls.level}; {winner} had {level} for the same port, which holds"
            yield Note(Category.TIGHTENED, "stricter-route-wins", text, rule_hop.source, target=target)
        elif rule_hop.tls.options != requirement.tls.options:
            text = f"requires other TLS versions, ciphers or ALPN than {winner}, whose settings hold"
            yield Note(Category.CHANGED, "options-differ", text, rule_hop.source, target=target)
