"""Lists the releases of the Gateway API that we know, and its features that we implement."""

from __future__ import annotations

import re
from typing import Final

BUNDLE_VERSION: Final = "gateway.networking.k8s.io/bundle-version"
"""The annotation of every CRD of the Gateway API."""
KNOWN_MINORS: Final = range(4, 8)
KNOWN: Final = f"v1.{KNOWN_MINORS[0]} to v1.{KNOWN_MINORS[-1]}"

SUPPORTED_FEATURES: Final = tuple(
    sorted(
        {
            *("Gateway", "HTTPRoute", "GRPCRoute", "ReferenceGrant"),
            *("BackendTLSPolicy", "BackendTLSPolicySANValidation"),
            "GatewayAddressEmpty",
            "GatewayBackendClientCertificate",
            "GatewayFrontendClientCertificateValidation",
            "GatewayFrontendClientCertificateValidationInsecureFallback",
            "GatewayHTTPListenerIsolation",
            "GatewayHTTPSListenerDetectMisdirectedRequests",
            "GatewayInfrastructure",
            "GatewayPort8080",
            "GatewayRouteHostnameIntersectionPrecedence",
            "GatewayStaticAddresses",
            "GRPCRouteNamedRouteRule",
            "GRPCRouteRequestHeaderModifier",
            "HTTPRoute303RedirectStatusCode",
            "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode",
            "HTTPRouteBackendProtocolH2C",
            "HTTPRouteBackendProtocolWebSocket",
            "HTTPRouteBackendRequestHeaderModification",
            "HTTPRouteBackendTimeout",
            "HTTPRouteBackendURLRewrite",
            "HTTPRouteCORS",
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
            "HTTPRouteRetryCodes",
            "HTTPRouteRetryConnectionError",
            "HTTPRouteSchemeRedirect",
            "ListenerSet",
            "TCPRoute",
            "TLSRoute",
            "TLSRouteModeMixed",
            "TLSRouteModeTerminate",
            "UDPRoute",
        }
    )
)
"""The `status.supportedFeatures` of a GatewayClass. The conformance suite selects its tests by them, so a feature is listed
once its tests pass."""


def known(version: str) -> bool:
    """Returns whether we know a bundle version; "" is that of a CRD without the annotation."""
    match = re.match(r"v1\.(\d+)\.\d", version)
    return match is not None and int(match[1]) in KNOWN_MINORS
