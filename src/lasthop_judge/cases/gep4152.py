"""GEP-4152, which has no API yet: run only where an adapter spells it."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import demands as d
from lasthop_judge.cases.build import IGNORED, PASSES, REFUSED, REFUSED_5XX, serves
from lasthop_judge.cases.chains import below
from lasthop_judge.certificates import CA, OTHER_CA, Recipe, leaf
from lasthop_judge.model import HOSTNAME, At, Case, Check, Demand, Expect, Pins, Policy, Ref, Skips, Step

SELF_SIGNED: Final = leaf(HOSTNAME, issuer=None)
EXPIRED: Final = leaf(HOSTNAME, days=(-9, -1))
OLD_NAME: Final = leaf("old.example")


def skip(
    name: str, title: str, demands: Demand, expect: Expect, certificate: Recipe | None, what: Skips = Skips.ALL, **more: Any
) -> Case:
    refs = () if what is Skips.ALL else (Ref("ca"),)
    policy = Policy(refs, extension=what)
    return Case(f"gep4152/{name}", title, demands, expect, serves(certificate), (policy,), **{"at": At.PERMITTING, **more})


def pin(name: str, title: str, expect: Expect, certificate: Recipe, *pinned: Recipe, by: str = "key", **more: Any) -> Case:
    policy = Policy((), extension=Pins(pinned, by))
    return Case(f"gep4152/pin-{name}", title, d.PINS, expect, serves(certificate), (policy,), (), **more)


CASES: Final = (
    skip("skip", "skip, permitted: a self-signed certificate", d.SKIP, PASSES, SELF_SIGNED),
    skip("skip-name", "skip, permitted: another name", d.SKIP, PASSES, OLD_NAME),
    skip("skip-expired", "skip, permitted: an expired certificate", d.SKIP, PASSES, EXPIRED),
    skip("skip-plaintext", "skip, permitted: a backend that speaks plaintext only", d.SKIP, REFUSED, None),
    skip("skip-denied", "skip without the operator's permission", d.PERMISSION, REFUSED_5XX, SELF_SIGNED, at=At.PLAIN),
    skip(
        "skip-withdrawn",
        "the operator withdraws the permission",
        d.PERMISSION,
        PASSES,
        SELF_SIGNED,
        at=At.WITHDRAWING,
        steps=(Step("the permission is withdrawn", REFUSED_5XX, withdraw=True),),
    ),
    skip(
        "skip-shown",
        "the status tells that verification is degraded",
        d.INDICATORS,
        IGNORED,
        SELF_SIGNED,
        checks=(Check.DEGRADED,),
    ),
    skip("names-only", "names skipped: a certificate of another name", d.SKIP_PER_BACKEND, PASSES, OLD_NAME, Skips.NAMES),
    skip("names-only-ca", "names skipped: another CA", d.SECURE_DEFAULT, REFUSED, below(OTHER_CA), Skips.NAMES),
    skip("names-only-expired", "names skipped: an expired certificate", d.SECURE_DEFAULT, REFUSED, EXPIRED, Skips.NAMES),
    skip("dates-only", "dates skipped: an expired certificate", d.SKIP_PER_BACKEND, PASSES, EXPIRED, Skips.DATES),
    skip("dates-only-name", "dates skipped: another name", d.SECURE_DEFAULT, REFUSED, OLD_NAME, Skips.DATES),
    Case(
        "gep4152/default",
        "no opt-out, on a Gateway that permits it: a self-signed certificate",
        d.SECURE_DEFAULT,
        REFUSED,
        serves(SELF_SIGNED),
        at=At.PERMITTING,
    ),
    pin("key", "the pinned key", PASSES, SELF_SIGNED, SELF_SIGNED),
    pin("key-other", "another key", REFUSED, SELF_SIGNED, leaf(HOSTNAME, issuer=None, twin=1)),
    pin("key-second", "the second of two pinned keys", PASSES, SELF_SIGNED, leaf(HOSTNAME, issuer=None, twin=1), SELF_SIGNED),
    pin("key-issuer", "the key of the issuer", REFUSED, leaf(HOSTNAME), CA),
    pin("certificate", "the pinned certificate", PASSES, SELF_SIGNED, SELF_SIGNED, by="certificate"),
    pin(
        "certificate-other", "another certificate", REFUSED, SELF_SIGNED, leaf(HOSTNAME, issuer=None, twin=1), by="certificate"
    ),
    pin(
        "removed",
        "the pin is replaced",
        PASSES,
        SELF_SIGNED,
        SELF_SIGNED,
        steps=(Step("another key is pinned", REFUSED, (Policy((), extension=Pins((CA,))),)),),
    ),
)
