"""Determines how HAProxy really verifies a backend.

HAProxy checks the name only if the Route has no destinationCACertificate: a Route with a CA of its own is verified less.
[images/router/haproxy/conf/haproxy-config.template, pkg/router/template/router.go]
"""

from __future__ import annotations

from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, InlineTrust, MissingTrust, Name, ServiceBackend, ServiceCA

EDGE, REENCRYPT, PASSTHROUGH = "edge", "reencrypt", "passthrough"


def hop_tls(
    termination: str, ca: InlineTrust | MissingTrust | None, default_ca: bool, backend: ServiceBackend
) -> HopTLS | None:
    """Returns the TLS of a hop. `ca`: destinationCACertificate; `default_ca`: the router has a CA for Routes without one."""
    if termination in ("", EDGE):
        return None
    if termination == PASSTHROUGH:
        return HopTLS(OldLevel.PASSTHROUGH, "termination passthrough")
    if termination != REENCRYPT:
        return HopTLS(OldLevel.BROKEN, f"termination {termination!r} is invalid, so no router served the Route")
    name = Name(f"{backend.name}.{backend.namespace}.svc")
    if ca is not None:
        why = "reencrypt with destinationCACertificate: HAProxy has no verifyhost, so any name is accepted"
        return HopTLS(OldLevel.CHAIN, why, OldLevel.NAME, "destination-ca-disables-name-check", (name,), trust=(ca,))
    if not default_ca:
        return HopTLS(OldLevel.UNVERIFIED, "reencrypt without any CA: verify none", names=(name,))
    why = f"reencrypt: the service CA, with verifyhost {name.value}"
    return HopTLS(OldLevel.NAME, why, names=(name,), trust=(ServiceCA(),), cn_fallback=True)
