"""Keys and signatures below today's minimum: reported on every policy that trusts one, and refused if the operator denies
them."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from lasthop.base.api.meta import Key
from lasthop.base.pki import parse
from lasthop.engine.resolve.policies.permissions import permitted_tls
from tests.certificates import DAY, NOW, Certificate
from tests.snapshot import Snapshot, settled
from tests.world import (
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_pin_set,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    own_ref,
    profile_ref,
)

VALID = (NOW - 99 * DAY, NOW + 99 * DAY)
WEAK = Certificate("old", ca=True, key=rsa.generate_private_key(65537, 1024), valid=VALID)
STRONG = Certificate("new", ca=True, key=rsa.generate_private_key(65537, 2048), valid=VALID)
SIGNED_WEAKLY = Certificate("signed weakly", STRONG, sha1=True)
ROOT_SIGNED_WEAKLY = Certificate("root", ca=True, sha1=True)


def running(pem: str, word: str, *refs: Any) -> tuple[str, str, str]:
    """Returns the policy's condition at a Gateway with this setting of the operator."""
    engine, snapshot = settled(
        keyed(
            mk_class(),
            mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")}),
            mk_profile("a/f", backendTLS={"weakCertificates": word} if word else {}),
            mk_service("a/s"),
            mk_route("a/r", "a/g", [{"name": "s", "port": 443}]),
            mk_config_map("a/ca", pem),
            mk_pin_set("a/n", certificates=[pem]),
            mk_policy("a/p", "s", "api.example", list(refs) or ["ca"]),
        )
    )
    accepted: Any = _conditions(snapshot)[0]
    tls = permitted_tls(engine.graph, Key("Gateway", "a", "g"), Key("BackendTLSPolicy", "a", "p"))
    assert (accepted.status == "True") == (type(tls).__name__ == "BackendTLS")
    return accepted.status, accepted.reason, accepted.message


def _conditions(snapshot: Snapshot) -> Any:
    status: Any = snapshot.status[Key("BackendTLSPolicy", "a", "p")]
    return status.ancestors[0].conditions


@pytest.mark.parametrize("word", ["", "Allow"])
def test_a_weak_ca_is_reported_and_used_unless_it_is_denied(word: str) -> None:
    status, _, message = running(WEAK.pem, word)
    assert status == "True"
    assert "CA old in ConfigMap ca has a 1024-bit RSA key" in message


@pytest.mark.parametrize("refs", [(), (own_ref("PinSet", "n"),)])
def test_a_weak_ca_or_pinned_certificate_is_refused_where_it_is_denied(refs: tuple[Any, ...]) -> None:
    status, reason, message = running(WEAK.pem, "Deny", *refs)
    assert (status, reason) == ("False", "WeakCertificateNotPermitted")
    assert "old has a 1024-bit RSA key" in message and "a/f" in message
    assert running(STRONG.pem, "Deny", *refs)[0] == "True"


def test_a_weakness_is_a_key_or_a_signature_of_another_ca() -> None:
    for certificate, weakness in (
        (WEAK, "1024-bit RSA key"),
        (STRONG, ""),
        (Certificate("small", ca=True, key=ec.generate_private_key(ec.SECP192R1())), "key on the curve secp192r1"),
        (Certificate("usual", STRONG), ""),
        (SIGNED_WEAKLY, "SHA-1 signature"),
        (ROOT_SIGNED_WEAKLY, ""),
    ):
        (parsed_certificate,) = parsed(certificate)
        assert parsed_certificate.weakness == weakness


def parsed(certificate: Certificate) -> tuple[parse.Certificate, ...]:
    certificates = parse.certificates(certificate.pem.encode())
    assert not isinstance(certificates, parse.Unreadable)
    return certificates
