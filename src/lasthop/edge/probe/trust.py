"""Checks the chain and dates of a backend's certificate by the gateway's rules."""

from __future__ import annotations

from typing import Final

from lasthop.edge.probe.certificate_view import CertificateInfo, is_expired, is_valid, validity
from lasthop.edge.probe.handshake import Codes
from lasthop.edge.probe.result import Check, CheckOutcome, listed
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS
from lasthop.engine.resolve.trust.certificates import parse_bundle
from lasthop.engine.resolve.trust.trust import minute

FOR_SERVERS: Final = "Have the backend's certificate issued with the extended key usage serverAuth; the CA is trusted already."
REVOKED: Final = "Give the backend a new certificate: its CA has revoked this one, or the CA above it."
NO_LIST: Final = (
    "Put the CRLs of all CAs of the chain under ca.crl beside ca.crt, or only that of the CA that issues for backends."
)
REMEDIES: Final = {
    Codes.ERR_INVALID_PURPOSE: FOR_SERVERS,
    Codes.ERR_CERT_REVOKED: REVOKED,
    Codes.ERR_UNABLE_TO_GET_CRL: NO_LIST,
}
WORDS: Final = {
    code: name.removeprefix("ERR_").replace("_", " ").lower() for name, code in vars(Codes).items() if name[0] != "_"
}


def check_trust(tls: BackendTLS, chain: list[CertificateInfo], errors: tuple[int, ...], now: float) -> tuple[Check, Check]:
    """Returns the checks of the chain and of the dates. `errors` are OpenSSL's codes."""
    if skipped := _skipped(tls):
        return Check("chain", CheckOutcome.SKIP, skipped), Check("dates", CheckOutcome.SKIP, skipped)
    issuer = "itself" if chain[0].self_signed else chain[0].issuer
    message = f"{chain[0].subject}, issued by {issuer}; trusted: {_anchors(tls)}"
    date_errors = [code for code in errors if code in (Codes.ERR_CERT_NOT_YET_VALID, Codes.ERR_CERT_HAS_EXPIRED)]
    chain_errors = [code for code in errors if code not in date_errors]
    dates = _dates(chain, tls, now)
    # The faulty certificate may be an anchor, which the backend does not send.
    if date_errors and dates.state is CheckOutcome.PASS:
        dates = _anchor_dates(tls, date_errors[0], now)
    if not chain_errors:
        return Check("chain", CheckOutcome.PASS, message), dates
    words, remedy = WORDS.get(chain_errors[0], "not valid"), _chain_remedy(chain, chain_errors[0])
    return Check("chain", CheckOutcome.FAIL, f"{message} ({words})", remedy), dates


def _skipped(tls: BackendTLS) -> str:
    """Returns the reason why neither chain nor dates are checked; empty if they are."""
    if tls.waiver and tls.strength is Strength.WAIVED_ALL:
        return f"waived by {tls.waiver.key}"
    return "not checked: the pinned hash is the identity" if tls.strength is Strength.PINNED_ONLY else ""


def _anchors(tls: BackendTLS) -> str:
    if not isinstance(tls.trust, Anchors):
        return f"the system store of this machine ({tls.trust.path})" if tls.trust else "nothing"
    return listed([anchor.subject for anchor in parse_bundle(tls.trust.pem).anchors])


def _chain_remedy(chain: list[CertificateInfo], error: int) -> str:
    last = chain[-1]
    if error in REMEDIES:
        return REMEDIES[error]
    if chain[0].self_signed:
        return "Give the backend a certificate of a trusted CA, or pin this one: lasthop pin."
    if len(chain) == 1:
        return f"Let the policy trust {last.issuer}, or let the backend send the intermediate certificates too."
    top = last.subject if last.self_signed else last.issuer
    return f"Let the policy trust {top}: put its certificate under ca.crt of a ConfigMap that caCertificateRefs names."


def _dates(chain: list[CertificateInfo], tls: BackendTLS, now: float) -> Check:
    waived = f"; waived by {tls.waiver.key}" if tls.waiver and tls.strength is Strength.WAIVED_EXPIRY else ""
    # Without a waiver, only the leaf is checked, because the handshake decides which other certificates it needs.
    for number, certificate in enumerate(chain if waived else chain[:1]):
        if is_valid(certificate, now):
            continue
        subject = certificate.subject if number else "the certificate"
        message = (
            f"{subject}: {validity(certificate, now)} ({certificate.not_before[:10]} to {certificate.not_after[:10]}){waived}"
        )
        if waived:
            return Check("dates", CheckOutcome.SKIP, message)
        renew = "Renew the backend's certificate" if is_expired(certificate, now) else "Wait until then"
        return Check("dates", CheckOutcome.FAIL, message, f"{renew}, or set the clock of this machine if it is wrong.")
    until = f"until {chain[0].not_after[:10]}, {validity(chain[0], now)}{waived}"
    return Check("dates", CheckOutcome.SKIP if waived else CheckOutcome.PASS, until)


def _anchor_dates(tls: BackendTLS, code: int, now: float) -> Check:
    message = f"a certificate above it: {WORDS[code]}"
    early = code == Codes.ERR_CERT_NOT_YET_VALID
    if isinstance(tls.trust, Anchors):
        anchors = parse_bundle(tls.trust.pem).anchors
        invalid = [a for a in anchors if (now < a.not_before if early else a.not_after <= now)]
        message = (
            "; ".join(f"CA {a.subject}: valid {minute(a.not_before)} to {minute(a.not_after)}" for a in invalid) or message
        )
    remedy = (
        "Let the backend keep a certificate of the old CA until then, or set the clock of this machine if it is wrong."
        if early
        else "Renew the CA, and put its new certificate beside the old one."
    )
    return Check("dates", CheckOutcome.FAIL, message, remedy)
