"""Hostnames that the CRD refuses are explained in words."""

from __future__ import annotations

import re

import pytest
import yaml

from lasthop.base.api.crds import schema
from lasthop.base.api.kinds import KINDS
from lasthop.edge.admission.validation import HOSTNAMES, hostname_problem

PRECISE, WILDCARD = sorted(HOSTNAMES, key=HOSTNAMES.__getitem__)


@pytest.mark.parametrize(
    ("written", "message", "instead"),
    [
        ("api.example:8443", "has a port", "Write api.example."),
        ("https://api.example", "is a URL", "Write api.example."),
        ("https://API.example:8443/x", "is a URL", "Write api.example."),
        ("api.example/v1", "has a path", "Write api.example."),
        ("API.example", "has upper-case letters", "Write api.example."),
        ("*.example", "has a wildcard", "Write a name such as api.example."),
        ("api_x.example", "is not a DNS name", "Write a name such as api.example."),
        ("", "is not a DNS name", "Write a name such as api.example."),
        ("a b", "is not a DNS name", "Write a name such as api.example."),
    ],
)
def test_errors_of_hostnames_have_a_remedy(written: str, message: str, instead: str) -> None:
    assert not re.match(PRECISE, written)
    problem = hostname_problem(written, PRECISE)
    assert problem is not None and message in problem[0] and problem[1] == instead


def test_the_patterns_are_those_of_the_crds() -> None:
    assert hostname_problem("api.example:1", "^[a-z]*$") is None
    texts = yaml.safe_dump([schema(KINDS[kind], "v1") for kind in ("BackendTLSPolicy", "HTTPRoute")], width=1000)
    assert all(pattern in texts for pattern in HOSTNAMES)
    assert not re.match(WILDCARD, "*") and re.match(WILDCARD, "*.example")
