"""One backend against one wish, check by check: what it shows, what is wanted, and what to change.

The wish is the gateway's own `BackendTLS`; nothing of the policy is read again here.
"""

from __future__ import annotations

import base64
import re
import socket
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.cli import probe_handshake as shake
from lasthop.cli.address import is_ip
from lasthop.cli.chain import Shown, shown, validity
from lasthop.cli.handshake import NoHandshake, handshake
from lasthop.outputs.envoy.tls import dns_regex
from lasthop.plan.tls import Anchors, BackendTLS, Mode, SanType
from lasthop.resolve.certificates import parse_bundle
from lasthop.resolve.trust import minute

SHOWN: Final = 5
"""CAs and names that are listed; more would hide the answer."""


KEYS: Final = ("RSA ", "EC secp256r1", "EC secp384r1")
"""Of backends: Envoy offers no other signatures, and Python has no way to offer as few."""


class State(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    """Not asked for."""


class Check(msgspec.Struct, frozen=True):
    name: str
    state: State
    found: str
    remedy: str = ""
    """What to change if it fails."""


class Tried(msgspec.Struct, frozen=True):
    address: str
    checks: tuple[Check, ...]
    """Up to the one that leaves nothing to look at."""
    certificate: dict[str, Any] | None = None
    """As `Shown` has it."""

    @property
    def passes(self) -> bool:
        return all(check.state is not State.FAIL for check in self.checks)


class Wish(NamedTuple):
    tls: BackendTLS
    alpn: tuple[str, ...]
    identity: shake.Identity | None
    """The Gateway's own certificate."""


def resolved(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses that a proxy would find: IPv4 where there is any. Raises `NoHandshake`."""
    if is_ip(host):
        return [(host, port)]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        message = f"{host} is not found in DNS; correct the name in the EndpointSlice or the Service"
        raise NoHandshake(message) from None
    preferred = [each for each in found if each[0] is socket.AF_INET] or found
    return list(dict.fromkeys((str(each[4][0]), port) for each in preferred))


def tried(address: tuple[str, int], wish: Wish, now: float, timeout: float) -> Tried:
    place = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    try:
        first = shake.attempt(address, *wish, timeout)
    except NoHandshake as error:
        return Tried(place, (unreachable(error),))
    connect = Check("connect", State.PASS, "accepts connections")
    chain = _read(first.chain)
    if not chain:
        return Tried(place, (connect, _no_tls(address, wish, first, timeout)))
    leaf = chain[0]
    # What the chain's trouble has hidden: version, ALPN and what the backend thinks of the client.
    rest = shake.attempt(address, *wish, timeout, chain=False) if first.unverified else first
    checks = (
        connect,
        _tls(rest, leaf, wish.tls),
        Check("sni", State.PASS, f"{wish.tls.sni} is asked for"),
        Check("alpn", State.PASS, _alpn(rest, wish.alpn)) if wish.alpn else Check("alpn", State.SKIP, "nothing is offered"),
        *_trust(address, wish, first, chain, now, timeout),
        _names(leaf, wish.tls),
        _pins(leaf, wish.tls),
        _client(rest, wish),
    )
    certificate = msgspec.to_builtins(leaf)
    del certificate["pem"]
    return Tried(place, checks, certificate)


def unreachable(error: NoHandshake) -> Check:
    remedy = "Is the backend up, and are address and port of its EndpointSlice or ExternalName right?"
    return Check("connect", State.FAIL, str(error).partition("; ")[0], remedy)


def _read(chain: tuple[bytes, ...]) -> list[Shown]:
    try:
        return [shown(der) for der in chain]
    except ValueError:
        return []


def _tls(rest: shake.Attempt, leaf: Shown, tls: BackendTLS) -> Check:
    if not leaf.key.startswith(KEYS):
        remedy = "Give the backend a certificate with an RSA key, or one on the curve P-256 or P-384."
        return Check("tls", State.FAIL, f"its key is {leaf.key}, and Envoy takes no signatures of that kind", remedy)
    return Check("tls", State.PASS, f"{rest.version or 'a handshake'}; {_versions(tls)} is spoken")


def _versions(tls: BackendTLS) -> str:
    low, high = tls.options.min_version, tls.options.max_version
    return f"TLS {low}" if low == high else f"TLS {low} to {high}"


def _no_tls(address: tuple[str, int], wish: Wish, first: shake.Attempt, timeout: float) -> Check:
    """Why there was no handshake; whoever takes anything may see more."""
    remedy = "Let the backend speak TLS on this port, or let the Service lead to the port where it does."
    if first.plaintext:
        return Check("tls", State.FAIL, f"it does not speak TLS on this port ({first.failure})", remedy)
    try:
        loose = handshake(*address, wish.tls.sni, timeout)
    except NoHandshake as error:
        return Check("tls", State.FAIL, str(error).partition("; ")[0], remedy)
    if loose.version and loose.version not in _spoken(wish.tls):
        what = f"it speaks {loose.version}, and the gateway {_versions(wish.tls)}"
        remedy = "Let the backend speak a newer TLS, or permit the version: option lasthop.dev/min-tls-version."
    elif "application protocol" in first.failure:
        what, remedy = f"it takes none of {', '.join(wish.alpn)}", "Choose what it speaks with option lasthop.dev/alpn."
    else:
        what = f"the handshake fails ({first.failure}); with other settings it gives {loose.version} {loose.cipher}".rstrip()
        remedy = "Let the backend have a cipher suite in common: option lasthop.dev/cipher-suites."
    return Check("tls", State.FAIL, what, remedy)


def _spoken(tls: BackendTLS) -> set[str]:
    known = list(shake.VERSIONS)
    low, high = known.index(tls.options.min_version), known.index(tls.options.max_version)
    return {f"TLSv{version}".removesuffix(".0") for version in known[low : high + 1]}


def _alpn(rest: shake.Attempt, offered: tuple[str, ...]) -> str:
    listed = ", ".join(offered)
    if rest.alpn:
        return f"{rest.alpn}, of {listed}"
    return f"it picks none of {listed}; {offered[0] if len(offered) == 1 else 'http/1.1'} is spoken"


# --- chain and dates -------------------------------------------------------------------------------------------------


def _trust(
    address: tuple[str, int], wish: Wish, first: shake.Attempt, chain: list[Shown], now: float, timeout: float
) -> tuple[Check, Check]:
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
    if not first.unverified:
        return Check("chain", State.PASS, verified), dates
    if first.unverified in (shake.EXPIRED, shake.NOT_YET_VALID):
        again = shake.attempt(address, *wish, timeout, dates=False)
        # The one at fault may be an anchor, which the backend has not shown.
        if dates.state is not State.FAIL:
            dates = _anchor_dates(tls, first, now)
        if not again.unverified:
            return Check("chain", State.PASS, verified), dates
        first = again
    return Check("chain", State.FAIL, f"{verified} ({first.complaint})", _chain_remedy(chain, tls)), dates


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
            return Check("dates", State.FAIL, found, "Renew the backend's certificate, or set its clock.")
        if waived:
            return Check("dates", State.SKIP, found)
    return Check(
        "dates", State.SKIP if waived else State.PASS, f"until {chain[0].not_after[:10]}, {validity(chain[0], now)}{waived}"
    )


def _anchor_dates(tls: BackendTLS, first: shake.Attempt, now: float) -> Check:
    found = f"a certificate above it: {first.complaint}"
    if isinstance(tls.trust, Anchors):
        late = [a for a in parse_bundle(tls.trust.pem).anchors if not a.not_before <= now < a.not_after]
        found = "; ".join(f"CA {a.subject}: valid {minute(a.not_before)} to {minute(a.not_after)}" for a in late) or found
    return Check("dates", State.FAIL, found, "Renew the CA, and put its new certificate beside the old one.")


# --- names, pins, client certificate ---------------------------------------------------------------------------------


def _names(leaf: Shown, tls: BackendTLS) -> Check:
    held = ", ".join(leaf.names[:SHOWN]) or "no name"
    more = f" and {len(leaf.names) - SHOWN} more" if len(leaf.names) > SHOWN else ""
    if not tls.names:
        why = f"waived by {tls.waiver.key}" if tls.waiver else "not looked at: the hash is the identity"
        return Check("names", State.SKIP, f"{why}; it holds {held}{more}")
    wanted = " or ".join(str(name) for name in tls.names)
    if any(_matches(name.type, name.value, each) for name in tls.names for each in leaf.names):
        return Check("names", State.PASS, f"{held}{more}; wanted: {wanted}")
    remedy = f"Have the certificate issued for {wanted}, or name what it holds in hostname or subjectAltNames of the policy."
    return Check("names", State.FAIL, f"it holds {held}{more}; wanted: {wanted}", remedy)


def _matches(kind: SanType, wanted: str, held: str) -> bool:
    """By the very expression that Envoy is given (RFC 9525)."""
    type, _, value = held.partition(" ")
    if type != kind:
        return False
    return value == wanted if kind is SanType.URI else re.fullmatch(dns_regex(wanted), value) is not None


def _pins(leaf: Shown, tls: BackendTLS) -> Check:
    if not tls.pins:
        return Check("pins", State.SKIP, "none are asked for")
    key, whole = base64.b64decode(leaf.spki_sha256), bytes.fromhex(leaf.sha256.replace(":", ""))
    if key in tls.pins.keys:
        return Check("pins", State.PASS, f"its key is pinned: {leaf.spki_sha256}")
    if whole in tls.pins.certificates:
        return Check("pins", State.PASS, f"it is pinned: {leaf.sha256}")
    count = len(tls.pins.keys) + len(tls.pins.certificates)
    found = f"not one of the {count} pinned; its key is {leaf.spki_sha256}, it is {leaf.sha256}"
    return Check("pins", State.FAIL, found, "If its owner confirms that it is right, pin it too: lasthop pin.")


def _client(rest: shake.Attempt, wish: Wish) -> Check:
    name = "client certificate"
    own = f"that of {wish.tls.client_certificate} is shown" if wish.tls.client_certificate else "the Gateway has none"
    remedy = "Give the Gateway one that the backend trusts: spec.tls.backend.clientCertificateRef."
    if rest.failure:
        return Check(name, State.FAIL, f"the backend ends the connection ({rest.failure}); {own}", remedy)
    if not rest.requested:
        return Check(name, State.SKIP, "not asked for")
    if wish.tls.client_certificate and wish.identity is None:
        return Check(name, State.SKIP, f"asked for; {wish.tls.client_certificate} cannot be read here, so none was shown")
    return Check(name, State.PASS, f"asked for; {own}, and the backend takes that")
