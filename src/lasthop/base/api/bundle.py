"""Lists the known releases of the Gateway API, and their names for the features that we implement."""

from __future__ import annotations

import re
from typing import Final

from lasthop.base.api.kinds import GATEWAY_API, KINDS
from lasthop.base.api.meta import Struct

BUNDLE_VERSION: Final = "gateway.networking.k8s.io/bundle-version"
CHANNEL: Final = "gateway.networking.k8s.io/channel"
"""Two annotations of every CRD of the Gateway API."""
KNOWN_MINORS: Final = range(4, 8)
KNOWN: Final = f"v1.{KNOWN_MINORS[0]} to v1.{KNOWN_MINORS[-1]}"


class CrdVersion(Struct, frozen=True):
    """Release and channel of an installed CRD; empty without the annotation."""

    release: str = ""
    channel: str = ""
    unread: str = ""
    """Why its objects cannot be read; empty if they can."""


CrdVersions = tuple[tuple[str, CrdVersion], ...]
"""CRD -> its version, sorted by name."""


class _Change(Struct, frozen=True):
    """The features that a release adds."""

    release: tuple[int, int, int]
    both: tuple[str, ...] = ()
    """Features of both channels, if their CRDs have the kind."""
    experimental: tuple[str, ...] = ()
    """Features that need a field of the experimental channel."""
    gone: tuple[str, ...] = ()


_CHANGES: Final = (
    _Change(
        (1, 4, 0),
        both=(
            *("Gateway", "HTTPRoute", "GRPCRoute", "ReferenceGrant"),
            *("BackendTLSPolicy", "BackendTLSPolicySANValidation"),
            "GatewayAddressEmpty",
            "GatewayHTTPListenerIsolation",
            "GatewayInfrastructurePropagation",
            "GatewayPort8080",
            "GatewayStaticAddresses",
            "GRPCRouteNamedRouteRule",
            "HTTPRouteBackendProtocolH2C",
            "HTTPRouteBackendProtocolWebSocket",
            "HTTPRouteBackendRequestHeaderModification",
            "HTTPRouteBackendTimeout",
            "HTTPRouteDestinationPortMatching",
            "HTTPRouteHostRewrite",
            "HTTPRouteMethodMatching",
            "HTTPRouteNamedRouteRule",
            "HTTPRouteParentRefPort",
            "HTTPRoutePathRedirect",
            "HTTPRoutePathRewrite",
            "HTTPRoutePortRedirect",
            "HTTPRouteQueryParamMatching",
            "HTTPRouteRequestMirror",
            "HTTPRouteRequestMultipleMirrors",
            "HTTPRouteRequestPercentageMirror",
            "HTTPRouteRequestTimeout",
            "HTTPRouteResponseHeaderModification",
            "HTTPRouteSchemeRedirect",
            "TLSRoute",
            "UDPRoute",
        ),
        experimental=("HTTPRouteCORS",),
    ),
    _Change(
        (1, 5, 0),
        both=(
            "GatewayBackendClientCertificate",
            "GatewayFrontendClientCertificateValidation",
            "GatewayFrontendClientCertificateValidationInsecureFallback",
            "GatewayHTTPSListenerDetectMisdirectedRequests",
            "HTTPRoute303RedirectStatusCode",
            "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode",
            "HTTPRouteCORS",
            "ListenerSet",
            "TLSRouteModeMixed",
            "TLSRouteModeTerminate",
        ),
    ),
    _Change(
        (1, 6, 0),
        both=("TCPRoute",),
        experimental=("HTTPRouteRetry", "HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError"),
    ),
    _Change((1, 6, 3), both=("GatewayInfrastructure",), gone=("GatewayInfrastructurePropagation",)),
    _Change(
        (1, 7, 0),
        both=(
            "GatewayRouteHostnameIntersectionPrecedence",
            "GRPCRouteRequestHeaderModifier",
            "HTTPRouteBackendURLRewrite",
            "HTTPRouteRetryCodes",
            "HTTPRouteRetryConnectionError",
        ),
        experimental=("GatewayAddressRoutability", "GatewayAddressRoutabilityCluster", "GatewayListenerFilters"),
        gone=("HTTPRouteRetry", "HTTPRouteRetryBackendTimeout"),
    ),
)
"""The conformance suite of a release selects its tests by these names, so a feature is listed once its tests pass. Features of
v1.7.0 that need an experimental field have no upstream tests yet; our own tests cover them."""

_CRDS: Final = {f"{kind.plural}.{kind.group}": kind.kind for kind in KINDS.values() if kind.group == GATEWAY_API}
_OLDEST, _NEWEST = _CHANGES[0].release, _CHANGES[-1].release


def supported_features(versions: CrdVersions) -> tuple[str, ...]:
    """Returns the features that a GatewayClass may claim with these CRDs; without CRDs, all features of the newest release.

    The name of a feature begins with its kind. A feature is claimed if the CRD of its kind has it.
    """
    if not versions:
        return tuple(sorted(_features(CrdVersion())))
    return tuple(
        sorted(
            feature
            for crd, version in versions
            for feature in _features(version)
            if crd in _CRDS and not version.unread and _kind_of(feature) == _CRDS[crd]
        )
    )


def known(version: str) -> bool:
    release = _release(version)
    return release is not None and release[0] == 1 and release[1] in KNOWN_MINORS


def _features(version: CrdVersion) -> set[str]:
    """Returns the features of all kinds in one release; for an unknown release, those of the nearest known one."""
    release, features = max(_release(version.release) or _NEWEST, _OLDEST), set[str]()
    for change in _CHANGES:
        if change.release <= release:
            features -= {*change.gone}
            features |= {*change.both}
            features |= {*change.experimental} if version.channel != "standard" else set()
    return features


def _kind_of(feature: str) -> str:
    return max((kind for kind in _CRDS.values() if feature.startswith(kind)), key=len, default="Gateway")


def _release(version: str) -> tuple[int, int, int] | None:
    match = re.match(r"v(\d+)\.(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
