"""Cases about the names in a certificate and in the policy."""

from __future__ import annotations

from typing import Final

from lasthop_judge import requirements as r
from lasthop_judge.cases.build import PASSES, REFUSED, serves, shown
from lasthop_judge.certificates import leaf
from lasthop_judge.model import HOSTNAME, Case, Expected, Policy, Requirement

SPIFFE: Final = "spiffe://cluster.local/ns/shop/sa/api"
IDN: Final = "xn--bcher-kva.example"


def by_hostname(
    name: str, title: str, requirement: Requirement, expect: Expected, *sans: str, host: str = HOSTNAME, cn: str = "backend"
) -> Case:
    return shown(f"names/{name}", title, requirement, expect, leaf(*sans, cn=cn), hostname=host)


def by_sans(
    name: str, title: str, requirement: Requirement, expect: Expected, policy: tuple[str, ...], *sans: str, **settings: str
) -> Case:
    return shown(f"names/san-{name}", title, requirement, expect, leaf(*sans, **settings), sans=policy)


CASES: Final = (
    # by hostname
    by_hostname("exact", "the certificate has exactly the policy's hostname", r.AUTHENTICATE, PASSES, HOSTNAME),
    by_hostname("other", "the certificate is for another name", r.AUTHENTICATE, REFUSED, "old.example"),
    by_hostname("none", "the certificate has no name at all", r.AUTHENTICATE, REFUSED),
    by_hostname("one-of-many", "one of several DNS names matches", r.VERIFY, PASSES, "a.example", HOSTNAME, "b.example"),
    by_hostname("single-label", "a hostname of one label", r.AUTHENTICATE, PASSES, "backend", host="backend"),
    by_hostname("deep", "a hostname of six labels", r.AUTHENTICATE, PASSES, "a.b.c.d.e.example", host="a.b.c.d.e.example"),
    by_hostname("longer-left", "the certificate's name has more characters in front", r.LABELS, REFUSED, "xapi.example"),
    by_hostname("longer-right", "the hostname is a prefix of the certificate's name", r.LABELS, REFUSED, "api.example.evil"),
    by_hostname("parent", "the certificate is for the parent domain", r.LABELS, REFUSED, "example"),
    by_hostname("child", "the certificate is for a subdomain of the hostname", r.LABELS, REFUSED, "x.api.example"),
    by_hostname("dot-is-a-dot", "a dot of the hostname matches no other character", r.LABELS, REFUSED, "apixexample"),
    by_hostname("upper-case", "the certificate's name is in upper case", r.CASE, PASSES, "API.Example"),
    by_hostname("nul", "a name that matches up to a NUL byte", r.LABELS, REFUSED, "raw:api.example\0.evil.example"),
    by_hostname("space", "the name has a space at its end", r.LABELS, REFUSED, "raw:api.example "),
    by_hostname("empty", "the only DNS name is empty", r.AUTHENTICATE, REFUSED, "raw:"),
    # wildcards in the certificate
    by_hostname("wildcard", "a wildcard stands for one label", r.ONE_LABEL, PASSES, "*.x.example", host="foo.x.example"),
    by_hostname(
        "wildcard-two-labels",
        "a wildcard never stands for two labels",
        r.ONE_LABEL,
        REFUSED,
        "*.x.example",
        host="a.b.x.example",
    ),
    by_hostname(
        "wildcard-no-label", "a wildcard never stands for no label", r.ONE_LABEL, REFUSED, "*.x.example", host="x.example"
    ),
    by_hostname("wildcard-upper-case", "a wildcard name in upper case", r.CASE, PASSES, "*.X.EXAMPLE", host="foo.x.example"),
    by_hostname(
        "wildcard-prefix", "a wildcard beside other characters: f*", r.WILDCARD, REFUSED, "f*.x.example", host="foo.x.example"
    ),
    by_hostname(
        "wildcard-suffix", "a wildcard beside other characters: *o", r.WILDCARD, REFUSED, "*o.x.example", host="foo.x.example"
    ),
    by_hostname(
        "wildcard-middle", "a wildcard inside a label: f*o", r.WILDCARD, REFUSED, "f*o.x.example", host="foo.x.example"
    ),
    by_hostname(
        "wildcard-inside", "a wildcard as the second label", r.WILDCARD, REFUSED, "foo.*.example", host="foo.x.example"
    ),
    by_hostname("wildcard-last", "a wildcard as the last label", r.WILDCARD, REFUSED, "foo.x.*", host="foo.x.example"),
    by_hostname("wildcard-double", "two wildcards", r.ONE_WILDCARD, REFUSED, "*.*.example", host="foo.x.example"),
    by_hostname("wildcard-alone", "a name that is only a wildcard", r.LABELS, REFUSED, "*", host="foo.x.example"),
    by_hostname("wildcard-other", "a wildcard of another domain", r.LABELS, REFUSED, "*.y.example", host="foo.x.example"),
    # internationalised
    by_hostname("a-label", "an internationalised name as A-label", r.IDN, PASSES, IDN, host=IDN),
    by_hostname("a-label-upper-case", "an A-label in other case", r.IDN, PASSES, IDN.upper(), host=IDN),
    by_hostname("a-label-other", "another A-label", r.IDN, REFUSED, "xn--bcher-xxx.example", host=IDN),
    by_hostname("a-label-wildcard", "a wildcard that is a part of an A-label", r.WILDCARD, REFUSED, "xn--*.example", host=IDN),
    by_hostname("u-label", "the name in Latin-1 instead of an A-label", r.IDN, REFUSED, "raw:b\xfccher.example", host=IDN),
    # other fields and types
    by_hostname("cn-only", "the hostname is the common name, and there is no SAN", r.NO_CN, REFUSED, cn=HOSTNAME),
    by_hostname(
        "cn-beside-san",
        "the hostname is the common name, and the SAN is another",
        r.NO_CN,
        REFUSED,
        "old.example",
        cn=HOSTNAME,
    ),
    by_hostname("ip-only", "the certificate has only an IP address", r.AUTHENTICATE, REFUSED, "ip:127.0.0.1"),
    by_hostname("uri-only", "the hostname is in a URI", r.AUTHENTICATE, REFUSED, "uri:https://api.example/"),
    by_hostname("uri-bare", "the hostname is the whole value of a URI SAN", r.AUTHENTICATE, REFUSED, "uri:api.example"),
    by_hostname("mail-only", "the hostname is in an e-mail address", r.AUTHENTICATE, REFUSED, "mail:me@api.example"),
    # by subjectAltNames
    by_sans("dns", "a DNS name that the policy lists", r.SANS, PASSES, ("b.example",), "b.example"),
    by_sans("dns-other", "a DNS name that the policy does not list", r.SANS, REFUSED, ("b.example",), "c.example"),
    by_sans("dns-upper-case", "a listed DNS name in upper case", r.CASE, PASSES, ("b.example",), "B.Example"),
    by_sans(
        "dns-by-wildcard",
        "a wildcard of the certificate covers the listed name",
        r.ONE_LABEL,
        PASSES,
        ("b.x.example",),
        "*.x.example",
    ),
    by_sans("dns-cn", "the listed name is the common name alone", r.NO_CN, REFUSED, ("b.example",), cn="b.example"),
    by_sans("second-listed", "the second listed name matches", r.SANS, PASSES, ("b.example", "c.example"), "c.example"),
    by_sans("second-shown", "the certificate's second name matches", r.SANS, PASSES, ("b.example",), "x.example", "b.example"),
    by_sans(
        "none-of-five",
        "none of five listed names matches",
        r.SANS,
        REFUSED,
        tuple(f"{n}.example" for n in "abcde"),
        "f.example",
    ),
    by_sans(
        "hostname-not-listed",
        "the certificate has the hostname, which is not listed",
        r.NOT_AUTHENTICATE,
        REFUSED,
        ("b.example",),
        HOSTNAME,
    ),
    by_sans("hostname-listed", "the hostname is listed too", r.NOT_AUTHENTICATE, PASSES, ("b.example", HOSTNAME), HOSTNAME),
    by_sans("uri", "a URI that the policy lists", r.URI_SAN, PASSES, (SPIFFE,), f"uri:{SPIFFE}"),
    by_sans("uri-other", "a URI of another workload", r.SANS, REFUSED, (SPIFFE,), f"uri:{SPIFFE}2"),
    by_sans("uri-prefix", "a URI that is a prefix of the listed one", r.SANS, REFUSED, (f"{SPIFFE}/x",), f"uri:{SPIFFE}"),
    by_sans(
        "uri-path-case",
        "a URI whose path differs in case",
        r.URI_CASE,
        REFUSED,
        (SPIFFE,),
        f"uri:{SPIFFE.replace('shop', 'Shop')}",
    ),
    by_sans("uri-as-dns", "the listed URI as a DNS name", r.SANS, REFUSED, (SPIFFE,), f"raw:{SPIFFE}"),
    by_sans("dns-as-uri", "the listed DNS name as a URI", r.SANS, REFUSED, ("b.example",), "uri:https://b.example"),
    by_sans("uri-or-dns", "one of a listed URI and a listed DNS name", r.SANS, PASSES, (SPIFFE, "b.example"), "b.example"),
    by_sans(
        "wildcard-same",
        "a listed wildcard, and the same wildcard in the certificate",
        r.SANS,
        PASSES,
        ("*.x.example",),
        "*.x.example",
    ),
    by_sans(
        "wildcard-bare",
        "a listed wildcard, and the bare domain in the certificate",
        r.SANS,
        REFUSED,
        ("*.x.example",),
        "x.example",
    ),
    by_sans(
        "wildcard-other", "a listed wildcard, and a name of another domain", r.SANS, REFUSED, ("*.x.example",), "a.y.example"
    ),
    Case(
        "names/san-sni",
        "with subjectAltNames the SNI is still the hostname",
        r.SNI,
        PASSES,
        serves(leaf("b.example"), only_sni=HOSTNAME),
        (Policy(sans=("b.example",)),),
        sni=HOSTNAME,
    ),
    Case("names/sni", "the SNI is the policy's hostname", r.SNI, PASSES, sni=HOSTNAME),
    Case(
        "names/sni-selects",
        "the backend answers only the policy's hostname",
        r.SNI,
        PASSES,
        serves(leaf(HOSTNAME), only_sni=HOSTNAME),
        sni=HOSTNAME,
    ),
)
