"""GatewayClasses: whether this controller serves a class, and the CRD versions that it supports."""

from __future__ import annotations

from lasthop.base.api.bundle import KNOWN, known, supported_features
from lasthop.base.api.gateway import GatewayClass
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.gateways.profiles import class_profile
from lasthop.engine.resolve.settings import CRD_VERSIONS
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read


@query
def gateway_class(g: Graph, key: Key) -> Condition | None:
    """Returns whether the class is accepted; None if it belongs to another controller or does not exist."""
    obj = read(g, key, GatewayClass)
    if obj is None or obj.spec.controller_name != CONTROLLER_NAME:
        return None
    profile = class_profile(g, key)
    return failed(reasons.ACCEPTED, profile) if isinstance(profile, Problem) else true(reasons.ACCEPTED)


def supported_version(g: Graph) -> Condition:
    """Returns whether Lasthop knows the releases of the installed CRDs. It serves the known fields of others."""
    versions = CRD_VERSIONS.of(g) or ()
    unread = [f"{crd} cannot be read: {version.unread}" for crd, version in versions if version.unread]
    if unread:
        remedy = f"install CRDs of {KNOWN}"
        return failed(reasons.SUPPORTED_VERSION, Problem(reasons.NOT_SERVED, "; ".join(unread), remedy=remedy))
    releases = [(crd, version.release) for crd, version in versions]
    strange = [f"{crd} is of {release or 'an unknown release'}" for crd, release in releases if not known(release)]
    if not strange:
        return true(reasons.SUPPORTED_VERSION)
    message = f"{'; '.join(strange)}. Lasthop knows {KNOWN} and serves the known fields of others"
    return failed(reasons.SUPPORTED_VERSION, Problem(reasons.UNSUPPORTED_VERSION, message, remedy="install one of those"))


def class_features(g: Graph) -> tuple[str, ...]:
    """Returns the supported features, by their names in the release of the installed CRDs."""
    return supported_features(CRD_VERSIONS.of(g) or ())
