"""What a BackendTLSPolicy or an XBackend asks for, and whether it can be fulfilled: mode x trust source out of its
`validation`.

`wanted_tls` is the seam: whatever API says how a backend is verified, it ends in one `BackendTLS`.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lasthop.api.addresses import is_ip
from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.backends import XBackend
from lasthop.api.meta import Key, StringMap
from lasthop.api.policies import BackendTLSPolicy, BackendTLSPolicyValidation
from lasthop.plan import reasons
from lasthop.plan.condition import failed
from lasthop.plan.problem import Problem, invalid, joined
from lasthop.plan.tls import Anchors, BackendTLS, Mode, Pins, San, SanType, Trust
from lasthop.resolve.certificates import union
from lasthop.resolve.http_syntax import is_hostname, shown
from lasthop.resolve.pins import PinnedTrust, pinned
from lasthop.resolve.policies import options
from lasthop.resolve.policies.references import Asked, Judged, judge
from lasthop.resolve.trust import bundle, system_store
from lasthop.resolve.waivers import waiver
from lasthop.store.graph import Graph, query
from lasthop.store.store import read

MAX_NAMES: Final = 32
"""More than any bundle's CRD admits (5), and few enough to try at every handshake."""
URI: Final = re.compile(r"[!-~]{1,2048}")
"""Characters that a URI may have (RFC 3986); it is compared byte for byte."""


class Demand(msgspec.Struct, frozen=True):
    """How a backend is to be verified, as somebody has written it."""

    validation: BackendTLSPolicyValidation
    field: str
    """Where that is written."""
    options: StringMap = StringMap()


def demand(g: Graph, policy: Key) -> Demand | None:
    """`policy` is whatever can ask for TLS: a BackendTLSPolicy, or an XBackend. None where it asks for none."""
    if policy.kind == XBACKEND:
        backend = read(g, policy, XBackend)
        validation = backend.spec.tls.validation if backend else None
        return Demand(validation, "spec.tls.validation") if validation else None
    obj = read(g, policy, BackendTLSPolicy)
    return Demand(obj.spec.validation, "spec.validation", obj.spec.options) if obj else None


@query
def verdict(g: Graph, policy: Key) -> Judged | None:
    """None where nothing is asked."""
    asked = demand(g, policy)
    if asked is None:
        return None
    parsed = options.parse(asked.options)
    problems = list(parsed.problems) + _name_problems(asked.validation)
    trust = judge(g, policy.namespace, asked.validation, asked.field)
    warnings = parsed.warnings + trust.warnings
    if problems and trust.valid:
        field = "spec.options" if parsed.problems else f"{asked.field}.{problems[0].split()[0]}"
        accepted = failed(reasons.ACCEPTED, invalid("; ".join(problems)).at(field))
        trust = msgspec.structs.replace(trust, accepted=accepted, field=field)
    elif problems and (refused := trust.accepted.problem):
        everything = joined([invalid("; ".join(problems)), refused], refused.reason).at(refused.field)
        trust = msgspec.structs.replace(trust, accepted=failed(reasons.ACCEPTED, everything))
    return msgspec.structs.replace(trust, warnings=warnings)


def _name_problems(validation: BackendTLSPolicyValidation) -> list[str]:
    """The CRDs state most of it too; Envoy refuses a cluster whose SNI has more than 255 characters."""
    problems = [_hostname_problem("hostname", validation.hostname)]
    sans = validation.subject_alt_names
    if len(sans) > MAX_NAMES:
        problems.append(f"subjectAltNames has {len(sans)} entries; give at most {MAX_NAMES}")
    for number, san in enumerate(sans[:MAX_NAMES]):
        field = f"subjectAltNames[{number}]"
        if san.type == "Hostname":
            problems.append(_hostname_problem(f"{field}.hostname", san.hostname, wildcard=True))
        elif san.type != "URI":
            problems.append(f"{field}.type {shown(san.type)} is unknown; use Hostname or URI")
        elif not URI.fullmatch(san.uri):
            problems.append(f"{field}.uri {shown(san.uri)} is no URI; escape what is not printable ASCII")
    return [problem for problem in problems if problem]


def _hostname_problem(field: str, name: str, *, wildcard: bool = False) -> str:
    if is_ip(name.strip("[]")):
        return f"{field} {name} is an IP address; a backend is verified by a DNS name or a URI"
    return "" if is_hostname(name, wildcard=wildcard) else f"{field} {shown(name)} is no DNS name; correct it"


@query
def wanted_tls(g: Graph, policy: Key) -> BackendTLS | None:
    """What the policy asks for, ready to use; None if it cannot be fulfilled."""
    said, judged = demand(g, policy), verdict(g, policy)
    if said is None or judged is None or not judged.valid:
        return None
    asked, validation = judged.asked, said.validation
    pins = pinned(g, asked.pin_set) if asked.pin_set else None
    waived = waiver(g, asked.waiver) if asked.waiver else None
    if isinstance(pins, Problem) or isinstance(waived, Problem):
        return None
    trust = _trust(g, policy.namespace, asked, pins)
    # Nothing to check against is only ever what a waiver of All says.
    if trust is None and not (pins and pins.only) and not (waived and waived.mode is Mode.WAIVED_ALL):
        return None
    return BackendTLS(
        source=policy,
        sni=validation.hostname,
        trust=trust,
        names=_names(validation) if asked.names else (),
        mode=waived.mode if waived else Mode.STRICT,
        pins=pins.pins if pins else Pins(),
        waiver=waived,
        options=options.parse(said.options).options,
    )


def _trust(g: Graph, namespace: str, asked: Asked, pins: PinnedTrust | None) -> Trust | None:
    if asked.system:
        return system_store(g)
    if asked.cas:
        bundles = [bundle(g, namespace, ref) for ref in asked.cas]
        return union(b for b in bundles if not isinstance(b, Problem))
    return Anchors(pins.leaves, len(pins.anchors)) if pins and pins.leaves else None


def _names(validation: BackendTLSPolicyValidation) -> tuple[San, ...]:
    """The hostname authenticates only where no subjectAltNames are given (GEP-1897)."""
    if not validation.subject_alt_names:
        return (San(SanType.DNS, validation.hostname.lower()),)
    return tuple(
        San(SanType.URI, san.uri) if san.type == "URI" else San(SanType.DNS, san.hostname.lower())
        for san in validation.subject_alt_names
    )
