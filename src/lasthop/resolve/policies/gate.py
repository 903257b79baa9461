"""The operator's gate: what a GatewayProfile has against a policy, or against there being none, on one Gateway.

The same policy may pass at one Gateway and be refused at another; each has its own clusters and its own word in the status.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.meta import Key
from lasthop.plan import reasons
from lasthop.plan.profile import BackendRules
from lasthop.plan.tls import Anchors, BackendTLS, Refused, Waiver
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.certificates import too_large
from lasthop.resolve.policies import options
from lasthop.resolve.policies.targets import misaimed
from lasthop.resolve.policies.validation import demand, wanted_tls
from lasthop.resolve.profiles import backend_rules, limits
from lasthop.resolve.trust import minute
from lasthop.store.graph import Graph, query

DAY: Final = 86400.0
MIN_VERSION: Final = f"{options.PREFIX}min-tls-version"


@query
def permitted_tls(g: Graph, gateway: Key, policy: Key) -> BackendTLS | Refused | None:
    """What the policy asks for, as far as this Gateway's operator permits it; None if the policy is invalid by itself."""
    wanted, said = wanted_tls(g, policy), demand(g, policy)
    if wanted is None or said is None:
        return None
    rules = backend_rules(g, gateway)
    objection = _waiver(g, rules, wanted.waiver) if wanted.waiver else ""
    if objection:
        return Refused(reasons.WAIVER_NOT_PERMITTED, objection, policy)
    if isinstance(wanted.trust, Anchors) and (message := too_large(wanted.trust, limits(g, gateway))):
        return Refused(reasons.INVALID, message, policy)
    asked, versions = said.options.get(MIN_VERSION), wanted.options
    # A policy that does not say how low it would go goes no lower than the profile.
    lowest = versions.min_version if asked else max(versions.min_version, rules.min_version)
    if lowest < rules.min_version or versions.max_version < rules.min_version:
        name = "min" if lowest < rules.min_version else "max"
        option = f"{options.PREFIX}{name}-tls-version"
        message = f"at least TLS {rules.min_version} is demanded here ({rules.by}); correct option {option} or remove it"
        return Refused(reasons.TLS_VERSION_NOT_PERMITTED, message, policy)
    return msgspec.structs.replace(wanted, options=msgspec.structs.replace(versions, min_version=lowest))


def _waiver(g: Graph, rules: BackendRules, found: Waiver) -> str:
    if not rules.waivers:
        who = f"waivers are not allowed ({rules.by})" if rules.profiles else "no GatewayProfile allows waivers"
        return f"{found.key} has no effect here, so connections fail: {who}; ask the operator, or mend the certificate"
    if rules.max_waiver_days is None:
        return ""
    limit = f"waivers are allowed for at most {rules.max_waiver_days} days here ({rules.by})"
    if found.expires is None:
        return f"{found.key} never ends, and {limit}; give it `expires`"
    if not found.created:
        return f"{found.key} does not say since when it is, and {limit}; give it metadata.creationTimestamp"
    if g.before(found.created):
        return f"{found.key} was created in the future ({minute(found.created)}); correct its creationTimestamp"
    last = found.created + rules.max_waiver_days * DAY
    if found.expires > last:
        return f"{found.key} lasts until {minute(found.expires)}, and {limit}; let it expire by {minute(last)}"
    return ""


def plaintext_refusal(g: Graph, hop: Hop) -> Refused | None:
    """Why a backend that no policy speaks of, or that none can speak of, may not be reached from this Gateway."""
    rules = backend_rules(g, hop.gateway)
    if rules.plaintext:
        return None
    who = f"plaintext backends are denied here ({rules.by})" if rules.profiles else "it is not known whether that is allowed"
    where = f"port {hop.port} of Service {hop.service.path}"
    if hop.protocol is Protocol.UDP:
        message = f"UDP to {where} cannot carry TLS, and {who}; remove the backend"
    elif hop.service.kind == XBACKEND:
        message = f"{hop.service} has tls.mode None, and {who}; use ServerOnly or ClientAndServer"
    else:
        aims = "".join(f" ({policy} names Service {name}, which does not exist)" for policy, name in misaimed(g, hop.service))
        message = f"no BackendTLSPolicy names {where}{aims}, and {who}; create a policy for it"
    return Refused(reasons.PLAINTEXT_NOT_PERMITTED, message)
