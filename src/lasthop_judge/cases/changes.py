"""Cases about changes at run time: a connection verified before the change does not count after it."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import requirements as r
from lasthop_judge.cases.build import PASSES, PLAINTEXT, REFUSED, REFUSED_5XX, neutral, serves
from lasthop_judge.cases.chains import below
from lasthop_judge.cases.trust import GARBAGE
from lasthop_judge.certificates import CA, OTHER_CA, leaf
from lasthop_judge.model import (
    HOSTNAME,
    CABundle,
    Case,
    CasePort,
    CaseService,
    Expected,
    Policy,
    Ref,
    Requirement,
    RouteType,
    Serving,
    Step,
)

GOOD: Final = serves(leaf(HOSTNAME, "two.example"))
ANY: Final = serves(leaf(HOSTNAME, "two.example"), both=True)
RIGHT, WRONG, EMPTY, BROKEN = CABundle(), CABundle(certificates=(OTHER_CA,)), CABundle(text=""), CABundle(text=GARBAGE)
OTHER: Final = CABundle("other", (OTHER_CA,))


def change(
    name: str,
    title: str,
    requirement: Requirement,
    *steps: Step,
    serving: Serving = GOOD,
    expect: Expected = PASSES,
    **more: Any,
) -> Case:
    return Case(f"changes/{name}", title, requirement, expect, serving, steps=steps, **more)


def put(title: str, expect: Expected, *objects: Any, **more: Any) -> Step:
    return Step(title, expect, objects, **more)


SWAPPED: Final = put("the CA is replaced by another", REFUSED, WRONG)
RENAMED: Final = put("the hostname is one that the certificate lacks", REFUSED, Policy(hostname="old.example"))
BACK: Final = put("the CA is put back", PASSES, RIGHT)
TWO_SERVICES: Final = (
    CaseService(ports=(CasePort("https", 443, ANY),)),
    CaseService("second", (CasePort("https", 443, ANY),)),
)


def _tightened() -> tuple[Case, ...]:
    """Returns cases in which a policy becomes stricter. Pooled connections and TLS sessions rest on the old verification."""
    backends = {
        "tls12": serves(leaf(HOSTNAME), version="1.2"),
        "tls13": serves(leaf(HOSTNAME), version="1.3"),
        "h2": serves(leaf(HOSTNAME), alpn=("h2",)),
    }
    cases = []
    for name, serving in backends.items():
        cases.append(
            change(
                f"ca-swapped-{name}",
                f"the CA is replaced; {name}, pooled connections and sessions",
                r.VERIFY,
                SWAPPED,
                serving=serving,
            )
        )
        cases.append(
            change(
                f"hostname-{name}",
                f"the hostname changes; {name}, pooled connections and sessions",
                r.VERIFY,
                RENAMED,
                serving=serving,
            )
        )
    return tuple(cases)


CASES: Final = (
    change("ca-swapped", "the CA is replaced by another, and put back", r.VERIFY, SWAPPED, BACK),
    change(
        "hostname",
        "the hostname changes to one that the certificate lacks, and back",
        r.AUTHENTICATE,
        RENAMED,
        put("the hostname is put back", PASSES, Policy()),
    ),
    change(
        "hostname-sni",
        "the hostname changes to another one of the certificate",
        r.SNI,
        put("the hostname changes", PASSES, Policy(hostname="two.example"), sni="two.example"),
        sni=HOSTNAME,
    ),
    change(
        "sans-added",
        "subjectAltNames are added that the certificate lacks",
        r.SANS,
        put("subjectAltNames are added", REFUSED, Policy(sans=("old.example",))),
    ),
    change(
        "sans-removed",
        "subjectAltNames are removed, and the hostname does not match",
        r.AUTHENTICATE,
        put("subjectAltNames are removed", REFUSED, Policy(hostname="old.example")),
        policies=(Policy(hostname="old.example", sans=(HOSTNAME,)),),
    ),
    change(
        "ref-replaced",
        "the policy refers to another CA",
        r.VERIFY,
        put("the reference changes", REFUSED, Policy(refs=(Ref("other"),))),
        bundles=(RIGHT, OTHER),
    ),
    change(
        "ref-missing",
        "the policy refers to a ConfigMap that does not exist",
        r.NEVER_PLAINTEXT,
        put("the reference changes", REFUSED_5XX, Policy(refs=(Ref("not-there"),))),
        serving=ANY,
    ),
    change(
        "ca-removed",
        "the ConfigMap is deleted, and created again",
        r.INVALID_REF,
        Step("the ConfigMap is deleted", REFUSED_5XX, remove=(RIGHT,)),
        put("the ConfigMap is created again", PASSES, RIGHT),
        serving=ANY,
    ),
    change(
        "ca-emptied",
        "ca.crt becomes empty",
        r.MALFORMED_FAILS,
        put("ca.crt becomes empty", REFUSED_5XX, EMPTY),
        BACK,
        serving=ANY,
    ),
    change(
        "ca-broken",
        "ca.crt becomes garbage",
        r.MALFORMED_FAILS,
        put("ca.crt becomes garbage", REFUSED_5XX, BROKEN),
        BACK,
        serving=ANY,
    ),
    change(
        "ca-late",
        "the ConfigMap is created after the policy",
        r.CORE_REF,
        put("the ConfigMap is created", PASSES, RIGHT),
        expect=REFUSED_5XX,
        bundles=(),
    ),
    change(
        "ca-rotated",
        "the CA is rotated: both, then the new one alone",
        r.VERIFY,
        put("the bundle has both CAs", PASSES, CABundle(certificates=(CA, OTHER_CA))),
        Step("the backend has a certificate of the new CA", PASSES, serve=(("https", serves(below(OTHER_CA))),)),
        put("the bundle has the new CA alone", PASSES, WRONG),
        optional=True,
    ),
    change(
        "certificate-renewed",
        "the backend renews its certificate",
        r.VERIFY,
        Step("the certificate is renewed", PASSES, serve=(("https", serves(leaf(HOSTNAME, twin=1))),)),
    ),
    change(
        "certificate-replaced",
        "the backend's certificate becomes one of another CA",
        r.VERIFY,
        Step("the certificate is replaced", REFUSED, serve=(("https", serves(below(OTHER_CA))),)),
    ),
    change(
        "certificate-renamed",
        "the backend's certificate becomes one of another name",
        r.AUTHENTICATE,
        Step("the certificate is replaced", REFUSED, serve=(("https", serves(leaf("old.example"))),)),
    ),
    change(
        "backend-plaintext",
        "the backend stops speaking TLS",
        r.CONNECT,
        Step("the backend speaks plaintext", REFUSED, serve=(("https", Serving(None)),)),
    ),
    change(
        "policy-added",
        "a policy is added to a plaintext backend",
        r.CONNECT,
        put("the policy is added", PASSES, Policy(), sni=HOSTNAME),
        **neutral(ANY),
        policies=(),
        expect=PLAINTEXT,
    ),
    change(
        "policy-added-wrong",
        "a policy with another CA is added to a plaintext backend",
        r.VERIFY,
        put("the policy is added", REFUSED, Policy()),
        **neutral(serves(below(OTHER_CA), both=True)),
        policies=(),
        expect=PLAINTEXT,
    ),
    change(
        "policy-removed",
        "the policy is deleted: plaintext, and TLS again once it is created again",
        r.NO_POLICY,
        Step("the policy is deleted", PLAINTEXT, remove=(Policy(),)),
        put("the policy is created again", PASSES, Policy(), sni=HOSTNAME),
        **neutral(ANY),
    ),
    change(
        "invalid-mended",
        "an invalid policy is mended",
        r.VERIFY,
        put("the reference is mended", PASSES, Policy(), sni=HOSTNAME),
        policies=(Policy(refs=(Ref("not-there"),)),),
        expect=REFUSED_5XX,
    ),
    change(
        "retargeted",
        "the policy targets another Service: that one is verified",
        r.CONNECT,
        put(
            "the policy targets the second Service",
            PASSES,
            Policy(hostname="two.example", target="second"),
            sni="two.example",
            service="second",
        ),
        services=TWO_SERVICES,
    ),
    change(
        "retargeted-wrong",
        "the policy targets another Service whose certificate does not match",
        r.VERIFY,
        put(
            "the policy targets the second Service", REFUSED, Policy(hostname="old.example", target="second"), service="second"
        ),
        services=TWO_SERVICES,
    ),
    change(
        "younger-added",
        "a younger policy with another CA is added",
        r.OLDER_WINS,
        put("a younger policy is added", PASSES, Policy((Ref("other"),), name="younger", born=1)),
        bundles=(RIGHT, OTHER),
    ),
    change(
        "older-removed",
        "the older of two policies is deleted: the younger takes effect",
        r.OLDER_WINS,
        Step("the older policy is deleted", REFUSED, remove=(Policy(),)),
        policies=(Policy(), Policy((Ref("other"),), name="younger", born=1)),
        bundles=(RIGHT, OTHER),
    ),
    change(
        "section-added",
        "a policy for the port is added, with another CA",
        r.SECTION_BESIDE,
        put("a policy for the port is added", REFUSED, Policy((Ref("other"),), name="port", section="https")),
        bundles=(RIGHT, OTHER),
    ),
    change("tcp-ca-swapped", "TCPRoute: the CA is replaced", r.VERIFY, SWAPPED, via=RouteType.TCP),
    change("tls-ca-swapped", "TLSRoute: the CA is replaced", r.TLS_ROUTE_CHECKS, SWAPPED, via=RouteType.TLS),
    change(
        "grpc-ca-swapped",
        "GRPCRoute: the CA is replaced",
        r.VERIFY,
        SWAPPED,
        via=RouteType.GRPC,
        serving=serves(leaf(HOSTNAME), alpn=("h2",), grpc=True),
    ),
    change("mirror-ca-swapped", "mirror: the CA is replaced", r.VERIFY, SWAPPED, via=RouteType.MIRROR),
    change(
        "mirror-ca-removed",
        "mirror: the ConfigMap is deleted",
        r.NEVER_PLAINTEXT,
        Step("the ConfigMap is deleted", REFUSED, remove=(RIGHT,)),
        via=RouteType.MIRROR,
        serving=ANY,
    ),
    *_tightened(),
)
