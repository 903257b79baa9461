"""Where the CA comes from, and policies whose CA does not come."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import demands as d
from lasthop_judge.cases.build import IGNORED, PASSES, REFUSED, REFUSED_5XX, serves
from lasthop_judge.cases.chains import MIDDLE, below
from lasthop_judge.certificates import CA, OTHER_CA, Recipe
from lasthop_judge.model import Bundle, Case, Check, Demand, Expect, Policy, Ref, Says

GARBAGE: Final = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
SECRET: Final = Bundle("secret", kind="Secret")
OTHER: Final = Bundle("other", (OTHER_CA,))
BOTH: Final = Bundle(certificates=(CA, OTHER_CA))
EXPIRED_CA: Final = Recipe("judge expired CA", ca=True, days=(-9, -1))


def trust(name: str, title: str, demands: Demand, expect: Expect, signer: Recipe, *bundles: Bundle, **settings: Any) -> Case:
    policy = Policy(refs=tuple(Ref(each.name, each.kind) for each in bundles))
    return Case(
        f"trust/{name}",
        title,
        demands,
        expect,
        serves(below(signer)),
        **{"policies": (policy,), "bundles": bundles, **settings},
    )


THIRD_CA: Final = Recipe("judge third CA", ca=True)
CASES_OF_TRUST: Final = (
    trust("config-map", "one ConfigMap with ca.crt", d.CORE_REF, PASSES, CA, Bundle()),
    trust("config-map-other", "one ConfigMap, and a certificate of another CA", d.VERIFY, REFUSED, OTHER_CA, Bundle()),
    trust(
        "text-around",
        "text before and after the PEM block",
        d.CORE_REF,
        PASSES,
        CA,
        Bundle(text="# the CA\n{ca}\n# end\n"),
        optional=True,
    ),
    trust("crlf", "PEM with CRLF line ends", d.CORE_REF, PASSES, CA, Bundle(text="{crlf}"), optional=True),
    trust(
        "intermediate-anchor",
        "the intermediate CA is the trust anchor",
        d.VERIFY,
        PASSES,
        MIDDLE,
        Bundle(certificates=(MIDDLE,)),
        optional=True,
    ),
    trust("bundle-first", "a bundle of two CAs, the first has signed", d.MORE_REFS, PASSES, CA, BOTH, optional=True),
    trust("bundle-second", "a bundle of two CAs, the second has signed", d.MORE_REFS, PASSES, OTHER_CA, BOTH, optional=True),
    trust("bundle-none", "a bundle of two CAs, neither has signed", d.VERIFY, REFUSED, THIRD_CA, BOTH),
    trust(
        "bundle-twice",
        "a bundle with the same CA twice",
        d.MORE_REFS,
        PASSES,
        CA,
        Bundle(certificates=(CA, CA)),
        optional=True,
    ),
    trust(
        "bundle-expired-beside",
        "a bundle of an expired CA and a valid one",
        d.MORE_REFS,
        PASSES,
        CA,
        Bundle(certificates=(EXPIRED_CA, CA)),
        optional=True,
    ),
    trust("refs-first", "two references, the first CA has signed", d.MORE_REFS, PASSES, CA, Bundle(), OTHER, optional=True),
    trust(
        "refs-second",
        "two references, the second CA has signed",
        d.MORE_REFS,
        PASSES,
        OTHER_CA,
        Bundle(),
        OTHER,
        optional=True,
    ),
    trust("refs-none", "two references, neither CA has signed", d.VERIFY, REFUSED, THIRD_CA, Bundle(), OTHER),
    trust("secret", "a Secret with ca.crt", d.MORE_REFS, PASSES, CA, SECRET, optional=True),
    trust("secret-other", "a Secret, and a certificate of another CA", d.VERIFY, REFUSED, OTHER_CA, SECRET),
    trust(
        "other-key",
        "a ConfigMap has another CA in another key",
        d.CORE_REF,
        REFUSED,
        OTHER_CA,
        Bundle(beside=(("other.crt", OTHER_CA),)),
    ),
    trust(
        "missing-beside-good",
        "a missing reference beside a good one: a certificate of the good CA",
        d.ANY_INVALID,
        PASSES,
        CA,
        Bundle(),
        policies=(Policy(refs=(Ref("ca"), Ref("not-there"))),),
        optional=True,
    ),
    trust(
        "missing-beside-good-other",
        "a missing reference beside a good one: a certificate of another CA",
        d.ANY_INVALID,
        REFUSED,
        OTHER_CA,
        Bundle(),
        policies=(Policy(refs=(Ref("ca"), Ref("not-there"))),),
    ),
    trust(
        "garbage-beside-good-other",
        "a malformed reference beside a good one: a certificate of another CA",
        d.ANY_INVALID,
        REFUSED,
        OTHER_CA,
        Bundle(),
        Bundle("garbage", text=GARBAGE),
    ),
    trust(
        "system-other",
        "the system store, and a certificate of a CA that is not in it",
        d.VERIFY,
        REFUSED,
        CA,
        policies=(Policy(refs=(), well_known="System"),),
    ),
    trust(
        "leaf-as-ca",
        "the backend's certificate in place of a CA, and another of the same issuer",
        d.VERIFY,
        REFUSED,
        CA,
        Bundle(certificates=(below(CA, twin=1),)),
    ),
)

# --- policies that cannot be fulfilled --------------------------------------------------------------------------------


def _invalid() -> tuple[Case, ...]:
    """For each fault a case about the traffic, and for each demanded condition a case about the status."""
    none = ("NoValidCACertificate",)
    bad = ("InvalidCACertificateRef",)
    any_reason: tuple[str, ...] = ()
    """Checks of the content may have reasons of their own."""
    fails = {
        d.INVALID_REF: d.INVALID_REF,
        d.MALFORMED_REF: d.MALFORMED_FAILS,
        d.INVALID_KIND: d.KIND_FAILS,
        d.WELL_KNOWN: d.NEVER_PLAINTEXT,
        d.ALL_INVALID: d.ANY_INVALID,
        d.OTHER_NAMESPACE: d.ANY_INVALID,
    }
    # name, title, demand, refs or policy, bundles, reasons of Accepted, reasons of ResolvedRefs
    rows: tuple[tuple[str, str, Demand, Policy, tuple[Bundle, ...], tuple[str, ...], tuple[str, ...]], ...] = (
        ("missing", "the ConfigMap does not exist", d.INVALID_REF, Policy(refs=(Ref("not-there"),)), (), none, bad),
        ("no-key", "the ConfigMap has no key ca.crt", d.INVALID_REF, Policy(), (Bundle(key="bundle.pem"),), none, bad),
        (
            "no-key-of-two",
            "the ConfigMap has two other keys",
            d.INVALID_REF,
            Policy(),
            (Bundle(key="a.pem", beside=(("b.pem", CA),)),),
            none,
            bad,
        ),
        ("no-data", "the ConfigMap has no data", d.INVALID_REF, Policy(), (Bundle(key=""),), none, bad),
        ("empty", "ca.crt is empty", d.MALFORMED_REF, Policy(), (Bundle(text=""),), none, any_reason),
        ("blank", "ca.crt has only white space", d.MALFORMED_REF, Policy(), (Bundle(text=" \n\n"),), none, any_reason),
        ("prose", "ca.crt is no PEM", d.MALFORMED_REF, Policy(), (Bundle(text="not a certificate\n"),), none, any_reason),
        (
            "garbage",
            "ca.crt is a PEM block without a certificate",
            d.MALFORMED_REF,
            Policy(),
            (Bundle(text=GARBAGE),),
            none,
            any_reason,
        ),
        ("cut-off", "the PEM block is cut off", d.MALFORMED_REF, Policy(), (Bundle(text="{cut}"),), none, any_reason),
        ("key-only", "ca.crt has a private key", d.MALFORMED_REF, Policy(), (Bundle(text="{key}"),), none, any_reason),
        ("der", "ca.crt is base64 without PEM lines", d.MALFORMED_REF, Policy(), (Bundle(text="{base64}"),), none, any_reason),
        (
            "kind",
            "an unknown kind",
            d.INVALID_KIND,
            Policy(refs=(Ref("x", "Bundle", "trust.invalid"),)),
            (),
            none,
            ("InvalidKind",),
        ),
        (
            "core-kind",
            "a kind that holds no certificates",
            d.INVALID_KIND,
            Policy(refs=(Ref("x", "Service"),)),
            (),
            none,
            ("InvalidKind",),
        ),
        (
            "group",
            "a ConfigMap of an unknown group",
            d.INVALID_KIND,
            Policy(refs=(Ref("ca", group="trust.invalid"),)),
            (Bundle(),),
            none,
            ("InvalidKind",),
        ),
        (
            "two-missing",
            "two ConfigMaps that do not exist",
            d.ALL_INVALID,
            Policy(refs=(Ref("not-there"), Ref("not-here"))),
            (),
            none,
            bad,
        ),
        (
            "well-known",
            "an unknown set of well-known CAs",
            d.WELL_KNOWN,
            Policy(refs=(), well_known="judge.invalid/none"),
            (),
            ("Invalid",),
            (),
        ),
        (
            "other-namespace",
            "the name of the reference has a namespace",
            d.OTHER_NAMESPACE,
            Policy(refs=(Ref("default/kube-root-ca.crt"),)),
            (),
            none,
            any_reason,
        ),
    )
    found = []
    for name, title, demands, policy, bundles, accepted, resolved in rows:
        shape: dict[str, Any] = {"serving": serves(below(CA), both=True), "policies": (policy,), "bundles": bundles}
        found.append(Case(f"invalid/{name}", title, fails[demands], REFUSED_5XX, **shape))
        why = d.WELL_KNOWN if name == "well-known" else d.ALL_INVALID
        says = Says("Accepted", "False", accepted)
        found.append(Case(f"status/{name}-accepted", f"{title}: Accepted", why, IGNORED, **shape, says=(says,)))
        if name != "well-known":
            says = Says("ResolvedRefs", "False", resolved)
            found.append(Case(f"status/{name}-resolved", f"{title}: ResolvedRefs", demands, IGNORED, **shape, says=(says,)))
    return tuple(found)


GOOD_AND_MISSING: Final = Policy(refs=(Ref("ca"), Ref("not-there")))
GOOD_AND_KIND: Final = Policy(refs=(Ref("ca"), Ref("x", "Bundle", "trust.invalid")))
STATUS: Final = (
    Case(
        "status/accepted",
        "a valid policy: Accepted",
        d.ACCEPTED,
        IGNORED,
        says=(Says("Accepted", "True", ("Accepted",)),),
    ),
    Case(
        "status/resolved",
        "a valid policy: ResolvedRefs",
        d.RESOLVED,
        IGNORED,
        says=(Says("ResolvedRefs", "True", ("ResolvedRefs",)),),
    ),
    Case(
        "status/handshake-fails",
        "a backend with a wrong certificate: the references are resolved all the same",
        d.RESOLVED,
        IGNORED,
        serves(below(OTHER_CA)),
        says=(Says("ResolvedRefs", "True"),),
    ),
    Case("status/ancestor", "the Gateway is an ancestor", d.ANCESTOR, IGNORED, checks=(Check.GATEWAY_IS_ANCESTOR,)),
    Case(
        "status/generation",
        "conditions are of the current generation",
        d.OBSERVED_GENERATION,
        IGNORED,
        checks=(Check.CURRENT_GENERATION,),
    ),
    Case("status/foreign", "the entry of another controller stays", d.OWN_STATUS, IGNORED, checks=(Check.FOREIGN_KEPT,)),
    Case(
        "status/transition",
        "an edit that changes no status keeps lastTransitionTime",
        d.TRANSITION,
        IGNORED,
        checks=(Check.TRANSITION_KEPT,),
    ),
    Case(
        "status/message",
        "the message names the invalid reference",
        d.MESSAGE,
        IGNORED,
        policies=(Policy(refs=(Ref("not-there"),)),),
        says=(Says("ResolvedRefs", "False", mentions=("not-there",)),),
    ),
    Case(
        "status/one-of-two-missing",
        "one of two references is missing: ResolvedRefs",
        d.ANY_INVALID,
        IGNORED,
        policies=(GOOD_AND_MISSING,),
        says=(Says("ResolvedRefs", "False", ("InvalidCACertificateRef",)),),
    ),
    Case(
        "status/one-of-two-kind",
        "one of two references has an unknown kind: ResolvedRefs",
        d.INVALID_KIND,
        IGNORED,
        policies=(GOOD_AND_KIND,),
        says=(Says("ResolvedRefs", "False", ("InvalidKind",)),),
    ),
)
CASES: Final = (*CASES_OF_TRUST, *_invalid(), *STATUS)
