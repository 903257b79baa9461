"""Cases about dates, chains, keys and signatures of the backend's certificate."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import requirements as r
from lasthop_judge.cases.build import PASSES, REFUSED, serves, shown
from lasthop_judge.certificates import CA, OTHER_CA, Recipe, leaf
from lasthop_judge.model import HOSTNAME, CABundle, Case, Expected, Requirement

SIGNS: Final = ("key_cert_sign", "crl_sign")


def middle(cn: str = "judge intermediate", issuer: Recipe = CA, **settings: Any) -> Recipe:
    return Recipe(**{"cn": cn, "issuer": issuer, "ca": True, **settings})


MIDDLE: Final = middle()
SECOND: Final = middle("judge second intermediate", MIDDLE)
THIRD: Final = middle("judge third intermediate", SECOND)


def below(issuer: Recipe, **settings: Any) -> Recipe:
    return leaf(HOSTNAME, issuer=issuer, **settings)


def dates(name: str, title: str, expect: Expected, certificate: Recipe, *chain: Recipe, **settings: Any) -> Case:
    return shown(f"dates/{name}", title, r.DATES, expect, certificate, *chain, **settings)


def chain(
    name: str, title: str, requirement: Requirement, expect: Expected, certificate: Recipe, *above: Recipe, **settings: Any
) -> Case:
    return shown(f"chains/{name}", title, requirement, expect, certificate, *above, **settings)


def constrained(name: str, title: str, requirement: Requirement, expect: Expected, *sans: str, **names: Any) -> Case:
    """Returns a case with an intermediate CA that has name constraints."""
    above = middle("judge constrained", **names)
    return chain(f"constraints-{name}", title, requirement, expect, leaf(*(sans or (HOSTNAME,)), issuer=above), above)


def rooted(root: Recipe) -> dict[str, Any]:
    return {"bundles": (CABundle(certificates=(root,)),)}


EXPIRED_MIDDLE: Final = middle(days=(-9, -1))
FUTURE_MIDDLE: Final = middle(days=(1, 9))
DATES: Final = (
    dates("expired", "the certificate expired a day ago", REFUSED, leaf(HOSTNAME, days=(-9, -1))),
    dates("expired-a-minute", "the certificate expired ten minutes ago", REFUSED, leaf(HOSTNAME, days=(-9, -10 / 1440))),
    dates("not-yet", "the certificate is valid from tomorrow", REFUSED, leaf(HOSTNAME, days=(1, 9))),
    dates("last-day", "the certificate expires in an hour", PASSES, leaf(HOSTNAME, days=(-9, 1 / 24))),
    dates("long", "the certificate is valid for thirty years", PASSES, leaf(HOSTNAME, days=(-1, 10950))),
    dates("middle-expired", "the intermediate CA has expired", REFUSED, below(EXPIRED_MIDDLE), EXPIRED_MIDDLE),
    dates("middle-not-yet", "the intermediate CA is valid from tomorrow", REFUSED, below(FUTURE_MIDDLE), FUTURE_MIDDLE),
)

UNUSABLE: Final = middle("judge end entity", ca=False)
WITHOUT_BASIC: Final = middle("judge without constraints", basic=False, ca=True)
SHORT_CA: Final = Recipe("judge short CA", ca=True, path_length=0)
SHORT_MIDDLE: Final = middle("judge short intermediate", path_length=0)
BELOW_SHORT_MIDDLE: Final = middle("judge too deep", SHORT_MIDDLE)
NO_SIGNING: Final = middle("judge no signing", usages=("digital_signature",))
SIGNING: Final = middle("judge signing", usages=SIGNS)
TWIN_CA: Final = Recipe("judge CA", ca=True, twin=1)
DAMAGED_MIDDLE: Final = middle("judge damaged", damaged=True)
CRITICAL_MIDDLE: Final = middle("judge critical", critical=True)
CHAINS: Final = (
    chain("signed", "signed by the CA of the policy", r.CORE_REF, PASSES, below(CA)),
    chain("other-ca", "signed by another CA", r.VERIFY, REFUSED, below(OTHER_CA)),
    chain("other-ca-sent", "signed by another CA, which the backend sends too", r.VERIFY, REFUSED, below(OTHER_CA), OTHER_CA),
    chain("self-signed", "a self-signed certificate", r.VERIFY, REFUSED, leaf(HOSTNAME, issuer=None)),
    chain("twin-ca", "signed by another CA of the same name", r.SIGNATURE, REFUSED, below(TWIN_CA)),
    chain(
        "twin-ca-sent",
        "signed by another CA of the same name, which the backend sends too",
        r.SIGNATURE,
        REFUSED,
        below(TWIN_CA),
        TWIN_CA,
    ),
    chain(
        "self-signed-twin",
        "self-signed under the name of the CA",
        r.SIGNATURE,
        REFUSED,
        leaf(HOSTNAME, issuer=None, cn="judge CA"),
    ),
    chain("intermediate", "an intermediate CA that the backend sends", r.VERIFY, PASSES, below(MIDDLE), MIDDLE),
    chain("intermediate-missing", "an intermediate CA that the backend does not send", r.VERIFY, REFUSED, below(MIDDLE)),
    chain(
        "intermediate-of-other",
        "an intermediate CA of another CA",
        r.VERIFY,
        REFUSED,
        below(middle(issuer=OTHER_CA)),
        middle(issuer=OTHER_CA),
    ),
    chain("two-intermediates", "two intermediate CAs", r.VERIFY, PASSES, below(SECOND), SECOND, MIDDLE),
    chain("three-intermediates", "three intermediate CAs", r.VERIFY, PASSES, below(THIRD), THIRD, SECOND, MIDDLE),
    chain("one-of-two-missing", "the upper of two intermediate CAs is missing", r.VERIFY, REFUSED, below(SECOND), SECOND),
    chain("unordered", "intermediate CAs in the wrong order", r.ORDER, PASSES, below(SECOND), MIDDLE, SECOND),
    chain("superfluous", "a certificate that belongs to no chain", r.ORDER, PASSES, below(CA), OTHER_CA),
    chain("root-sent", "the backend sends the CA too", r.VERIFY, PASSES, below(CA), CA),
    chain("end-entity-signs", "signed by a certificate that is not a CA", r.NOT_A_CA, REFUSED, below(UNUSABLE), UNUSABLE),
    chain(
        "no-basic-constraints",
        "signed by a certificate without basic constraints",
        r.NOT_A_CA,
        REFUSED,
        below(WITHOUT_BASIC),
        WITHOUT_BASIC,
    ),
    chain(
        "no-cert-sign", "signed by a CA whose key usage lacks keyCertSign", r.KEY_USAGE, REFUSED, below(NO_SIGNING), NO_SIGNING
    ),
    chain("cert-sign", "signed by a CA whose key usage has keyCertSign", r.KEY_USAGE, PASSES, below(SIGNING), SIGNING),
    chain(
        "path-length-root-kept",
        "a certificate below a CA of path length 0",
        r.PATH_LENGTH,
        PASSES,
        below(SHORT_CA),
        **rooted(SHORT_CA),
    ),
    chain(
        "path-length",
        "a CA below an intermediate CA of path length 0",
        r.PATH_LENGTH,
        REFUSED,
        below(BELOW_SHORT_MIDDLE),
        BELOW_SHORT_MIDDLE,
        SHORT_MIDDLE,
    ),
    chain(
        "path-length-kept",
        "a certificate below an intermediate CA of path length 0",
        r.PATH_LENGTH,
        PASSES,
        below(SHORT_MIDDLE),
        SHORT_MIDDLE,
    ),
    chain("damaged", "the certificate's signature has a flipped bit", r.SIGNATURE, REFUSED, leaf(HOSTNAME, damaged=True)),
    chain(
        "damaged-intermediate",
        "the intermediate CA's signature has a flipped bit",
        r.SIGNATURE,
        REFUSED,
        below(DAMAGED_MIDDLE),
        DAMAGED_MIDDLE,
    ),
    chain("critical", "a critical extension that no verifier knows", r.CRITICAL, REFUSED, leaf(HOSTNAME, critical=True)),
    chain(
        "critical-intermediate",
        "such an extension in the intermediate CA",
        r.CRITICAL,
        REFUSED,
        below(CRITICAL_MIDDLE),
        CRITICAL_MIDDLE,
    ),
    chain(
        "client-usage", "the certificate is for clients only", r.EXTENDED_USAGE, REFUSED, leaf(HOSTNAME, purposes=("client",))
    ),
    chain(
        "code-usage", "the certificate is for code signing only", r.EXTENDED_USAGE, REFUSED, leaf(HOSTNAME, purposes=("code",))
    ),
    chain(
        "both-usages",
        "the certificate is for servers and clients",
        r.EXTENDED_USAGE,
        PASSES,
        leaf(HOSTNAME, purposes=("client", "server")),
    ),
    chain("no-usage", "the certificate has no extended key usage", r.EXTENDED_USAGE, PASSES, leaf(HOSTNAME, purposes=())),
    constrained("permitted", "name constraints permit the name", r.CONSTRAINTS, PASSES, permitted=("example",)),
    constrained("not-permitted", "name constraints permit another domain", r.CONSTRAINTS, REFUSED, permitted=("other.test",)),
    constrained("excluded", "name constraints exclude the name", r.EXCLUDED, REFUSED, excluded=("api.example",)),
    constrained("excluded-parent", "name constraints exclude the parent domain", r.EXCLUDED, REFUSED, excluded=("example",)),
    constrained(
        "excluded-and-permitted",
        "name constraints permit and exclude the name",
        r.EXCLUDED,
        REFUSED,
        permitted=("example",),
        excluded=("api.example",),
    ),
    constrained("excluded-other", "name constraints exclude another domain", r.CONSTRAINTS, PASSES, excluded=("other.test",)),
    constrained(
        "second-name",
        "name constraints exclude a second name of the certificate",
        r.EXCLUDED,
        REFUSED,
        HOSTNAME,
        "evil.test",
        excluded=("evil.test",),
    ),
)

RSA: Final = Recipe("judge RSA CA", ca=True, key="rsa2048")
KEYS: Final = (
    shown("keys/p256", "an ECDSA key, P-256", r.SIGNATURES_REQUIRED, PASSES, leaf(HOSTNAME)),
    shown("keys/p384", "an ECDSA key, P-384", r.VERIFY, PASSES, leaf(HOSTNAME, key="p384", digest="sha384"), optional=True),
    shown(
        "keys/rsa2048",
        "an RSA key of 2048 bits, signed with RSA",
        r.SIGNATURES_REQUIRED,
        PASSES,
        leaf(HOSTNAME, key="rsa2048", issuer=RSA),
        **rooted(RSA),
    ),
    shown("keys/rsa-by-ecdsa", "an RSA key, signed with ECDSA", r.SIGNATURES_REQUIRED, PASSES, leaf(HOSTNAME, key="rsa2048")),
    shown(
        "keys/rsa-sha512",
        "an RSA signature with SHA-512",
        r.VERIFY,
        PASSES,
        leaf(HOSTNAME, issuer=RSA, digest="sha512"),
        optional=True,
        **rooted(RSA),
    ),
    shown("keys/md5", "a signature with MD5", r.MD5, REFUSED, leaf(HOSTNAME, issuer=RSA, digest="md5"), **rooted(RSA)),
    Case("keys/tls11", "a backend that speaks TLS 1.1 only", r.TLS_1_1, REFUSED, serves(leaf(HOSTNAME), version="1.1")),
    Case(
        "keys/tls12",
        "a backend that speaks TLS 1.2 only",
        r.TLS_1_2,
        PASSES,
        serves(leaf(HOSTNAME), version="1.2"),
        sni=HOSTNAME,
    ),
    Case("keys/tls12-other-ca", "TLS 1.2 only, and another CA", r.VERIFY, REFUSED, serves(below(OTHER_CA), version="1.2")),
    Case(
        "keys/tls12-other-name",
        "TLS 1.2 only, and another name",
        r.AUTHENTICATE,
        REFUSED,
        serves(leaf("old.example"), version="1.2"),
    ),
    Case(
        "keys/tls13",
        "a backend that speaks TLS 1.3 only",
        r.TLS_1_3,
        PASSES,
        serves(leaf(HOSTNAME), version="1.3"),
        sni=HOSTNAME,
    ),
    Case("keys/tls13-other-ca", "TLS 1.3 only, and another CA", r.VERIFY, REFUSED, serves(below(OTHER_CA), version="1.3")),
    Case(
        "keys/tls13-other-name",
        "TLS 1.3 only, and another name",
        r.AUTHENTICATE,
        REFUSED,
        serves(leaf("old.example"), version="1.3"),
    ),
)
CASES: Final = (*DATES, *CHAINS, *KEYS)
