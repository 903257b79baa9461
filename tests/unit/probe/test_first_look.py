"""The name to verify of a backend that was given by its address: what its certificate says may be anything."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from lasthop.edge.probe.certificate_view import CertificateInfo, describe, lines
from lasthop.edge.probe.first_look import name_to_verify
from tests.certificates import NOW, Certificate, dns


def shown(*names: str) -> CertificateInfo:
    return CertificateInfo("CN=x", "CN=ca", names, "", "", "", False, "", "", "")


@pytest.mark.parametrize(
    ("names", "verified"),
    [
        (("DNS api.example",), "api.example"),
        (("DNS API.example",), "api.example"),
        (("DNS *.example", "DNS api.example"), "api.example"),
        (("DNS *.example",), "backend.example"),
        (("DNS *.*.example", "DNS a*.example", "DNS b.example"), "b.example"),
        ((), ""),
        (("IP 127.0.0.1", "URI spiffe://a/b"), ""),
        (("DNS 10.0.0.1", "DNS good.example"), "good.example"),
        (("DNS under_score.example", "DNS good.example"), "good.example"),
        (("DNS https://good.example/", "DNS good.example."), ""),
        (('DNS a" # ', "DNS good.example"), "good.example"),
        ((r"DNS \x67ood.example", r"DNS a\nb: c"), ""),
        (("DNS aaa…", "DNS  "), ""),
    ],
)
def test_only_a_name_that_a_policy_may_have_is_taken_from_a_certificate(names: tuple[str, ...], verified: str) -> None:
    assert name_to_verify("127.0.0.1", shown(*names)).value == verified
    assert name_to_verify("localhost", shown(*names)).value == verified


def test_of_many_names_the_first_are_listed() -> None:
    many = Certificate("many", sans=dns(*(f"n{number}.example" for number in range(300))))
    info = describe(many.certificate.public_bytes(Encoding.DER))
    assert "names    DNS n0.example, DNS n1.example, DNS n2.example, DNS n3.example, DNS n4.example and 295 more" in list(
        lines(info, NOW.timestamp())
    )
