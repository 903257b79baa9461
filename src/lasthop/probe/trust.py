"""The chain and the dates of what a backend shows, as the gateway would judge them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from lasthop.pki import parse
from lasthop.plan.tls import Anchors, BackendTLS, Mode
from lasthop.probe import handshake as shake
from lasthop.probe.certificate_view import Shown, validity
from lasthop.probe.values import SHOWN, Check, State, Wish
from lasthop.resolve.certificates import parse_bundle
from lasthop.resolve.trust import minute

PATH_TOO_LONG, WRONG_PURPOSE = 25, 26
"""X509_V_ERR_PATH_LENGTH_EXCEEDED, X509_V_ERR_INVALID_PURPOSE."""
FOR_SERVERS: Final = "Have the backend's certificate issued with the extended key usage serverAuth; the CA is trusted already."


def trust(
    address: tuple[str, int], wish: Wish, first: shake.Attempt, chain: list[Shown], now: float, timeout: float
) -> tuple[Check, Check]:
    """Returns the checks of the chain and of the dates."""
    tls = wish.tls
    if tls.mode is Mode.WAIVED_ALL and tls.waiver:
        waived = f"waived by {tls.waiver.key}"
        return Check("chain", State.SKIP, waived), Check("dates", State.SKIP, waived)
    if tls.trust is None:
        by = "not looked at: the hash is the identity"
        return Check("chain", State.SKIP, by), Check("dates", State.SKIP, by)
    anchors = _anchors(tls)
    issuer = "itself" if chain[0].self_signed else chain[0].issuer
    verified = f"{chain[0].subject}, issued by {issuer}; trusted: {anchors}"
    dates = _dates(chain, tls, now)
    if first.unverified == PATH_TOO_LONG:
        first = _without_anchors_path_length(address, wish, first, now, timeout)
    if not first.unverified:
        return Check("chain", State.PASS, verified), dates
    if first.unverified in (shake.EXPIRED, shake.NOT_YET_VALID):
        again = wish.attempt(address, timeout, dates=False)
        # The one at fault may be an anchor, which the backend has not shown.
        if dates.state is not State.FAIL:
            dates = _anchor_dates(tls, first, now)
        if not again.unverified:
            return Check("chain", State.PASS, verified), dates
        first = again
    remedy = FOR_SERVERS if first.unverified == WRONG_PURPOSE else _chain_remedy(chain, tls)
    return Check("chain", State.FAIL, f"{verified} ({first.complaint})", remedy), dates


def _without_anchors_path_length(
    address: tuple[str, int], wish: Wish, first: shake.Attempt, now: float, timeout: float
) -> shake.Attempt:
    """Envoy's library asks of intermediates only how long a path they allow, OpenSSL of the anchor too. So the certificates
    that an anchor has issued are made anchors in its place, and the same handshake is made again."""
    anchors = [each for each in _trusted(wish.tls) if each.not_before <= now <= each.not_after]
    shown = [each for each in map(parse.certificate, first.chain[1:]) if not isinstance(each, parse.Unreadable)]
    below = [each for each in shown if each not in anchors and any(parse.issued_by(each, anchor) for anchor in anchors)]
    if not below:
        return first
    trust = Anchors(b"".join(each.pem for each in below))
    return wish._replace(tls=msgspec.structs.replace(wish.tls, trust=trust)).attempt(address, timeout)


def _trusted(tls: BackendTLS) -> tuple[parse.Certificate, ...]:
    pem = tls.trust.pem if isinstance(tls.trust, Anchors) else Path(tls.trust.path).read_bytes() if tls.trust else b""
    found = parse.certificates(pem)
    return () if isinstance(found, parse.Unreadable) else found


def _anchors(tls: BackendTLS) -> str:
    if not isinstance(tls.trust, Anchors):
        return f"the system store of this machine ({tls.trust.path})" if tls.trust else "nothing"
    subjects = [anchor.subject for anchor in parse_bundle(tls.trust.pem).anchors]
    more = f" and {len(subjects) - SHOWN} more" if len(subjects) > SHOWN else ""
    return f"{', '.join(subjects[:SHOWN])}{more}"


def _chain_remedy(chain: list[Shown], tls: BackendTLS) -> str:
    last = chain[-1]
    if chain[0].self_signed:
        return "Give the backend a certificate of a trusted CA, or pin this one: lasthop pin."
    if len(chain) == 1:
        return f"Let the policy trust {last.issuer}, or let the backend send the intermediate certificates too."
    top = last.subject if last.self_signed else last.issuer
    return f"Let the policy trust {top}: put its certificate under ca.crt of a ConfigMap that caCertificateRefs names."


def _dates(chain: list[Shown], tls: BackendTLS, now: float) -> Check:
    waived = f"; waived by {tls.waiver.key}" if tls.waiver and tls.mode is Mode.WAIVED_EXPIRY else ""
    for number, each in enumerate(chain):
        said = validity(each, now)
        if said.endswith("left"):
            continue
        who = "the certificate" if number == 0 else each.subject
        found = f"{who}: {said} ({each.not_before[:10]} to {each.not_after[:10]}){waived}"
        # Beyond the leaf only what is needed counts, and that is for the handshake to say.
        if number == 0 and not waived:
            renew = "Renew the backend's certificate" if said.startswith("expired") else "Wait until then"
            return Check("dates", State.FAIL, found, f"{renew}, or set the clock of this machine if it is wrong.")
        if waived:
            return Check("dates", State.SKIP, found)
    return Check(
        "dates", State.SKIP if waived else State.PASS, f"until {chain[0].not_after[:10]}, {validity(chain[0], now)}{waived}"
    )


def _anchor_dates(tls: BackendTLS, first: shake.Attempt, now: float) -> Check:
    found = f"a certificate above it: {first.complaint}"
    early = first.unverified == shake.NOT_YET_VALID
    if isinstance(tls.trust, Anchors):
        anchors = parse_bundle(tls.trust.pem).anchors
        odd = [a for a in anchors if (now < a.not_before if early else a.not_after <= now)]
        found = "; ".join(f"CA {a.subject}: valid {minute(a.not_before)} to {minute(a.not_after)}" for a in odd) or found
    if early:
        remedy = (
            "Let the backend keep a certificate of the old CA until then, or set the clock of this machine if it is wrong."
        )
    else:
        remedy = "Renew the CA, and put its new certificate beside the old one."
    return Check("dates", State.FAIL, found, remedy)
