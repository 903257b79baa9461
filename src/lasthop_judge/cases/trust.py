"""Cases about the source of the CA, and about policies whose CA is missing or invalid."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import requirements as r
from lasthop_judge.cases.build import IGNORED, PASSES, REFUSED, REFUSED_5XX, serves
from lasthop_judge.cases.chains import MIDDLE, below
from lasthop_judge.certificates import CA, OTHER_CA, Recipe
from lasthop_judge.model import CABundle, Case, Expected, ExpectedCondition, Policy, Ref, Requirement, StatusCheck

GARBAGE: Final = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
SECRET: Final = CABundle("secret", kind="Secret")
OTHER: Final = CABundle("other", (OTHER_CA,))
BOTH: Final = CABundle(certificates=(CA, OTHER_CA))
EXPIRED_CA: Final = Recipe("judge expired CA", ca=True, days=(-9, -1))
GOOD_AND_MISSING: Final = Policy(refs=(Ref("ca"), Ref("not-there")))
GOOD_AND_KIND: Final = Policy(refs=(Ref("ca"), Ref("x", "Bundle", "trust.invalid")))


def trust(
    name: str, title: str, requirement: Requirement, expect: Expected, signer: Recipe, *bundles: CABundle, **settings: Any
) -> Case:
    policy = Policy(refs=tuple(Ref(bundle.name, bundle.kind) for bundle in bundles))
    return Case(
        f"trust/{name}",
        title,
        requirement,
        expect,
        serves(below(signer)),
        **{"policies": (policy,), "bundles": bundles, **settings},
    )


THIRD_CA: Final = Recipe("judge third CA", ca=True)
CASES_OF_TRUST: Final = (
    trust("config-map", "one ConfigMap with ca.crt", r.CORE_REF, PASSES, CA, CABundle()),
    trust("config-map-other", "one ConfigMap, and a certificate of another CA", r.VERIFY, REFUSED, OTHER_CA, CABundle()),
    trust(
        "text-around",
        "text before and after the PEM block",
        r.CORE_REF,
        PASSES,
        CA,
        CABundle(text="# the CA\n{ca}\n# end\n"),
        optional=True,
    ),
    trust("crlf", "PEM with CRLF line ends", r.CORE_REF, PASSES, CA, CABundle(text="{crlf}"), optional=True),
    trust(
        "intermediate-anchor",
        "the intermediate CA is the trust anchor",
        r.VERIFY,
        PASSES,
        MIDDLE,
        CABundle(certificates=(MIDDLE,)),
        optional=True,
    ),
    trust("bundle-first", "a bundle of two CAs, the first has signed", r.MORE_REFS, PASSES, CA, BOTH, optional=True),
    trust("bundle-second", "a bundle of two CAs, the second has signed", r.MORE_REFS, PASSES, OTHER_CA, BOTH, optional=True),
    trust("bundle-none", "a bundle of two CAs, neither has signed", r.VERIFY, REFUSED, THIRD_CA, BOTH),
    trust(
        "bundle-twice",
        "a bundle with the same CA twice",
        r.MORE_REFS,
        PASSES,
        CA,
        CABundle(certificates=(CA, CA)),
        optional=True,
    ),
    trust(
        "bundle-expired-beside",
        "a bundle of an expired CA and a valid one",
        r.MORE_REFS,
        PASSES,
        CA,
        CABundle(certificates=(EXPIRED_CA, CA)),
        optional=True,
    ),
    trust("refs-first", "two references, the first CA has signed", r.MORE_REFS, PASSES, CA, CABundle(), OTHER, optional=True),
    trust(
        "refs-second",
        "two references, the second CA has signed",
        r.MORE_REFS,
        PASSES,
        OTHER_CA,
        CABundle(),
        OTHER,
        optional=True,
    ),
    trust("refs-none", "two references, neither CA has signed", r.VERIFY, REFUSED, THIRD_CA, CABundle(), OTHER),
    trust("secret", "a Secret with ca.crt", r.MORE_REFS, PASSES, CA, SECRET, optional=True),
    trust("secret-other", "a Secret, and a certificate of another CA", r.VERIFY, REFUSED, OTHER_CA, SECRET),
    trust(
        "other-key",
        "a ConfigMap has another CA in another key",
        r.CORE_REF,
        REFUSED,
        OTHER_CA,
        CABundle(beside=(("other.crt", OTHER_CA),)),
    ),
    trust(
        "missing-beside-good",
        "a missing reference beside a good one: a certificate of the good CA",
        r.ANY_INVALID,
        PASSES,
        CA,
        CABundle(),
        policies=(GOOD_AND_MISSING,),
        optional=True,
    ),
    trust(
        "missing-beside-good-other",
        "a missing reference beside a good one: a certificate of another CA",
        r.ANY_INVALID,
        REFUSED,
        OTHER_CA,
        CABundle(),
        policies=(GOOD_AND_MISSING,),
    ),
    trust(
        "garbage-beside-good-other",
        "a malformed reference beside a good one: a certificate of another CA",
        r.ANY_INVALID,
        REFUSED,
        OTHER_CA,
        CABundle(),
        CABundle("garbage", text=GARBAGE),
    ),
    trust(
        "kind-beside-good-other",
        "a reference of an unknown kind beside a good one: a certificate of another CA",
        r.ANY_INVALID,
        REFUSED,
        OTHER_CA,
        CABundle(),
        policies=(GOOD_AND_KIND,),
    ),
    trust(
        "system-other",
        "the system store, and a certificate of a CA that is not in it",
        r.VERIFY,
        REFUSED,
        CA,
        policies=(Policy(refs=(), well_known="System"),),
    ),
    trust(
        "leaf-as-ca",
        "the backend's certificate in place of a CA, and another of the same issuer",
        r.VERIFY,
        REFUSED,
        CA,
        CABundle(certificates=(below(CA, twin=1),)),
    ),
)

# --- policies that cannot be fulfilled --------------------------------------------------------------------------------


def _invalid() -> tuple[Case, ...]:
    """Returns a case about traffic for each fault, and a case about status for each required condition."""
    none = ("NoValidCACertificate",)
    bad = ("InvalidCACertificateRef",)
    any_reason: tuple[str, ...] = ()
    """Checks of the content may have reasons of their own."""
    fails = {
        r.INVALID_REF: r.INVALID_REF,
        r.MALFORMED_REF: r.MALFORMED_FAILS,
        r.INVALID_KIND: r.KIND_FAILS,
        r.WELL_KNOWN: r.NEVER_PLAINTEXT,
        r.ALL_INVALID: r.ANY_INVALID,
        r.OTHER_NAMESPACE: r.ANY_INVALID,
    }
    # name, title, requirement, refs or policy, bundles, reasons of Accepted, reasons of ResolvedRefs
    rows: tuple[tuple[str, str, Requirement, Policy, tuple[CABundle, ...], tuple[str, ...], tuple[str, ...]], ...] = (
        ("missing", "the ConfigMap does not exist", r.INVALID_REF, Policy(refs=(Ref("not-there"),)), (), none, bad),
        ("no-key", "the ConfigMap has no key ca.crt", r.INVALID_REF, Policy(), (CABundle(key="bundle.pem"),), none, bad),
        (
            "no-key-of-two",
            "the ConfigMap has two other keys",
            r.INVALID_REF,
            Policy(),
            (CABundle(key="a.pem", beside=(("b.pem", CA),)),),
            none,
            bad,
        ),
        ("no-data", "the ConfigMap has no data", r.INVALID_REF, Policy(), (CABundle(key=""),), none, bad),
        ("empty", "ca.crt is empty", r.MALFORMED_REF, Policy(), (CABundle(text=""),), none, any_reason),
        ("blank", "ca.crt has only white space", r.MALFORMED_REF, Policy(), (CABundle(text=" \n\n"),), none, any_reason),
        ("prose", "ca.crt is not PEM", r.MALFORMED_REF, Policy(), (CABundle(text="not a certificate\n"),), none, any_reason),
        (
            "garbage",
            "ca.crt is a PEM block without a certificate",
            r.MALFORMED_REF,
            Policy(),
            (CABundle(text=GARBAGE),),
            none,
            any_reason,
        ),
        ("cut-off", "the PEM block is cut off", r.MALFORMED_REF, Policy(), (CABundle(text="{cut}"),), none, any_reason),
        ("key-only", "ca.crt has a private key", r.MALFORMED_REF, Policy(), (CABundle(text="{key}"),), none, any_reason),
        (
            "der",
            "ca.crt is base64 without PEM lines",
            r.MALFORMED_REF,
            Policy(),
            (CABundle(text="{base64}"),),
            none,
            any_reason,
        ),
        (
            "kind",
            "an unknown kind",
            r.INVALID_KIND,
            Policy(refs=(Ref("x", "Bundle", "trust.invalid"),)),
            (),
            none,
            ("InvalidKind",),
        ),
        (
            "core-kind",
            "a kind that holds no certificates",
            r.INVALID_KIND,
            Policy(refs=(Ref("x", "Service"),)),
            (),
            none,
            ("InvalidKind",),
        ),
        (
            "group",
            "a ConfigMap of an unknown group",
            r.INVALID_KIND,
            Policy(refs=(Ref("ca", group="trust.invalid"),)),
            (CABundle(),),
            none,
            ("InvalidKind",),
        ),
        (
            "two-missing",
            "two ConfigMaps that do not exist",
            r.ALL_INVALID,
            Policy(refs=(Ref("not-there"), Ref("not-here"))),
            (),
            none,
            bad,
        ),
        (
            "well-known",
            "an unknown set of well-known CAs",
            r.WELL_KNOWN,
            Policy(refs=(), well_known="judge.invalid/none"),
            (),
            ("Invalid",),
            (),
        ),
        (
            "other-namespace",
            "the name of the reference has a namespace",
            r.OTHER_NAMESPACE,
            Policy(refs=(Ref("default/kube-root-ca.crt"),)),
            (),
            none,
            any_reason,
        ),
    )
    cases = []
    for name, title, requirement, policy, bundles, accepted, resolved in rows:
        shape: dict[str, Any] = {"serving": serves(below(CA), both=True), "policies": (policy,), "bundles": bundles}
        cases.append(Case(f"invalid/{name}", title, fails[requirement], REFUSED_5XX, **shape))
        why = r.WELL_KNOWN if name == "well-known" else r.ALL_INVALID
        conditions = ExpectedCondition("Accepted", "False", accepted)
        cases.append(Case(f"status/{name}-accepted", f"{title}: Accepted", why, IGNORED, **shape, conditions=(conditions,)))
        if name != "well-known":
            conditions = ExpectedCondition("ResolvedRefs", "False", resolved)
            cases.append(
                Case(
                    f"status/{name}-resolved",
                    f"{title}: ResolvedRefs",
                    requirement,
                    IGNORED,
                    **shape,
                    conditions=(conditions,),
                )
            )
    return tuple(cases)


STATUS: Final = (
    Case(
        "status/accepted",
        "a valid policy: Accepted",
        r.ACCEPTED,
        IGNORED,
        conditions=(ExpectedCondition("Accepted", "True", ("Accepted",)),),
    ),
    Case(
        "status/resolved",
        "a valid policy: ResolvedRefs",
        r.RESOLVED,
        IGNORED,
        conditions=(ExpectedCondition("ResolvedRefs", "True", ("ResolvedRefs",)),),
    ),
    Case(
        "status/handshake-fails",
        "a backend with a wrong certificate: the references are resolved all the same",
        r.RESOLVED,
        IGNORED,
        serves(below(OTHER_CA)),
        conditions=(ExpectedCondition("ResolvedRefs", "True"),),
    ),
    Case("status/ancestor", "the Gateway is an ancestor", r.ANCESTOR, IGNORED, checks=(StatusCheck.GATEWAY_IS_ANCESTOR,)),
    Case(
        "status/generation",
        "conditions are of the current generation, before and after an edit",
        r.OBSERVED_GENERATION,
        IGNORED,
        checks=(StatusCheck.CURRENT_GENERATION,),
    ),
    Case("status/foreign", "the entry of another controller stays", r.OWN_STATUS, IGNORED, checks=(StatusCheck.FOREIGN_KEPT,)),
    Case(
        "status/transition",
        "an edit that changes no status keeps lastTransitionTime",
        r.TRANSITION,
        IGNORED,
        checks=(StatusCheck.TRANSITION_KEPT,),
    ),
    Case(
        "status/message",
        "the message names the invalid reference",
        r.MESSAGE,
        IGNORED,
        policies=(Policy(refs=(Ref("not-there"),)),),
        conditions=(ExpectedCondition("ResolvedRefs", "False", mentions=("not-there",)),),
    ),
    Case(
        "status/one-of-two-missing",
        "one of two references is missing: ResolvedRefs",
        r.ANY_INVALID,
        IGNORED,
        policies=(GOOD_AND_MISSING,),
        conditions=(ExpectedCondition("ResolvedRefs", "False", ("InvalidCACertificateRef",)),),
    ),
    Case(
        "status/one-of-two-kind",
        "one of two references has an unknown kind: ResolvedRefs",
        r.INVALID_KIND,
        IGNORED,
        policies=(GOOD_AND_KIND,),
        conditions=(ExpectedCondition("ResolvedRefs", "False", ("InvalidKind",)),),
    ),
)
CASES: Final = (*CASES_OF_TRUST, *_invalid(), *STATUS)
