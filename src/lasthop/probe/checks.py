"""One backend against one wish, check by check: what it shows, what is wanted, and what to change.

The wish is the gateway's own `BackendTLS`; nothing of the policy is read again here.
"""

from __future__ import annotations

import base64
import contextlib
import re
import socket
from typing import Any, Final

import msgspec

from lasthop.api.addresses import is_ip
from lasthop.outputs.envoy.tls import dns_regex
from lasthop.pki import parse
from lasthop.plan.tls import BackendTLS, San, SanType
from lasthop.plan.tls_options import CIPHER_SUITES
from lasthop.probe import handshake as shake
from lasthop.probe.certificate_message import Handshake, NoHandshake, Untried, handshake
from lasthop.probe.certificate_view import Shown, shown
from lasthop.probe.trust import trust
from lasthop.probe.values import SHOWN, Check, State, Wish

KEYS: Final = ("RSA ", "EC secp256r1", "EC secp384r1")
"""Of backends: Envoy offers no other signatures, and Python has no way to offer as few."""
RSA_KEY_EXCHANGE: Final = "AES"
"""How the names of those suites begin in which the backend's key signs nothing: the client encrypts a secret for it."""
SPEAK_TLS: Final = "Let the backend speak TLS on this port, or let the Service lead to the port where it does."
CHOOSE_ALPN: Final = (
    "Offer what the backend speaks: option lasthop.dev/alpn of the policy, or appProtocol of the Service's port."
)


class Tried(msgspec.Struct, frozen=True):
    address: str
    checks: tuple[Check, ...]
    """Up to the one that leaves nothing to look at."""
    certificate: dict[str, Any] | None = None
    """As `Shown` has it."""

    @property
    def passes(self) -> bool:
        return all(check.state is not State.FAIL for check in self.checks)


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
        first = wish.attempt(address, timeout)
    except Untried as error:
        return Tried(place, (Check("tls", State.FAIL, str(error), "Probe from another machine; Envoy may well take them."),))
    except NoHandshake as error:
        return Tried(place, (unreachable(error),))
    connect = Check("connect", State.PASS, "accepts connections")
    if not first.chain:
        return Tried(place, (connect, _no_tls(address, wish, first, timeout)))
    own = parse.certificate(first.chain[0])
    if isinstance(own, parse.Unreadable):
        remedy = "Have the backend's certificate issued anew, by a CA that follows RFC 5280."
        return Tried(place, (connect, Check("chain", State.FAIL, f"its certificate {own.message}", remedy)))
    held = parse.Extensions() if isinstance(own.extensions, parse.Unreadable) else own.extensions
    chain = _read(first.chain)
    leaf = chain[0]
    # What the chain's trouble has hidden: version, ALPN and what the backend thinks of the client.
    rest = wish.attempt(address, timeout, chain=False) if first.unverified else first
    checks = (
        connect,
        _tls(rest, leaf, held, wish.tls),
        Check("sni", State.PASS, f"{wish.tls.sni} is asked for"),
        _alpn(address, wish, rest, timeout),
        *trust(address, wish, first, chain, now, timeout),
        _names(leaf, held, wish.tls),
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
    """Those that can be read: whether the others matter is for the handshake to say."""
    found = []
    for der in chain:
        with contextlib.suppress(ValueError):
            found.append(shown(der))
    return found


def _tls(rest: shake.Attempt, leaf: Shown, held: parse.Extensions, tls: BackendTLS) -> Check:
    if not leaf.key.startswith(KEYS):
        remedy = "Give the backend a certificate with an RSA key, or one on the curve P-256 or P-384."
        return Check("tls", State.FAIL, f"its key is {leaf.key}, and Envoy takes no signatures of that kind", remedy)
    use, permitted = "digitalSignature", held.digital_signature
    if rest.cipher.startswith(RSA_KEY_EXCHANGE):
        use, permitted = "keyEncipherment", held.key_encipherment
    if not permitted:
        found = f"the key usage of its certificate lacks {use}, which {rest.cipher or 'TLS'} needs"
        return Check("tls", State.FAIL, found, f"Have the certificate issued with the key usage {use}.")
    return Check("tls", State.PASS, f"{rest.version or 'a handshake'}; {_versions(tls)} is spoken")


def _versions(tls: BackendTLS) -> str:
    low, high = tls.options.lowest, tls.options.max_version
    return f"TLS {low}" if low == high else f"TLS {low} to {high}"


def _no_tls(address: tuple[str, int], wish: Wish, first: shake.Attempt, timeout: float) -> Check:
    """Why there was no handshake; whoever takes anything may see more."""
    if first.plaintext:
        return Check("tls", State.FAIL, f"it does not speak TLS on this port ({first.failure})", SPEAK_TLS)
    if "unrecognized name" in first.failure:
        remedy = "Correct hostname of the policy, which is sent as SNI, or let the backend serve that name."
        return Check("sni", State.FAIL, f"it does not serve {wish.tls.sni} ({first.failure})", remedy)
    if "application protocol" in first.failure:
        return Check("alpn", State.FAIL, f"it takes none of {', '.join(wish.alpn)} ({first.failure})", CHOOSE_ALPN)
    try:
        loose = handshake(*address, wish.tls.sni, timeout)
    except NoHandshake as error:
        # An alert is TLS, so that the port is right.
        remedy = "Look into the backend's log: it answers with a TLS alert." if "alert" in first.failure else SPEAK_TLS
        return Check("tls", State.FAIL, str(error).partition("; ")[0], remedy)
    if loose.version and loose.version not in _spoken(wish.tls):
        what = f"it speaks {loose.version}, and the gateway {_versions(wish.tls)}"
        remedy = "Let the backend speak a newer TLS, or permit the version: option lasthop.dev/min-tls-version."
        return Check("tls", State.FAIL, what, remedy)
    what = f"the handshake fails ({first.failure}); with other settings it gives {loose.version} {loose.cipher}".rstrip()
    return Check("tls", State.FAIL, what, _cipher_remedy(loose, wish.tls))


def _cipher_remedy(loose: Handshake, tls: BackendTLS) -> str:
    remedy = "Let the backend have a cipher suite or a curve in common with the gateway"
    if loose.cipher not in CIPHER_SUITES or loose.cipher in tls.options.cipher_suites:
        return f"{remedy}: options lasthop.dev/cipher-suites and lasthop.dev/curves say which those are."
    suites = ",".join((*tls.options.cipher_suites, loose.cipher))
    return f"{remedy}, or permit the one that it has: option lasthop.dev/cipher-suites: {suites}."


def _spoken(tls: BackendTLS) -> set[str]:
    known = list(shake.VERSIONS)
    low, high = known.index(tls.options.lowest), known.index(tls.options.max_version)
    return {f"TLSv{version}".removesuffix(".0") for version in known[low : high + 1]}


def _alpn(address: tuple[str, int], wish: Wish, rest: shake.Attempt, timeout: float) -> Check:
    """What is spoken if the backend picks nothing, and whether it can be understood: who speaks HTTP/2 over TLS says so by
    ALPN (RFC 9113 3.2), and who would pick h2 if it were offered, and does not pick http/1.1, speaks HTTP/2 alone."""
    offered = ", ".join(wish.alpn)
    if not wish.alpn:
        return Check("alpn", State.SKIP, "nothing is offered")
    if rest.alpn:
        return Check("alpn", State.PASS, f"{rest.alpn}, of {offered}")
    if not wish.http or not (rest.version or rest.chain):
        return Check("alpn", State.PASS, f"it picks none of {offered}")
    if wish.alpn == ("h2",):
        return Check(
            "alpn", State.FAIL, "it does not pick h2, so it does not speak HTTP/2, which is all that is offered", CHOOSE_ALPN
        )
    if wish.alpn == ("http/1.1",) and _picks_h2(address, wish, timeout):
        return Check("alpn", State.FAIL, "it does not pick http/1.1, but would pick h2, which is not offered", CHOOSE_ALPN)
    return Check("alpn", State.PASS, f"it picks none of {offered}; http/1.1 is spoken")


def _picks_h2(address: tuple[str, int], wish: Wish, timeout: float) -> bool:
    try:
        return handshake(*address, wish.tls.sni, timeout).alpn == "h2"
    except NoHandshake:
        return False


# --- names, pins, client certificate ---------------------------------------------------------------------------------


def _names(leaf: Shown, own: parse.Extensions, tls: BackendTLS) -> Check:
    held = ", ".join(leaf.names[:SHOWN]) or f"no subjectAltName ({leaf.subject} does not count)"
    more = f" and {len(leaf.names) - SHOWN} more" if len(leaf.names) > SHOWN else ""
    if not tls.names:
        why = f"waived by {tls.waiver.key}" if tls.waiver else "not looked at: the hash is the identity"
        return Check("names", State.SKIP, f"{why}; it holds {held}{more}")
    wanted = " or ".join(str(name) for name in tls.names)
    if any(_matches(name, own) for name in tls.names):
        return Check("names", State.PASS, f"{held}{more}; wanted: {wanted}")
    remedy = f"Have the certificate issued for {wanted} (as subjectAltName)"
    if leaf.names:
        remedy += ", or name what it holds in hostname or subjectAltNames of the policy"
    remedy += "."
    return Check("names", State.FAIL, f"it holds {held}{more}; wanted: {wanted}", remedy)


def _matches(wanted: San, own: parse.Extensions) -> bool:
    """By the very expression that Envoy is given (RFC 9525)."""
    if wanted.type is SanType.URI:
        return wanted.value in own.uris
    return any(re.fullmatch(dns_regex(wanted.value), name) for name in own.dns_names)


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
    if not wish.tls.client_certificate:
        found = (
            "asked for, and the Gateway has none; the handshake succeeds, but some servers refuse requests then (nginx: 400)"
        )
        return Check(name, State.WARN, found, f"If it does: {remedy[0].lower()}{remedy[1:]}")
    if wish.identity is None:
        found = f"asked for; {wish.tls.client_certificate} cannot be read here, so none was shown"
        return Check(name, State.WARN, found, "Probe where the Secret can be read, such as on the gateway itself.")
    return Check(name, State.PASS, f"asked for; {own}, and the backend takes that")
