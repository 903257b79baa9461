"""The controller's CA: issued certificates, renewal, and the rotation of one CA to another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cryptography import x509

from lasthop.base.pki import authority as ca
from lasthop.base.pki.authority import CA_LIFE, CLIENT_LIFE, DAY, HOUR, SETTLE, Authority
from lasthop.base.pki.certificates import PemKeyPair, loaded, uris
from tests.odd_certificates import odd_ders, pem

NOW = 1_790_000_000.0


@pytest.fixture
def first() -> Authority:
    return ca.renewed(None, NOW)


def test_the_first_authority_has_one_issuer_that_signs_at_once(first: Authority) -> None:
    assert len(first.issuers) == 1
    assert first.signer(NOW) is first.issuers[0]
    assert ca.renewed(first, NOW + 100 * DAY) is first


def test_it_survives_its_secret(first: Authority) -> None:
    both = Authority((*first.issuers, *ca.renewed(None, NOW).issuers))
    assert ca.restored(ca.stored(both)) == both


@pytest.mark.parametrize("data", [{}, {"ca.crt": b"x", "ca.key": b"y"}, {"ca.crt": b"", "ca.key": b""}])
def test_a_damaged_secret_is_refused(data: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match=r"ca\.crt"):
        ca.restored(data)


def test_a_private_key_is_never_shown(first: Authority) -> None:
    assert "PRIVATE" not in repr(first)


def test_a_client_certificate_names_the_gateway_by_its_uid_and_is_for_clients_only(first: Authority) -> None:
    data = ca.client_secret(first, "1f0c", NOW)
    certificate = loaded(data["tls.crt"])
    assert uris(data["tls.crt"]) == ("lasthop://gateway/1f0c",)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [oid._name for oid in usage] == ["clientAuth"]
    assert data["ca.crt"] == first.bundle
    assert certificate.not_valid_after_utc.timestamp() == NOW + CLIENT_LIFE


def test_a_client_certificate_is_renewed_at_two_thirds_of_its_life(first: Authority) -> None:
    data = ca.client_secret(first, "1f0c", NOW)
    assert not ca.client_secret_due(first, "1f0c", data, NOW + CLIENT_LIFE * 0.6)
    assert ca.client_secret_due(first, "1f0c", data, NOW + CLIENT_LIFE * 0.67)


@pytest.mark.parametrize("damage", [{"tls.crt": b"x"}, {"tls.key": b""}, {"ca.crt": b"other"}])
def test_a_damaged_client_secret_is_written_anew(first: Authority, damage: dict[str, bytes]) -> None:
    assert ca.client_secret_due(first, "1f0c", ca.client_secret(first, "1f0c", NOW) | damage, NOW)


@pytest.mark.parametrize("odd", odd_ders())
def test_an_odd_certificate_in_a_secret_of_ours_is_a_damaged_one(first: Authority, odd: str) -> None:
    damage = pem(odd_ders()[odd])
    assert ca.client_secret_due(first, "1f0c", ca.client_secret(first, "1f0c", NOW) | {"tls.crt": damage}, NOW)
    with pytest.raises(ValueError, match=r"ca\.crt"):
        ca.restored(ca.stored(first) | {"ca.crt": damage})


def test_a_key_of_another_certificate_is_damage(first: Authority) -> None:
    data, other = ca.client_secret(first, "1f0c", NOW), ca.client_secret(first, "1f0c", NOW)
    assert ca.client_secret_due(first, "1f0c", data | {"tls.key": other["tls.key"]}, NOW)
    with pytest.raises(ValueError, match=r"ca\.key"):
        ca.restored(ca.stored(first) | {"ca.key": other["tls.key"]})


def test_a_gateway_that_was_made_anew_is_another(first: Authority) -> None:
    assert ca.client_secret_due(first, "2e1d", ca.client_secret(first, "1f0c", NOW), NOW)


def test_replacing_a_ca_rejects_no_client_of_either(first: Authority) -> None:
    """Walks through half a year by the hour; every certificate in use is trusted by every bundle in use."""
    begin = NOW + CA_LIFE / 2
    authority, signers, sizes = first, set(), []
    for now in _steps(begin, NOW + CA_LIFE):
        before, authority = authority, ca.renewed(authority, now)
        signer = authority.signer(now)
        # A peer that has not received this step yet must trust certificates signed now, and the other way round.
        assert signer.certificate in before.bundle or now == begin
        assert before.signer(now - HOUR).certificate in authority.bundle
        signers.add(signer.certificate)
        sizes.append(len(authority.issuers))
    assert len(signers) == 2
    assert sizes[0] == 1 and max(sizes) == 2 and sizes[-1] == 1


def test_the_successor_signs_only_when_everybody_knows_it(first: Authority) -> None:
    begin = NOW + CA_LIFE * 0.7
    both = ca.renewed(first, begin)
    old, new = both.issuers
    assert both.signer(begin + SETTLE - 60) is old
    assert both.signer(begin + SETTLE + 60) is new
    secret = ca.client_secret(both, "1f0c", begin)
    assert ca.client_secret_due(both, "1f0c", secret, begin + SETTLE + 60), "signed by the CA that is on its way out"


def test_an_authority_that_was_not_renewed_in_time_is_replaced(first: Authority) -> None:
    later = ca.renewed(first, NOW + CA_LIFE + DAY)
    assert len(later.issuers) == 1 and later != first


def test_the_server_certificate_is_for_its_names_and_addresses(first: Authority) -> None:
    pair = ca.server_pair(first, ("lasthop-xds.lasthop-system.svc", "10.0.0.7"), NOW)
    sans = loaded(pair.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sans.get_values_for_type(x509.DNSName) == ["lasthop-xds.lasthop-system.svc"]
    assert [str(ip) for ip in sans.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert not ca.server_pair_due(first, pair, NOW + DAY)
    assert ca.server_pair_due(first, pair, NOW + 2.1 * DAY)
    assert ca.server_pair_due(ca.renewed(None, NOW), pair, NOW)


@pytest.mark.parametrize(
    ("identities", "uid"),
    [
        (("lasthop://gateway/1f0c",), "1f0c"),
        ((), ""),
        (("spiffe://cluster.local/ns/a/sa/b",), ""),
        (("lasthop://gateway/1f0c", "lasthop://gateway/2e1d"), ""),
    ],
)
def test_an_identity_is_one_uri_of_ours(identities: tuple[str, ...], uid: str) -> None:
    assert ca.gateway_uid(identities) == uid


def test_no_certificate_outlives_its_ca(first: Authority) -> None:
    late = NOW + CA_LIFE - DAY
    pair = PemKeyPair(*(ca.client_secret(first, "1f0c", late)[key] for key in ("tls.crt", "tls.key")))
    assert loaded(pair.certificate).not_valid_after_utc <= loaded(first.issuers[0].certificate).not_valid_after_utc


def _steps(begin: float, end: float) -> Iterator[float]:
    now = begin
    while now < end:
        yield now
        now += HOUR
