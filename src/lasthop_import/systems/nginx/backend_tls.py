"""Determines how nginx really verifies a backend.

A field of the upstream turns TLS on; an egressMTLS policy of the server or location turns verification on. For a server, the
template writes only `proxy_ssl_*`, which nginx does not obey for gRPC. For a gRPC location, it writes `grpc_ssl_*`.
[internal/configs/version2/nginx.virtualserver.tmpl, internal/configs/version1/nginx.ingress.tmpl]
"""

from __future__ import annotations

import msgspec

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, Name, TrustRef
from lasthop_import.systems.nginx.policies import Egress, NginxPolicies


def hop_tls(
    enabled: bool, grpc: bool, server: NginxPolicies, location: NginxPolicies, switch: str, intended: bool
) -> HopTLS | None:
    """Returns the TLS of a hop.

    `switch` is the field that turns TLS on. `intended`: an egressMTLS of the server must be intended for this hop, because no
    other hop has TLS either."""
    egress = location.egress or server.egress
    if not enabled:
        return _without_tls(egress, switch) if egress is not None and (location.egress or intended) else None
    options = TLSOptions(alpn=("h2",) if grpc else ())
    if broken := location.broken or server.broken:
        why = f"{broken}, so nginx answered 500"
        return HopTLS(OldLevel.BROKEN, why, names=_names(egress), trust=_trust(egress), options=options)
    if egress is None:
        why = f"{switch} is set without an egressMTLS policy, and nginx does not verify by itself"
        return HopTLS(OldLevel.UNVERIFIED, why, options=options)
    if grpc and location.egress is None:
        why = f"{egress.policy} is a policy of the whole server, where it becomes proxy_ssl_*; for gRPC nginx obeys grpc_ssl_*"
        believed, names = _claimed_level(egress) if egress.verify else None, _names(egress)
        return HopTLS(OldLevel.UNVERIFIED, why, believed, "grpc-not-verified", names, trust=_trust(egress), options=options)
    return _by_policy(egress, msgspec.structs.replace(egress.options, alpn=options.alpn))


def _without_tls(egress: Egress, switch: str) -> HopTLS:
    believed = _claimed_level(egress) if egress.verify else OldLevel.UNVERIFIED
    why = f"{switch} is not set, so {egress.policy} has no effect"
    return HopTLS(OldLevel.PLAINTEXT, why, believed, "egress-without-tls")


def _by_policy(egress: Egress, options: TLSOptions) -> HopTLS:
    names, trust, sni = _names(egress), _trust(egress), egress.name if egress.server_name else ""
    if not egress.verify:
        why = f"verifyServer of {egress.policy} is not set, and false by default"
        believed, reason = (_claimed_level(egress), "ca-was-ignored") if egress.ca else (None, "")
        return HopTLS(OldLevel.UNVERIFIED, why, believed, reason, names, sni, trust, egress.client, options)
    if not egress.name:
        why = f"{egress.policy} has verifyServer without sslName, so the name had to be that of nginx's own upstream"
        return HopTLS(OldLevel.BROKEN, why, None, "", (), "", trust, egress.client, options)
    why = f"{egress.policy} has verifyServer, with sslName {egress.name}"
    return HopTLS(OldLevel.NAME, why, None, "", names, sni, trust, egress.client, options, cn_fallback=True)


def _claimed_level(egress: Egress) -> OldLevel:
    return OldLevel.NAME if egress.name else OldLevel.CHAIN


def _names(egress: Egress | None) -> tuple[Name, ...]:
    return (Name(egress.name),) if egress and egress.name else ()


def _trust(egress: Egress | None) -> tuple[TrustRef, ...]:
    return (egress.ca,) if egress and egress.ca else ()
