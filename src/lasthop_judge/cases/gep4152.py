"""Cases about GEP-4152, which has no API yet: they run only with an adapter that configures it."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import requirements as r
from lasthop_judge.cases.build import IGNORED, PASSES, REFUSED, REFUSED_5XX, serves
from lasthop_judge.cases.chains import below
from lasthop_judge.certificates import CA, OTHER_CA, Recipe, leaf
from lasthop_judge.model import (
    HOSTNAME,
    Case,
    Expected,
    GatewayRole,
    PinnedCertificates,
    Policy,
    Ref,
    Requirement,
    SkippedChecks,
    StatusCheck,
    Step,
)

SELF_SIGNED: Final = leaf(HOSTNAME, issuer=None)
EXPIRED: Final = leaf(HOSTNAME, days=(-9, -1))
OLD_NAME: Final = leaf("old.example")


def skip(
    name: str,
    title: str,
    requirement: Requirement,
    expect: Expected,
    certificate: Recipe | None,
    skipped: SkippedChecks = SkippedChecks.ALL,
    **more: Any,
) -> Case:
    refs = () if skipped is SkippedChecks.ALL else (Ref("ca"),)
    policy = Policy(refs, extension=skipped)
    return Case(
        f"gep4152/{name}",
        title,
        requirement,
        expect,
        serves(certificate),
        (policy,),
        **{"role": GatewayRole.PERMITTING, **more},
    )


def pin(name: str, title: str, expect: Expected, certificate: Recipe, *pinned: Recipe, by: str = "key", **more: Any) -> Case:
    policy = Policy((), extension=PinnedCertificates(pinned, by))
    return Case(f"gep4152/pin-{name}", title, r.PINS, expect, serves(certificate), (policy,), (), **more)


CASES: Final = (
    skip("skip", "skip, permitted: a self-signed certificate", r.SKIP, PASSES, SELF_SIGNED),
    skip("skip-name", "skip, permitted: another name", r.SKIP, PASSES, OLD_NAME),
    skip("skip-expired", "skip, permitted: an expired certificate", r.SKIP, PASSES, EXPIRED),
    skip("skip-plaintext", "skip, permitted: a backend that speaks plaintext only", r.SKIP, REFUSED, None),
    skip(
        "skip-denied", "skip without the operator's permission", r.PERMISSION, REFUSED_5XX, SELF_SIGNED, role=GatewayRole.PLAIN
    ),
    skip(
        "skip-withdrawn",
        "the operator withdraws the permission",
        r.PERMISSION,
        PASSES,
        SELF_SIGNED,
        role=GatewayRole.WITHDRAWING,
        steps=(Step("the permission is withdrawn", REFUSED_5XX, withdraw=True),),
    ),
    skip(
        "skip-shown",
        "the status shows that verification is degraded",
        r.INDICATORS,
        IGNORED,
        SELF_SIGNED,
        checks=(StatusCheck.DEGRADED,),
    ),
    skip(
        "names-only", "names skipped: a certificate of another name", r.SKIP_PER_BACKEND, PASSES, OLD_NAME, SkippedChecks.NAMES
    ),
    skip("names-only-ca", "names skipped: another CA", r.SECURE_DEFAULT, REFUSED, below(OTHER_CA), SkippedChecks.NAMES),
    skip(
        "names-only-expired", "names skipped: an expired certificate", r.SECURE_DEFAULT, REFUSED, EXPIRED, SkippedChecks.NAMES
    ),
    skip("dates-only", "dates skipped: an expired certificate", r.SKIP_PER_BACKEND, PASSES, EXPIRED, SkippedChecks.DATES),
    skip("dates-only-name", "dates skipped: another name", r.SECURE_DEFAULT, REFUSED, OLD_NAME, SkippedChecks.DATES),
    Case(
        "gep4152/default",
        "no opt-out, on a Gateway that permits it: a self-signed certificate",
        r.SECURE_DEFAULT,
        REFUSED,
        serves(SELF_SIGNED),
        role=GatewayRole.PERMITTING,
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
        steps=(Step("another key is pinned", REFUSED, (Policy((), extension=PinnedCertificates((CA,))),)),),
    ),
)
