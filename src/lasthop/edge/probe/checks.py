"""Checks one backend against the gateway's expectation, and suggests what to change.

The expectation contains the gateway's own `BackendTLS`; this module does not read the policy again.
"""

from __future__ import annotations

import base64
import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from lasthop.base.api.addresses import is_ip, with_port
from lasthop.base.pki import parse
from lasthop.edge.probe.certificate_view import CertificateInfo, describe
from lasthop.edge.probe.handshake import Expectation, Handshake, NoHandshake, UnsupportedSettings, fetch, handshake
from lasthop.edge.probe.result import CLIENT_CERTIFICATE, LISTED, STRENGTH, Check, CheckOutcome, EndpointResult, listed
from lasthop.edge.probe.trust import check_trust
from lasthop.engine.outputs.envoy.tls import dns_regex
from lasthop.engine.plan.tls import BackendTLS, San, SanType
from lasthop.engine.plan.tls_options import CIPHER_SUITES, ED25519, SIGNATURES, VERSIONS

SIGNED_WITH: Final = {
    "RSA ": tuple(signature for signature in SIGNATURES if signature.startswith("rsa")),
    "EC secp256r1": ("ecdsa_secp256r1_sha256",),
    "EC secp384r1": ("ecdsa_secp384r1_sha384",),
    "EC secp521r1": ("ecdsa_secp521r1_sha512",),
    "Ed25519": (ED25519,),
}
"""Signatures that a key can make, by the prefix of the key's description. They are checked here because pyOpenSSL cannot
restrict its offer to Envoy's."""
ENVOY_KEYS: Final = ("RSA ", "EC secp256r1", "EC secp384r1")
"""Prefixes of the keys whose signatures Envoy accepts unless a policy names others."""
HOSTS: Final = Path("/etc/hosts")
NIST: Final = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
CURVES: Final = {
    "x25519mlkem768": "X25519MLKEM768",
    "mlkem1024": "MLKEM1024",
    "x25519": "X25519",
    "prime256v1": "P-256",
    **{curve.name: name for name, curve in NIST.items()},
}
"""A policy's names of curves, by OpenSSL's names in lower case."""
ENVOY_CURVES: Final = ("X25519MLKEM768", "X25519", "P-256")
"""Curves that Envoy offers unless a policy names others."""
RSA_KEY_EXCHANGE: Final = "AES"
"""Prefix of the cipher suites with RSA key exchange: the backend's key decrypts the client's secret, and signs nothing."""
SPEAK_TLS: Final = "Enable TLS on this port of the backend, or point the Service to the port that has it."
FEWER_CERTIFICATES: Final = "Let the backend send only its own certificate and the intermediates, with fewer names."
ISSUE_ANEW: Final = "Reissue the backend's certificate, from a CA that follows RFC 5280."
TOO_LARGE: Final = "it sends certificates of more than 100 KiB, which Envoy refuses"
CLOSES: Final = "the backend closes the connection right after the handshake, without a reason"
CHOOSE_ALPN: Final = (
    "Offer what the backend speaks: option lasthop.dev/alpn of the policy, or appProtocol of the Service's port."
)
SPEAK_H2: Final = "Enable HTTP/2 with ALPN h2 on this port of the backend; GRPCRoutes require it."


def addresses(host: str, port: int) -> list[tuple[str, int]]:
    """Returns the addresses that a proxy would use: IPv4 if there are any. Raises `NoHandshake`."""
    if is_ip(host):
        return [(host, port)]
    try:
        resolved = _in_hosts(host, HOSTS.read_text(errors="replace") if HOSTS.is_file() else "")
        resolved = resolved or [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):  # UnicodeError: a label is longer than 63 characters
        if host == "localhost":  # RFC 6761, 6.3: Envoy resolves it without /etc/hosts, the C library does not
            return [("127.0.0.1", port)]
        raise NoHandshake(f"{host} is not found in DNS") from None
    preferred = [address for address in resolved if ":" not in address] or resolved
    return [(address, port) for address in dict.fromkeys(preferred)]


def _in_hosts(host: str, text: str) -> list[str]:
    """Looks a name up in a hosts file as Envoy's resolver c-ares does, which merges lines with the same address or name. The C
    library does not: after `127.0.0.1 localhost`, it ignores the second of `127.0.0.9 api` and `127.0.0.1 api`."""
    by_address: dict[str, list[str]] = {}
    by_name: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].lower().split() or [""]
        if not (names and is_ip(address)):
            continue
        known = by_address.get(address) or next((by_name[name] for name in names if name in by_name), [])
        known += [] if address in known else [address]
        by_address.setdefault(address, known)
        for name in names:
            by_name.setdefault(name, known)
    return by_name.get(host.lower(), [])


def check_endpoint(address: tuple[str, int], expected: Expectation, now: float, timeout: float) -> EndpointResult:
    """Performs the gateway's handshake with one endpoint and checks it."""
    at, tls = with_port(*address), expected.tls
    try:
        seen = handshake(address, expected, timeout)
    except UnsupportedSettings as error:
        remedy = "Probe from another machine; Envoy may accept them."
        return EndpointResult(at, (Check("tls", CheckOutcome.FAIL, str(error), remedy),))
    except NoHandshake as error:
        return EndpointResult(at, (unreachable(error),))
    connect = Check("connect", CheckOutcome.PASS, "accepts connections")
    if not seen.chain:
        return EndpointResult(at, (connect, _no_chain(address, expected, seen, timeout)))
    parsed = parse.certificate(seen.chain[0])
    if isinstance(parsed, parse.Unreadable):
        return EndpointResult(
            at, (connect, Check("chain", CheckOutcome.FAIL, f"its certificate {parsed.message}", ISSUE_ANEW))
        )
    extensions = parse.Extensions() if isinstance(parsed.extensions, parse.Unreadable) else parsed.extensions
    chain = _read(seen.chain)
    leaf = chain[0]
    checks: tuple[Check, ...] = (
        connect,
        _tls(seen, leaf, extensions, tls)
        or _curve(address, expected, seen, timeout)
        or Check("tls", CheckOutcome.PASS, f"{seen.version or 'a handshake'}; {_versions(tls)} is offered"),
        Check("sni", CheckOutcome.PASS, f"{tls.sni} is sent"),
        _alpn(address, expected, seen, timeout),
        *check_trust(tls, chain, seen.chain_errors, now),
        _names(leaf, extensions, tls),
        _pins(leaf, tls),
        _client(seen, expected),
        *_weak(seen.chain),
    )
    if seen.closed and not any(check.state is CheckOutcome.FAIL for check in checks):
        checks = (*checks, _closed(expected))
    certificate = msgspec.to_builtins(leaf)
    del certificate["pem"]
    return EndpointResult(at, checks, certificate)


def _weak(chain: tuple[bytes, ...]) -> Iterator[Check]:
    """Warns of weak keys and signatures that Envoy accepts."""
    certificates = (parse.certificate(der) for der in chain)
    weak = [
        f"{certificate.common_name} has a {certificate.weakness}"
        for certificate in certificates
        if not isinstance(certificate, parse.Unreadable) and certificate.weakness
    ]
    if weak:
        remedy = "Reissue it with an RSA key of 2048 bits, or on P-256, and a SHA-256 signature."
        yield Check(STRENGTH, CheckOutcome.WARN, f"{'; '.join(weak[:LISTED])}, which Envoy accepts", remedy)


def unreachable(error: NoHandshake) -> Check:
    remedy = "Is the backend up, and are address and port of its EndpointSlice or ExternalName right?"
    return Check("connect", CheckOutcome.FAIL, error.message, remedy)


def _read(chain: tuple[bytes, ...]) -> list[CertificateInfo]:
    """Parses the certificates that can be parsed; the handshake decides whether the others matter."""
    readable = []
    for der in chain:
        with contextlib.suppress(ValueError):
            readable.append(describe(der))
    return readable


def _tls(seen: Handshake, leaf: CertificateInfo, extensions: parse.Extensions, tls: BackendTLS) -> Check | None:
    signatures = next((algorithms for key, algorithms in SIGNED_WITH.items() if leaf.key.startswith(key)), ())
    named = tls.options.signature_algorithms
    if not (set(signatures) & set(named) if named else leaf.key.startswith(ENVOY_KEYS)):
        remedy = "Give the backend a certificate with an RSA key, or one on the curve P-256 or P-384"
        remedy += (
            f", or permit its signatures: option lasthop.dev/signature-algorithms: {','.join(signatures)}."
            if signatures
            else "."
        )
        message = f"its key is {leaf.key}, and {'the policy' if named else 'Envoy'} accepts no signatures of that kind"
        option = ("signature-algorithms", ",".join((*named, *signatures))) if signatures else None
        return Check("tls", CheckOutcome.FAIL, message, remedy, option)
    use, permitted = "digitalSignature", extensions.digital_signature
    if seen.cipher.startswith(RSA_KEY_EXCHANGE):
        use, permitted = "keyEncipherment", extensions.key_encipherment
    if not permitted:
        message = f"the key usage of its certificate lacks {use}, which {seen.cipher or 'TLS'} needs"
        return Check("tls", CheckOutcome.FAIL, message, f"Have the certificate issued with the key usage {use}.")
    return None


def _curve(address: tuple[str, int], expected: Expectation, seen: Handshake, timeout: float) -> Check | None:
    """Fails if the backend picks a curve that OpenSSL offers and Envoy does not, and accepts none of Envoy's NIST curves."""
    named = expected.tls.options.curves
    offered, picked = named or ENVOY_CURVES, CURVES.get(seen.group.lower(), seen.group)
    if not picked or picked in offered:
        return None
    for curve in (NIST[name] for name in offered if name in NIST):
        with contextlib.suppress(NoHandshake):
            if handshake(address, expected, timeout, curve).version:
                return None
    message = f"it agrees to the curve {picked}, and to none that the gateway offers ({', '.join(offered)})"
    remedy = "Configure the backend with one of those"
    if picked not in NIST:
        return Check("tls", CheckOutcome.FAIL, message, f"{remedy}.")
    curves = ",".join((*named, picked))
    return Check(
        "tls", CheckOutcome.FAIL, message, f"{remedy}, or permit it: option lasthop.dev/curves: {curves}.", ("curves", curves)
    )


def _versions(tls: BackendTLS) -> str:
    low, high = tls.options.lowest, tls.options.max_version
    return f"TLS {low}" if low == high else f"TLS {low} to {high}"


def _no_chain(address: tuple[str, int], expected: Expectation, seen: Handshake, timeout: float) -> Check:
    """Explains why no certificate was received. A handshake that accepts anything may find the cause."""
    if seen.unreadable:
        return Check("chain", CheckOutcome.FAIL, f"it presents a certificate that cannot be read ({seen.failure})", ISSUE_ANEW)
    if seen.too_large:
        return Check("chain", CheckOutcome.FAIL, TOO_LARGE, FEWER_CERTIFICATES)
    if seen.plaintext:
        return Check("tls", CheckOutcome.FAIL, f"it does not speak TLS on this port ({seen.failure})", SPEAK_TLS)
    if seen.unknown_name:
        remedy = "Correct the hostname of the policy, which is sent as SNI, or let the backend serve that name."
        return Check("sni", CheckOutcome.FAIL, f"it does not serve {expected.tls.sni} ({seen.failure})", remedy)
    if "application protocol" in seen.failure:
        remedy = SPEAK_H2 if _grpc_alone(expected) else CHOOSE_ALPN
        return Check("alpn", CheckOutcome.FAIL, f"it accepts none of {', '.join(expected.alpn)} ({seen.failure})", remedy)
    try:
        loose = fetch(*address, expected.tls.sni, timeout)
    except NoHandshake as error:
        # An alert is TLS, so the port is right.
        remedy = "See the backend's log: it responds with a TLS alert." if "alert" in seen.failure else SPEAK_TLS
        return Check("tls", CheckOutcome.FAIL, error.message, remedy)
    if loose.version and loose.version not in _accepted_versions(expected.tls):
        message = f"it speaks {loose.version}, and the gateway offers {_versions(expected.tls)}"
        remedy = "Let the backend speak a newer TLS, or permit the version: option lasthop.dev/min-tls-version."
        older = next((version for version in VERSIONS if _openssl_name(version) == loose.version), "")
        return Check("tls", CheckOutcome.FAIL, message, remedy, ("min-tls-version", older) if older else None)
    message = (
        f"the handshake fails ({seen.failure}); with other settings it negotiates {loose.version} {loose.cipher}".rstrip()
    )
    remedy = "Configure the backend with a cipher suite and a curve that the gateway offers"
    if loose.cipher not in CIPHER_SUITES or loose.cipher in expected.tls.options.cipher_suites:
        remedy += ": options lasthop.dev/cipher-suites and lasthop.dev/curves list them."
        return Check("tls", CheckOutcome.FAIL, message, remedy)
    suites = ",".join((*expected.tls.options.cipher_suites, loose.cipher))
    remedy += f", or permit the backend's: option lasthop.dev/cipher-suites: {suites}."
    return Check("tls", CheckOutcome.FAIL, message, remedy, ("cipher-suites", suites))


def _accepted_versions(tls: BackendTLS) -> set[str]:
    low, high = VERSIONS.index(tls.options.lowest), VERSIONS.index(tls.options.max_version)
    return set(map(_openssl_name, VERSIONS[low : high + 1]))


def _openssl_name(version: str) -> str:
    return f"TLSv{version}".removesuffix(".0")


def _alpn(address: tuple[str, int], expected: Expectation, seen: Handshake, timeout: float) -> Check:
    """Checks the backend's choice by ALPN. Without a choice the gateway continues with HTTP/1.1. A server of HTTP/2 over TLS
    would choose h2 (RFC 9113 3.2), and one that chooses h2 only if http/1.1 is not offered does not speak HTTP/1.1."""
    offered = ", ".join(expected.alpn)
    if not expected.alpn:
        return Check("alpn", CheckOutcome.SKIP, "nothing is offered")
    if _grpc_alone(expected) and seen.alpn != "h2":
        return Check("alpn", CheckOutcome.FAIL, "it does not pick h2, so it does not speak HTTP/2, which gRPC needs", SPEAK_H2)
    if expected.grpc and seen.alpn != "h2":
        picked = f"{seen.alpn}, of {offered}" if seen.alpn else f"it picks none of {offered}; http/1.1 is used"
        return Check("alpn", CheckOutcome.WARN, f"{picked}, and calls of GRPCRoutes fail", SPEAK_H2)
    if seen.alpn:
        return Check("alpn", CheckOutcome.PASS, f"{seen.alpn}, of {offered}")
    if not expected.http:
        return Check("alpn", CheckOutcome.PASS, f"it picks none of {offered}")
    if expected.falls_back:
        return Check(
            "alpn",
            CheckOutcome.WARN,
            "the backend does not select h2 by ALPN, although only h2 is offered; HTTP/1.1 is used",
            CHOOSE_ALPN,
        )
    if expected.alpn == ("h2",):
        return Check(
            "alpn",
            CheckOutcome.FAIL,
            "the backend does not select h2 by ALPN, and the gateway offers only HTTP/2",
            CHOOSE_ALPN,
        )
    if expected.alpn == ("http/1.1",) and _picks_h2(address, expected, timeout):
        return Check(
            "alpn", CheckOutcome.FAIL, "it does not pick http/1.1, but would pick h2, which is not offered", CHOOSE_ALPN
        )
    return Check("alpn", CheckOutcome.PASS, f"it picks none of {offered}; http/1.1 is used")


def _grpc_alone(expected: Expectation) -> bool:
    return expected.grpc and expected.alpn == ("h2",)


def _picks_h2(address: tuple[str, int], expected: Expectation, timeout: float) -> bool:
    try:
        return fetch(*address, expected.tls.sni, timeout).alpn == "h2"
    except NoHandshake:
        return False


# --- names, pins, client certificate ---------------------------------------------------------------------------------


def _names(leaf: CertificateInfo, extensions: parse.Extensions, tls: BackendTLS) -> Check:
    names = listed(leaf.names) or f"no subjectAltName ({leaf.subject} does not count)"
    if not tls.names:
        why = f"waived by {tls.waiver.key}" if tls.waiver else "not checked: the pinned hash is the identity"
        return Check("names", CheckOutcome.SKIP, f"{why}; certificate has {names}")
    required = " or ".join(str(name) for name in tls.names)
    if any(holds_name(name, extensions) for name in tls.names):
        return Check("names", CheckOutcome.PASS, f"{names}; wanted: {required}")
    remedy = f"Have the certificate issued for {required} (as subjectAltName)"
    if leaf.names:
        remedy += ", or list its names in hostname or subjectAltNames of the policy"
    remedy += "."
    return Check("names", CheckOutcome.FAIL, f"certificate has {names}; wanted: {required}", remedy)


def holds_name(san: San, extensions: parse.Extensions) -> bool:
    """Matches with the same expression that Envoy receives (RFC 9525)."""
    if san.type is SanType.URI:
        return san.value in extensions.uris
    return any(re.fullmatch(dns_regex(san.value), name) for name in extensions.dns_names)


def _pins(leaf: CertificateInfo, tls: BackendTLS) -> Check:
    if not tls.pins:
        return Check("pins", CheckOutcome.SKIP, "no pins required")
    key, certificate = base64.b64decode(leaf.spki_sha256), bytes.fromhex(leaf.sha256.replace(":", ""))
    if key in tls.pins.keys:
        return Check("pins", CheckOutcome.PASS, f"its key is pinned: {leaf.spki_sha256}")
    if certificate in tls.pins.certificates:
        return Check("pins", CheckOutcome.PASS, f"it is pinned: {leaf.sha256}")
    count = len(tls.pins.keys) + len(tls.pins.certificates)
    message = f"matches none of the {count} pins; key {leaf.spki_sha256}, certificate {leaf.sha256}"
    return Check(
        "pins", CheckOutcome.FAIL, message, "If the backend's owner confirms this certificate, pin it too: lasthop pin."
    )


def _closed(expected: Expectation) -> Check:
    """Reports a connection that the backend closed after all checks passed. For a stream, the backend may intend that."""
    remedy = "See the backend's log: it may require the PROXY protocol or another SNI, or have no target to forward to."
    return Check("open", CheckOutcome.FAIL if expected.http else CheckOutcome.WARN, CLOSES, remedy)


def _client(seen: Handshake, expected: Expectation) -> Check:
    name = CLIENT_CERTIFICATE
    presented = (
        f"{expected.tls.client_certificate} is presented" if expected.tls.client_certificate else "the Gateway has none"
    )
    remedy = (
        "Give the Gateway one that the backend trusts (spec.tls.backend.clientCertificateRef), or the policy (option "
        "lasthop.dev/client-certificate)."
    )
    if seen.failure:
        return Check(name, CheckOutcome.FAIL, f"the backend closes the connection ({seen.failure}); {presented}", remedy)
    if not seen.requested:
        return Check(name, CheckOutcome.SKIP, "not requested")
    if seen.closed:
        return Check(name, CheckOutcome.FAIL, f"requested; {presented}; {CLOSES}", remedy)
    if not expected.tls.client_certificate:
        message = (
            "requested, and the Gateway has none; the handshake succeeds, but some servers then reject requests (nginx: 400)"
        )
        return Check(name, CheckOutcome.WARN, message, f"If it does: {remedy[0].lower()}{remedy[1:]}")
    if expected.identity is None:
        message = f"requested; {expected.tls.client_certificate} cannot be read here, so none was presented"
        return Check(name, CheckOutcome.WARN, message, "Probe where the Secret can be read, such as on the gateway itself.")
    return Check(name, CheckOutcome.PASS, f"requested; {presented}, and the backend accepts it")
